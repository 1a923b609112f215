-- Writes the list of runtime/emulator/api.h anew from generator/lua/wrappers.lua:
--   lua5.4 tools/emulator_api.lua
-- A new wrapper also needs a function kiln__emu_NAME in runtime/emulator/; the linker says so.
package.path = "generator/lua/?.lua"
local path = "runtime/emulator/api.h"
local file = assert(io.open(path))
local text = file:read("a")
file:close()
local list = table.concat(require("emulator").api_list(), " \\\n  ")
local head, tail = text:match("^(.*#define KILN_EMU_API%(X%) \\\n).-(\n// clang%-format on.*)$")
assert(head, path .. " has no list")
file = assert(io.open(path, "w"))
file:write(head, "  ", list, tail)
file:close()

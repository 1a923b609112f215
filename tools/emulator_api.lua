-- Writes the list of runtime/emulator/api.h anew from generator/lua/wrappers.lua:
--   lua5.4 tools/emulator_api.lua
-- A new wrapper also needs a function kiln__emu_NAME in runtime/emulator/; the linker says so.
package.path = "generator/lua/?.lua"
local path = "runtime/emulator/api.h"
local file = assert(io.open(path))
local text = file:read("a")
file:close()

-- One member, folded behind a comma where it is longer than a line.
local function folded(member)
  local lines, line = {}, "  "
  for piece in member:gmatch("[^,]+,? ?") do
    if #line + #piece > 96 then lines[#lines + 1], line = line:gsub("%s+$", ""), "    " end
    line = line .. piece
  end
  lines[#lines + 1] = line
  return table.concat(lines, " \\\n")
end

local list = {}
for i, member in ipairs(require("emulator").api_list()) do list[i] = folded(member) end
list = table.concat(list, " \\\n")
local head, tail = text:match("^(.*#define KILN_EMU_API%(X%) \\\n).-(\n// clang%-format on.*)$")
assert(head, path .. " has no list")
file = assert(io.open(path, "w"))
file:write(head, list, tail)
file:close()

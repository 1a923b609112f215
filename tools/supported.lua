-- The table of what is supported, between the marks in README.md, from the generator's own tables.
--   lua5.4 tools/supported.lua          writes it
--   lua5.4 tools/supported.lua check    fails when README.md has another; ends with `N passed, ...`
-- Run from the root of the checkout.
package.path = "generator/lua/?.lua;" .. package.path
local arch = require("arch")
local schema = require("schema")

local BEGIN, END = "<!-- supported: tools/supported.lua -->", "<!-- end -->"

local legal = {} -- legal values of the spec's fields, as text
for _, field in ipairs(schema.fields("spec")) do
  legal[field.name] = field.type == "enum" and table.concat(field.values, ", ")
    or ("multiples of %d to %d"):format(field.multiple, field.max)
end

local rows = {
  "| arch | forward | backward | dtype | head_dim, head_dim_v | mask | "
    .. "shared memory of a block |",
  "|---|---|---|---|---|---|---|",
}
for _, name in ipairs(arch.names()) do
  local row = arch.find(name)
  local families = table.concat(row.families, ", ") .. ", standard"
  local backward = {}
  for i, family in ipairs(row.backward) do backward[i] = family:gsub("_backward$", "") end
  rows[#rows + 1] = ("| `%s` | %s | %s | %s | %s | %s | %d bytes |"):format(name, families,
    table.concat(backward, ", "), legal.dtype, legal.head_dim, legal.mask, row.smem_per_block)
end
local wanted = BEGIN .. "\n" .. table.concat(rows, "\n") .. "\n" .. END

local file = assert(io.open("README.md"))
local text = file:read("a")
file:close()
local first = assert(text:find(BEGIN, 1, true), "README.md has no mark for the table")
local _, last = text:find(END, first, true)
assert(last, "README.md has no end mark for the table")

if arg[1] == "check" then
  local same = text:sub(first, last) == wanted
  if not same then print("README.md's table is stale: run lua5.4 tools/supported.lua") end
  print(same and "1 passed, 0 failed" or "0 passed, 1 failed")
  os.exit(same)
end
local changed = text:sub(1, first - 1) .. wanted .. text:sub(last + 1)
file = assert(io.open("README.md", "w"))
file:write(changed)
file:close()

-- Runs the tests of the generator's Lua with a plain lua5.4, from the root of the checkout:
--   lua5.4 tests/lua/run.lua [NAME...]       NAME: engine, schema, ... ; all without one
-- A test file test_NAME.lua returns a table of functions; one that raises has failed. Prints a line
-- for each failure, then `N passed, N failed`; the exit code is 1 after a failure.
local root = arg[0]:match("^(.*)tests/lua/run%.lua$") or "./"
package.path = root .. "generator/lua/?.lua;" .. root .. "tests/lua/?.lua"
package.preload.host = function() return require("fake_host")(root) end

local function names()
  if #arg > 0 then return { table.unpack(arg) } end
  local found = {}
  local listing = assert(io.popen("ls '" .. root .. "tests/lua'"))
  for file in listing:lines() do found[#found + 1] = file:match("^test_(.+)%.lua$") end
  listing:close()
  return found
end

local passed, failed = 0, 0
for _, name in ipairs(names()) do
  local tests, order = require("test_" .. name), {}
  for test in pairs(tests) do order[#order + 1] = test end
  table.sort(order)
  assert(#order > 0, "test_" .. name .. ".lua holds no test")
  for _, test in ipairs(order) do
    local ok, message = xpcall(tests[test], debug.traceback)
    passed, failed = passed + (ok and 1 or 0), failed + (ok and 0 or 1)
    if not ok then print(("FAILED %s.%s: %s"):format(name, test, message)) end
  end
end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0 and passed > 0)

-- Names what a template's Lua must not reach and does reach: an empty text is the right answer.
local found = {}
for _, name in ipairs({ "io", "os", "package", "debug", "coroutine", "load", "loadfile", "dofile",
                        "print", "collectgarbage", "rawset", "next", "xpcall" }) do
  if pcall(function() return _G[name] end) then found[#found + 1] = name end
end
for _, name in ipairs({ "random", "randomseed" }) do
  if math[name] then found[#found + 1] = name end
end
if string.dump then found[#found + 1] = "dump" end
local outside = { "../outside", "../../../escape",
                  "/etc/passwd", "io", "reach.lua/../x", ".hidden", "" }
for _, module in ipairs(outside) do
  if pcall(require, module) then found[#found + 1] = module end
end
local _, message = require("host").load("\27Lua", "=x", {})
if not message:find("attempt to load a binary chunk", 1, true) then
  found[#found + 1] = "bytecode"
end
return table.concat(found, " ")

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
for _, module in ipairs({ "../../../escape", "/etc/passwd", "io", "reach.lua/../x", ".hidden", "" }) do
  if pcall(require, module) then found[#found + 1] = module end
end
if require("host").load("\27Lua", "=x", {}) then found[#found + 1] = "bytecode" end
return table.concat(found, " ")

-- Runs first in the sandbox and takes away what could make a rendered text depend on the machine,
-- the time or an earlier call, or run past the limits. The tables of os, io, package and debug were
-- never opened. Run by generator/sandbox.c from the library, never from a template directory.
local next, type, error, rawget, set = next, type, error, rawget, setmetatable
local sort = table.sort

for _, name in ipairs({ "collectgarbage", "dofile", "load", "loadfile", "next", "print", "rawset",
                        "warn", "xpcall" }) do
  _G[name] = nil
end
math.random, math.randomseed, string.dump = nil, nil, nil

local function by_kind_and_value(a, b)
  if type(a) ~= type(b) then return type(a) < type(b) end
  return a < b
end

-- Lua's order of keys changes from process to process, so keys come sorted here.
function pairs(t)
  local keys, i = {}, 0
  for key in next, t do keys[#keys + 1] = key end
  sort(keys, by_kind_and_value)
  return function()
    i = i + 1
    local key = keys[i]
    if key ~= nil then return key, t[key] end
  end
end

-- The collector calls finalizers with the instruction count switched off.
function setmetatable(t, meta)
  if type(meta) == "table" and rawget(meta, "__gc") ~= nil then
    error("a metatable may not have __gc here", 2)
  end
  return set(t, meta)
end

set(_G, {
  __index = function(_, key) error(("unknown name '%s'"):format(key), 2) end,
  __newindex = function(_, key) error(("'%s' is not declared"):format(key), 2) end,
  __metatable = false,
})

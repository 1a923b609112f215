-- Canonical JSON: integers, strings, booleans, arrays and objects whose keys come in a stated
-- order, so that one value always gives the same bytes. Used for records and the schema.
local json = {}

local array_mark = {}

-- Marks a table as an array, which an empty one cannot say of itself.
function json.array(list) return setmetatable(list, array_mark) end

local order_of = setmetatable({}, { __mode = "k" })

-- Marks a table as an object whose keys come in this order; further keys follow by name.
function json.object(members, order)
  order_of[members] = order
  return members
end

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t" }

local function quote(text)
  return '"' .. text:gsub('[%c"\\]', function(c)
    return escapes[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

local function keys_of(members)
  local keys, seen = {}, {}
  for _, key in ipairs(order_of[members] or {}) do
    seen[key] = true
    if members[key] ~= nil then keys[#keys + 1] = key end
  end
  local rest = {}
  for key in pairs(members) do
    if not seen[key] then rest[#rest + 1] = key end
  end
  table.sort(rest)
  return table.move(rest, 1, #rest, #keys + 1, keys)
end

local function encode(v)
  if type(v) == "string" then return quote(v) end
  if type(v) == "boolean" then return v and "true" or "false" end
  if math.type(v) == "integer" then return ("%d"):format(v) end
  if type(v) ~= "table" then error("JSON cannot hold " .. (math.type(v) or type(v)), 0) end
  local parts = {}
  if getmetatable(v) == array_mark or #v > 0 then
    for i, item in ipairs(v) do parts[i] = encode(item) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for i, key in ipairs(keys_of(v)) do parts[i] = quote(key) .. ":" .. encode(v[key]) end
  return "{" .. table.concat(parts, ",") .. "}"
end

json.encode = encode

return json

-- json.lua FILE KEY...: succeeds when every line of the file is one JSON object that has the keys.
-- A strict parser, written for the tests so that the program's own library does not judge itself.
local parse

local function skip(s, i) return s:find("[^ \t]", i) or #s + 1 end

local function parse_string(s, i)
  while true do
    local c = s:sub(i, i)
    if c == "" or c:byte() < 0x20 then error("string ends badly at " .. i) end
    if c == '"' then return i + 1 end
    if c == "\\" then
      local escape = s:match('^["\\/bfnrt]', i + 1) or s:match("^u%x%x%x%x", i + 1)
      if not escape then error("bad escape at " .. i) end
      i = i + #escape
    end
    i = i + 1
  end
end

local function parse_number(s, i)
  local whole = s:match("^-?0", i) or s:match("^-?[1-9]%d*", i)
  if not whole then error("no value at " .. i) end
  i = i + #whole
  i = i + #(s:match("^%.%d+", i) or "")
  return i + #(s:match("^[eE][+-]?%d+", i) or "")
end

-- What stands between the brackets, one item after the other.
local function parse_items(s, i, close, item)
  i = skip(s, i)
  if s:sub(i, i) == close then return i + 1 end
  while true do
    i = skip(s, item(skip(s, i)))
    local c = s:sub(i, i)
    if c == close then return i + 1 end
    if c ~= "," then error("expected , or " .. close .. " at " .. i) end
    i = i + 1
  end
end

local function parse_object(s, i, keys)
  return parse_items(s, i + 1, "}", function(at)
    if s:sub(at, at) ~= '"' then error("no key at " .. at) end
    local after = parse_string(s, at + 1)
    local key = s:sub(at + 1, after - 2)
    if keys[key] then error("key " .. key .. " is there twice") end
    keys[key] = true
    local colon = skip(s, after)
    if s:sub(colon, colon) ~= ":" then error("no colon at " .. colon) end
    return parse(s, skip(s, colon + 1))
  end)
end

function parse(s, i)
  local c = s:sub(i, i)
  if c == "{" then return parse_object(s, i, {}) end
  if c == "[" then return parse_items(s, i + 1, "]", function(at) return parse(s, at) end) end
  if c == '"' then return parse_string(s, i + 1) end
  for _, word in ipairs({ "true", "false", "null" }) do
    if s:sub(i, i + #word - 1) == word then return i + #word end
  end
  return parse_number(s, i)
end

local lines = 0
for line in io.lines(arg[1]) do
  lines = lines + 1
  local keys = {}
  assert(line:sub(1, 1) == "{", "line " .. lines .. " is no object")
  assert(parse_object(line, 1, keys) == #line + 1, "line " .. lines .. " goes on after its object")
  for k = 2, #arg do assert(keys[arg[k]], "line " .. lines .. " has no " .. arg[k]) end
end
assert(lines > 0, "there is no line")

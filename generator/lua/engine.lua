-- The template engine. Two constructs: a line `//@ lua` is Lua, `${expr}` inside text is a value.
--
-- One template line becomes exactly one Lua line, so the lines in Lua's own messages are those of
-- the template, without a table that maps them. The rendered text is a function of the template
-- and the values alone. Used by render.lua; the tests bring a reader of their own.
local engine = {}

local MAX_DEPTH = 16 -- of includes: a template that includes itself stops here

-- ---- translation: template text to Lua text ----

-- Index of the quote that closes the string opened at `open`, or nil.
local function string_end(line, open)
  local stop = "[\\" .. line:sub(open, open) .. "]"
  local i = open + 1
  while true do
    i = line:find(stop, i)
    if not i then return nil end
    if line:sub(i, i) ~= "\\" then return i end
    i = i + 2
  end
end

-- Index of the brace that closes an expression beginning at `start`, or nil: braces nest, and
-- those inside strings do not count.
local function brace_end(line, start)
  local depth, i = 1, start
  while true do
    i = line:find("[{}\"']", i)
    if not i then return nil end
    local c = line:sub(i, i)
    if c == "{" then
      depth = depth + 1
    elseif c == "}" then
      depth = depth - 1
      if depth == 0 then return i end
    else
      i = string_end(line, i)
      if not i then return nil end
    end
    i = i + 1
  end
end

-- A text line as a Lua expression: `x = ${n};` gives  "x = " .. _value((n), "n") .. ";"
local function text_expression(line, where)
  if not line:find("${", 1, true) then return ("%q"):format(line) end
  local parts, from = {}, 1
  while true do
    local open = line:find("${", from, true)
    local literal = line:sub(from, (open or 0) - 1)
    if literal ~= "" then parts[#parts + 1] = ("%q"):format(literal) end
    if not open then break end
    local _, close, code = line:find("^([^{}\"']*)}", open + 2) -- most need no look at strings
    if not code then
      close = brace_end(line, open + 2)
      if not close then error(where(), 0) end
      code = line:sub(open + 2, close - 1)
    end
    parts[#parts + 1] = ("_value((%s), %q)"):format(code, code)
    from = close + 1
  end
  return #parts > 0 and table.concat(parts, " .. ") or '""'
end

local function translate(name, text)
  if text:sub(-1) ~= "\n" then text = text .. "\n" end
  local out = {}
  for line in text:gmatch("([^\n]*)\n") do
    if line:sub(-1) == "\r" then line = line:sub(1, -2) end
    local number = #out + 1
    local code = line:find("//@", 1, true) and line:match("^%s*//@(.*)$")
    if not code then
      local function where()
        return ("templates/%s:%d: '${' is not closed on its line"):format(name, number)
      end
      code = "_emit(" .. number .. ", " .. text_expression(line, where) .. ")"
    end
    out[number] = code
  end
  -- The names that the emitted lines use are arguments of the chunk, declared on its first line.
  return "local _emit, _value = ...; " .. table.concat(out, "\n")
end

-- ---- values ----

-- A float literal that survives the way to the compiler and back. 1 -> "1.0f".
local function f32(x)
  if math.type(x) == nil then error("f32 needs a number, not a " .. type(x), 2) end
  if x ~= x or x == math.huge or x == -math.huge then error("f32 cannot write " .. x, 2) end
  local text = ("%.9g"):format(x)
  if not text:find("[.e]") then text = text .. ".0" end
  return text .. "f"
end

-- Text of one `${expr}`. A float is refused because tostring would choose its digits.
local function value(v, code)
  if type(v) == "string" then return v end
  if math.type(v) == "integer" then return ("%d"):format(v) end
  if type(v) == "number" then
    error(("${%s} is an unformatted float: write ${f32(%s)}"):format(code, code), 2)
  end
  local kind = v == nil and "nil" or "a " .. type(v)
  error(("${%s} is %s, not text or an integer"):format(code, kind), 2)
end

-- Where the names of Lua's own that a template may use come from. No tostring: see value().
local builtins = {
  assert = assert, error = error, ipairs = ipairs, pairs = pairs, select = select, type = type,
  math = math, string = string, table = table, f32 = f32,
}

-- ---- rendering ----

-- Writes text lines and, where the compiler would count another line, a #line before them.
local function emitter(state, name)
  local out = state.out
  local file = ' "/kiln/templates/' .. name .. '"'
  return function(line, text)
    if state.directives and (state.line ~= line or state.name ~= name) and text:find("%S") then
      out[#out + 1] = "#line " .. line .. file
      state.line, state.name = line, name
    end
    out[#out + 1] = text
    state.line = state.line + 1
    if text:find("\n", 1, true) then
      local _, breaks = text:gsub("\n", "")
      state.line = state.line + breaks
    end
  end
end

-- An engine with its templates. read(name) gives a template's text or nil; load(code, chunk, env)
-- gives a function or nil and a message, and accepts text alone. Templates are translated once.
function engine.new(read, load)
  local chunks = {}
  local state -- of the render under way
  local env = setmetatable({}, {
    __index = function(_, key)
      local v = state.values[key]
      if v == nil then v = builtins[key] end
      if v == nil then error(("unknown name '%s'"):format(key), 2) end
      return v
    end,
    __newindex = function(_, key)
      error(("'%s' is not declared: write 'local %s'"):format(key, key), 2)
    end,
  })

  local function chunk_of(name, level)
    if chunks[name] then return chunks[name] end
    local text = read(name)
    if not text then error(("there is no template '%s'"):format(name), level + 1) end
    local chunk, message = load(translate(name, text), "@templates/" .. name, env)
    if not chunk then error(message, 0) end
    chunks[name] = chunk
    return chunk
  end

  local function include(name)
    if type(name) ~= "string" then error("include needs the name of a template", 2) end
    if state.depth >= MAX_DEPTH then
      error(("include of '%s' is nested deeper than %d"):format(name, MAX_DEPTH), 2)
    end
    local chunk = chunk_of(name, 2)
    state.depth = state.depth + 1
    chunk(emitter(state, name), value)
    state.depth = state.depth - 1
  end

  local self = {}

  -- The text of a template. values: the names it may use. plain: no #line.
  function self.render(name, values, plain)
    local own = setmetatable({ include = include }, { __index = values })
    state = { values = own, out = {}, directives = not plain, line = 0, depth = 1 }
    chunk_of(name, 1)(emitter(state, name), value)
    local text = table.concat(state.out, "\n") .. "\n"
    state = nil
    return text
  end

  return self
end

engine.f32 = f32

return engine

-- Manifests of packs: a Lua chunk that returns a list of rows, each a selection of kernels by the
-- fields of the schema (docs/pack.md). Called by generator/manifest.c, in a sandbox that ends with
-- the manifest, so that nothing a manifest does outlives it.
--
-- The chunk sees plain values and what computes them, and none of Lua's pattern functions: those
-- can run for hours inside one instruction, where no limit sees them.
local host = require("host")
local schema = require("schema")

local manifest = {}

local MOST_ROWS, MOST_KERNELS = 1024, 4096 -- rows; combinations, before any is refused

local function pick(library, names)
  local picked = {}
  for name in names:gmatch("%S+") do picked[name] = library[name] end
  return picked
end

local function environment()
  local env = pick(_G, "assert error ipairs pairs select tonumber tostring type")
  env.string = pick(string, "byte char format len lower rep sub upper")
  env.table = pick(table, "concat insert remove sort unpack")
  env.math = pick(math, "abs ceil floor fmod huge max maxinteger min mininteger sqrt tointeger " ..
    "type")
  return setmetatable(env, {
    __index = function(_, key) error(("unknown name '%s'"):format(tostring(key)), 2) end,
    __newindex = function(_, key)
      error(("'%s' is not declared: write 'local %s'"):format(tostring(key), tostring(key)), 2)
    end,
  })
end

-- What the chunk returned. The methods of strings are those of its own `string`.
local function run(text, name)
  local env = environment()
  local chunk, message = host.load(text, "@" .. name, env)
  if not chunk then error(message, 0) end
  local methods = getmetatable("")
  methods.__index = env.string
  local rows = chunk()
  methods.__index = string
  return rows
end

-- ---- rows ----

local groups = { schema.fields("spec"), schema.fields("tile") }

local function describe(value)
  if type(value) == "string" then return ("'%s'"):format(value:sub(1, 40)) end
  if type(value) == "number" then return ("%.14g"):format(value) end
  return "a " .. type(value)
end

-- Whether the keys of `list` are 1 to #list, and if not, one that is none of them.
local function is_list(list)
  local count = #list
  for key in pairs(list) do
    if math.type(key) ~= "integer" or key < 1 or key > count then return false, key end
  end
  return true
end

-- A value as C stores it, or nil, a sentence and its kind.
local function encode(field, value)
  local text
  if field.type == "enum" then
    text = type(value) == "string" and value ~= "" and value
  else
    local whole = type(value) == "number" and math.tointeger(value)
    text = whole and ("%d"):format(whole)
  end
  if text then return schema.set(field.group, field.name, text) end
  local wanted = field.type == "enum" and "a name in quotes" or "a whole number"
  return nil, ("%s is %s and not %s"):format(field.name, describe(value), wanted), "invalid"
end

-- The values of a field that a row leaves out: as on the command line.
local function legal_values(field)
  if field.default == 0 or field.name == "pass" then return { field.default } end
  if field.values then return field.values end
  local values = {}
  for value = field.min, field.max, field.multiple do values[#values + 1] = value end
  return values
end

-- The values of one field in one row, as C stores them.
local function axis_of(field, given)
  local values = given
  if given == nil then
    values = legal_values(field)
  elseif type(given) ~= "table" then
    values = { given }
  elseif not is_list(given) or #given == 0 or #given > MOST_KERNELS then
    local sentence = "%s is neither a value nor a list of 1 to %d values"
    return nil, sentence:format(field.name, MOST_KERNELS), "invalid"
  end
  local axis = { field = field }
  for i, value in ipairs(values) do
    local encoded, sentence, kind = encode(field, value)
    if encoded == nil then return nil, sentence, kind end
    axis[i] = encoded
  end
  return axis
end

local function check_names(row)
  local known = {}
  for _, fields in ipairs(groups) do
    for _, field in ipairs(fields) do known[field.name], known[#known + 1] = true, field.name end
  end
  for key in pairs(row) do
    if type(key) ~= "string" or not known[key] then
      local sentence = "there is no field %s; the fields are %s"
      return nil, sentence:format(describe(key), table.concat(known, ", ")), "invalid"
    end
  end
  return true
end

-- The axes of a row and whether some field that it leaves out stands for several values.
local function axes_of(row)
  if type(row) ~= "table" then
    return nil, ("is %s and not a table of fields"):format(describe(row)), "invalid"
  end
  local ok, sentence, kind = check_names(row)
  if not ok then return nil, sentence, kind end
  local axes, open = {}, false
  for _, fields in ipairs(groups) do
    for _, field in ipairs(fields) do
      local axis
      axis, sentence, kind = axis_of(field, row[field.name])
      if not axis then return nil, sentence, kind end
      axes[#axes + 1] = axis
      open = open or row[field.name] == nil and #axis > 1
    end
  end
  return axes, open
end

-- Adds every combination of the axes to `kernels`, the last axis turning fastest.
local function expand(axes, open, number, kernels)
  local product = 1
  for _, axis in ipairs(axes) do
    product = product * #axis
    if #kernels + product > MOST_KERNELS then return false end
  end
  for index = 0, product - 1 do
    local members, rest = { spec = {}, tile = {} }, index
    for i = #axes, 1, -1 do
      local axis = axes[i]
      members[axis.field.group][axis.field.name] = axis[rest % #axis + 1]
      rest = rest // #axis
    end
    members.row, members.open = number, open
    kernels[#kernels + 1] = members
  end
  return true
end

local function check_rows(rows)
  if type(rows) ~= "table" then
    return "the manifest returns " .. (rows == nil and "nothing" or describe(rows)) ..
      " and not a list of rows: end it with return { { arch = 'sm_90a', head_dim = 128 } }"
  end
  local ok, key = is_list(rows)
  if not ok then
    return ("the list of rows has the key %s: write each row in braces of its own")
      :format(describe(key))
  end
  if #rows == 0 then return "the manifest selects nothing: its list of rows is empty" end
  if #rows > MOST_ROWS then return ("the manifest has more than %d rows"):format(MOST_ROWS) end
end

-- Every kernel that a manifest's rows name, unresolved, as { spec, tile, row, open }; or a refusal.
function manifest.read(text, name)
  local rows = run(text, name)
  local wrong = check_rows(rows)
  if wrong then return nil, wrong, "invalid" end
  local kernels = {}
  for number, row in ipairs(rows) do
    local axes, open, kind = axes_of(row)
    if not axes then return nil, ("row %d: %s"):format(number, open), kind end
    if not expand(axes, open, number, kernels) then
      local sentence = "row %d: the manifest names more than %d kernels with it; give shorter lists"
      return nil, sentence:format(number, MOST_KERNELS), "invalid"
    end
  end
  return kernels
end

-- One kernel as JSON, with the names of the schema in its order.
function manifest.describe(raw_spec, raw_tile)
  local parts = {}
  for i, members in ipairs({ schema.decode("spec", raw_spec), schema.decode("tile", raw_tile) }) do
    for _, field in ipairs(groups[i]) do
      local form = field.type == "enum" and '"%s":"%s"' or '"%s":%d'
      parts[#parts + 1] = form:format(field.name, members[field.name])
    end
  end
  return "{" .. table.concat(parts, ",") .. "}"
end

return manifest

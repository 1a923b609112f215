-- Every spec and tile field once: the command line, the documentation and the C side's checks
-- follow from these rows. C passes enums as numbers; inside Lua they are names.
--
-- A refusal is returned as nil, a sentence and its kind: "invalid" (the value is out of its range)
-- or "unsupported" (it has a meaning, but no kernel is built for it yet).
local arch = require("arch")
local json = require("json")

local schema = {}

-- numbers: those of the C enum. values: what is legal now. refused: names that have a number and
-- are not legal, with the reason. zero: what 0 means where it is legal. late: records,
-- headers and commands name it only where it is not its default, so that what was made before it
-- came stays as it is.
local fields = {
  {
    group = "spec", name = "arch", type = "enum", default = "", values = arch.names(),
    flag = "--arch", sentence = "Architecture to generate for; empty is the best of the device.",
  },
  {
    group = "spec", name = "pass", type = "enum", default = "forward",
    values = { "forward", "backward" }, numbers = { forward = 0, backward = 1 },
    flag = "--pass", sentence = "forward: the attention itself; backward: its gradients.",
  },
  {
    group = "spec", name = "algorithm", type = "enum", default = "flash",
    values = { "flash", "standard" }, numbers = { flash = 0, standard = 1 },
    flag = "--algorithm",
    sentence = "flash: tiled with an online softmax; standard: scores in global memory, "
      .. "forward alone.",
  },
  {
    group = "spec", name = "dtype", type = "enum", default = "bf16", values = { "fp16", "bf16" },
    numbers = { fp16 = 0, bf16 = 1, e4m3 = 2, fp32 = 3 },
    refused = { e4m3 = "is not built yet", fp32 = "is for outputs and statistics alone" },
    flag = "--dtype", sentence = "Type of q, k, v and o, and of their gradients.",
  },
  {
    group = "spec", name = "head_dim", type = "int", default = 128, min = 8, max = 256,
    multiple = 8, flag = "--head-dim", sentence = "Columns of q and k.",
  },
  {
    group = "spec", name = "head_dim_v", type = "int", default = 0, min = 8, max = 256,
    multiple = 8, zero = "0 takes head_dim", flag = "--head-dim-v",
    sentence = "Columns of v and o; 0 takes head_dim.",
  },
  {
    group = "spec", name = "mask", type = "enum", default = "none", values = { "none", "causal" },
    numbers = { none = 0, causal = 1 },
    flags = { { flag = "--causal", value = "causal" }, { flag = "--no-causal", value = "none" } },
    sentence = "Which keys a query sees; causal is aligned at the bottom right.",
  },
  {
    group = "spec", name = "deterministic", type = "int", default = 0, min = 0, max = 1,
    multiple = 1, late = true,
    flags = { { flag = "--deterministic", value = 1 }, { flag = "--no-deterministic", value = 0 } },
    sentence = "Backward: dq, too, has the same bits in every run; it takes longer.",
  },
  {
    group = "tile", name = "block_m", type = "int", default = 0, min = 16, max = 256,
    multiple = 16, zero = "0 leaves the choice to Kiln", flag = "--block-m",
    sentence = "Query rows that are worked on at a time.",
  },
  {
    group = "tile", name = "block_n", type = "int", default = 0, min = 8, max = 256,
    multiple = 8, zero = "0 leaves the choice to Kiln", flag = "--block-n",
    sentence = "Key rows that are worked on at a time.",
  },
  {
    group = "tile", name = "num_stages", type = "int", default = 0, min = 1, max = 8,
    multiple = 1, zero = "0 leaves the choice to Kiln", flag = "--num-stages",
    sentence = "Depth of the ring of blocks: keys and values; backward, queries and do.",
  },
  {
    group = "tile", name = "num_warps", type = "int", default = 0, min = 1, max = 16,
    multiple = 1, zero = "0 leaves the choice to Kiln", flag = "--num-warps",
    sentence = "Warps of a block, producers included.",
  },
}

local groups = { spec = {}, tile = {} } -- rows in order and by name
for _, field in ipairs(fields) do
  local group = groups[field.group]
  group[#group + 1] = field
  group[field.name] = field
end

-- ---- sentences ----

local function listed(words)
  if #words < 2 then return words[1] end
  return table.concat(words, ", ", 1, #words - 1) .. " and " .. words[#words]
end

local function legal(field)
  if field.type == "enum" then
    return ("legal %s %s"):format(#field.values > 1 and "are" or "is", listed(field.values))
  end
  local zero = field.zero and "; " .. field.zero or ""
  if field.multiple == 1 then
    return ("legal are %d to %d"):format(field.min, field.max) .. zero
  end
  return ("legal are the multiples of %d up to %d"):format(field.multiple, field.max) .. zero
end

local function nearest(field, value)
  local function clamp(x) return math.max(field.min, math.min(field.max, x)) end
  local below = clamp(value // field.multiple * field.multiple)
  local above = clamp(-(-value // field.multiple) * field.multiple)
  if below == above then return ("the nearest legal value is %d"):format(below) end
  return ("the nearest legal values are %d and %d"):format(below, above)
end

local function out_of_range(field, value)
  local rule = ("is not a multiple of %d up to %d"):format(field.multiple, field.max)
  if field.multiple == 1 then rule = ("is not within %d to %d"):format(field.min, field.max) end
  local zero = field.zero and "; " .. field.zero or ""
  return ("%s %d %s; %s%s"):format(field.name, value, rule, nearest(field, value), zero)
end

-- ---- checks ----

local function contains(list, value)
  for _, item in ipairs(list) do
    if item == value then return true end
  end
  return false
end

local function check_enum(field, name)
  if contains(field.values, name) or name == field.default then return name end
  local reason = field.refused and field.refused[name]
  if reason then
    return nil, ("%s %s %s; %s"):format(field.name, name, reason, legal(field)), "unsupported"
  end
  return nil, ("%s '%s' is unknown; %s"):format(field.name, name, legal(field)), "invalid"
end

local function check_int(field, value)
  if value == 0 and field.zero then return value end
  local within = value >= field.min and value <= field.max
  if within and value % field.multiple == 0 then return value end
  return nil, out_of_range(field, value), "invalid"
end

local function check(field, value)
  return (field.type == "enum" and check_enum or check_int)(field, value)
end

-- The value of a field, of which those that came late may be left out.
local function value_of(field, members)
  local value = members[field.name]
  if value == nil and field.late then return field.default end
  return value
end

-- Checks every field of a spec or tile; true, or a refusal.
function schema.check(group, members)
  for _, field in ipairs(groups[group]) do
    local ok, sentence, kind = check(field, value_of(field, members))
    if ok == nil then return nil, sentence, kind end
  end
  return true
end

local function parse_int(field, text)
  local value = text:match("^[+-]?%d+$") and math.tointeger(tonumber(text))
  if value then return value end
  local sentence = ("%s '%s' is not a whole number; %s"):format(field.name, text, legal(field))
  return nil, sentence, "invalid"
end

-- The value of one field from its text, as C stores it: a number, or the text of arch.
function schema.set(group, name, text)
  local field = groups[group][name]
  if not field then
    local known = {}
    for i, row in ipairs(groups[group]) do known[i] = row.name end
    local sentence = "a %s has no field '%s'; its fields are %s"
    return nil, sentence:format(group, name, listed(known)), "invalid"
  end
  local value, sentence, kind = text, nil, nil
  if field.type == "int" then value, sentence, kind = parse_int(field, text) end
  if value then value, sentence, kind = check(field, value) end
  if value == nil then return nil, sentence, kind end
  return field.numbers and field.numbers[value] or value
end

-- ---- C's numbers and Lua's names ----

local function name_of(field, number)
  for name, n in pairs(field.numbers) do
    if n == number then return name end
  end
end

-- A spec or tile as C holds it, with enums by name; or a refusal.
function schema.decode(group, raw)
  local members = {}
  for _, field in ipairs(groups[group]) do
    local value = value_of(field, raw)
    if field.numbers then
      value = name_of(field, value)
      if not value then
        local sentence = ("%s %d is unknown; %s"):format(field.name, raw[field.name], legal(field))
        return nil, sentence, "invalid"
      end
    end
    members[field.name] = value
  end
  return members
end

function schema.encode(group, members)
  local raw = {}
  for _, field in ipairs(groups[group]) do
    local value = value_of(field, members)
    raw[field.name] = field.numbers and field.numbers[value] or value
  end
  return raw
end

-- ---- descriptions ----

-- Rows of a group in order, for those who walk over the fields.
function schema.fields(group) return groups[group] end

-- Names of a group's fields in order: the key order of records.
function schema.names(group)
  local names = {}
  for i, field in ipairs(groups[group]) do names[i] = field.name end
  return names
end

-- Names of the fields that records and headers have, in order: of those that came late the ones
-- that are not at their default.
function schema.written(group, members)
  local names = {}
  for _, field in ipairs(groups[group]) do
    local silent = field.late and value_of(field, members) == field.default
    if not silent then names[#names + 1] = field.name end
  end
  return names
end

-- The flags that ask for these members, for the command in a source's header. head_dim_v is left
-- out where it equals head_dim, and so is what the command line takes by default.
function schema.flags(group, members)
  local words = {}
  for _, field in ipairs(groups[group]) do
    local value = value_of(field, members)
    local silent = value == field.default and field.name ~= "dtype" and field.name ~= "head_dim"
    if field.name == "head_dim_v" then silent = value == members.head_dim end
    for _, choice in ipairs(field.flags or {}) do
      if choice.value == value and not silent then words[#words + 1] = choice.flag end
    end
    if field.flag and not silent then words[#words + 1] = field.flag .. " " .. value end
  end
  return words
end

local field_order = { "group", "name", "type", "default", "values", "numbers", "min", "max",
                      "multiple", "flag", "flags", "sentence" }
local arch_order = { "name", "families", "smem_per_block", "smem_per_sm", "registers_per_sm",
                     "registers_per_thread", "warps_per_sm", "max_cluster" }

-- Every field and every architecture as one JSON object: what kiln_schema gives.
function schema.describe()
  local rows, archs = json.array({}), json.array({})
  for i, field in ipairs(fields) do
    local row = {}
    for _, key in ipairs(field_order) do row[key] = field[key] end
    for k, choice in ipairs(field.flags or {}) do
      row.flags = k == 1 and json.array({}) or row.flags
      row.flags[k] = { flag = choice.flag, value = ("%s"):format(choice.value) }
    end
    if field.numbers then
      row.numbers = json.array({})
      for k, name in ipairs(field.values) do row.numbers[k] = field.numbers[name] end
    end
    rows[i] = json.object(row, field_order)
  end
  for i, name in ipairs(arch.names()) do
    local row = {}
    for _, key in ipairs(arch_order) do row[key] = arch[name][key] end
    archs[i] = json.object(row, arch_order)
  end
  return json.encode(json.object({ fields = rows, archs = archs }, { "fields", "archs" }))
end

return schema

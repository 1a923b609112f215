-- What the C side calls (generator/generator.c). Specs and tiles arrive and leave as C holds them,
-- with enums as numbers; a refusal is nil, a sentence and its kind (schema.lua).
local render = require("render")
local schema = require("schema")

local api = { set = schema.set, schema = schema.describe }

local function decoded(raw_spec, raw_tile)
  local spec, sentence, kind = schema.decode("spec", raw_spec)
  if not spec then return nil, sentence, kind end
  return spec, schema.decode("tile", raw_tile)
end

function api.resolve(raw_spec, raw_tile)
  local spec, tile, kind = decoded(raw_spec, raw_tile)
  if spec then spec, tile, kind = render.resolve(spec, tile) end
  if not spec then return nil, tile, kind end
  return schema.encode("spec", spec), schema.encode("tile", tile)
end

function api.render(raw_spec, raw_tile, plain, emulator, launcher)
  local spec, tile, kind = decoded(raw_spec, raw_tile)
  if not spec then return nil, tile, kind end
  return render.render(spec, tile, { plain = plain, emulator = emulator, launcher = launcher })
end

-- All tiles that are legal for a spec: an array of C's tiles.
function api.tiles(raw_spec)
  local spec, sentence, kind = schema.decode("spec", raw_spec)
  if not spec then return nil, sentence, kind end
  local list
  list, sentence, kind = render.tiles(spec)
  if not list then return nil, sentence, kind end
  for i, tile in ipairs(list) do list[i] = schema.encode("tile", tile) end
  return list
end

-- The parts of a launch's predicted time by name, in microseconds.
function api.predict(raw_spec, raw_tile, sizes, num_sms)
  local spec, tile, kind = decoded(raw_spec, raw_tile)
  if not spec then return nil, tile, kind end
  return render.predict(spec, tile, sizes, num_sms)
end

-- Names of the fields of a struct, in order: the C side's table is tested against it.
function api.fields(group) return table.concat(schema.names(group), " ") end

return api

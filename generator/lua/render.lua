-- Spec and tile in; rendered text, source id and launch record out. Everything here is a function
-- of its arguments: the same spec and tile give the same bytes on every machine, at any time.
-- Refusals are returned as in schema.lua; an error is a fault of a template or a family.
-- Called by api.lua for the C side.
local arch = require("arch")
local cuda_prelude = require("cuda_prelude")
local engine = require("engine")
local host = require("host")
local json = require("json")
local launcher = require("launcher")
local schema = require("schema")
local tiles = require("tiles")
local wrapper_set = require("wrapper_set")

local render = {}

local templates = engine.new(host.template, host.load)

-- ---- resolve: fill in, or refuse ----

-- The family that serves a spec. The first one's reason is given when none does.
local function family_of(spec, arch_row)
  local names = spec.pass == "backward" and arch_row.backward or arch_row.families
  local first_reason
  if spec.algorithm == "standard" then names = { "standard" } end
  for _, name in ipairs(names) do
    local family = require(name)
    local ok, reason = family.serves(spec, arch_row)
    if ok then return family end
    first_reason = first_reason or reason
  end
  first_reason = first_reason or ("%s has no backward kernels"):format(arch_row.name)
  return nil, first_reason, "unsupported"
end

local function filled(tile, default)
  local out = {}
  for _, name in ipairs(schema.names("tile")) do
    out[name] = tile[name] ~= 0 and tile[name] or default[name]
  end
  return out
end

local function given(tile)
  local wanted = {}
  for _, name in ipairs(schema.names("tile")) do
    if tile[name] ~= 0 then wanted[name] = tile[name] end
  end
  return wanted
end

-- A complete and legal tile that keeps every field that was given. Where the family's own default
-- does not go with them, the family is asked for one that does.
local function choose_tile(family, spec, tile, arch_row)
  local chosen = filled(tile, family.default_tile(spec, arch_row))
  local ok, sentence = family.check(spec, chosen, arch_row)
  if ok then return chosen end
  local other = family.default_tile(spec, arch_row, given(tile))
  if other then
    chosen = filled(tile, other)
    ok, sentence = family.check(spec, chosen, arch_row)
    if ok then return chosen end
  end
  return nil, sentence, "invalid"
end

local function resolve(spec, tile)
  local ok, sentence, kind = schema.check("spec", spec)
  if ok then ok, sentence, kind = schema.check("tile", tile) end
  if not ok then return nil, sentence, kind end
  if spec.arch == "" then return nil, "arch is empty and there is no device to ask", "invalid" end
  local whole = {}
  for name, value in pairs(spec) do whole[name] = value end
  if whole.pass == "forward" then whole.deterministic = 0 end -- every one is
  if whole.head_dim_v == 0 then whole.head_dim_v = whole.head_dim end
  local arch_row = arch.find(whole.arch)
  local family
  family, sentence, kind = family_of(whole, arch_row)
  if not family then return nil, sentence, kind end
  local chosen
  chosen, sentence, kind = choose_tile(family, whole, tile, arch_row)
  if not chosen then return nil, sentence, kind end
  return { spec = whole, tile = chosen, arch = arch_row, family = family }
end

-- The spec and the tile with every field filled, or a refusal.
function render.resolve(spec, tile)
  local kernel, sentence, kind = resolve(spec, tile)
  if not kernel then return nil, sentence, kind end
  return kernel.spec, kernel.tile
end

-- ---- for the tuner ----

-- Every legal tile of a spec, or a refusal.
function render.tiles(spec)
  local open = {}
  for _, name in ipairs(schema.names("tile")) do open[name] = 0 end
  local kernel, sentence, kind = resolve(spec, open)
  if not kernel then return nil, sentence, kind end
  return tiles.list(kernel.family, kernel.spec, kernel.arch)
end

-- The parts of a launch's predicted time, or a refusal. num_sms 0 = those of a usual device.
function render.predict(spec, tile, sizes, num_sms)
  local kernel, sentence, kind = resolve(spec, tile)
  if not kernel then return nil, sentence, kind end
  if num_sms == 0 then num_sms = kernel.arch.num_sms end
  return tiles.predict(kernel.family, kernel.spec, kernel.tile, kernel.arch, sizes, num_sms)
end

-- ---- the launch record ----

local record_order = { "format", "kiln", "family", "layout", "align", "spec", "tile", "workspace",
                       "maps", "entries", "smem" }
local entry_order = { "name", "threads", "cluster", "shared_bytes", "persistent", "grid", "params" }
local item_order = { "name", "bytes", "dims", "zero" }
local map_order = { "box_rows", "box_cols", "swizzle" }
local smem_order = { "name", "offset", "bytes" }

local function list_of(items, order)
  local out = json.array({})
  for i, item in ipairs(items or {}) do out[i] = json.object(item, order) end
  return out
end

local function entry_with_defaults(entry)
  local out = { cluster = 1, shared_bytes = 0, persistent = 0 }
  for key, value in pairs(entry) do out[key] = value end
  json.array(out.grid)
  json.array(out.params)
  return out
end

local function item_with_defaults(item)
  return { name = item.name, bytes = item.bytes, dims = json.array(item.dims or {}),
           zero = item.zero or false }
end

local function mapped(items, change)
  local out = {}
  for i, item in ipairs(items or {}) do out[i] = change(item) end
  return out
end

-- The members that a record says, in order.
local function written(group, members)
  local out, names = {}, schema.written(group, members)
  for _, name in ipairs(names) do out[name] = members[name] end
  return json.object(out, names)
end

-- The family's part with what is left to defaults, in the key order of the format.
local function complete_record(kernel)
  local own = kernel.family.record(kernel.spec, kernel.tile, kernel.arch)
  local maps = {}
  for name, map in pairs(own.maps or {}) do maps[name] = json.object(map, map_order) end
  return json.object({
    format = 1,
    kiln = host.version,
    family = kernel.family.name,
    layout = own.layout or "forward.1",
    align = own.align or 16,
    spec = written("spec", kernel.spec),
    tile = written("tile", kernel.tile),
    workspace = list_of(mapped(own.workspace, item_with_defaults), item_order),
    maps = json.object(maps, { "q", "k", "v", "o", "do", "dq", "dk", "dv" }),
    entries = list_of(mapped(own.entries, entry_with_defaults), entry_order),
    smem = list_of(own.smem, smem_order),
  }, record_order)
end

local function check_record(kernel, record)
  for _, entry in ipairs(record.entries) do
    if entry.shared_bytes > kernel.arch.smem_per_block then
      error(("family %s let %d bytes of shared memory pass; %s has %d a block"):format(
        kernel.family.name, entry.shared_bytes, kernel.arch.name, kernel.arch.smem_per_block), 0)
    end
  end
end

-- ---- the text ----

local function assignments(group, members)
  local words = {}
  for i, name in ipairs(schema.written(group, members)) do
    words[i] = name .. "=" .. members[name]
  end
  return table.concat(words, " ")
end

local function command(kernel, options)
  local words = schema.flags("spec", kernel.spec)
  table.move(schema.flags("tile", kernel.tile), 1, 99, #words + 1, words)
  if options.plain then words[#words + 1] = "--plain" end
  return "kiln generate " .. table.concat(words, " ")
end

-- The lines above the text, each a comment: what the source id does not cover.
local function header(kernel, record, source_id, options)
  local shared = 0
  for _, entry in ipairs(record.entries) do shared = math.max(shared, entry.shared_bytes) end
  local lines = {
    ("kiln %s  do not edit"):format(host.version),
    command(kernel, options),
    "source id " .. source_id,
    "family " .. kernel.family.name .. (options.emulator and ", for the emulator" or ""),
    "spec " .. assignments("spec", kernel.spec),
    "tile " .. assignments("tile", kernel.tile),
    ("shared memory %d of %d bytes"):format(shared, kernel.arch.smem_per_block),
  }
  if #record.smem > 0 then lines[#lines + 1] = "   offset     bytes  region" end
  for _, region in ipairs(record.smem) do
    lines[#lines + 1] = ("  %7d  %8d  %s"):format(region.offset, region.bytes, region.name)
  end
  return "// " .. table.concat(lines, "\n// ") .. "\n"
end

local function around(kernel_text, entries, options)
  local wrappers = require("wrappers")
  if options.emulator then
    local emulator = require("emulator")
    local rows = wrapper_set.select(wrappers, kernel_text, "emu")
    return emulator.prelude(rows, entries) .. kernel_text
      .. emulator.postlude(entries, kernel_text, rows)
  end
  local rows, words = wrapper_set.select(wrappers, kernel_text, "cuda")
  return cuda_prelude.prelude(rows, entries, words) .. kernel_text
end

-- The text, its source id and its launch record, or a refusal. The source id is the SHA-256 of
-- what follows the header. options: plain (no #line), emulator (for the emulator, not for CUDA),
-- launcher (in place of the kernel's text, that of a C file which launches it).
function render.render(spec, tile, options)
  local kernel, sentence, kind = resolve(spec, tile)
  if not kernel then return nil, sentence, kind end
  local family = kernel.family
  local values = family.values(kernel.spec, kernel.tile, kernel.arch)
  local record = complete_record(kernel)
  check_record(kernel, record)
  local kernel_text = templates.render(family.template, values, options.plain)
  local body = "\n" .. around(kernel_text, record.entries, options)
  local source_id = host.sha256(body)
  if options.launcher then
    local own = launcher.values(record, source_id, command(kernel, options))
    return templates.render(launcher.template, own, true), source_id, json.encode(record)
  end
  return header(kernel, record, source_id, options) .. body, source_id, json.encode(record)
end

return render

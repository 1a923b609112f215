-- ampere.lua: the kernel family of mma.sync and cp.async: FlashAttention-2's schedule, with the
-- warps split over query rows. Called by render.lua, as docs/architecture.md tells of families.
--
-- Invariant: check() is arithmetic on shared memory and registers only, and whatever it accepts
-- renders and runs right.

local layout = require("layout")
local dtypes = require("dtype")

local ampere = { name = "ampere", template = "forward/ampere.tmpl.cu" }

-- Preferred tiles: { block_m, block_n, num_stages, num_warps } where head_dim and head_dim_v are at
-- most `upto`. The default is the first of which a multiprocessor holds two blocks, otherwise the
-- first legal one. docs/performance.md has what was measured.
local preferred = {
  { upto = { 64, 64 }, { 128, 64, 2, 4 }, { 128, 32, 2, 4 } },
  { upto = { 256, 128 }, { 128, 32, 3, 4 }, { 128, 32, 2, 4 }, { 128, 32, 1, 4 },
    { 64, 32, 1, 4 } },
  { upto = { 256, 256 }, { 64, 64, 1, 4 }, { 64, 32, 1, 4 } },
}

-- Where the assembler spills with the tiles above; tried before them. Found by
-- tests/nvrtc_matrix.lua. head_dim and head_dim_v: the least and the most.
local wide_values = { head_dim = { 64, 64 }, head_dim_v = { 256, 256 }, { 64, 64, 1, 4 } }
local instead = {
  sm_80 = { { head_dim = { 192, 192 }, head_dim_v = { 128, 128 }, { 128, 16, 2, 4 } } },
  sm_86 = { wide_values },
  sm_89 = { wide_values },
  sm_120 = {
    { head_dim = { 1, 64 }, head_dim_v = { 56, 64 }, { 128, 32, 2, 4 } },
    { head_dim = { 56, 64 }, head_dim_v = { 1, 64 }, { 128, 32, 2, 4 } },
    { head_dim = { 120, 120 }, head_dim_v = { 120, 120 }, { 128, 16, 2, 4 } },
  },
}

-- Scores and outputs that a thread may keep: about 56 registers remain for fragments, the state of
-- the rows and addresses. With held queries, whose fragments are read once, fewer must do: above
-- this the assembler spills (head_dim 88 and more).
local MAX_LIVE, MAX_HELD = 200, 160

-- Scores are computed 32 keys at a time where the queries stay in registers, else for a block.
local SLICE = 32

-- Who computes what. A warp has 16 or 32 rows; where 32 rows of o would not fit its registers, two
-- warps share 32 rows, half of the keys and half of the columns of o each.
local function split(spec, tile)
  local x = { m_tiles = tile.block_m // tile.num_warps // 16, slice = tile.block_n }
  local dv16 = layout.round_up(spec.head_dim_v, 16)
  x.paired = x.m_tiles == 1 and dv16 > 128 and tile.num_warps > 1 and tile.block_n % 32 == 0
  if x.paired then
    x.m_tiles, x.slice, dv16 = 2, tile.block_n // 2, layout.round_up(dv16, 32) // 2
  end
  x.o_groups = dv16 // 16
  -- Registers of a thread: outputs, then queries or scores.
  local held = x.m_tiles * (dv16 // 2 + layout.round_up(spec.head_dim, 16) // 4 + SLICE // 2)
  x.live = x.m_tiles * (dv16 // 2 + x.slice // 2)
  x.q_held = not x.paired and tile.num_stages > 1 and tile.block_n % SLICE == 0
             and held <= MAX_HELD
  if x.q_held then x.slice, x.live = SLICE, held end
  return x
end

local function derive(spec, tile)
  local x = split(spec, tile)
  x.qk_rows = layout.rows(layout.round_up(spec.head_dim, 16))
  x.v_rows = layout.rows(layout.round_up(spec.head_dim_v, x.paired and 32 or 16))
  x.p_rows = layout.rows(tile.block_n)
  x.k_bytes = tile.block_n * x.qk_rows.pitch
  x.stage_bytes = x.k_bytes + tile.block_n * x.v_rows.pitch
  local q_bytes = tile.block_m * x.qk_rows.pitch
  -- Queries that go to registers at once may lie in the slot that is filled last.
  local over = x.q_held and q_bytes <= x.stage_bytes and "kv" or nil
  local regions = {
    { name = "kv", bytes = tile.num_stages * x.stage_bytes },
    { name = "q", bytes = q_bytes, over = over, from = (tile.num_stages - 1) * x.stage_bytes },
    { name = "o", bytes = tile.block_m * x.v_rows.pitch, over = "kv" },
    { name = "failed", bytes = 4 },
  }
  if x.paired then
    regions[#regions + 1] = { name = "p", bytes = tile.block_m * x.p_rows.pitch }
    regions[#regions + 1] = { name = "exchange", bytes = 4 * 32 * tile.num_warps }
  end
  x.map = layout.map(regions)
  x.threads, x.rows = 32 * tile.num_warps, 16 * x.m_tiles
  x.s_step, x.o_step = x.slice // 2, x.o_groups * 8 -- numbers of a thread in each row tile
  return x
end

function ampere.serves(spec)
  if spec.pass ~= "forward" then
    return nil, "the ampere family has no backward pass yet"
  end
  return true
end

local function two_fit(spec, tile, arch)
  return 2 * (derive(spec, tile).map.bytes + arch.smem_reserved) <= arch.smem_per_sm
end

-- The tiles to try for a spec, in order; how many of them are taken as soon as they are legal.
local function candidates(spec, arch)
  local out = {}
  local function lies(field, row)
    return spec[field] >= row[field][1] and spec[field] <= row[field][2]
  end
  for _, row in ipairs(instead[arch.name] or {}) do
    if lies("head_dim", row) and lies("head_dim_v", row) then
      table.move(row, 1, #row, #out + 1, out)
    end
  end
  local first = #out
  for _, row in ipairs(preferred) do
    local fits = spec.head_dim <= row.upto[1] and spec.head_dim_v <= row.upto[2]
    if fits then table.move(row, 1, #row, #out + 1, out) end
  end
  return out, first
end

-- wanted: the fields that were given, or nil.
function ampere.default_tile(spec, arch, wanted)
  wanted = wanted or {}
  local legal, reason
  local tries, first = candidates(spec, arch)
  for i, t in ipairs(tries) do
    local tile = {
      block_m = wanted.block_m or t[1], block_n = wanted.block_n or t[2],
      num_stages = wanted.num_stages or t[3], num_warps = wanted.num_warps or t[4],
    }
    local ok, why = ampere.check(spec, tile, arch)
    if ok and (i <= first or two_fit(spec, tile, arch)) then return tile end
    if ok then legal = legal or tile else reason = reason or why end
  end
  return legal, reason
end

local function check_shape(tile)
  local warps = tile.num_warps
  if warps ~= 1 and warps ~= 2 and warps ~= 4 and warps ~= 8 then
    return nil, ("num_warps %d is not 1, 2, 4 or 8"):format(warps)
  end
  if tile.block_m ~= 16 * warps and tile.block_m ~= 32 * warps then
    local sentence = "block_m %d is not 16 or 32 rows for each of %d warps"
    return nil, sentence:format(tile.block_m, warps)
  end
  if tile.block_n % 16 ~= 0 or tile.block_n < 16 or tile.block_n > 256 then
    return nil, ("block_n %d is not a multiple of 16 from 16 to 256"):format(tile.block_n)
  end
  if tile.num_stages < 1 or tile.num_stages > 4 then
    return nil, ("num_stages %d is not 1 to 4"):format(tile.num_stages)
  end
  return true
end

function ampere.check(spec, tile, arch)
  local ok, sentence = check_shape(tile)
  if not ok then return nil, sentence end
  local x = derive(spec, tile)
  ok, sentence = layout.fits(x.map, arch)
  if not ok then return nil, sentence end
  if x.live <= MAX_LIVE then return true end
  sentence = "the tile keeps %d scores and outputs in the registers of a thread, %d fit"
  return nil, sentence:format(x.live, MAX_LIVE)
end

-- How the block copies one of q, k and v to shared memory.
local function copy_of(name, rows, dim, rows_layout, threads)
  local c = layout.copy(rows, rows_layout.chunks, threads)
  c.name, c.rows, c.dim, c.layout = name, rows, dim, rows_layout
  c.padded = rows_layout.cols ~= dim
  return c
end

function ampere.values(spec, tile)
  local x, dtype = derive(spec, tile), dtypes[spec.dtype]
  x.block_m, x.block_n, x.num_stages = tile.block_m, tile.block_n, tile.num_stages
  x.d16, x.dv, x.at, x.score_cols = x.qk_rows.cols, spec.head_dim_v, x.map.at, x.slice
  x.copies = {
    copy_of("q", tile.block_m, spec.head_dim, x.qk_rows, x.threads),
    copy_of("k", tile.block_n, spec.head_dim, x.qk_rows, x.threads),
    copy_of("v", tile.block_n, spec.head_dim_v, x.v_rows, x.threads),
  }
  x.store = layout.copy(tile.block_m, x.v_rows.chunks, x.threads)
  x.causal, x.dtype, x.wide_exponent = spec.mask == "causal", spec.dtype, dtype.wide_exponent
  x.mma, x.pack = "mma_m16n8k16_" .. spec.dtype, dtype.pack
  x.lead, x.shift = dtype.lead, dtype.wide_exponent and "(float)a.shift" or "-15.0f"
  return x
end

-- ---- for the tuner: tiles.lua ----

ampere.axes = {
  { name = "block_m", values = { 16, 32, 64, 128, 256 } },
  { name = "num_warps", values = { 1, 2, 4, 8 } },
  { name = "block_n", values = layout.multiples(16, 256) },
  { name = "num_stages", values = { 1, 2, 3, 4 } },
}

-- Fitted to bench/results/2026-11-29-h200 (tests/lua/test_tiles.lua). hidden: with one, two or more
-- blocks on a multiprocessor, the share of the shorter of products, exponentials and reads of
-- shared memory that runs beside the longest; warps of one block wait for each other. load: the
-- part of a tile's first copies that nothing hides.
local fitted = {
  hidden = { 0.5, 0.6, 0.65 }, floats = 3, tile = 870,
  store = 0.02, load = 0.065, latency = 900, registers = 56,
}

-- Blocks that a multiprocessor holds, at most: registers are a guess before the compiler has run.
local function resident_of(x, tile, arch)
  local registers = math.min(arch.registers_per_thread + 1, x.live + fitted.registers)
  local by_registers = arch.registers_per_sm // (layout.round_up(registers, 8) * x.threads)
  local by_shared = arch.smem_per_sm // (x.map.bytes + arch.smem_reserved)
  return math.max(1, math.min(by_registers, by_shared, arch.warps_per_sm // tile.num_warps))
end

-- Clocks of a multiprocessor for one key block and for one tile. Fragments of keys and values are
-- read once for the rows of a warp, those of queries for every slice of keys unless they are held.
function ampere.cost(spec, tile, arch)
  local x = derive(spec, tile)
  local d16, dv16 = x.qk_rows.cols, x.v_rows.cols
  local scores = tile.block_m * tile.block_n
  local read = 2 * scores * ((d16 + dv16) / x.rows + (x.q_held and 0 or d16 / x.slice))
  if x.paired then read = read + 4 * scores end
  local resident, hidden = resident_of(x, tile, arch), {}
  for blocks = 1, resident do
    local share = fitted.hidden[math.min(blocks, #fitted.hidden)]
    hidden[blocks] = share * math.min(1, blocks * tile.num_warps / 8)
  end
  return {
    tensor = 2 * scores * (d16 + dv16) / arch.tensor_flops,
    softmax = scores * (1 / arch.exp_clock + fitted.floats / arch.float_clock),
    shared = read / arch.shared_bytes_clock, hidden = hidden, resident = resident,
    block = 0, latency = fitted.latency, ahead = tile.num_stages - 1,
    tile = fitted.tile / resident + fitted.store * 2 * tile.block_m * (d16 + dv16)
           + fitted.load * 2 * tile.block_n * (d16 + dv16),
    tail = 0.5,
  }
end

function ampere.record(spec, tile)
  local x = derive(spec, tile)
  return {
    smem = x.map.list,
    entries = {
      {
        name = "kiln_forward", threads = x.threads, shared_bytes = x.map.bytes,
        grid = { { "seqlen_q", tile.block_m }, { "num_heads", 1 }, { "batch", 1 } },
        params = { "args" },
      },
    },
  }
end

return ampere

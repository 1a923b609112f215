-- hopper.lua: the kernel family of TMA and wgmma: FlashAttention-3's schedule, warp specialised.
-- Called by render.lua, as docs/architecture.md tells of families.
--
-- Invariant: check() is arithmetic on shared memory and registers only, and whatever it accepts
-- renders and runs right.

local layout = require("layout")
local dtypes = require("dtype")

local hopper = { name = "hopper", template = "forward/hopper.tmpl.cu" }

-- Registers of a thread by the number of consumer warpgroups: the pool of 65,536 divides into
-- producer + consumers. A producer of 24 registers spills; 40 and 32 hold its loop.
local registers = {
  [1] = { producer = 56, consumer = 256 }, -- 256 threads enter with 255: 56 + 256 <= 2 * 255
  [2] = { producer = 40, consumer = 232 }, -- 384 threads enter with 168
  [3] = { producer = 32, consumer = 160 }, -- 512 threads enter with 128
}

-- Preferred tiles by the larger head dim: { consumers, block_n, num_stages }; the first legal one
-- is the default. Three consumers of 64 columns are for long sequences, which tuning finds (H200,
-- head_dim 64, time over that of two: 1024 keys 1.03, 4096 0.94, 16,384 0.88; causal 4096 1.01,
-- 16,384 0.97). Above 128 columns the output takes more than half of a thread's registers and the
-- queries much of the shared memory, so key blocks shrink. 192 columns have room for 112 keys, but
-- not for two places of queries then (1024 keys, none and causal: 572, 441 against 655, 495
-- TFLOP/s); for 256 columns 80 keys would fit but were the slower (512 keys: 549, 344 against 581,
-- 367).
local preferred = {
  { upto = 64, { 2, 128, 3 }, { 2, 128, 2 } },
  { upto = 128, { 2, 128, 2 }, { 2, 112, 2 } },
  { upto = 256, { 2, 64, 2 } },
}

-- q, k, v, o: panels of a consumer's 64 queries, of a block of keys and values, of its output.
local function derive(spec, tile)
  return {
    consumers = tile.block_m // 64, threads = 128 * (tile.block_m // 64 + 1),
    q = layout.panels(64, spec.head_dim), k = layout.panels(tile.block_n, spec.head_dim),
    v = layout.panels(tile.block_n, spec.head_dim_v), o = layout.panels(64, spec.head_dim_v),
  }
end

-- The shared-memory map. With several places for queries the next tiles' are loaded while the
-- present one is computed, and its output is staged where its queries were.
local FLAGS = 64 -- of failed tiles
-- Two places are too few for tiles of one or two key blocks: the queries after the next wait for a
-- store (H200, 128 keys, head_dim 64: 236 against 151 TFLOP/s).
local MOST_PLACES = 3

local function map_of(x, tile, q_slots)
  local q_slot = q_slots > 1 and math.max(x.q.total, x.o.total) or x.q.total
  local bars = 8 * (4 * tile.num_stages + (q_slots > 1 and 3 or 2) * x.consumers * q_slots + 1)
  local map = layout.map({
    { name = "q", bytes = q_slots * x.consumers * q_slot, align = 1024 },
    { name = "k", bytes = tile.num_stages * x.k.total, align = 1024 },
    { name = "v", bytes = tile.num_stages * x.v.total, align = 1024 },
    { name = "bars", bytes = bars, align = 16 },
    { name = "info", bytes = 16 * q_slots, align = 16 },
    { name = "failed", bytes = 4 * (FLAGS + 1), align = 4 },
    { name = "zero", bytes = 4, align = 4 },
  })
  map.q_slot, map.q_slots = q_slot, q_slots
  return map
end

local function choose_map(x, tile, arch)
  for q_slots = MOST_PLACES, 2, -1 do
    local map = map_of(x, tile, q_slots)
    if layout.fits(map, arch) then return map end
  end
  return map_of(x, tile, 1)
end

function hopper.serves(spec)
  if spec.pass ~= "forward" then
    return nil, "the hopper family has no backward pass yet"
  end
  return true
end

-- The preferred tiles for a head dim, in order.
local function candidates(widest)
  local out = {}
  for _, row in ipairs(preferred) do
    if widest <= row.upto then table.move(row, 1, #row, #out + 1, out) end
  end
  return out
end

-- wanted: the fields that were given, or nil; block_m and num_warps follow from each other.
function hopper.default_tile(spec, arch, wanted)
  wanted = wanted or {}
  local widest, reason = math.max(spec.head_dim, spec.head_dim_v), nil
  local rows = wanted.block_m or wanted.num_warps and 16 * (wanted.num_warps - 4)
  for _, t in ipairs(candidates(widest)) do
    local block_m = rows or 64 * t[1]
    local tile = {
      block_m = block_m, block_n = wanted.block_n or t[2],
      num_stages = wanted.num_stages or t[3], num_warps = wanted.num_warps or block_m // 16 + 4,
    }
    local ok, why = hopper.check(spec, tile, arch)
    if ok then return tile end
    reason = reason or why
  end
  return nil, reason
end

local function check_shape(tile)
  local consumers = tile.block_m // 64
  if tile.block_m % 64 ~= 0 or not registers[consumers] then
    local sentence = "block_m %d is not 64, 128 or 192: 64 rows for each consumer warpgroup"
    return nil, sentence:format(tile.block_m)
  end
  if tile.num_warps ~= 4 * consumers + 4 then
    local sentence = "num_warps %d does not go with block_m %d: "
                     .. "4 producer warps and 4 for each 64 rows make %d"
    return nil, sentence:format(tile.num_warps, tile.block_m, 4 * consumers + 4)
  end
  if tile.block_n % 16 ~= 0 or tile.block_n < 16 or tile.block_n > 256 then
    return nil, ("block_n %d is not a multiple of 16 from 16 to 256"):format(tile.block_n)
  end
  if tile.num_stages < 2 or tile.num_stages > 8 then
    return nil, ("num_stages %d is not 2 to 8"):format(tile.num_stages)
  end
  return true
end

function hopper.check(spec, tile, arch)
  local ok, sentence = check_shape(tile)
  if not ok then return nil, sentence end
  local x = derive(spec, tile)
  ok, sentence = layout.fits(choose_map(x, tile, arch), arch)
  if not ok then return nil, sentence end
  -- scores (fp32), probabilities (16-bit) and output (fp32) of a thread; 32 registers remain for
  -- addresses and the state of the rows
  local live = tile.block_n // 2 + tile.block_n // 4 + layout.round_up(spec.head_dim_v, 16) // 2
  local fit = registers[x.consumers].consumer - 32
  if live <= fit then return true end
  sentence = "the tile keeps %d scores, probabilities and outputs in the registers of a thread, "
             .. "%d fit"
  return nil, sentence:format(live, fit)
end

-- Taking turns pays where two consumers compete for the tensor cores; wide heads run better
-- without.
local function pingpong(x, spec) return x.consumers == 2 and spec.head_dim_v <= 128 end

function hopper.values(spec, tile, arch)
  local x, dtype = derive(spec, tile), dtypes[spec.dtype]
  local map, pool = choose_map(x, tile, arch), registers[x.consumers]
  return {
    block_m = tile.block_m, block_n = tile.block_n, num_stages = tile.num_stages,
    consumers = x.consumers, d16 = layout.round_up(spec.head_dim, 16),
    dv16 = layout.round_up(spec.head_dim_v, 16),
    dim = spec.head_dim, dv = spec.head_dim_v,
    at = map.at, q_slot = map.q_slot, q_slots = map.q_slots, o_staged = map.q_slots > 1,
    flags = FLAGS, score_cols = tile.block_n, lead = dtype.lead,
    first_columns = dtype.wide_exponent and 16 or tile.block_n,
    second_columns = math.min(64, tile.block_n),
    q_panels = x.q, k_panels = x.k, v_panels = x.v,
    pingpong = pingpong(x, spec),
    producer_registers = pool.producer, consumer_registers = pool.consumer,
    causal = spec.mask == "causal", dtype = spec.dtype, wide_exponent = dtype.wide_exponent,
    mma_qk = ("wgmma_ss_n%d_%s"):format(tile.block_n, spec.dtype),
    mma_pv = ("wgmma_rs_n%d_%s_t"):format(layout.round_up(spec.head_dim_v, 16), spec.dtype),
    pack = dtype.pack, shift = dtype.wide_exponent and "(float)me->a->shift" or "-15.0f",
  }
end

-- ---- for the tuner: tiles.lua ----

hopper.axes = {
  { name = "block_m", values = { 64, 128, 192 } },
  { name = "num_warps", values = { 8, 12, 16 } },
  { name = "block_n", values = layout.multiples(16, 256) },
  { name = "num_stages", values = { 2, 3, 4, 5, 6, 7, 8 } },
}

-- Fitted to bench/results/2026-11-29-h200 (tests/lua/test_tiles.lua). hidden: by consumers, the
-- share of the shorter of products and exponentials that runs beside the longer; taking_turns is
-- that of two consumers in ping-pong. exposed: a tile with one place for queries waits for them.
local fitted = {
  tensor_share = 0.95, floats = 3.8, -- of a score, besides its exponential
  hidden = { 0.5, 0.99, 0.99 }, taking_turns = 0.944,
  block = 159, tile = 675, store = 0.0075, latency = 900, exposed = 1225,
}

-- Clocks of a multiprocessor for one key block and for one tile. The first operand of the scores
-- comes from shared memory once a consumer, keys and values too; with one place for queries their
-- loads and the store wait for each other.
function hopper.cost(spec, tile, arch)
  local x = derive(spec, tile)
  local map = choose_map(x, tile, arch)
  local d16, dv16 = layout.round_up(spec.head_dim, 16), layout.round_up(spec.head_dim_v, 16)
  local scores = tile.block_m * tile.block_n
  local read = 2 * x.consumers * (64 * d16 + tile.block_n * (d16 + dv16))
  local moved = 2 * tile.block_m * (d16 + dv16) -- queries and outputs
  local hidden = pingpong(x, spec) and fitted.taking_turns or fitted.hidden[x.consumers]
  return {
    tensor = 2 * scores * (d16 + dv16) / arch.tensor_flops / fitted.tensor_share,
    softmax = scores * (1 / arch.exp_clock + fitted.floats / arch.float_clock),
    shared = read / arch.shared_bytes_clock,
    hidden = { hidden },
    block = fitted.block, latency = fitted.latency, ahead = tile.num_stages - 1, resident = 1,
    tile = fitted.tile + fitted.store * moved + (map.q_slots == 1 and fitted.exposed or 0),
    tail = 0.5,
  }
end

function hopper.record(spec, tile, arch)
  local x = derive(spec, tile)
  local map = choose_map(x, tile, arch)
  local function box(rows) return { box_rows = rows, box_cols = 64, swizzle = 128 } end
  return {
    smem = map.list,
    maps = { q = box(64), k = box(tile.block_n), v = box(tile.block_n), o = box(64) },
    entries = {
      {
        name = "kiln_forward", threads = x.threads, shared_bytes = map.bytes, persistent = 1,
        grid = { { "seqlen_q", tile.block_m }, { "num_heads", 1 }, { "batch", 1 } },
        params = { "map:q", "map:k", "map:v", "map:o", "args" },
      },
    },
  }
end

return hopper

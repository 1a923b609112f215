-- hopper_backward.lua: the backward pass for TMA and wgmma, warp specialised, of head dims up to
-- 128. Called by render.lua, as docs/architecture.md tells of families.
--
-- Invariant: check() is arithmetic on shared memory and registers only, and whatever it accepts
-- renders and runs right.

local layout = require("layout")
local dtypes = require("dtype")

local backward = { name = "hopper_backward", template = "backward/hopper.tmpl.cu" }

local WIDEST = 128 -- columns whose dK and dV fit a consumer's registers
local BLOCK_N = 128 -- keys of a tile: two consumers of 64
local THREADS = 384
local HELPERS = 256 -- threads of the kernels before and after

-- Who forms dQ of a block: both consumers, each half of the rows, half of the columns, or all of it
-- over its own keys. dq_cols: columns of one product; dq_regs: its registers.
local function dq_of(spec, tile)
  local d16 = layout.round_up(spec.head_dim, 16)
  local mode = tile.block_m == 128 and "rows" or d16 > 64 and "columns" or "keys"
  local cols = mode == "columns" and 64 or d16
  return mode, cols, cols // 2
end

local function derive(spec, tile)
  local x = {
    q = layout.panels(tile.block_m, spec.head_dim),
    dout = layout.panels(tile.block_m, spec.head_dim_v),
    k = layout.panels(BLOCK_N, spec.head_dim), v = layout.panels(BLOCK_N, spec.head_dim_v),
    ds = layout.panels(tile.block_m, BLOCK_N), deterministic = spec.deterministic == 1,
  }
  x.dq_mode, x.dq_cols, x.dq_regs = dq_of(spec, tile)
  x.dq_part = 4 * 128 * x.dq_regs -- bytes of a consumer
  x.dq_bytes = (x.dq_mode == "keys" and 1 or 2) * x.dq_part -- of a query block
  local regions = {
    { name = "k", bytes = x.k.total, align = 1024 },
    { name = "v", bytes = x.v.total, align = 1024 },
    { name = "q", bytes = 2 * x.q.total, align = 1024 },
    { name = "do", bytes = 2 * x.dout.total, align = 1024 },
    -- Before dS: a memory checker takes what has no strides for a whole operand, up to 4096 bytes.
    { name = "statistics", bytes = 2 * 16 * tile.block_m },
    { name = "ones", bytes = 256 },
    { name = "bars", bytes = 128, align = 16 },
    { name = "ds", bytes = 2 * x.ds.total, align = 1024 },
  }
  if x.deterministic then regions[#regions + 1] = { name = "dq", bytes = 2 * x.dq_part } end
  x.map = layout.map(regions)
  return x
end

function backward.serves(spec)
  if spec.head_dim <= WIDEST and spec.head_dim_v <= WIDEST then return true end
  return nil, ("the hopper_backward family has no head dims above %d"):format(WIDEST)
end

local function widest(spec) return math.max(spec.head_dim, spec.head_dim_v) end

function backward.default_tile(spec, _, wanted)
  wanted = wanted or {}
  return {
    block_m = wanted.block_m or (widest(spec) <= 64 and 128 or 64), block_n = BLOCK_N,
    num_stages = 2, num_warps = 12,
  }
end

local fixed = { block_n = BLOCK_N, num_stages = 2, num_warps = 12 }

function backward.check(spec, tile, arch)
  for name, value in pairs(fixed) do
    if tile[name] ~= value then
      local sentence = "%s %d is not %d, the one value of the hopper_backward family"
      return nil, sentence:format(name, tile[name], value)
    end
  end
  if tile.block_m ~= 64 and tile.block_m ~= 128 then
    return nil, ("block_m %d is not 64 or 128"):format(tile.block_m)
  end
  if tile.block_m == 128 and widest(spec) > 64 then
    return nil, ("block_m 128 is for head dims up to 64, and %d is above"):format(widest(spec))
  end
  return layout.fits(derive(spec, tile).map, arch)
end

function backward.values(spec, tile)
  local x, dtype = derive(spec, tile), dtypes[spec.dtype]
  return {
    block_m = tile.block_m, block_n = BLOCK_N, helpers = HELPERS,
    d16 = layout.round_up(spec.head_dim, 16), dv16 = layout.round_up(spec.head_dim_v, 16),
    dim = spec.head_dim, dv = spec.head_dim_v, at = x.map.at,
    q_panels = x.q, k_panels = x.k, v_panels = x.v, do_panels = x.dout, ds_panels = x.ds,
    dq_mode = x.dq_mode, dq_cols = x.dq_cols, dq_regs = x.dq_regs, dq_part = x.dq_part,
    dq_bytes = x.dq_bytes,
    causal = spec.mask == "causal", deterministic = x.deterministic,
    dtype = spec.dtype, wide_exponent = dtype.wide_exponent, pack = dtype.pack,
    unpack = "unpack_" .. spec.dtype,
  }
end

-- ---- for the tuner: tiles.lua ----

backward.axes = {
  { name = "block_m", values = { 64, 128 } },
  { name = "num_warps", values = { 12 } },
  { name = "block_n", values = { BLOCK_N } },
  { name = "num_stages", values = { 2 } },
}

-- Fitted to bench/results/2026-11-30-h200 (tests/lua/test_tiles.lua), as hopper.lua's.
local fitted = {
  tensor_share = 0.95, floats = 5, hidden = 0.86, block = 150, tile = 5500, latency = 900,
}

-- Clocks of a multiprocessor for one query block and for one tile. Keys, values and dS are read by
-- both consumers, and so are queries and dO, once for each of the products that take them.
function backward.cost(spec, tile, arch)
  local x = derive(spec, tile)
  local d16, dv16 = layout.round_up(spec.head_dim, 16), layout.round_up(spec.head_dim_v, 16)
  local scores = tile.block_m * BLOCK_N
  local dq_columns = x.dq_mode == "columns" and 128 or d16
  local read = 2 * (BLOCK_N + 2 * tile.block_m) * (d16 + dv16) -- the first operands, the second
               + 2 * 2 * tile.block_m * (d16 + dv16)           -- of dK and dV
               + 2 * (3 * scores + 2 * BLOCK_N * d16)          -- dS, stored and read; K for dQ
               + 2 * tile.block_m * (d16 + dv16)               -- what arrives
  return {
    tensor = 2 * scores * (2 * d16 + dq_columns + 2 * dv16) / arch.tensor_flops
             / fitted.tensor_share,
    softmax = scores * (1 / arch.exp_clock + fitted.floats / arch.float_clock),
    shared = read / arch.shared_bytes_clock, hidden = { fitted.hidden },
    block = fitted.block, latency = fitted.latency, ahead = 1, resident = 1,
    tile = fitted.tile, tail = 0.5,
  }
end

function backward.record(spec, tile)
  local x = derive(spec, tile)
  local function box(rows) return { box_rows = rows, box_cols = 64, swizzle = 128 } end
  local queries, keys = box(tile.block_m), box(BLOCK_N)
  local blocks = { { "seqlen_q", tile.block_m }, { "num_heads", 1 }, { "batch", 1 } }
  local workspace = {
    { name = "dq_sums", bytes = x.dq_bytes, dims = blocks },
    { name = "statistics", bytes = 16 * tile.block_m, dims = blocks },
  }
  if x.deterministic then
    workspace[3] = { name = "semaphores", bytes = 8, dims = blocks, zero = true }
  end
  return {
    layout = "backward.1", smem = x.map.list, workspace = workspace,
    maps = { q = queries, k = keys, v = keys, ["do"] = queries },
    entries = {
      { name = "kiln_preprocess", threads = HELPERS, grid = blocks, params = { "args" } },
      {
        name = "kiln_backward", threads = THREADS, shared_bytes = x.map.bytes,
        grid = { { "seqlen_k", BLOCK_N }, { "num_heads_k", 1 }, { "batch", 1 } },
        params = { "map:q", "map:k", "map:v", "map:do", "args" },
      },
      { name = "kiln_convert", threads = HELPERS, grid = blocks, params = { "args" } },
    },
  }
end

return backward

-- hopper_wide_backward.lua: the backward pass for TMA and wgmma, warp specialised, of head dims
-- above 128. Called by render.lua, as docs/architecture.md tells of families.
--
-- Invariant: check() is arithmetic on shared memory only, and whatever it accepts renders and runs
-- right.

local layout = require("layout")
local dtypes = require("dtype")

local wide = { name = "hopper_wide_backward", template = "backward/hopper_wide.tmpl.cu" }

local BLOCK = 64 -- queries of a step, and keys of a tile
local PANEL = 64 -- columns of a panel of shared memory
local THREADS = 384
local HELPERS = 256 -- threads of the kernels before and after
local TILE = BLOCK * PANEL * 2 -- bytes of P, of dS, of a panel

-- The columns of dQ that the two consumers form, as products of at most 64 columns, which end where
-- a panel does: { from, n, step }; step: of the descriptor of a tile that is read by columns.
local function products(first, past)
  local out = {}
  while first < past do
    local last = math.min(past, (first // PANEL + 1) * PANEL)
    local step = first // PANEL * (TILE // 16) + first % PANEL // 8
    out[#out + 1] = { from = first, n = last - first, step = step }
    first = last
  end
  return out
end

-- The second consumer begins where a panel does, unless that would leave one with much less.
local function own_dq(dim)
  local all = layout.round_up(dim, 16)
  local cut = all // 2
  if dim > 64 and dim <= 128 then cut = 64 elseif dim > 192 then cut = 128 end
  return { products(0, cut), products(cut, all) }
end

-- Two thread blocks that exchange dS form a quarter of the columns in each of their consumers.
local function shared_dq() return { products(0, PANEL), products(PANEL, 2 * PANEL) } end

local function derive(spec, tile)
  local x = {
    q = layout.panels(BLOCK, spec.head_dim), v = layout.panels(BLOCK, spec.head_dim_v),
    pair = tile.block_n == 2 * BLOCK, deterministic = spec.deterministic == 1,
  }
  x.ds_bytes = x.pair and 2 * TILE or TILE
  x.sums = BLOCK * (x.pair and 4 * PANEL or layout.round_up(spec.head_dim, 16)) * 4 -- bytes of dQ
  local bars = 12 + 2 * tile.num_stages + (x.pair and 2 or 0) + (x.deterministic and 4 or 0)
  local regions = {
    { name = "k", bytes = x.q.total, align = 1024 },
    { name = "v", bytes = x.v.total, align = 1024 },
    { name = "q", bytes = 2 * x.q.total, align = 1024 },
    { name = "do", bytes = tile.num_stages * x.v.total, align = 1024 },
    { name = "p", bytes = TILE, align = 1024 },
    { name = "ds", bytes = 2 * x.ds_bytes, align = 1024 },
    { name = "bars", bytes = 8 * bars, align = 16 },
  }
  if x.pair then
    table.insert(regions, 2, { name = "peer_k", bytes = 2 * TILE, align = 1024 })
  end
  x.map = layout.map(regions)
  return x
end

function wide.serves(spec)
  if spec.head_dim > 128 or spec.head_dim_v > 128 then return true end
  return nil, "the hopper_wide_backward family is for head dims above 128"
end

local fixed = { block_m = BLOCK, num_warps = THREADS // 32 }

-- { block_n, num_stages }, the first that is legal and goes with what was given
local preferred = { { 2 * BLOCK, 1 }, { BLOCK, 2 }, { BLOCK, 1 } }

function wide.default_tile(spec, arch, wanted)
  local reason
  wanted = wanted or {}
  for _, t in ipairs(preferred) do
    local tile = {
      block_m = BLOCK, block_n = wanted.block_n or t[1], num_stages = wanted.num_stages or t[2],
      num_warps = THREADS // 32,
    }
    local ok, why = wide.check(spec, tile, arch)
    if ok then return tile end
    reason = reason or why
  end
  return nil, reason
end

function wide.check(spec, tile, arch)
  for name, value in pairs(fixed) do
    if tile[name] ~= value then
      local sentence = "%s %d is not %d, the one value of the hopper_wide_backward family"
      return nil, sentence:format(name, tile[name], value)
    end
  end
  if tile.block_n ~= BLOCK and tile.block_n ~= 2 * BLOCK then
    return nil, ("block_n %d is not 64 or 128"):format(tile.block_n)
  end
  if tile.block_n == 2 * BLOCK and spec.head_dim <= 192 then
    local sentence = "block_n 128, two thread blocks, is for head dims above 192, and %d is not"
    return nil, sentence:format(spec.head_dim)
  end
  if tile.num_stages ~= 1 and tile.num_stages ~= 2 then
    return nil, ("num_stages %d is not 1 or 2"):format(tile.num_stages)
  end
  return layout.fits(derive(spec, tile).map, arch)
end

function wide.values(spec, tile)
  local x, dtype = derive(spec, tile), dtypes[spec.dtype]
  return {
    block = BLOCK, block_n = tile.block_n, tile = TILE, pair = x.pair, ds_bytes = x.ds_bytes,
    leave = x.pair and "arrive_both" or "arrive", num_stages = tile.num_stages, at = x.map.at,
    d16 = layout.round_up(spec.head_dim, 16), dv16 = layout.round_up(spec.head_dim_v, 16),
    dim = spec.head_dim, dv = spec.head_dim_v, q_panels = x.q, v_panels = x.v, sums = x.sums,
    dq = x.pair and shared_dq() or own_dq(spec.head_dim),
    causal = spec.mask == "causal", deterministic = x.deterministic,
    dtype = spec.dtype, wide_exponent = dtype.wide_exponent, pack = dtype.pack,
    unpack = "unpack_" .. spec.dtype, helpers = HELPERS,
  }
end

-- ---- for the tuner: tiles.lua ----

wide.axes = {
  { name = "block_m", values = { BLOCK } },
  { name = "num_warps", values = { THREADS // 32 } },
  { name = "block_n", values = { BLOCK, 2 * BLOCK } },
  { name = "num_stages", values = { 1, 2 } },
}

-- Set by H200 figures of head_dim 256 (2026-11-30): 8192 keys take 4,200 clocks a step, a tile of
-- two thread blocks 8,000 besides; without the second one, sums of dQ cost another 1,000 a step.
local fitted = {
  tensor_share = 0.95, floats = 5, hidden = 0.7, block = 150, sums = 1000, tile = 8000,
  latency = 900,
}

-- Clocks of a multiprocessor for one query block and for one tile; a tile of two thread blocks
-- counts as twice the work. Read are both operands of S and dP, one of dV, dK and dQ for each of
-- their columns, dS for each 64 columns of dQ; P and dS are stored and read twice.
function wide.cost(spec, tile, arch)
  local x = derive(spec, tile)
  local blocks = tile.block_n // BLOCK
  local d16, dv16 = layout.round_up(spec.head_dim, 16), layout.round_up(spec.head_dim_v, 16)
  local scores = BLOCK * tile.block_n
  local read = blocks * (2 * 3 * BLOCK * (d16 + dv16) + 2 * 2 * BLOCK * d16 + 6 * TILE)
  local arriving = blocks * 2 * BLOCK * (d16 + dv16)
  return {
    tensor = 2 * scores * (3 * d16 + 2 * dv16) / arch.tensor_flops / fitted.tensor_share,
    softmax = scores * (1 / arch.exp_clock + fitted.floats / arch.float_clock),
    shared = (read + arriving) / arch.shared_bytes_clock, hidden = { fitted.hidden },
    block = x.pair and blocks * fitted.block or fitted.block + fitted.sums,
    latency = fitted.latency, ahead = 1, resident = 1, tile = blocks * fitted.tile, tail = 0.5,
  }
end

function wide.record(spec, tile)
  local x = derive(spec, tile)
  local function box(rows) return { box_rows = rows, box_cols = PANEL, swizzle = 128 } end
  local queries = box(x.pair and BLOCK // 2 or BLOCK)
  local blocks = { { "seqlen_q", BLOCK }, { "num_heads", 1 }, { "batch", 1 } }
  local workspace = {
    { name = "dq_sums", bytes = x.sums, dims = blocks },
    { name = "statistics", bytes = 8 * BLOCK, dims = blocks },
  }
  if x.deterministic then
    workspace[3] = { name = "semaphores", bytes = x.pair and 16 or 8, dims = blocks, zero = true }
  end
  return {
    layout = "backward.1", smem = x.map.list, workspace = workspace,
    maps = { q = queries, k = box(BLOCK), v = box(BLOCK), ["do"] = queries },
    entries = {
      { name = "kiln_preprocess", threads = HELPERS, grid = blocks, params = { "args" } },
      {
        name = "kiln_backward", threads = THREADS, shared_bytes = x.map.bytes,
        cluster = x.pair and 2 or 1,
        grid = { { "seqlen_k", tile.block_n }, { "num_heads_k", 1 }, { "batch", 1 } },
        params = { "map:q", "map:k", "map:v", "map:do", "args" },
      },
      { name = "kiln_convert", threads = HELPERS, grid = blocks, params = { "args" } },
    },
  }
end

return wide

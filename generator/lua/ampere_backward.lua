-- ampere_backward.lua: the kernel family of mma.sync and cp.async for the gradients: a block owns
-- some keys and walks over the queries that see them, as FlashAttention-2 does. Called by
-- render.lua, as docs/architecture.md tells of families.
--
-- Invariant: check() is arithmetic on shared memory and registers only, and whatever it accepts
-- renders and runs right.

local layout = require("layout")
local dtypes = require("dtype")

local ampere = { name = "ampere_backward", template = "backward/ampere.tmpl.cu" }

-- Preferred tiles: { block_m, block_n, num_stages, num_warps } where head_dim and head_dim_v are at
-- most `upto`. The default is the first legal one.
local preferred = {
  { upto = 64, { 128, 128, 2, 8 }, { 64, 128, 2, 8 }, { 64, 64, 2, 4 } },
  { upto = 128, { 64, 128, 2, 8 }, { 32, 96, 2, 8 }, { 64, 64, 1, 8 } },
  { upto = 256, { 64, 64, 2, 8 }, { 64, 64, 1, 8 }, { 32, 64, 1, 8 }, { 16, 64, 1, 8 } },
}

-- Numbers that a thread may keep: about 60 registers remain for fragments and addresses. Scores and
-- dq are computed in parts of at most so many. On an H200 dq was faster in two parts, scores were
-- slower, but beside as many numbers of dv as CROWDED they would spill.
local MAX_LIVE, MAX_PART, ONE_PART, CROWDED = 200, 64, 32, 112

-- ---- who computes what ----

-- How warps share a product of rows x cols tiles of 16 x 16: tile (i, j) belongs to the warp in row
-- i mod `rows` and column j mod `cols`. Taken is what costs least in products and in reads of
-- shared memory. Columns of a ragged product need not come out even.
local function deal(rows, cols, warps, is_ragged)
  local best
  for r = 1, math.min(rows, warps) do
    local c = warps // r
    local even = r * c == warps and rows % r == 0 and (is_ragged or cols % c == 0)
    local a, b = rows // r, layout.ceil_div(cols, c)
    local cost = 3 * a * b + 4 * (a + b)
    if even and (not best or cost <= best.cost) then
      best = { rows = r, cols = c, row_tiles = a, col_tiles = b, all_cols = cols, cost = cost,
               is_ragged = cols % c ~= 0, numbers = 8 * a * b }
    end
  end
  return best
end

-- Has each warp compute its tiles in as many parts, by columns, as leave at most `most` numbers.
local function part(product, most, least)
  local parts = least or 1
  while product.numbers > most * parts or product.col_tiles % parts ~= 0 do parts = parts + 1 end
  product.parts, product.col_tiles = parts, product.col_tiles // parts
  product.numbers = product.numbers // parts
end

local function derive(spec, tile)
  local m, n, half = tile.block_m // 16, tile.block_n // 16, tile.num_warps // 2
  local x = { threads = 32 * tile.num_warps, half = 32 * half, is_ring = tile.num_stages == 2 }
  x.qk_rows = layout.rows(layout.round_up(spec.head_dim, 16))
  x.v_rows = layout.rows(layout.round_up(spec.head_dim_v, 16))
  x.p_rows = layout.rows(tile.block_n)
  local d, dv = x.qk_rows.cols // 16, x.v_rows.cols // 16
  x.s, x.dk, x.dv = deal(m, n, half), deal(n, d, half, true), deal(n, dv, half, true)
  -- With a ring of two blocks the second half of the warps has the time for dq.
  x.dq = deal(m, d, x.is_ring and half or 2 * half, true)
  part(x.dq, MAX_PART, x.dq.numbers > ONE_PART and x.dq.col_tiles % 2 == 0 and 2)
  x.dq_threads = 32 * x.dq.rows * x.dq.cols
  x.acc_numbers = x.dq.numbers * x.dq.parts * x.dq_threads -- of a block of dq in fp32
  if x.s then -- registers of a thread: dv or dk, and scores or their gradients or dq
    local kept = math.max(x.dk.numbers, x.dv.numbers)
    part(x.s, kept >= CROWDED and ONE_PART or MAX_PART)
    x.live = math.max(kept + x.s.numbers, (x.is_ring and x.dk.numbers or kept) + x.dq.numbers)
  end
  local q_bytes = tile.block_m * x.qk_rows.pitch
  x.dout_from = q_bytes
  x.rows_from = q_bytes + tile.block_m * x.v_rows.pitch
  x.stage_bytes = x.rows_from + 8 * tile.block_m
  x.map = layout.map({
    { name = "k", bytes = tile.block_n * x.qk_rows.pitch },
    { name = "v", bytes = tile.block_n * x.v_rows.pitch },
    { name = "ring", bytes = tile.num_stages * x.stage_bytes },
    { name = "p", bytes = tile.block_m * x.p_rows.pitch },
    { name = "ds", bytes = tile.block_m * x.p_rows.pitch },
  })
  return x
end

function ampere.serves(spec)
  if spec.pass ~= "backward" then
    return nil, "the ampere_backward family has only the backward pass"
  end
  if spec.algorithm ~= "flash" then
    return nil, "the ampere_backward family has no standard algorithm"
  end
  return true
end

-- wanted: the fields that were given, or nil.
function ampere.default_tile(spec, arch, wanted)
  wanted = wanted or {}
  local reason
  for _, row in ipairs(preferred) do
    for _, t in ipairs(math.max(spec.head_dim, spec.head_dim_v) <= row.upto and row or {}) do
      local tile = {
        block_m = wanted.block_m or t[1], block_n = wanted.block_n or t[2],
        num_stages = wanted.num_stages or t[3], num_warps = wanted.num_warps or t[4],
      }
      local ok, why = ampere.check(spec, tile, arch)
      if ok then return tile end
      reason = reason or why
    end
  end
  return nil, reason
end

local function check_shape(tile)
  if tile.num_warps ~= 4 and tile.num_warps ~= 8 then
    return nil, ("num_warps %d is not 4 or 8"):format(tile.num_warps)
  end
  for _, name in ipairs({ "block_m", "block_n" }) do
    local size = tile[name]
    if size % 16 ~= 0 or size < 16 or size > 128 then
      return nil, ("%s %d is not a multiple of 16 from 16 to 128"):format(name, size)
    end
  end
  if tile.num_stages < 1 or tile.num_stages > 2 then
    return nil, ("num_stages %d is not 1 or 2"):format(tile.num_stages)
  end
  return true
end

function ampere.check(spec, tile, arch)
  local ok, sentence = check_shape(tile)
  if not ok then return nil, sentence end
  local x = derive(spec, tile)
  if not x.s then
    sentence = "scores of %d x %d do not come out even for %d warps"
    return nil, sentence:format(tile.block_m, tile.block_n, tile.num_warps)
  end
  ok, sentence = layout.fits(x.map, arch)
  if not ok then return nil, sentence end
  if x.live <= MAX_LIVE then return true end
  sentence = "the tile keeps %d scores and gradients in the registers of a thread, %d fit"
  return nil, sentence:format(x.live, MAX_LIVE)
end

-- How the block copies a tensor's rows between global and shared memory.
local function copy_of(name, rows, dim, rows_layout, threads)
  local c = layout.copy(rows, rows_layout.chunks, threads)
  c.name, c.rows, c.dim, c.layout = name, rows, dim, rows_layout
  c.padded = rows_layout.cols ~= dim
  return c
end

function ampere.values(spec, tile, arch)
  local x, dtype = derive(spec, tile), dtypes[spec.dtype]
  local d, dv, m, n = spec.head_dim, spec.head_dim_v, tile.block_m, tile.block_n
  x.block_m, x.block_n, x.num_stages = m, n, tile.num_stages
  x.head_dim_v, x.at = dv, x.map.at
  x.copies = {
    copy_of("q", m, d, x.qk_rows, x.half), copy_of("dout", m, dv, x.v_rows, x.half),
    copy_of("k", n, d, x.qk_rows, x.half), copy_of("v", n, dv, x.v_rows, x.half),
  }
  x.stores = {
    copy_of("dk", n, d, x.qk_rows, x.half), copy_of("dv", n, dv, x.v_rows, x.half),
    copy_of("dq", m, d, x.qk_rows, x.dq_threads),
  }
  x.causal, x.dtype, x.deterministic = spec.mask == "causal", spec.dtype, spec.deterministic == 1
  x.mma, x.pack = "mma_m16n8k16_" .. spec.dtype, dtype.pack
  x.unpack = "unpack_" .. spec.dtype
  -- ds is formed from p in 11 bits: where p is laid out in 8, it goes to the second half as fp16
  -- too, in the place of ds. With a ring that may still be read for the dq of the block before.
  x.p_fp16 = spec.dtype == "bf16"
  -- Enlarged: fp16 has no exponents below -14, and the keys of a row may be many.
  x.p_exponent, x.p_scale, x.p_unscale = 12, "2^12", "0x1p-12f"
  x.unscaled = x.p_fp16 and " * " .. x.p_unscale or ""
  -- And the turns of the deterministic kernels follow from that wait.
  x.must_wait = x.is_ring and (x.p_fp16 or x.deterministic)
  x.section = x.causal and 32 or 8
  -- Adds of four numbers at once and stmatrix came with sm_90.
  x.is_hopper = arch.major >= 9
  return x
end

-- ---- for the tuner: tiles.lua ----

ampere.axes = {
  { name = "block_m", values = { 16, 32, 64, 128 } },
  { name = "num_warps", values = { 4, 8 } },
  { name = "block_n", values = layout.multiples(16, 128) },
  { name = "num_stages", values = { 1, 2 } },
}

-- A guess from two runs on an H200 (docs/performance.md). hidden: the share of what is not longest
-- that runs beside it, with one block on a multiprocessor or more; the halves of a block wait
-- for each other.
local fitted = { hidden = { 0.5, 0.5 }, floats = 4, tile = 2500, latency = 900, registers = 56 }

-- Clocks of a multiprocessor for one block of queries and for one tile: a block of keys. Reads of
-- fragments are counted for each product: rows and columns of a warp once for each step of depth.
function ampere.cost(spec, tile, arch)
  local x = derive(spec, tile)
  local d, dv, scores = x.qk_rows.cols, x.v_rows.cols, tile.block_m * tile.block_n
  local function read(p, depth)
    local parts = p.parts or 1
    return 32 * p.rows * p.cols * parts * (p.row_tiles + p.col_tiles) * depth
  end
  local bytes = read(x.s, d + dv) + read(x.dv, tile.block_m) + read(x.dk, tile.block_m)
                + read(x.dq, tile.block_n) + 2 * 4 * scores -- p and ds, written; p, read
                + tile.block_m * (2 * d + 2 * dv + 4 * d)   -- what arrives; sums of dq
  local registers = math.min(arch.registers_per_thread + 1, x.live + fitted.registers)
  local by_registers = arch.registers_per_sm // (layout.round_up(registers, 8) * x.threads)
  local by_shared = arch.smem_per_sm // (x.map.bytes + arch.smem_reserved)
  return {
    tensor = 2 * scores * (3 * d + 2 * dv) / arch.tensor_flops,
    softmax = scores * (1 / arch.exp_clock + fitted.floats / arch.float_clock),
    shared = bytes / arch.shared_bytes_clock, hidden = fitted.hidden,
    resident = math.max(1, math.min(by_registers, by_shared)),
    block = 0, latency = fitted.latency, ahead = tile.num_stages - 1,
    tile = fitted.tile, tail = 0.5,
  }
end

-- ---- the launch record ----

function ampere.record(spec, tile)
  local x = derive(spec, tile)
  local q_blocks = { { "seqlen_q", tile.block_m }, { "num_heads", 1 }, { "batch", 1 } }
  local k_blocks = { { "seqlen_k", tile.block_n }, { "num_heads_k", 1 }, { "batch", 1 } }
  local function entry(name, threads, shared_bytes, grid)
    return { name = name, threads = threads, shared_bytes = shared_bytes, grid = grid,
             params = { "args" } }
  end
  local workspace = {
    { name = "dq", bytes = 4 * x.acc_numbers, dims = q_blocks },
    { name = "rows", bytes = 8 * tile.block_m, dims = q_blocks },
  }
  if spec.deterministic == 1 then
    workspace[3] = { name = "turns", bytes = 4, dims = q_blocks }
  end
  return {
    layout = "backward.1", smem = x.map.list, workspace = workspace,
    entries = {
      entry("kiln_preprocess", x.threads, 0, q_blocks),
      entry("kiln_backward", x.threads, x.map.bytes, k_blocks),
      entry("kiln_convert", x.dq_threads, tile.block_m * x.qk_rows.pitch, q_blocks),
    },
  }
end

return ampere

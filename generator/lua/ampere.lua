-- ampere.lua: the kernel family of mma.sync and cp.async: FlashAttention-2's schedule, with the
-- warps split over query rows. Called by render.lua, as docs/architecture.md tells of families.
--
-- Invariant: check() is arithmetic on shared memory and registers only, and whatever it accepts
-- renders and runs right.

local layout = require("layout")
local dtypes = require("dtype")

local ampere = { name = "ampere", template = "forward/ampere.tmpl.cu" }

-- Preferred tiles by the larger head dim: { block_m, block_n, num_stages, num_warps }; the first
-- legal one is the default. 32 rows a warp (128 rows, 4 warps) feed two MMAs from every K and V
-- fragment and run near the register limit; above 128 columns the output alone takes 128 registers
-- of a thread, so a warp keeps 16 rows. TFLOP/s on the H200 at 4096 keys, none and causal:
-- head_dim 64: 112 keys in one slot 299, 272; 64 keys in two 287, 261
-- head_dim 128: 48 keys 318, 277; 64 keys, which spill a few registers, 321, 259
-- head_dim 256: 64 rows, two blocks a multiprocessor, 304, 267; 128 rows 235, 207
local preferred = {
  { upto = 64, { 128, 112, 1, 4 }, { 128, 64, 1, 4 } },
  { upto = 96, { 128, 64, 2, 4 }, { 128, 64, 1, 4 }, { 64, 64, 1, 4 } },
  { upto = 128, { 128, 48, 1, 4 }, { 64, 64, 1, 4 } },
  { upto = 256, { 64, 64, 1, 4 }, { 64, 32, 1, 4 } },
}

-- Where the assembler spills with the tiles above: sm_120, causal. Found by tests/nvrtc_matrix.lua.
local instead = {
  sm_120 = {
    { from = 104, upto = 128, { 128, 32, 1, 4 } },
    { from = 248, upto = 248, { 64, 48, 1, 4 } },
  },
}

-- Scores and outputs (fp32) that a thread may keep: about 56 registers remain for fragments, the
-- state of the rows and addresses.
local MAX_LIVE = 200

local function derive(spec, tile)
  local qk_rows = layout.rows(layout.round_up(spec.head_dim, 16))
  local v_rows = layout.rows(layout.round_up(spec.head_dim_v, 16))
  local k_bytes, v_bytes = tile.block_n * qk_rows.pitch, tile.block_n * v_rows.pitch
  local map = layout.map({
    { name = "q", bytes = tile.block_m * qk_rows.pitch },
    { name = "k", bytes = tile.num_stages * k_bytes },
    { name = "v", bytes = tile.num_stages * v_bytes },
    { name = "o", bytes = tile.block_m * v_rows.pitch, over = "q" },
  })
  return {
    qk_rows = qk_rows, v_rows = v_rows, k_bytes = k_bytes, v_bytes = v_bytes, map = map,
    threads = 32 * tile.num_warps, rows_per_warp = tile.block_m // tile.num_warps,
  }
end

function ampere.serves(spec)
  if spec.pass ~= "forward" then
    return nil, "the ampere family has no backward pass yet"
  end
  return true
end

-- The preferred tiles for a head dim, in order.
local function candidates(widest, arch)
  local out = {}
  for _, row in ipairs(instead[arch.name] or {}) do
    if widest >= row.from and widest <= row.upto then table.move(row, 1, #row, #out + 1, out) end
  end
  for _, row in ipairs(preferred) do
    if widest <= row.upto then table.move(row, 1, #row, #out + 1, out) end
  end
  return out
end

-- wanted: the fields that were given, or nil.
function ampere.default_tile(spec, arch, wanted)
  wanted = wanted or {}
  local widest, reason = math.max(spec.head_dim, spec.head_dim_v), nil
  for _, t in ipairs(candidates(widest, arch)) do
    local tile = {
      block_m = wanted.block_m or t[1], block_n = wanted.block_n or t[2],
      num_stages = wanted.num_stages or t[3], num_warps = wanted.num_warps or t[4],
    }
    local ok, why = ampere.check(spec, tile, arch)
    if ok then return tile end
    reason = reason or why
  end
  return nil, reason
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
  local live = x.rows_per_warp // 16 * (tile.block_n // 2 + x.v_rows.cols // 2)
  if live <= MAX_LIVE then return true end
  sentence = "the tile keeps %d scores and outputs in the registers of a thread, %d fit"
  return nil, sentence:format(live, MAX_LIVE)
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
  return {
    block_m = tile.block_m, block_n = tile.block_n, num_stages = tile.num_stages,
    threads = x.threads, rows_per_warp = x.rows_per_warp, m_tiles = x.rows_per_warp // 16,
    d16 = x.qk_rows.cols, dv16 = x.v_rows.cols, dv = spec.head_dim_v,
    qk_rows = x.qk_rows, v_rows = x.v_rows, k_bytes = x.k_bytes, v_bytes = x.v_bytes,
    at = x.map.at,
    copies = {
      copy_of("q", tile.block_m, spec.head_dim, x.qk_rows, x.threads),
      copy_of("k", tile.block_n, spec.head_dim, x.qk_rows, x.threads),
      copy_of("v", tile.block_n, spec.head_dim_v, x.v_rows, x.threads),
    },
    store = layout.copy(tile.block_m, x.v_rows.chunks, x.threads),
    causal = spec.mask == "causal", dtype = spec.dtype, wide_exponent = dtype.wide_exponent,
    mma = "mma_m16n8k16_" .. spec.dtype, pack = dtype.pack,
    shift = dtype.wide_exponent and "(float)a.shift" or "-15.0f",
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

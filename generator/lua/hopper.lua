-- hopper.lua: the kernel family of TMA and wgmma: FlashAttention-3's schedule, warp specialised.
--
-- Invariant: check() is arithmetic on shared memory and registers only, and whatever it accepts renders and runs right.

local layout = require("layout")
local dtypes = require("dtype")

local hopper = { name = "hopper", template = "forward/hopper.tmpl.cu" }

-- Registers of a thread by the number of consumer warpgroups: the pool of 65,536 divides into producer + consumers.
-- A producer of 24 registers spills; 40 and 32 hold its loop.
local registers = {
  [1] = { producer = 56, consumer = 256 }, -- 256 threads enter with 255: 56 + 256 <= 2 * 255
  [2] = { producer = 40, consumer = 232 }, -- 384 threads enter with 168
  [3] = { producer = 32, consumer = 160 }, -- 512 threads enter with 128
}

-- Preferred tiles by the larger head dim: { consumers, block_n, num_stages }, the first legal one is the default. Narrow heads
-- spend their time in exponentials: three consumers keep the units busy. Above 128 columns the output takes more than half of
-- a thread's registers and the queries much of the shared memory, so key blocks shrink.
local preferred = {
  { upto = 64, { 3, 128, 2 }, { 2, 128, 2 } },
  { upto = 128, { 2, 128, 2 }, { 2, 112, 2 } },
  { upto = 192, { 2, 112, 2 }, { 2, 96, 2 }, { 2, 80, 2 } },
  { upto = 256, { 2, 80, 2 }, { 2, 64, 2 } },
}

local function derive(spec, tile)
  local consumers = tile.block_m // 64
  local q, k = layout.panels(64, spec.head_dim), layout.panels(tile.block_n, spec.head_dim)
  local v, o = layout.panels(tile.block_n, spec.head_dim_v), layout.panels(64, spec.head_dim_v)
  local function map(o_own)
    local slot = math.max(q.total, o.total)
    local regions = {
      { name = "q", bytes = consumers * (o_own and q.total or slot), align = 1024 },
      { name = "k", bytes = tile.num_stages * k.total, align = 1024 },
      { name = "v", bytes = tile.num_stages * v.total, align = 1024 },
      { name = "o", bytes = consumers * (o_own and o.total or slot), align = 1024, over = not o_own and "q" or nil },
      { name = "bars", bytes = 8 * (4 * tile.num_stages + 2 * consumers), align = 8 },
    }
    return layout.map(regions), o_own and q.total or slot, o_own and o.total or slot
  end
  -- With a place of its own for the output, the next queries load while the present output is stored.
  return { consumers = consumers, q = q, k = k, v = v, o = o, d16 = layout.round_up(spec.head_dim, 16),
           threads = 128 * (consumers + 1), map = map }
end

local function choose_map(x, arch)
  local map, q_slot, o_slot = x.map(true)
  if map.bytes <= arch.smem_per_block then return map, q_slot, o_slot, true end
  map, q_slot, o_slot = x.map(false)
  return map, q_slot, o_slot, false
end

function hopper.serves(spec)
  if spec.pass ~= "forward" then return nil, "the hopper family has no backward pass yet" end
  return true
end

function hopper.default_tile(spec, arch, wanted)
  wanted = wanted or {}
  local widest = math.max(spec.head_dim, spec.head_dim_v)
  local reason
  for _, row in ipairs(preferred) do
    if widest <= row.upto then
      for _, t in ipairs(row) do
        local block_m = wanted.block_m or (wanted.num_warps and 16 * (wanted.num_warps - 4)) or 64 * t[1]
        local tile = { block_m = block_m, block_n = wanted.block_n or t[2], num_stages = wanted.num_stages or t[3],
                       num_warps = wanted.num_warps or block_m // 16 + 4 }
        local ok, why = hopper.check(spec, tile, arch)
        if ok then return tile end
        reason = reason or why
      end
    end
  end
  return nil, reason
end

function hopper.check(spec, tile, arch)
  local consumers = tile.block_m // 64
  if tile.block_m % 64 ~= 0 or not registers[consumers] then
    return nil, ("block_m %d is not 64, 128 or 192: 64 rows for each consumer warpgroup"):format(tile.block_m)
  end
  if tile.num_warps ~= 4 * consumers + 4 then
    return nil, ("num_warps %d does not go with block_m %d: 4 producer warps and 4 for each 64 rows make %d")
      :format(tile.num_warps, tile.block_m, 4 * consumers + 4)
  end
  if tile.block_n % 16 ~= 0 or tile.block_n < 16 or tile.block_n > 256 then
    return nil, ("block_n %d is not a multiple of 16 from 16 to 256"):format(tile.block_n)
  end
  if tile.num_stages < 2 or tile.num_stages > 8 then
    return nil, ("num_stages %d is not 2 to 8"):format(tile.num_stages)
  end
  local map = choose_map(derive(spec, tile), arch)
  if map.bytes > arch.smem_per_block then
    return nil, ("the tile takes %d bytes of shared memory, %s has %d for a block"):format(map.bytes, arch.name, arch.smem_per_block)
  end
  -- scores (fp32), probabilities (16-bit) and output (fp32) of a thread; 32 remain for addresses and row state
  local live, fit = tile.block_n // 2 + tile.block_n // 4 + spec.head_dim_v // 2, registers[consumers].consumer - 32
  if live > fit then
    return nil, ("the tile keeps %d scores, probabilities and outputs in the registers of a thread, %d fit"):format(live, fit)
  end
  return true
end

function hopper.values(spec, tile, arch)
  local x, dtype = derive(spec, tile), dtypes[spec.dtype]
  local map, q_slot, o_slot, o_own = choose_map(x, arch)
  local at = {}
  for _, region in ipairs(map.list) do at[region.name] = region.offset end
  return {
    block_m = tile.block_m, block_n = tile.block_n, num_stages = tile.num_stages, consumers = x.consumers, d16 = x.d16,
    dim = spec.head_dim, dv = spec.head_dim_v, at = at, q_slot = q_slot, o_slot = o_slot, o_own = o_own,
    q_panels = x.q, k_panels = x.k, v_panels = x.v,
    -- Taking turns pays where two consumers compete for the tensor cores; narrow and wide heads run better without.
    pingpong = x.consumers == 2 and spec.head_dim_v > 64 and spec.head_dim_v <= 128,
    producer_registers = registers[x.consumers].producer, consumer_registers = registers[x.consumers].consumer,
    causal = spec.mask == "causal", dtype = spec.dtype, wide_exponent = dtype.wide_exponent,
    mma_qk = ("wgmma_ss_n%d_%s"):format(tile.block_n, spec.dtype), mma_pv = ("wgmma_rs_n%d_%s_t"):format(spec.head_dim_v, spec.dtype),
    pack = dtype.pack, shift = dtype.wide_exponent and "(float)a->shift" or "0.0f",
  }
end

function hopper.record(spec, tile, arch)
  local x = derive(spec, tile)
  local map = choose_map(x, arch)
  local function box(rows) return { box_rows = rows, box_cols = 64, swizzle = 128 } end
  return {
    align = 16,
    smem = map.list,
    workspace = {},
    maps = { q = box(64), k = box(tile.block_n), v = box(tile.block_n), o = box(16) },
    entries = { { name = "kiln_forward", threads = x.threads, cluster = 1, shared_bytes = map.bytes, persistent = 1,
                  grid = { { "seqlen_q", tile.block_m }, { "num_heads", 1 }, { "batch", 1 } },
                  params = { "map:q", "map:k", "map:v", "map:o", "args" } } },
  }
end

return hopper

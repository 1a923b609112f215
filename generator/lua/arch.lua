-- One table per architecture, each with a parent whose entries it inherits. Limits come from the
-- CUDA programming guide's table of compute capabilities; shared memory is in bytes.
local arch = {}

local names = {} -- in the order of the rows below

local function row(name, parent, entries)
  entries.name = name
  arch[name] = setmetatable(entries, { __index = parent and arch[parent] })
  names[#names + 1] = name
end

-- families: which kernel families may serve it, the first that serves a spec is taken; backward:
-- those of the backward pass.
-- Under "nominal" are the figures of the cost model (tiles.lua): of one multiprocessor and clock,
-- or of a usual device of that architecture (A100, RTX A6000, L40S, H200, RTX PRO 6000), where the
-- one at hand is not asked. They choose what is measured first, never what is legal.
row("sm_80", nil, {
  major = 8, minor = 0,
  families = { "ampere" }, backward = { "ampere_backward" },
  smem_per_block = 163 * 1024,
  smem_per_sm = 164 * 1024,
  smem_reserved = 1024, -- taken from smem_per_sm by every resident block
  registers_per_sm = 65536,
  registers_per_thread = 255,
  warps_per_sm = 64,
  max_cluster = 1,
  -- nominal
  num_sms = 108, clock_mhz = 1410, memory_gbs = 1555, launch_us = 3,
  tensor_flops = 2048, -- of 16-bit products
  exp_clock = 16, float_clock = 64, shared_bytes_clock = 128, l2_bytes_clock = 48,
})
row("sm_86", "sm_80", {
  minor = 6,
  smem_per_block = 99 * 1024,
  smem_per_sm = 100 * 1024,
  warps_per_sm = 48,
  num_sms = 84, clock_mhz = 1800, memory_gbs = 768, tensor_flops = 1024, float_clock = 128,
})
row("sm_89", "sm_86", { minor = 9, num_sms = 142, clock_mhz = 2520, memory_gbs = 864 })
row("sm_90", "sm_80", {
  major = 9, minor = 0,
  smem_per_block = 227 * 1024,
  smem_per_sm = 228 * 1024,
  num_sms = 132, clock_mhz = 1755, memory_gbs = 4800, float_clock = 128,
  tensor_flops = 2730, -- of mma.sync, one of 16 x 8 x 16 in 6 clocks: docs/performance.md
})
-- The instructions of sm_90a (TMA, wgmma) exist on no later architecture, so nothing inherits
-- from it. It is never served by the Ampere family: who wants that asks for sm_90.
row("sm_90a", "sm_90", {
  families = { "hopper" },
  backward = { "hopper_backward", "hopper_wide_backward" },
  max_cluster = 8,
  tensor_flops = 4096, -- of wgmma
})
row("sm_120", "sm_86", {
  major = 12, minor = 0, num_sms = 188, clock_mhz = 2617, memory_gbs = 1792,
})

-- The names, in order; a list that the caller may not change.
function arch.names() return names end

-- The table of one architecture or nil.
function arch.find(name)
  local found = arch[name]
  return type(found) == "table" and found or nil
end

return arch

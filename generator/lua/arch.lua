-- One table per architecture, each with a parent whose entries it inherits. Limits come from the
-- CUDA programming guide's table of compute capabilities; shared memory is in bytes.
local arch = {}

local names = {} -- in the order of the rows below

local function row(name, parent, entries)
  entries.name = name
  arch[name] = setmetatable(entries, { __index = parent and arch[parent] })
  names[#names + 1] = name
end

-- families: which kernel families may serve it, the first that serves a spec is taken.
row("sm_80", nil, {
  major = 8, minor = 0,
  families = { "ampere" },
  smem_per_block = 163 * 1024,
  smem_per_sm = 164 * 1024,
  smem_reserved = 1024, -- taken from smem_per_sm by every resident block
  registers_per_sm = 65536,
  registers_per_thread = 255,
  warps_per_sm = 64,
  max_cluster = 1,
})
row("sm_86", "sm_80", {
  minor = 6,
  smem_per_block = 99 * 1024,
  smem_per_sm = 100 * 1024,
  warps_per_sm = 48,
})
row("sm_89", "sm_86", { minor = 9 })
row("sm_90", "sm_80", {
  major = 9, minor = 0,
  smem_per_block = 227 * 1024,
  smem_per_sm = 228 * 1024,
})
-- The instructions of sm_90a (TMA, wgmma) exist on no later architecture, so nothing inherits
-- from it. It is never served by the Ampere family: who wants that asks for sm_90.
row("sm_90a", "sm_90", {
  families = { "hopper" },
  max_cluster = 8,
})
row("sm_120", "sm_86", { major = 12, minor = 0 })

-- The names, in order; a list that the caller may not change.
function arch.names() return names end

-- The table of one architecture or nil.
function arch.find(name)
  local found = arch[name]
  return type(found) == "table" and found or nil
end

return arch

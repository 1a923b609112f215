-- A family for tests of the generator: a kernel that computes nothing. Small head_dims choose a
-- fault: the template of that name under templates/fault/ is included.
local faults = { [8] = "loop", [16] = "memory", [24] = "unknown_name", [32] = "helper",
                 [40] = "hidden_loop", [48] = "finalizer", [56] = "reach", [72] = "written_global",
                 [80] = "pairs" }

local family = { name = "ampere", template = "tiny.tmpl.cu" }

function family.serves(spec)
  if spec.head_dim_v > 128 then return nil, "the tiny family has no head_dim_v above 128" end
  return true
end

function family.default_tile(spec, arch, wanted)
  local block_n = wanted and wanted.block_m and wanted.block_m // 2 or 64
  return { block_m = 128, block_n = block_n, num_stages = 1, num_warps = 4 }
end

function family.check(spec, tile)
  if tile.block_n * 2 == tile.block_m then return true end
  return nil, ("block_m %d is not twice block_n %d"):format(tile.block_m, tile.block_n)
end

function family.values(spec, tile)
  local fault = faults[spec.head_dim]
  return {
    head_dim = spec.head_dim, block_m = tile.block_m, half = 0.5,
    fault = fault and "fault/" .. fault .. ".tmpl.cu" or false,
    helper = function(x) return x.missing.field end,
    attempt = pcall,
    finalizer = function() return setmetatable({}, { __gc = function() end }) end,
    reach = function() return require("reach") end,
  }
end

function family.record(spec, tile)
  return {
    maps = { v = { box_rows = 64, box_cols = 64, swizzle = 128 },
             q = { box_rows = 32, box_cols = 64, swizzle = 0 } },
    workspace = { { name = "counter", bytes = 16, zero = true } },
    entries = { {
      name = "kiln_forward", threads = 32 * tile.num_warps, shared_bytes = 4096,
      grid = { { "seqlen_q", tile.block_m }, { "batch", 1 } }, params = { "args" },
    } },
    smem = { { name = "q", offset = 0, bytes = 3072 },
             { name = "k", offset = 3072, bytes = 1024 } },
  }
end

return family

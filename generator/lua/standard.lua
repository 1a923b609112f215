-- standard.lua: the kernel family of standard attention: scores and probabilities in global memory. It is what
-- FlashAttention is measured against, and a reference on the GPU that shares no schedule with the other families.
--
-- Invariant: as plain as its template; it is not tuned, and its one tile fits every architecture.

local layout = require("layout")
local dtypes = require("dtype")

local standard = { name = "standard", template = "forward/standard.tmpl.cu" }

local the_tile = { block_m = 64, block_n = 64, num_stages = 1, num_warps = 4 }

local function derive(spec)
  local qk_rows = layout.rows(layout.round_up(spec.head_dim, 16))
  local v_rows = layout.rows(layout.round_up(spec.head_dim_v, 16))
  local p_rows = layout.rows(the_tile.block_n)
  local scores = layout.map {
    { name = "q", bytes = the_tile.block_m * qk_rows.pitch }, { name = "k", bytes = the_tile.block_n * qk_rows.pitch },
  }
  local output = layout.map {
    { name = "p", bytes = the_tile.block_m * p_rows.pitch }, { name = "v", bytes = the_tile.block_n * v_rows.pitch },
  }
  return { qk_rows = qk_rows, v_rows = v_rows, p_rows = p_rows, scores = scores, output = output }
end

function standard.serves(spec)
  if spec.pass ~= "forward" then return nil, "the standard family has no backward pass" end
  return true
end

function standard.default_tile() return the_tile end

function standard.check(_, tile)
  for name, value in pairs(the_tile) do
    if tile[name] ~= value then
      return nil, ("%s %d is not %d, the one value of the standard family"):format(name, tile[name], value)
    end
  end
  return true
end

function standard.values(spec)
  local x, dtype = derive(spec), dtypes[spec.dtype]
  local at = {}
  for _, map in ipairs { x.scores, x.output } do
    for _, region in ipairs(map.list) do at[region.name] = region.offset end
  end
  return {
    block_m = the_tile.block_m, block_n = the_tile.block_n, d16 = x.qk_rows.cols, dv16 = x.v_rows.cols,
    dim = spec.head_dim, dv = spec.head_dim_v, at = at,
    qk_rows = x.qk_rows, v_rows = x.v_rows, p_rows = x.p_rows,
    copies = { { name = "q", rows = the_tile.block_m, layout = x.qk_rows }, { name = "k", rows = the_tile.block_n, layout = x.qk_rows },
               { name = "p", rows = the_tile.block_m, layout = x.p_rows }, { name = "v", rows = the_tile.block_n, layout = x.v_rows } },
    causal = spec.mask == "causal", dtype = spec.dtype, mma = "mma_m16n8k16_" .. spec.dtype, pack = dtype.pack,
  }
end

function standard.record(spec)
  local x = derive(spec)
  local rows = { { "seqlen_q", 1 }, { "num_heads", 1 }, { "batch", 1 } }
  local function entry(name, shared_bytes, grid)
    return { name = name, threads = 128, shared_bytes = shared_bytes, grid = grid, params = { "args" } }
  end
  local q_blocks = { { "seqlen_q", the_tile.block_m }, { "num_heads", 1 }, { "batch", 1 } }
  local scores = { { "seqlen_k", the_tile.block_n }, table.unpack(q_blocks) }
  return {
    align = 16,
    smem = x.scores.list,
    workspace = { { name = "scores", bytes = 4, dims = { { "seqlen_k", 1 }, table.unpack(rows) } },
                  { name = "probabilities", bytes = 16, dims = { { "seqlen_k", 8 }, table.unpack(rows) } } },
    maps = {},
    entries = { entry("kiln_scores", x.scores.bytes, scores), entry("kiln_softmax", 16, rows),
                entry("kiln_output", x.output.bytes, q_blocks) },
  }
end

return standard

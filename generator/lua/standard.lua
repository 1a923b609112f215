-- standard.lua: the kernel family of standard attention: scores and probabilities in global memory.
-- It is what FlashAttention is measured against, and a reference on the GPU that shares no schedule
-- with the other families. Called by render.lua, as docs/architecture.md tells of families.
--
-- Invariant: as plain as its template; it is not tuned, and its one tile fits every architecture.

local layout = require("layout")
local dtypes = require("dtype")

local standard = { name = "standard", template = "forward/standard.tmpl.cu" }

local the_tile = { block_m = 64, block_n = 64, num_stages = 1, num_warps = 4 }

-- scores, output: the shared-memory maps of the two products.
local function derive(spec)
  local block_m, block_n = the_tile.block_m, the_tile.block_n
  local qk_rows = layout.rows(layout.round_up(spec.head_dim, 16))
  local v_rows = layout.rows(layout.round_up(spec.head_dim_v, 16))
  local p_rows = layout.rows(block_n)
  return {
    qk_rows = qk_rows, v_rows = v_rows, p_rows = p_rows,
    scores = layout.map({
      { name = "q", bytes = block_m * qk_rows.pitch },
      { name = "k", bytes = block_n * qk_rows.pitch },
    }),
    output = layout.map({
      { name = "p", bytes = block_m * p_rows.pitch },
      { name = "v", bytes = block_n * v_rows.pitch },
    }),
  }
end

function standard.serves(spec)
  if spec.pass ~= "forward" then
    return nil, "the standard family has no backward pass"
  end
  return true
end

function standard.default_tile() return the_tile end

function standard.check(_, tile)
  for name, value in pairs(the_tile) do
    if tile[name] ~= value then
      local sentence = "%s %d is not %d, the one value of the standard family"
      return nil, sentence:format(name, tile[name], value)
    end
  end
  return true
end

function standard.values(spec)
  local x, dtype = derive(spec), dtypes[spec.dtype]
  local block_m, block_n = the_tile.block_m, the_tile.block_n
  local scores, output = x.scores.at, x.output.at
  return {
    block_m = block_m, block_n = block_n, score_cols = block_n,
    d16 = x.qk_rows.cols, dv16 = x.v_rows.cols, dim = spec.head_dim, dv = spec.head_dim_v,
    at = { q = scores.q, k = scores.k, p = output.p, v = output.v },
    qk_rows = x.qk_rows, v_rows = x.v_rows, p_rows = x.p_rows,
    copies = {
      { name = "q", rows = block_m, layout = x.qk_rows },
      { name = "k", rows = block_n, layout = x.qk_rows },
      { name = "p", rows = block_m, layout = x.p_rows },
      { name = "v", rows = block_n, layout = x.v_rows },
    },
    causal = spec.mask == "causal", dtype = spec.dtype, wide_exponent = dtype.wide_exponent,
    scale = dtype.wide_exponent and "1.0f" or "32768.0f",
    unscale = dtype.wide_exponent and "" or " / 32768.0f",
    mma = "mma_m16n8k16_" .. spec.dtype, pack = dtype.pack,
  }
end

-- ---- for the tuner: tiles.lua ----

standard.axes = {
  { name = "block_m", values = { the_tile.block_m } },
  { name = "num_warps", values = { the_tile.num_warps } },
  { name = "block_n", values = { the_tile.block_n } },
  { name = "num_stages", values = { the_tile.num_stages } },
}

-- Its three kernels take turns, nothing is loaded ahead, and the tables (4 bytes written and read,
-- 2 bytes written and read for a score) make most of its time. scratch: their bytes, 12 a score, of
-- which less than half of the bandwidth was seen to come (bench/results/2026-11-29-h200).
function standard.cost(spec, _, arch)
  local x = derive(spec)
  local scores = the_tile.block_m * the_tile.block_n
  local columns = x.qk_rows.cols + x.v_rows.cols
  return {
    tensor = 2 * scores * columns / arch.tensor_flops,
    softmax = scores * (1 / arch.exp_clock + 5 / arch.float_clock),
    shared = 2 * scores * columns / 16 / arch.shared_bytes_clock, hidden = { 0.5 },
    block = 0, tile = 3000, latency = 900, ahead = 0, resident = 4, tail = 0.5, scratch = 26,
  }
end

function standard.record(spec)
  local x = derive(spec)
  local rows = { { "seqlen_q", 1 }, { "num_heads", 1 }, { "batch", 1 } }
  local fours = { { "seqlen_q", 4 }, { "num_heads", 1 }, { "batch", 1 } }
  local q_blocks = { { "seqlen_q", the_tile.block_m }, { "num_heads", 1 }, { "batch", 1 } }
  local function per(first, others) return { first, table.unpack(others) } end
  local function entry(name, shared_bytes, grid)
    return {
      name = name, threads = 128, shared_bytes = shared_bytes, grid = grid, params = { "args" },
    }
  end
  return {
    smem = x.scores.list,
    workspace = {
      { name = "scores", bytes = 4, dims = per({ "seqlen_k", 1 }, rows) },
      { name = "probabilities", bytes = 16, dims = per({ "seqlen_k", 8 }, rows) },
    },
    entries = {
      entry("kiln_scores", x.scores.bytes, per({ "seqlen_k", the_tile.block_n }, q_blocks)),
      entry("kiln_softmax", 0, fours),
      entry("kiln_output", x.output.bytes, q_blocks),
    },
  }
end

return standard

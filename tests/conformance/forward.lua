-- Whole kernels as cases: rendered for either side, with the arguments of one small problem. The
-- layout of the arguments is "forward.1" of docs/record.md. Called by compose.lua.
local inputs = require("inputs")

local forward = {}

local problems = {
  { name = "forward_hopper_128_causal", arch = "sm_90a", dtype = "bf16", head_dim = 128,
    head_dim_v = 128, mask = "causal", batch = 1, seqlen_q = 150, seqlen_k = 190, heads = 2,
    heads_k = 1 },
  { name = "forward_hopper_56_120", arch = "sm_90a", dtype = "fp16", head_dim = 56,
    head_dim_v = 120, mask = "none", batch = 2, seqlen_q = 77, seqlen_k = 131, heads = 2,
    heads_k = 2 },
  { name = "forward_ampere_64", arch = "sm_90", dtype = "fp16", head_dim = 64, head_dim_v = 64,
    mask = "none", batch = 1, seqlen_q = 130, seqlen_k = 200, heads = 2, heads_k = 1 },
  { name = "forward_ampere_56_120", arch = "sm_90", dtype = "bf16", head_dim = 56,
    head_dim_v = 120, mask = "causal", batch = 1, seqlen_q = 77, seqlen_k = 131, heads = 2,
    heads_k = 2 },
}

local GRID = 3 -- blocks of a persistent kernel: some have two tiles

-- (batch, seqlen, heads, dim) as it lies in memory: strides in elements of batch, row, head.
local function tensor(space, offset, dim, seqlen, heads, batch)
  return { space = space, offset = offset, dims = { dim, seqlen, heads, batch },
           strides = { heads * dim, dim, seqlen * heads * dim } }
end

local function map_of(t, map, dtype)
  return { space = t.space, offset = t.offset, dims = t.dims, dtype = dtype,
           strides = { 2 * t.strides[1], 2 * t.strides[2], 2 * t.strides[3] },
           box = { map.box_cols, map.box_rows, 1, 1 }, swizzle = map.swizzle }
end

local function words_of(p, tensors, lse, tiles, block_m)
  local words = {}
  local function add(space, value) words[#words + 1] = { space, value } end
  local names = { "q", "k", "v", "o" }
  for _, name in ipairs(names) do add(tensors[name].space, tensors[name].offset) end
  add("out", lse)
  add("value", 0)
  for _, name in ipairs(names) do
    local s = tensors[name].strides
    add("value", s[3]) add("value", s[1]) add("value", s[2])
  end
  add("value", tiles)
  local scale = 1 / math.sqrt(p.head_dim)
  local packed = ("<i4i4i4i4i4i4i4i4ff"):pack(p.batch, p.seqlen_q, p.seqlen_k, p.heads, p.heads_k,
    p.heads // p.heads_k, (p.seqlen_q + block_m - 1) // block_m,
    math.ceil(math.log(p.seqlen_k, 2)), scale, scale * 1.4426950408889634)
  for i = 1, #packed, 8 do add("value", (("<i8"):unpack(packed, i))) end
  return words
end

-- The launch record's tables, as far as a launch needs them.
local function entry_of(kernel, p)
  local entry = kernel.family.record(kernel.spec, kernel.tile, kernel.arch)
  assert(#entry.entries == 1 and #(entry.workspace or {}) == 0,
         p.name .. " needs more than one launch")
  return entry.entries[1], entry.maps or {}
end

local field_of = { seqlen_q = "seqlen_q", seqlen_k = "seqlen_k", num_heads = "heads",
                   num_heads_k = "heads_k", batch = "batch" }

local function problem_text(p)
  local words = { p.dtype, p.head_dim, p.head_dim_v, p.mask, p.batch, p.seqlen_q, p.seqlen_k,
                  p.heads, p.heads_k }
  return table.concat(words, " ")
end

-- kernel: { spec, tile, arch, family }, resolved.
local function case_of(p, kernel)
  local entry, maps = entry_of(kernel, p)
  local tiles, random = 1, inputs.random(19)
  for _, factor in ipairs(entry.grid) do
    tiles = tiles * ((p[field_of[factor[1]]] + factor[2] - 1) // factor[2])
  end
  local function values(dim, seqlen, heads, low, high)
    return inputs.reals(random, p.dtype, dim * seqlen * heads * p.batch, low, high)
  end
  local input, q, k, v = inputs.join(values(p.head_dim, p.seqlen_q, p.heads, -4, 0),
    values(p.head_dim, p.seqlen_k, p.heads_k, -4, 0),
    values(p.head_dim_v, p.seqlen_k, p.heads_k, -4, 0))
  local o_bytes = 2 * p.head_dim_v * p.seqlen_q * p.heads * p.batch
  local lse_bytes = 4 * p.seqlen_q * p.heads * p.batch
  local lse = (o_bytes + 255) // 256 * 256
  local t = { q = tensor("in", q, p.head_dim, p.seqlen_q, p.heads, p.batch),
              k = tensor("in", k, p.head_dim, p.seqlen_k, p.heads_k, p.batch),
              v = tensor("in", v, p.head_dim_v, p.seqlen_k, p.heads_k, p.batch),
              o = tensor("out", 0, p.head_dim_v, p.seqlen_q, p.heads, p.batch) }
  local list = {}
  for _, param in ipairs(entry.params) do
    local name = param:match("^map:(.*)$")
    if name then list[#list + 1] = map_of(t[name], maps[name], p.dtype) end
  end
  local persistent = (entry.persistent or 0) > 0
  return { name = p.name, problem = problem_text(p), arch = p.arch, entry = entry.name,
           threads = entry.threads, cluster = entry.cluster or 1, shared = entry.shared_bytes,
           grid = { persistent and math.min(tiles, GRID) or tiles, 1 }, input = input,
           output = lse + lse_bytes, maps = list, shows = {},
           words = words_of(p, t, lse, tiles, kernel.tile.block_m),
           -- ex2 and the order of sums move a probability past a rounding to 16 bits now and then
           checks = { { p.dtype, 0, o_bytes, p.dtype == "bf16" and 2.0^-7 or 2.0^-10, 2.0^-12 },
                      { "f32", lse, lse_bytes, 0, 2.0^-18 } } }
end

-- render: the module of that name. The cases, each with its two texts.
function forward.cases(render)
  local out = {}
  for i, p in ipairs(problems) do
    local spec = { arch = p.arch, pass = "forward", algorithm = "flash", dtype = p.dtype,
                   head_dim = p.head_dim, head_dim_v = p.head_dim_v, mask = p.mask }
    local tile = { block_m = 0, block_n = 0, num_stages = 0, num_warps = 0 }
    local whole, chosen = assert(render.resolve(spec, tile))
    local arch = require("arch").find(p.arch)
    local family = require(arch.families[1])
    local case = case_of(p, { spec = whole, tile = chosen, arch = arch, family = family })
    case.cuda = assert(render.render(spec, tile, { plain = true }))
    case.emulated = assert(render.render(spec, tile, { plain = true, emulator = true }))
    out[i] = case
  end
  return out
end

return forward

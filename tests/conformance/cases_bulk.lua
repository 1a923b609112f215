-- The micro-kernels of bulk copies: boxes of any rank and element, bytes in a row, sums; and of the
-- products whose operands come that way: 8-bit numbers, a as a (k, m) tile. Called by cases.lua
-- with its `add`; what a case holds is said there.
local inputs = require("inputs")

local POLICY = "0x14F0000000000000ull"
local BYTES = { bf16 = 2, fp16 = 2, e4m3 = 1, fp32 = 4 }

-- ---- numbers ----

-- Whole numbers from -limit to limit of any dtype.
local function integers(random, dtype, count, limit)
  if dtype == "bf16" or dtype == "fp16" then
    return inputs.integers(random, dtype, count, limit)
  end
  local out = {}
  for i = 1, count do
    local x = random(2 * limit + 1) - limit
    out[i] = dtype == "fp32" and ("<f"):pack(x) or inputs.e4m3(x)
  end
  return table.concat(out)
end

-- ---- boxes ----

local function product_of(list)
  local all = 1
  for _, x in ipairs(list) do all = all * x end
  return all
end

-- One box's place of the coordinates c, as operands; corners as eight words each.
local function operands(rank)
  local out = {}
  for i = 1, rank do out[i] = ("(int)c[%d]"):format(i - 1) end
  return table.concat(out, ", ")
end
local function corner_words(corners)
  local out = {}
  for i, c in ipairs(corners) do
    local words = {}
    for d = 1, 8 do words[d] = ("<i4"):pack(c[d] or 0) end
    out[i] = table.concat(words)
  end
  return table.concat(out)
end

-- Tensors by their rank: dims, strides, box, swizzle, dtype, bytes in all, corners. The one of rank
-- 5 is a head of 128 columns as two panels of 64; that of rank 1 has no end on 16 bytes.
local tensors = {
  { dims = { 301 }, strides = {}, box = { 64 }, swizzle = 0, dtype = "fp32", size = 1216,
    corners = { { 0 }, { 4 }, { 236 }, { 240 }, { 296 }, { 64 } } },
  { dims = { 72, 20 }, strides = { 288 }, box = { 32, 16 }, swizzle = 128, dtype = "fp32",
    size = 5760, corners = { { 0, 0 }, { 4, 3 }, { 68, 19 }, { 40, 4 }, { 64, 12 } } },
  { dims = { 72, 20, 6 }, strides = { 144, 2880 }, box = { 32, 8, 2 }, swizzle = 64,
    dtype = "fp16", size = 17280,
    corners = { { 0, 0, 0 }, { 8, 5, 1 }, { 64, 16, 5 }, { 40, 19, 3 } } },
  { dims = { 40, 10, 4, 3 }, strides = { 80, 800, 3200 }, box = { 16, 4, 2, 2 }, swizzle = 32,
    dtype = "bf16", size = 9600,
    corners = { { 0, 0, 0, 0 }, { 8, 5, 1, 1 }, { 32, 8, 3, 2 }, { 24, 9, 0, 1 } } },
  { dims = { 64, 20, 2, 3, 2 }, strides = { 256, 128, 5120, 15360 }, box = { 64, 16, 2, 1, 1 },
    swizzle = 128, dtype = "bf16", size = 30720,
    corners = { { 0, 0, 0, 0, 0 }, { 0, 7, 0, 2, 1 }, { 8, 19, 1, 1, 0 }, { 56, 4, 1, 0, 1 } } },
}
-- Eight-bit numbers in two dimensions, for loads and stores.
local bytes_2d = { dims = { 160, 40 }, strides = { 160 }, box = { 128, 16 }, swizzle = 128,
                   dtype = "e4m3", size = 6400,
                   corners = { { 0, 0 }, { 16, 5 }, { 144, 39 }, { 112, 30 } } }

-- Rows that end off 16 bytes: a store goes on to the next multiple, behind the tensor's row.
local odd_rows = { dims = { 68, 12 }, strides = { 144 }, box = { 32, 8 }, swizzle = 64,
                   dtype = "bf16", size = 1728, corners = { { 0, 0 }, { 40, 2 }, { 64, 9 } } }

local function map_of(t, space, offset)
  return { space = space, offset = offset, dims = t.dims, strides = t.strides, box = t.box,
           swizzle = t.swizzle, dtype = t.dtype }
end
local function box_bytes(t) return product_of(t.box) * BYTES[t.dtype] end

local function load_case(add, name, t, corners)
  local rank = #t.dims
  local input, _, tensor = inputs.join(corner_words(corners),
                                       inputs.words(inputs.random(30 + rank), t.size // 4))
  add { name = name, kernel = "tile_load", threads = 32, arch = "sm_90a", input = input,
        output = #corners * box_bytes(t), shared = 16384,
        values = { count = #corners, bytes = box_bytes(t), rank = rank, place = operands(rank),
                   policy = POLICY },
        maps = { map_of(t, "in", tensor) }, shows = { ("tma_load_%dd"):format(rank) } }
end

-- `content`: what is stored, or random numbers.
local function store_case(add, name, t, corners, is_sum, content)
  local rank, bytes = #t.dims, box_bytes(t)
  local count = (is_sum and 1 or #corners) * bytes // BYTES[t.dtype]
  local random = inputs.random(40 + rank)
  content = content or is_sum and integers(random, t.dtype, count, 7)
    or inputs.words(random, count * BYTES[t.dtype] // 4)
  local store = is_sum and "tma_add" or "tma_store"
  add { name = name, kernel = "tile_store", threads = 32, arch = "sm_90a", shared = 16384,
        input = corner_words(corners) .. content, output = 256 + t.size + 256,
        values = { count = #corners, bytes = bytes, rank = rank, place = operands(rank),
                   store = store, add = is_sum and 1 or 0, zeros = is_sum and t.size or 0 },
        maps = { map_of(t, "out", 256) },
        shows = { ("%s_%dd"):format(store, rank), "fence_async_global" } }
end

local function multicast_case(add, t)
  local rank, corners = #t.dims, { t.corners[1], t.corners[2], t.corners[3], t.corners[4] }
  local input, _, tensor = inputs.join(corner_words(corners),
                                       inputs.words(inputs.random(50 + rank), t.size // 4))
  add { name = ("tile_multicast_%dd"):format(rank), kernel = "tile_multicast", threads = 32,
        arch = "sm_90a", grid = { 4, 1 }, cluster = 2, input = input,
        output = 8 * box_bytes(t), shared = 16384,
        values = { bytes = box_bytes(t), rank = rank, place = operands(rank), policy = POLICY },
        maps = { map_of(t, "in", tensor) }, shows = { ("tma_load_multicast_%dd"):format(rank) } }
end

local function boxes(add)
  for rank, t in ipairs(tensors) do
    if rank ~= 4 then
      load_case(add, ("tile_load_%dd"):format(rank), t, t.corners)
      store_case(add, ("tile_store_%dd"):format(rank), t, t.corners, false)
      multicast_case(add, t)
    end
    store_case(add, ("tile_add_%dd"):format(rank), t, t.corners, true)
  end
  load_case(add, "tile_load_bytes", bytes_2d, bytes_2d.corners)
  store_case(add, "tile_store_bytes", bytes_2d, bytes_2d.corners, false)
  load_case(add, "tile_load_odd_rows", odd_rows, odd_rows.corners)
  store_case(add, "tile_store_odd_rows", odd_rows, odd_rows.corners, false)
  store_case(add, "tile_add_odd_rows", odd_rows, odd_rows.corners, true)
  -- corners below zero and boxes outside altogether, as in cases.lua
  local below, outside = { { -32, -5, 0 }, { 0, -8, 5 }, { 8, 0, -1 } }, { { 72, 0, 0 },
                                                                          { 0, 20, 0 },
                                                                          { 0, 0, 6 } }
  load_case(add, "tile_load_below", tensors[3], below)
  load_case(add, "tile_load_outside", tensors[3], outside)
  store_case(add, "tile_add_outside", tensors[3], outside, true)
end

-- Stores that end at a row of their own: two dimensions whose strides cancel modulo 2^64 move the
-- tensor so that it ends there. Row r of a box whose rows end after `left` lies at 2^30 - left + r.
local function ragged_case(add)
  local row, far = 128, 1 << 30
  local t = { dims = { 64, far, 1 << 31, far + 1, 1 },
              strides = { row, row, (1 << 35) - row, 16 }, box = { 64, 16, 1, 1, 1 },
              swizzle = 128, dtype = "bf16", size = 64 * row }
  local function corner(at, left) return { 0, far - left, at + left, far, 0 } end
  store_case(add, "tile_store_ragged", t, { corner(0, 16), corner(30, 5), corner(63, 1) }, false)
end

-- ---- bytes in a row ----

local function sum_case(add, name, dtype, x, y, times)
  add { name = name, kernel = "bulk_add", threads = 32, arch = "sm_90a", input = x .. y,
        output = #x, values = { bytes = #x, dtype = dtype, times = times, policy = POLICY },
        shows = { "bulk_add_" .. dtype } }
end

-- Operands and results that are subnormal, halfway between two numbers, too large, infinite.
local edges = {
  fp32 = { { 0x00400000, 0x00800001, 0x00000003, 0x7f7fffff, 0x7f800000, 0x3f800000, 0x80800000,
             0x3f800001 },
           { 0x00400000, 0x80800000, 0x00800000, 0x73800000, 0x7f800000, 0x33800000, 0x00800000,
             0x33800000 } },
  fp16 = { { 0x0001, 0x0200, 0x8400, 0x3c00, 0x3c01, 0x7bff, 0x7c00, 0x0400 },
           { 0x0001, 0x0200, 0x0401, 0x1000, 0x1000, 0x4c00, 0x3c00, 0x83ff } },
  bf16 = { { 0x0001, 0x0040, 0x8080, 0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0x0080 },
           { 0x0001, 0x0040, 0x0081, 0x3b80, 0x3b80, 0x7b80, 0x3f80, 0x807f } },
}

local function box_edges_case(add)
  local t = { dims = { 16 }, strides = {}, box = { 16 }, swizzle = 0, dtype = "fp32", size = 64 }
  store_case(add, "tile_add_edges_fp32", t, { { 0 }, { 0 } }, true,
             inputs.bits(edges.fp32[1]) .. inputs.bits(edges.fp32[2]))
end

local function rows(add)
  add { name = "bulk", kernel = "bulk", threads = 32, arch = "sm_90a", output = 2064,
        values = { policy = POLICY }, input = inputs.words(inputs.random(60), 512),
        shows = { "bulk_load", "bulk_store" } }
  add { name = "bulk_peer", kernel = "bulk_peer", threads = 32, arch = "sm_90a", grid = { 4, 1 },
        cluster = 2, output = 4 * 768, input = inputs.words(inputs.random(61), 512),
        shows = { "bulk_copy_peer" } }
  for _, dtype in ipairs({ "fp32", "fp16", "bf16" }) do
    local count, random, lists = 1024 // BYTES[dtype], inputs.random(62), {}
    sum_case(add, "bulk_add_" .. dtype, dtype, integers(random, dtype, count, 9),
             integers(random, dtype, count, 9), 3)
    local format = dtype == "fp32" and "<I4" or "<I2"
    for i, list in ipairs(edges[dtype]) do
      for j, x in ipairs(list) do lists[i] = (lists[i] or "") .. format:pack(x) end
    end
    sum_case(add, "bulk_add_edges_" .. dtype, dtype, lists[1], lists[2], 1)
  end
end

-- ---- products ----

local function matrix(offset, columns, rows_all, box_columns, box_rows, dtype)
  return { space = "in", offset = offset, dims = { columns, rows_all },
           strides = { columns * BYTES[dtype] }, box = { box_columns, box_rows }, swizzle = 128,
           dtype = dtype }
end

local function e4m3_case(add, name, n, numbers, checks)
  local random = inputs.random(70 + n)
  local input, a, b = inputs.join(numbers(random, 64 * 128), numbers(random, n * 128))
  add { name = name, kernel = "wgmma_e4m3", threads = 128, arch = "sm_90a", grid = { 2, 1 },
        input = input, output = 2 * 64 * n * 4, shared = 8192 + 128 * n + 16,
        values = { n = n, count = n // 2, policy = POLICY }, checks = checks,
        maps = { matrix(a, 128, 64, 128, 64, "e4m3"), matrix(b, 128, n, 128, n, "e4m3") },
        shows = { ("wgmma_ss_n%d_e4m3"):format(n), ("wgmma_rs_n%d_e4m3"):format(n) } }
end

local function major_case(add, n, dtype)
  local random = inputs.random(80 + n)
  local input, a, b, t = inputs.join(integers(random, dtype, 64 * 64, 9),
                                     integers(random, dtype, n * 64, 9),
                                     integers(random, dtype, 64 * n, 9))
  add { name = ("wgmma_major_n%d_%s"):format(n, dtype), kernel = "wgmma_major", threads = 128,
        arch = "sm_90a", grid = { 2, 1 }, input = input, output = 2 * 64 * n * 4,
        shared = 8192 + 128 * n + (n + 63) // 64 * 8192 + 16,
        values = { n = n, dtype = dtype, count = n // 2, policy = POLICY },
        maps = { matrix(a, 64, 64, 64, 64, dtype), matrix(b, 64, n, 64, n, dtype),
                 matrix(t, n, 64, 64, 64, dtype) },
        shows = { ("wgmma_ss_n%d_%s_ta"):format(n, dtype),
                  ("wgmma_ss_n%d_%s_tab"):format(n, dtype) } }
end

local function products(add)
  for _, n in ipairs({ 8, 64, 96, 128, 256 }) do
    e4m3_case(add, ("wgmma_n%d_e4m3"):format(n), n,
              function(random, count) return integers(random, "e4m3", count, 4) end)
  end
  -- The sums inside the tensor cores keep about 13 bits of the largest: 128 products below 4.
  e4m3_case(add, "wgmma_real_e4m3", 16, function(random, count)
    local out = {}
    for i = 1, count do out[i] = string.char(random(2) << 7 | random(8) << 3 | random(8)) end
    return table.concat(out)
  end, { { "f32", 0, 2 * 64 * 16 * 4, 0, 513 * 2.0^-12 } })
  for _, dtype in ipairs({ "bf16", "fp16" }) do
    for _, n in ipairs({ 64, 128 }) do major_case(add, n, dtype) end
  end
end

return function(add)
  boxes(add)
  ragged_case(add)
  box_edges_case(add)
  rows(add)
  products(add)
end

-- The micro-kernels: one row a kernel and its input. Read by compose.lua.
--
-- A case holds
--   name, kernel      kernels/<kernel>.cu, whose ${names} come from `values`
--   shows             the wrappers whose answers it shows
--   arch              what the GPU runs; "sm_90" kernels are compiled for sm_80 too
--   threads, grid, cluster, shared
--   input, output     bytes of a.in; size of a.out, which begins as 0xff
--   maps              TMA descriptors, in the order of the parameters
--   checks            how the answer is compared: kind "bits", or the element with a relative and
--                     an absolute bound ("f32": all NaN are alike); none = all of it, bit for bit
-- Bulk copies, boxes of ranks other than 4, products of 8-bit numbers: cases_bulk.lua.
local inputs = require("inputs")

local cases = {}

local function add(case)
  case.arch = case.arch or "sm_90"
  case.grid = case.grid or { 1, 1 }
  case.cluster = case.cluster or 1
  case.shared = case.shared or 8192
  case.values = case.values or {}
  case.maps = case.maps or {}
  case.input = case.input or ("\0"):rep(16)
  case.words = case.words or { { "in", 0 }, { "out", 0 } }
  case.checks = case.checks or { { "bits", 0, case.output, 0, 0 } }
  cases[#cases + 1] = case
end

-- ---- threads, warps, scalars ----

add { name = "threads", kernel = "threads", threads = 64, grid = { 3, 2 }, output = 6144,
      shows = { "thread_index", "block_index", "block_index_again", "num_blocks" } }
add { name = "warp", kernel = "warp", threads = 32, values = { rows = 40 }, output = 40 * 1024,
      input = inputs.words(inputs.random(1), 40 * 32),
      shows = { "shfl_i32", "shfl_xor_f32", "shfl_xor_u32", "any_sync", "redux_max_i32" } }

add { name = "lanes", kernel = "lanes", threads = 32, values = { rows = 33 },
      output = 33 * 480 * 4, input = inputs.words(inputs.random(19), 33 * 32),
      shows = { "shfl_up_i32", "shfl_down_i32", "shfl_f32", "all_sync", "ballot_sync",
                "redux_add_u32", "redux_add_i32", "redux_min_u32", "redux_max_u32",
                "redux_min_i32", "redux_and_u32", "redux_or_u32", "redux_xor_u32" } }
add { name = "elect", kernel = "elect", threads = 96, arch = "sm_90a", output = 96 * 8,
      shows = { "elect_one", "grid_wait", "grid_launch_dependents" } }
add { name = "byte_perm", kernel = "byte_perm", threads = 128, output = 16384,
      shows = { "byte_perm" } }
for _, dtype in ipairs({ "bf16", "fp16" }) do
  add { name = "unpack_" .. dtype, kernel = "unpack", threads = 128, output = 65536 * 4,
        values = { wrapper = "unpack_" .. dtype }, shows = { "unpack_" .. dtype } }
end

add { name = "bits", kernel = "bits", threads = 128, output = 8192,
      shows = { "as_float", "as_u32" } }

-- Every sign and exponent, with mantissas at and beside the midpoints of bf16 and fp16.
local function all_exponents()
  local random, list = inputs.random(2), {}
  local low = { 0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0x17fff, 0x18000, 0x7fffff,
                0x3000 }
  for exponent = 0, 511 do
    for i = 1, 6 do
      local mantissa = low[random(#low) + 1] ~ (random(2) == 0 and random(1 << 10) << 13 or 0)
      list[#list + 1] = exponent << 23 | mantissa & 0x7fffff
      list[#list + 1] = exponent << 23 | (i <= 3 and low[(exponent + i) % #low + 1]
        or random(1 << 23))
    end
  end
  return inputs.bits(list)
end
for _, dtype in ipairs({ "bf16", "fp16", "e4m3" }) do
  local list = all_exponents()
  add { name = "pack_" .. dtype, kernel = "pack", threads = 128,
        arch = dtype == "e4m3" and "sm_90a" or nil, input = list, output = #list,
        values = { wrapper = "pack_" .. dtype, count = #list // 4 }, shows = { "pack_" .. dtype } }
end

-- PTX ISA: ex2.approx.ftz is within 2^-22 of the value, relatively; so is lg2.approx.ftz outside
-- (0.5, 2), and absolutely inside. The emulator's own rounding adds 2^-24.
local BOUND = 2.0^-22 + 2.0^-24
local special = { 0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 1, 0x80000001,
                  0x007fffff, 0x00800000, 0x807fffff, 0x3f800000, 0x7f7fffff, 0xff7fffff }
local function scalar(name, wrapper, list, relative, absolute)
  local input = inputs.bits(special) .. inputs.floats(list)
  add { name = name, kernel = "scalar", threads = 128, input = input, output = #input,
        values = { wrapper = wrapper, count = #input // 4 }, shows = { wrapper },
        checks = { { "f32", 0, 4 * #special, math.max(BOUND, relative), 0 },
                   { "f32", 4 * #special, 4 * #list, relative, absolute } } }
end
local function spread(seed, count, low, high)
  local random, list = inputs.random(seed), {}
  for i = 1, count do list[i] = low + (high - low) * random(1 << 24) / (1 << 24) end
  return list
end
local exponents = spread(3, 1500, -125.9, 127.99)
for _, x in ipairs({ -126, -127, -140, -149, -150, -1000, 127, 128, 1000, 0.5, -0.5, 1e-30,
                     -20 }) do
  exponents[#exponents + 1] = x
end
scalar("ex2", "ex2", exponents, BOUND, 0)
local outside, powers = spread(4, 1500, 1, 2), inputs.random(5)
for i, x in ipairs(outside) do
  local power = powers(252) - 125
  outside[i] = x * 2.0^(power == 0 and 3 or power == -1 and -9 or power)
end
scalar("lg2", "lg2", outside, BOUND, 0)
-- tanh.approx is within 2^-11 of the value.
scalar("tanh", "tanh_approx", spread(20, 1500, -12, 12), 2.0^-11 + 2.0^-24, 0)
scalar("lg2_near_1", "lg2", spread(6, 1500, 0.5, 2), 0, BOUND)

-- ---- shared and global memory ----

add { name = "shared", kernel = "shared", threads = 128, output = 3584,
      input = inputs.words(inputs.random(7), 512),
      shows = { "sync_warp", "sync_threads", "shared_base", "sts_i32", "lds_i32", "sts_f32",
                "lds_f32", "sts_u32", "lds_u32x4" } }
add { name = "shared_atomics", kernel = "shared_atomics", threads = 128, output = 16 + 512,
      input = inputs.bits({ 0, 0x80000000, 0, 0, 0x00012345, 0, 0, 0 }),
      shows = { "sts_u32x4", "atomic_shared_add_u32", "atomic_shared_max_i32",
                "atomic_shared_add_f32" } }
add { name = "flags", kernel = "flags", threads = 64, output = 40,
      shows = { "lds_flag", "sts_flag" } }
for _, wrapper in ipairs({ "ldmatrix_x4", "ldmatrix_x4_trans" }) do
  add { name = wrapper, kernel = "matrix", threads = 32, values = { wrapper = wrapper },
        output = 4096, input = inputs.words(inputs.random(8), 512), shows = { wrapper } }
end
for _, wrapper in ipairs({ "stmatrix_x4", "stmatrix_x4_trans" }) do
  add { name = wrapper, kernel = "stmatrix", threads = 32, arch = "sm_90a", output = 2048,
        values = { wrapper = wrapper }, input = inputs.words(inputs.random(9), 512),
        shows = { wrapper } }
end
add { name = "global", kernel = "global", threads = 64, output = 1792,
      input = inputs.words(inputs.random(10), 256),
      shows = { "ldg_f32", "stg_f32", "ldg_u16", "stg_u16", "stg_u32", "ldg_u32x4",
                "stg_u32x4" } }
add { name = "atomics", kernel = "atomics", threads = 64, grid = { 7, 1 }, output = 16 + 7 * 256,
      shows = { "atomic_add_u64" } }
local ZEROS = ("\0"):rep(256)
add { name = "atomics32", kernel = "atomics32", threads = 64, grid = { 7, 1 }, input = ZEROS,
      arch = "sm_90a", output = 4 * (896 + 12),
      shows = { "atomic_add_u32", "atomic_add_f32", "red_add_f32", "atomic_inc_u32",
                "red_add_f32x4", "red_add_f32x2", "atomic_max_i32", "fence_gpu",
                "atomic_add_u32_acq_rel" } }
add { name = "exchange", kernel = "exchange", threads = 64, input = ZEROS, output = 4 * 129,
      shows = { "atomic_exch_u32", "atomic_cas_u32" } }
add { name = "semaphores", kernel = "semaphores", threads = 32, grid = { 5, 1 }, input = ZEROS,
      output = 128, shows = { "ldg_acquire_u32", "stg_release_u32", "red_add_u32_release" } }
add { name = "turns", kernel = "turns", threads = 64, grid = { 5, 1 }, input = ZEROS, output = 256,
      shows = { "semaphore_wait" } }
do
  local tiny, smallest = 0x00400000, 0x00800000
  local x, y = {}, {}
  for i = 1, 32 do
    x[i] = ({ tiny, smallest, smallest, 0, 0x3f800000, smallest + 1, 0x80000001, tiny })[i % 8 + 1]
    y[i] = ({ tiny, tiny, 0x80800001, tiny + i, tiny, 0x80800000, 0x80000001, 0x3f800000 })
      [i % 8 + 1]
  end
  add { name = "subnormal", kernel = "subnormal", threads = 32, arch = "sm_90a", output = 384,
        input = inputs.bits(x) .. inputs.bits(y), shows = { "red_add_f32x4" } }
end
add { name = "copies", kernel = "copies", threads = 128, output = 4096,
      input = inputs.words(inputs.random(11), 512),
      shows = { "cp_async_16", "cp_async_commit", "cp_async_wait" } }
add { name = "named", kernel = "named", threads = 128, output = 12 * 128,
      shows = { "named_sync", "named_arrive" } }
add { name = "touch", kernel = "touch", threads = 32, output = 1536,
      input = inputs.words(inputs.random(12), 256), shows = { "touch_f32x8", "touch_u32x4" } }

-- ---- mma.sync ----

local function mma(name, dtype, operand, absolute, largest)
  local random, parts = inputs.random(13), {}
  for i = 1, 4 do
    local d = {}
    for n = 1, 128 do d[n] = random(2 * largest + 1) - largest end
    parts[i] = operand(random, 256) .. operand(random, 128) .. inputs.floats(d)
  end
  add { name = name .. "_" .. dtype, kernel = "mma", threads = 32, output = 2048,
        values = { count = 4, dtype = dtype }, input = table.concat(parts),
        shows = { "mma_m16n8k16_" .. dtype }, checks = { { "f32", 0, 2048, 0, absolute } } }
end
-- Small numbers, subnormals, the largest, infinities, NaN: sums of one or two of them.
local extremes = {
  fp16 = { 0x0001, 0x03ff, 0x8001, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x8000 },
  bf16 = { 0x0001, 0x007f, 0x8001, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x8000 },
}
for _, dtype in ipairs({ "bf16", "fp16" }) do
  mma("mma", dtype, function(random, count) return inputs.integers(random, dtype, count, 9) end, 0,
      32)
  -- Products below 4 in size, 17 terms below 97 together: 2^-22 of that.
  mma("mma_real", dtype,
      function(random, count) return inputs.reals(random, dtype, count, -6, 0) end, 97 * 2.0^-22,
      32)
  mma("mma_extreme", dtype, function(random, count)
    local out = {}
    for i = 1, count do
      local is_one = count == 128 and i <= 16
      out[i] = ("<I2"):pack(is_one and (dtype == "bf16" and 0x3f80 or 0x3c00)
        or count == 256 and i % 16 == 1 and extremes[dtype][random(10) + 1] or 0)
    end
    return table.concat(out)
  end, 0, 0)
end

-- ---- mbarriers, clusters, registers ----

add { name = "mbarrier", kernel = "mbarrier", threads = 64, arch = "sm_90a", output = 12 * 128,
      shows = { "bar_init", "fence_bar_init", "bar_arrive", "bar_wait" } }
add { name = "tries", kernel = "tries", threads = 64, arch = "sm_90a", output = 12 * 128,
      shows = { "bar_try" } }
add { name = "registers", kernel = "registers", threads = 384, arch = "sm_90a", output = 1536,
      input = inputs.words(inputs.random(14), 512), shows = { "reg_dec", "reg_inc" } }
add { name = "cluster_peer", kernel = "cluster_peer", threads = 32, arch = "sm_90a",
      grid = { 4, 1 }, cluster = 2, output = 4 * 128,
      shows = { "bar_arrive_peer", "cluster_sync", "cluster_rank" } }

-- ---- TMA ----

local EVICT_FIRST, EVICT_LAST = "0x12F0000000000000ull", "0x14F0000000000000ull"
-- Columns are multiples of 16 bytes, and stores begin nowhere below zero: an H200 takes others for
-- an illegal instruction. What is refused would hide the rest, so that loads below zero and boxes
-- that lie outside altogether are cases of their own.
local corners = { { 0, 0, 0, 0 }, { 24, 7, 1, 1 }, { 56, 19, 0, 1 }, { 8, 3, 2, 1 },
                  { 64, 12, 2, 0 }, { 16, 4, 1, 0 } }
local below = { { -8, -5, 2, 0 }, { -56, 2, 0, 0 }, { 8, -15, 1, 1 }, { 0, 4, -1, 0 },
                { 0, 4, 0, -1 } }
local outside = { { 72, 0, 0, 0 }, { 0, 20, 1, 0 }, { 0, 0, 3, 0 }, { 8, 4, 0, 2 },
                  { 80, 40, 7, 9 } }

-- A tensor of 72 columns, 20 rows, 3 heads, 2 batches.
local function tensor_map(space, offset, box, swizzle, strides)
  return { space = space, offset = offset, dims = { 72, 20, 3, 2 },
           strides = strides or { 144, 2880, 8640 }, box = box, swizzle = swizzle,
           dtype = "bf16" }
end
local TENSOR_BYTES = 17280

local function load_case(name, box, swizzle, places, strides)
  local input, _, tensor = inputs.join(inputs.coordinates(places),
                                       inputs.words(inputs.random(15), TENSOR_BYTES // 4))
  local bytes = 2 * box[1] * box[2] * box[3] * box[4]
  add { name = name, kernel = "tma_load", threads = 32, arch = "sm_90a", input = input,
        output = #places * bytes, shared = 16384,
        values = { count = #places, bytes = bytes, policy = EVICT_LAST },
        maps = { tensor_map("in", tensor, box, swizzle, strides) },
        shows = { "tma_prefetch_map", "bar_expect", "tma_load" } }
end
local function store_case(name, box, swizzle, places)
  local bytes = 2 * box[1] * box[2] * box[3] * box[4]
  add { name = name, kernel = "tma_store", threads = 32, arch = "sm_90a", shared = 16384,
        input = inputs.coordinates(places), output = 256 + TENSOR_BYTES + 256,
        values = { count = #places, bytes = bytes },
        maps = { tensor_map("out", 256, box, swizzle) },
        shows = { "tma_store", "bulk_commit", "bulk_wait", "bulk_wait_read", "fence_async" } }
end
for _, swizzle in ipairs({ 0, 32, 64, 128 }) do
  local box = { swizzle == 0 and 64 or swizzle // 2, 16, 1, 1 }
  load_case("tma_load_" .. swizzle, box, swizzle, corners)
  store_case("tma_store_" .. swizzle, box, swizzle, corners)
end
local panel = { 64, 16, 1, 1 }
load_case("tma_load_4d", { 16, 4, 2, 2 }, 0, corners)
store_case("tma_store_4d", { 16, 4, 2, 2 }, 0, corners)
load_case("tma_load_below", panel, 128, below)
load_case("tma_load_outside", panel, 128, outside)
store_case("tma_store_outside", panel, 128, outside)
load_case("tma_load_head_stride_0", panel, 128, corners, { 144, 0, 2880 })
load_case("tma_load_batch_stride_0", panel, 128, corners, { 144, 2880, 0 })
load_case("tma_load_row_stride_0", panel, 128, corners, { 0, 2880, 8640 })
load_case("tma_load_all_strides_0", panel, 128, corners, { 0, 0, 0 })
add { name = "tma_multicast", kernel = "cluster", threads = 32, arch = "sm_90a", grid = { 4, 1 },
      cluster = 2, output = 4 * 6144 + 4 * 128, values = { policy = EVICT_FIRST },
      input = inputs.words(inputs.random(16), 48 * 32),
      maps = { { space = "in", offset = 0, dims = { 64, 48, 1, 1 },
                 strides = { 128, 6144, 6144 }, box = { 64, 8, 1, 1 }, swizzle = 0,
                 dtype = "bf16" } },
      shows = { "tma_load_multicast", "cluster_rank", "cluster_sync", "bar_arrive_peer" } }

-- ---- wgmma ----

local function matrix_map(offset, rows, columns, box_rows, box_columns, swizzle, dtype)
  return { space = "in", offset = offset, dims = { columns, rows, 1, 1 },
           strides = { 2 * columns, 2 * columns * rows, 2 * columns * rows },
           box = { box_columns, box_rows, 1, 1 }, swizzle = swizzle, dtype = dtype }
end

local function wgmma(name, n, dtype, operand, checks)
  local random = inputs.random(17 + n)
  local input, a, b, t = inputs.join(operand(random, 64 * 64), operand(random, n * 64),
                                     operand(random, 64 * n))
  local shows = { "wgmma_fence", "wgmma_commit", "wgmma_wait" }
  for _, from in ipairs({ "ss", "rs" }) do
    for _, trans in ipairs({ "", "_t" }) do
      shows[#shows + 1] = ("wgmma_%s_n%d_%s%s"):format(from, n, dtype, trans)
    end
  end
  add { name = name, kernel = "wgmma", threads = 128, arch = "sm_90a", input = input,
        grid = { 4, 1 }, output = 4 * 64 * n * 4,
        shared = 8192 + 128 * n + (n + 63) // 64 * 8192 + 16,
        values = { n = n, dtype = dtype, count = n // 2, policy = EVICT_LAST }, shows = shows,
        maps = { matrix_map(a, 64, 64, 64, 64, 128, dtype), matrix_map(b, n, 64, n, 64, 128, dtype),
                 matrix_map(t, 64, n, 64, 64, 128, dtype) }, checks = checks }
end
for _, dtype in ipairs({ "bf16", "fp16" }) do
  for _, n in ipairs({ 8, 16, 64, 80, 112, 128, 240, 256 }) do
    wgmma(("wgmma_n%d_%s"):format(n, dtype), n, dtype,
          function(random, count) return inputs.integers(random, dtype, count, 9) end)
  end
  -- 64 products below 4 in size.
  wgmma("wgmma_real_" .. dtype, 16, dtype,
        function(random, count) return inputs.reals(random, dtype, count, -6, 0) end,
        { { "f32", 0, 4 * 64 * 16 * 4, 0, 257 * 2.0^-22 } })
end

-- By words of descriptors.
for _, n in ipairs({ 16, 64, 80, 128 }) do
  local random, dtype = inputs.random(19 + n), "bf16"
  local function integers(count) return inputs.integers(random, dtype, count, 9) end
  local input, a, b, t = inputs.join(integers(64 * 64), integers(n * 64), integers(64 * n))
  local shows = {}
  for _, form in ipairs({ "set_ss_n%d_bf16", "add_ss_n%d_bf16", "set_rs_n%d_bf16",
                          "add_rs_n%d_bf16", "add_ss_n%d_bf16_t", "add_rs_n%d_bf16_t",
                          "set_rs_n%d_bf16_flat", "add_ss_n%d_bf16_flat" }) do
    shows[#shows + 1] = "wgmma_" .. form:format(n)
  end
  add { name = "wgmma_words_n" .. n, kernel = "wgmma_words", threads = 128, arch = "sm_90a",
        input = input, grid = { 6, 1 }, output = 6 * 64 * n * 4,
        shared = 8192 + 128 * n + (n + 63) // 64 * 8192 + 16,
        values = { n = n, dtype = dtype, count = n // 2, policy = EVICT_LAST }, shows = shows,
        maps = { matrix_map(a, 64, 64, 64, 64, 128, dtype), matrix_map(b, n, 64, n, 64, 128, dtype),
                 matrix_map(t, 64, n, 64, 64, 128, dtype) } }
end

-- Descriptors of the other swizzles; without their address, in units of 16 bytes.
local function fields(p, rows, trans)
  local code = ({ [128] = 1, [64] = 2, [32] = 3, [0] = 0 })[p.swizzle]
  local leading, stride = 1, p.swizzle // 2
  if trans then leading = p.depth * p.panel * 2 // 16 end
  if p.swizzle == 0 then
    stride = trans and leading or 8
    leading = trans and 8 or rows
  end
  return ("0x%xull"):format(code << 62 | stride << 32 | leading << 16)
end
local function swizzle_case(swizzle, n, dtype, trans)
  local p = { swizzle = swizzle, depth = swizzle > 0 and swizzle // 2 or 16,
              panel = swizzle > 0 and swizzle // 2 or 8 }
  local random = inputs.random(18)
  local input, a, b = inputs.join(inputs.integers(random, dtype, 64 * p.depth, 9),
                                  inputs.integers(random, dtype, n * p.depth, 9))
  local rows, columns = trans and p.depth or n, trans and n or p.depth
  local suffix = trans and "_t" or ""
  add { name = ("wgmma_swizzle_%d%s"):format(swizzle, suffix), kernel = "wgmma_swizzle",
        threads = 128, arch = "sm_90a", input = input, output = 64 * n * 4, shared = 49152,
        values = { n = n, dtype = dtype, count = n // 2, depth = p.depth, panel = p.panel,
                   trans = trans and 1 or 0, suffix = suffix, policy = EVICT_LAST,
                   fields_a = fields(p, 64, false), fields_b = fields(p, n, trans),
                   a_step = swizzle > 0 and 2 or 128,
                   b_step = swizzle == 0 and 0 or trans and swizzle or 2 },
        shows = { ("wgmma_ss_n%d_%s%s"):format(n, dtype, suffix) },
        maps = { matrix_map(a, 64, p.depth, 64, p.panel, swizzle, dtype),
                 matrix_map(b, rows, columns, rows, p.panel, swizzle, dtype) } }
end
for _, trans in ipairs({ false, true }) do
  swizzle_case(0, 64, "fp16", trans)
  swizzle_case(32, 48, "bf16", trans)
  swizzle_case(64, 96, "fp16", trans)
  swizzle_case(128, 192, "bf16", trans)
end

require("cases_bulk")(add)
return { list = cases }

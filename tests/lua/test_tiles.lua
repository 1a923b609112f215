-- The cost model beside measured times, and the lists of tiles. Times are microseconds of
-- bench/results/2026-11-29-h200, of gradients of 2026-11-30-h200 (one H200, bf16, default tiles),
-- orders of tiles those of docs/performance.md.
local arch = require("arch")
local check = require("check")
local render = require("render")
local tiles = require("tiles")

local families = { ampere = require("ampere"), hopper = require("hopper"),
                   standard = require("standard") }
local lengths = { 512, 1024, 2048, 4096, 8192, 16384 } -- 16,384 tokens in all, hidden size 2,048
local SMS = 132

-- head_dim, mask, times by length
local hopper_times = {
  { 64, "none", 158.0, 282.5, 530.7, 1041.2, 2041.6, 4084.6 },
  { 128, "none", 116.6, 199.1, 366.3, 712.6, 1400.4, 2781.7 },
  { 256, "none", 119.9, 204.9, 361.8, 688.0, 1352.7, 2681.2 },
  { 64, "causal", 119.9, 184.8, 303.1, 552.7, 1057.2, 2073.9 },
  { 128, "causal", 89.4, 133.2, 216.4, 381.3, 723.0, 1403.5 },
  { 256, "causal", 96.6, 135.4, 213.2, 370.0, 696.7, 1343.0 },
}
local ampere_times = { -- sm_90 code
  { 64, "none", 221.4, 385.7, 720.9, 1410.6, 2754.5, 5529.6 },
  { 128, "none", 209.4, 375.1, 708.0, 1431.0, 2866.2, 5664.2 },
  { 256, "none", 237.6, 453.0, 828.1, 1619.2, 3285.8, 6584.2 },
  { 64, "causal", 197.5, 287.3, 447.3, 794.9, 1479.8, 2864.6 },
  { 128, "causal", 169.1, 264.4, 441.7, 788.6, 1533.9, 3024.5 },
  { 256, "causal", 163.4, 272.1, 471.4, 871.4, 1749.3, 3159.2 },
}
-- Gradients, in the same order: sm_90a, there deterministic, and sm_90 code.
local gradient_times = {
  { 64, "none", 519.7, 746.9, 1222.5, 2179.8, 4096.3, 7911.0 },
  { 128, "none", 458.5, 677.3, 1142.8, 2068.3, 3909.6, 7659.6 },
  { 256, "none", 524.0, 778.0, 1299.9, 2408.8, 4596.6, 9311.8 },
  { 64, "causal", 461.0, 579.9, 827.2, 1331.8, 2369.8, 4456.7 },
  { 128, "causal", 369.7, 470.4, 690.6, 1154.4, 2132.1, 3891.4 },
  { 256, "causal", 411.7, 540.2, 804.2, 1345.8, 2505.8, 4717.6 },
}
local deterministic_times = {
  { 64, "none", 592.9, 844.4, 1371.8, 2467.3, 4610.8, 8940.4 },
  { 128, "none", 508.1, 769.7, 1300.9, 2387.4, 4503.1, 8698.6 },
  { 256, "none", 610.5, 896.8, 1469.7, 2635.8, 5007.2, 9714.1 },
  { 64, "causal", 502.6, 626.7, 878.1, 1386.7, 2469.6, 4639.1 },
  { 128, "causal", 410.7, 524.7, 768.3, 1285.8, 2392.5, 4430.6 },
  { 256, "causal", 437.5, 578.1, 869.7, 1450.6, 2746.2, 5038.5 },
}
local ampere_gradient_times = {
  { 64, "none", 765.5, 1290.4, 2328.5, 4498.9, 9139.3, 18366.3 },
  { 128, "none", 659.3, 1110.7, 2041.2, 4072.9, 8021.8, 15788.0 },
  { 256, "none", 722.7, 1229.5, 2295.9, 4459.7, 8745.5, 17531.6 },
  { 64, "causal", 657.1, 894.8, 1377.6, 2390.4, 4534.2, 8856.9 },
  { 128, "causal", 507.4, 750.8, 1234.0, 2248.0, 4264.7, 8161.5 },
  { 256, "causal", 505.7, 775.4, 1326.0, 2387.6, 4550.4, 8807.9 },
}
-- 1024, 4096 and 16384 keys, 16 heads
local dims_times = {
  { 80, "none", 165.7, 574.5, 2246.4, v = 80 },
  { 96, "none", 175.7, 605.9, 2471.5, v = 96 },
  { 112, "none", 189.2, 668.6, 2619.4, v = 112 },
  { 160, "none", 263.1, 873.7, 3359.6, v = 160 },
  { 192, "none", 292.2, 1010.8, 3943.1, v = 192 },
  { 192, "none", 251.2, 852.0, 3468.0, v = 128 },
  { 80, "causal", 110.6, 316.2, 1133.1, v = 80 },
  { 96, "causal", 117.4, 335.3, 1220.4, v = 96 },
  { 112, "causal", 126.8, 358.3, 1311.7, v = 112 },
  { 160, "causal", 176.8, 482.9, 1733.3, v = 160 },
  { 192, "causal", 190.7, 549.8, 2009.9, v = 192 },
  { 192, "causal", 165.0, 463.8, 1799.3, v = 128 },
}
-- head_dim 64, batch 8, 16 heads; 1024, 2048, 4096 keys
local standard_times = { 808.7, 3514.0, 16741.6 }

local function spec_of(name, dim, mask, dim_v, algorithm)
  return { arch = name, pass = "forward", algorithm = algorithm or "flash", dtype = "bf16",
           head_dim = dim, head_dim_v = dim_v or dim, mask = mask }
end

local function square(length, heads, batch)
  return { batch = batch or 16384 // length, seqlen_q = length, seqlen_k = length,
           num_heads = heads, num_heads_k = heads }
end

local open = { block_m = 0, block_n = 0, num_stages = 0, num_warps = 0 }

local function predicted(spec, tile, shape, num_sms)
  local parts, sentence = render.predict(spec, tile or open, shape, num_sms or SMS)
  return parts or error(sentence, 2)
end

-- Every measured row as { predicted, measured, name }; more: fields of the spec besides.
local function rows_of(name, times, more)
  local out = {}
  for _, row in ipairs(times) do
    local dim, mask = row[1], row[2]
    for i, length in ipairs(row.v and { 1024, 4096, 16384 } or lengths) do
      local shape = square(length, row.v and 16 or 2048 // dim)
      local spec = spec_of(name, dim, mask, row.v)
      for field, value in pairs(more or {}) do spec[field] = value end
      out[#out + 1] = { predicted(spec, nil, shape).time, row[i + 2],
                        ("%s %d %s %d"):format(name, dim, mask, length) }
    end
  end
  return out
end

-- No row further than `most` times, and in the mean within `mean`.
local function near(rows, most, mean)
  local squares = 0
  for _, row in ipairs(rows) do
    local ratio = row[1] / row[2]
    if ratio > most or ratio < 1 / most then
      error(("%s: predicted %.0f, measured %.0f"):format(row[3], row[1], row[2]), 2)
    end
    squares = squares + math.log(ratio) ^ 2
  end
  local typical = math.exp(math.sqrt(squares / #rows))
  if typical > mean then error(("typically %.3f times off"):format(typical), 2) end
end

-- Spearman's rank correlation of predicted and measured.
local function correlation(rows)
  local function ranks(column)
    local order, rank = {}, {}
    for i = 1, #rows do order[i] = i end
    table.sort(order, function(a, b) return rows[a][column] < rows[b][column] end)
    for place, i in ipairs(order) do rank[i] = place end
    return rank
  end
  local a, b, sum = ranks(1), ranks(2), 0
  for i = 1, #rows do sum = sum + (a[i] - b[i]) ^ 2 end
  local n = #rows
  return 1 - 6 * sum / (n * (n * n - 1))
end

local tests = {}

function tests.hopper_times_are_near()
  local rows = rows_of("sm_90a", hopper_times)
  near(rows, 1.15, 1.06)
  near(rows_of("sm_90a", dims_times), 1.25, 1.1)
  assert(correlation(rows) > 0.97, correlation(rows))
end

function tests.ampere_times_are_near()
  local rows = rows_of("sm_90", ampere_times)
  near(rows, 1.25, 1.1)
  assert(correlation(rows) > 0.95, correlation(rows))
end

function tests.gradient_times_are_near()
  local rows = rows_of("sm_90a", gradient_times, { pass = "backward" })
  near(rows, 1.15, 1.07)
  assert(correlation(rows) > 0.99, correlation(rows))
  near(rows_of("sm_90a", deterministic_times, { pass = "backward", deterministic = 1 }), 1.25, 1.1)
  rows = rows_of("sm_90", ampere_gradient_times, { pass = "backward" })
  near(rows, 1.25, 1.1)
  assert(correlation(rows) > 0.97, correlation(rows))
end

function tests.standard_times_are_near()
  local rows = {}
  for i, length in ipairs({ 1024, 2048, 4096 }) do
    local spec = spec_of("sm_90a", 64, "none", 64, "standard")
    local parts = predicted(spec, nil, square(length, 16, 8))
    rows[i] = { parts.time, standard_times[i], "standard " .. length }
  end
  near(rows, 1.5, 1.4)
end

local function hopper_tile(block_n, num_stages)
  return { block_m = 128, block_n = block_n, num_stages = num_stages, num_warps = 12 }
end

local function three_consumers(num_stages)
  return { block_m = 192, block_n = 128, num_stages = num_stages, num_warps = 16 }
end

local function ampere_tile(block_m, block_n, num_stages, num_warps)
  return { block_m = block_m, block_n = block_n, num_stages = num_stages, num_warps = num_warps }
end

-- arch, head_dim, mask, keys, the faster tile, the slower one. Differences of 3 % and less are
-- left out.
local orders = {
  { "sm_90a", 64, "none", 512, hopper_tile(128, 3), hopper_tile(96, 3) },
  { "sm_90a", 64, "none", 512, hopper_tile(128, 3), hopper_tile(160, 3) },
  { "sm_90a", 64, "none", 512, hopper_tile(128, 3), hopper_tile(192, 2) },
  { "sm_90a", 64, "causal", 512, hopper_tile(128, 3), hopper_tile(96, 3) },
  { "sm_90a", 64, "causal", 512, hopper_tile(128, 3), hopper_tile(160, 3) },
  { "sm_90a", 64, "causal", 512, hopper_tile(128, 3), hopper_tile(192, 2) },
  { "sm_90a", 64, "none", 4096, hopper_tile(192, 2), hopper_tile(128, 3) },
  { "sm_90a", 64, "none", 16384, hopper_tile(192, 2), hopper_tile(128, 3) },
  { "sm_90a", 64, "causal", 16384, hopper_tile(192, 2), hopper_tile(128, 3) },
  { "sm_90a", 64, "causal", 2048, hopper_tile(128, 3), hopper_tile(192, 2) },
  { "sm_90a", 64, "none", 256, hopper_tile(128, 3), hopper_tile(64, 3) },
  { "sm_90a", 128, "none", 512, hopper_tile(128, 2), hopper_tile(112, 2) },
  { "sm_90a", 128, "none", 512, hopper_tile(128, 2), hopper_tile(144, 2) },
  { "sm_90a", 128, "causal", 512, hopper_tile(128, 2), hopper_tile(112, 2) },
  { "sm_90a", 128, "causal", 512, hopper_tile(128, 2), hopper_tile(144, 2) },
  { "sm_90a", 128, "causal", 16384, hopper_tile(128, 2), hopper_tile(112, 2) },
  { "sm_90a", 160, "none", 1024, hopper_tile(64, 2), hopper_tile(112, 2) },
  { "sm_90a", 160, "causal", 1024, hopper_tile(64, 2), hopper_tile(112, 2) },
  { "sm_90a", 192, "none", 1024, hopper_tile(64, 2), hopper_tile(112, 2) },
  { "sm_90a", 192, "causal", 1024, hopper_tile(64, 2), hopper_tile(112, 2) },
  { "sm_90a", 256, "none", 512, hopper_tile(64, 2), hopper_tile(80, 2) },
  { "sm_90a", 256, "causal", 512, hopper_tile(64, 2), hopper_tile(80, 2) },
  { "sm_90a", 64, "none", 1024, hopper_tile(128, 3), three_consumers(2) },
  { "sm_90a", 64, "none", 4096, three_consumers(2), hopper_tile(128, 3) },
  { "sm_90a", 64, "none", 16384, three_consumers(2), hopper_tile(128, 3) },
  { "sm_90a", 64, "causal", 4096, hopper_tile(128, 3), three_consumers(3) },
  { "sm_90a", 64, "causal", 16384, three_consumers(3), hopper_tile(128, 3) },
  { "sm_90", 128, "none", 512, ampere_tile(128, 32, 3, 4), ampere_tile(256, 32, 3, 8) },
  { "sm_90", 128, "none", 4096, ampere_tile(128, 32, 3, 4), ampere_tile(256, 32, 3, 8) },
  { "sm_90", 128, "none", 4096, ampere_tile(128, 64, 2, 4), ampere_tile(128, 32, 3, 4) },
}

function tests.tiles_come_in_the_measured_order()
  for _, row in ipairs(orders) do
    local name, dim, mask, length = table.unpack(row)
    local spec, shape = spec_of(name, dim, mask), square(length, 2048 // dim)
    local faster, slower = predicted(spec, row[5], shape), predicted(spec, row[6], shape)
    if faster.time >= slower.time then
      error(("%s %d %s %d: block_n %d is not below %d"):format(name, dim, mask, length,
        row[5].block_n, row[6].block_n))
    end
  end
end

-- ---- the parts ----

function tests.masked_scores_are_counted()
  local spec, shape = spec_of("sm_90a", 128, "none"), square(1024, 16)
  check.equal(predicted(spec, nil, shape).masked, 0.0)
  shape.seqlen_k = 1025 -- one key more is a block more: 127 of 1152 are for nothing
  local parts = predicted(spec, nil, shape)
  local computed = parts.masked / (127 / 1152)
  assert(computed > parts.tensor and computed < parts.time, computed)
end

function tests.a_wave_that_is_not_full_is_a_tail()
  local spec, shape = spec_of("sm_90a", 128, "none"), square(4096, 1, 1) -- 32 tiles
  check.equal(predicted(spec, nil, shape, 32).tail, 0.0)
  local one = predicted(spec, nil, shape, 32).time
  local two = predicted(spec, nil, shape, 31).time -- one of 31 has two tiles
  assert(two > 1.8 * one and two < 2 * one, two / one)
end

function tests.empty_shapes_take_a_launch()
  for _, name in ipairs({ "sm_80", "sm_90a" }) do
    for _, field in ipairs({ "batch", "seqlen_q" }) do
      local shape = square(512, 4)
      shape[field] = 0
      local parts = predicted(spec_of(name, 64, "causal"), nil, shape)
      check.equal(parts.tensor, 0.0)
      assert(parts.time >= parts.launch and parts.time < 1e4, parts.time)
    end
  end
end

function tests.huge_shapes_stay_finite()
  local huge = 2147483647
  local shape = { batch = huge, seqlen_q = huge, seqlen_k = huge, num_heads = huge,
                  num_heads_k = huge }
  for name, part in pairs(predicted(spec_of("sm_90a", 64, "causal"), nil, shape)) do
    assert(part >= 0 and part < 1 / 0, name)
  end
end

function tests.no_number_of_multiprocessors_is_that_of_the_arch()
  local spec, shape = spec_of("sm_80", 128, "none"), square(4096, 16)
  check.equal(predicted(spec, nil, shape, 0).time, predicted(spec, nil, shape, 108).time)
end

-- Four tensors of 4 x 16 heads x 4096 rows x 128 columns of 2 bytes, and lse of 4.
function tests.a_roofline_has_its_bytes_and_roofs()
  local parts = predicted(spec_of("sm_90a", 128, "none"), nil, square(4096, 16, 4), 132)
  check.equal(parts.bytes, 4 * 16 * 4096 * (4 * 128 * 2 + 4) + 0.0)
  check.equal(parts.gbs, 4800)
  assert(math.abs(parts.tflops - 948.9) < 0.1, parts.tflops)
  local slow = predicted(spec_of("sm_90", 128, "none"), nil, square(4096, 16, 4), 66)
  assert(math.abs(slow.tflops - 316.2) < 0.1, slow.tflops)
end

-- ---- lists ----

function tests.lists_hold_what_check_accepts_once()
  for _, name in ipairs(arch.names()) do
    for _, dim in ipairs({ 8, 64, 128, 160, 256 }) do
      local spec, row = spec_of(name, dim, "causal"), arch.find(name)
      local family = families[row.families[1]]
      local default, seen, found = family.default_tile(spec, row), {}, false
      for _, tile in ipairs(tiles.list(family, spec, row)) do
        local key = ("%d %d %d %d"):format(tile.block_m, tile.block_n, tile.num_stages,
          tile.num_warps)
        assert(not seen[key], key)
        assert(family.check(spec, tile, row), key)
        seen[key] = true
        local same = true
        for field, value in pairs(default) do same = same and tile[field] == value end
        found = found or same
      end
      assert(found, name .. " " .. dim .. ": the default is not in its own list")
    end
  end
end

-- Whatever the schema and the family accept is on the axes.
function tests.no_legal_tile_is_missing()
  local spec = spec_of("sm_90a", 128, "none")
  for name, family in pairs(families) do
    local row, count = arch.find(name == "ampere" and "sm_90" or "sm_90a"), 0
    for block_m = 16, 256, 16 do
      for block_n = 8, 256, 8 do
        for num_stages = 1, 8 do
          for num_warps = 1, 16 do
            local tile = ampere_tile(block_m, block_n, num_stages, num_warps)
            if family.check(spec, tile, row) then count = count + 1 end
          end
        end
      end
    end
    check.equal(#tiles.list(family, spec, row), count)
  end
end

return tests

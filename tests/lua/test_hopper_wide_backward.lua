-- The backward pass of wide heads on Hopper: every spec above 128 columns has a default tile that
-- fits, and what the consumers form of dQ covers its columns once.
local arch = require("arch")
local check = require("check")
local family = require("hopper_wide_backward")

local tests = {}

local function spec_of(head_dim, head_dim_v, deterministic)
  return { arch = "sm_90a", pass = "backward", algorithm = "flash", dtype = "bf16",
           head_dim = head_dim, head_dim_v = head_dim_v, mask = "none",
           deterministic = deterministic or 0 }
end

local function each_spec(body)
  local count = 0
  for head_dim = 8, 256, 8 do
    for head_dim_v = 8, 256, 8 do
      if head_dim > 128 or head_dim_v > 128 then
        body(spec_of(head_dim, head_dim_v))
        body(spec_of(head_dim, head_dim_v, 1))
        count = count + 2
      end
    end
  end
  return count
end

function tests.every_wide_spec_has_a_default_tile_that_fits()
  local row = arch.find("sm_90a")
  local count = each_spec(function(spec)
    check.equal(family.serves(spec, row), true)
    local tile = family.default_tile(spec, row)
    check.equal(family.check(spec, tile, row), true)
    check.equal(tile.block_n, spec.head_dim > 192 and 128 or 64)
  end)
  check.equal(count, 2 * (32 * 32 - 16 * 16))
  check.equal(family.serves(spec_of(128, 128), row), nil)
end

-- The columns that all consumers of a tile form, each exactly once and none behind the sums.
function tests.products_of_dq_cover_its_columns_once()
  local row = arch.find("sm_90a")
  each_spec(function(spec)
    local tile = family.default_tile(spec, row)
    local v, seen = family.values(spec, tile), {}
    for rank = 0, v.pair and 1 or 0 do
      for _, products in ipairs(v.dq) do
        for _, p in ipairs(products) do
          check.equal(p.n % 8 == 0 and p.n <= 64, true)
          assert(p.from // 64 == (p.from + p.n - 1) // 64) -- inside a panel
          check.equal(p.step, p.from // 64 * 512 + p.from % 64 // 8)
          for column = 128 * rank + p.from, 128 * rank + p.from + p.n - 1 do
            assert(not seen[column])
            assert(column < v.sums // (64 * 4))
            seen[column] = true
          end
        end
      end
    end
    for column = 0, spec.head_dim - 1 do assert(seen[column]) end
  end)
end

-- Two thread blocks: half of the queries each, and a cluster for a tile of 128 keys.
function tests.clusters_are_of_two_and_share_their_queries()
  local row = arch.find("sm_90a")
  for _, block_n in ipairs({ 64, 128 }) do
    local spec = spec_of(256, 256, 1)
    local tile = family.default_tile(spec, row, { block_n = block_n })
    local record = family.record(spec, tile)
    check.equal(record.entries[2].cluster, block_n // 64)
    check.equal(record.entries[2].grid[1][2], block_n)
    check.equal(record.maps.q.box_rows, 64 * 64 // block_n)
    check.equal(record.maps.k.box_rows, 64)
    check.equal(record.workspace[3].bytes, 4 * 2 * (block_n // 64)) -- a word for each adder
  end
end

function tests.illegal_tiles_are_refused_by_name()
  local row = arch.find("sm_90a")
  local one = ", the one value of the hopper_wide_backward family"
  local rows = {
    { 256, { 128, 64, 2, 12 }, "block_m 128 is not 64" .. one },
    { 256, { 64, 64, 2, 8 }, "num_warps 8 is not 12" .. one },
    { 256, { 64, 96, 2, 12 }, "block_n 96 is not 64 or 128" },
    { 256, { 64, 64, 3, 12 }, "num_stages 3 is not 1 or 2" },
    { 192, { 64, 128, 1, 12 },
      "block_n 128, two thread blocks, is for head dims above 192, and 192 is not" },
    { 256, { 64, 128, 2, 12 },
      "the tile takes 254096 bytes of shared memory, sm_90a has 232448 for a block" },
  }
  for _, r in ipairs(rows) do
    local t = { block_m = r[2][1], block_n = r[2][2], num_stages = r[2][3], num_warps = r[2][4] }
    local ok, sentence = family.check(spec_of(r[1], 256), t, row)
    check.equal(ok, nil)
    check.equal(sentence, r[3])
  end
end

return tests

-- The backward pass on Hopper: every spec up to 128 columns has a default tile that fits, and what
-- the two small kernels take for the order of dQ's sums is what the consumers write.
local arch = require("arch")
local check = require("check")
local family = require("hopper_backward")

local LIMIT = 232448 -- bytes of shared memory a block of sm_90a may have

local tests = {}

local function spec_of(head_dim, head_dim_v, changes)
  local spec = { arch = "sm_90a", pass = "backward", algorithm = "flash", dtype = "bf16",
                 head_dim = head_dim, head_dim_v = head_dim_v, mask = "none", deterministic = 0 }
  for name, value in pairs(changes or {}) do spec[name] = value end
  return spec
end

local function each_spec(body)
  local count = 0
  for head_dim = 8, 128, 8 do
    for head_dim_v = 8, 128, 8 do
      for deterministic = 0, 1 do
        body(spec_of(head_dim, head_dim_v, { deterministic = deterministic }))
        count = count + 1
      end
    end
  end
  return count
end

function tests.every_spec_up_to_128_has_a_default_tile_that_fits()
  local row = arch.find("sm_90a")
  local count = each_spec(function(spec)
    check.equal(family.serves(spec, row), true)
    local tile = family.default_tile(spec, row)
    check.equal(family.check(spec, tile, row), true)
    for _, entry in ipairs(family.record(spec, tile).entries) do
      assert(entry.shared_bytes == nil or entry.shared_bytes <= LIMIT)
    end
  end)
  check.equal(count, 16 * 16 * 2)
  check.equal(family.serves(spec_of(136, 64), row), nil)
  check.equal(family.serves(spec_of(64, 136), row), nil)
end

-- Row and column of the numbers 4 i to 4 i + 3 of a query block's sums, as convert_part reads them.
local function place_read(v, i)
  local lane, j, part = i % 32, i // 32 % (v.dq_regs // 4), i // 32 // (v.dq_regs // 4)
  local row = (v.dq_mode == "rows" and 16 * part or part % 4 * 16) + lane // 4
  local column = (v.dq_mode == "columns" and part // 4 * 64 or 0) + 8 * j + 2 * (lane % 4)
  return row, column
end

-- Where a consumer's lane puts dq[4 j]: the index of its four numbers, row and column.
local function place_written(v, group, warp, lane, j)
  local part = v.dq_mode == "keys" and warp or 4 * group + warp
  local index = (part * 32 * v.dq_regs + 4 * lane + 128 * j) // 4
  local row = (v.dq_mode == "rows" and 64 * group or 0) + 16 * warp + lane // 4
  local column = (v.dq_mode == "columns" and 64 * group or 0) + 8 * j + 2 * (lane % 4)
  return index, row, column
end

function tests.sums_of_dq_are_read_where_they_were_written()
  local row, modes = arch.find("sm_90a"), {}
  each_spec(function(spec)
    local tile = family.default_tile(spec, row)
    local v, seen = family.values(spec, tile), {}
    modes[v.dq_mode] = true
    for group = 0, v.dq_mode == "keys" and 0 or 1 do
      for warp = 0, 3 do
        for j = 0, v.dq_regs // 4 - 1 do
          for _, lane in ipairs({ 0, 5, 31 }) do
            local index, r, c = place_written(v, group, warp, lane, j)
            local read_row, read_column = place_read(v, index)
            check.equal(r, read_row)
            check.equal(c, read_column)
            assert(not seen[index] and index < v.dq_bytes // 16)
            assert(r < tile.block_m and c < (v.dq_mode == "columns" and 128 or v.dq_cols))
            seen[index] = true
          end
        end
      end
    end
  end)
  check.equal(modes.rows and modes.columns and modes.keys, true)
end

function tests.illegal_tiles_are_refused_by_name()
  local row = arch.find("sm_90a")
  local one = ", the one value of the hopper_backward family"
  local rows = {
    { 64, 64, { 64, 64, 2, 12 }, "block_n 64 is not 128" .. one },
    { 64, 64, { 64, 128, 3, 12 }, "num_stages 3 is not 2" .. one },
    { 64, 64, { 64, 128, 2, 8 }, "num_warps 8 is not 12" .. one },
    { 64, 64, { 96, 128, 2, 12 }, "block_m 96 is not 64 or 128" },
    { 64, 72, { 128, 128, 2, 12 }, "block_m 128 is for head dims up to 64, and 72 is above" },
  }
  for _, r in ipairs(rows) do
    local t = { block_m = r[3][1], block_n = r[3][2], num_stages = r[3][3], num_warps = r[3][4] }
    local ok, sentence = family.check(spec_of(r[1], r[2]), t, row)
    check.equal(ok, nil)
    check.equal(sentence, r[4])
  end
end

return tests

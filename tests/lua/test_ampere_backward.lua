-- The backward family of mma.sync: every spec has a default tile that fits, the grids of warps
-- cover each product once, and illegal tiles are refused with their exact sentence. Limits are
-- written out here a second time.
local arch = require("arch")
local check = require("check")
local family = require("ampere_backward")

-- Bytes of shared memory a block may have.
local limits = { sm_80 = 166912, sm_86 = 101376, sm_89 = 101376, sm_90 = 232448, sm_90a = 232448,
                 sm_120 = 101376 }

local tests = {}

local function spec_of(name, head_dim, head_dim_v, changes)
  local spec = { arch = name, pass = "backward", algorithm = "flash", dtype = "bf16",
                 head_dim = head_dim, head_dim_v = head_dim_v, mask = "none", deterministic = 0 }
  for key, value in pairs(changes or {}) do spec[key] = value end
  return spec
end

local function tile_of(numbers)
  return { block_m = numbers[1], block_n = numbers[2], num_stages = numbers[3],
           num_warps = numbers[4] }
end

-- Calls body(spec, tile, row) with every default tile.
local function each_default(body)
  local count = 0
  for name in pairs(limits) do
    local row = arch.find(name)
    for head_dim = 8, 256, 8 do
      for _, head_dim_v in ipairs({ head_dim, 8, 72, 128, 256 }) do
        for _, mask in ipairs({ "none", "causal" }) do
          local spec = spec_of(name, head_dim, head_dim_v, { mask = mask })
          local tile, reason = family.default_tile(spec, row)
          if not tile then error(("%s %d/%d: %s"):format(name, head_dim, head_dim_v, reason)) end
          body(spec, tile, row)
          count = count + 1
        end
      end
    end
  end
  check.equal(count, 6 * 32 * 5 * 2)
end

function tests.every_spec_has_a_default_that_is_accepted_and_fits()
  each_default(function(spec, tile, row)
    check.equal(family.serves(spec, row), true)
    check.equal(family.check(spec, tile, row), true)
    for _, entry in ipairs(family.record(spec, tile, row).entries) do
      check.equal(entry.shared_bytes <= limits[spec.arch], true)
    end
  end)
end

-- Regions lie behind each other and hold what is copied there, counted from rows of 16 columns.
function tests.shared_memory_holds_every_tile_once()
  each_default(function(spec, tile, row)
    local record, last = family.record(spec, tile, row), 0
    local qk = (spec.head_dim + 15) // 16 * 32
    local v = (spec.head_dim_v + 15) // 16 * 32
    local p = 2 * tile.block_m * tile.block_n
    local ring = tile.num_stages * tile.block_m * (qk + v + 8)
    local wanted = { k = tile.block_n * qk, v = tile.block_n * v, ring = ring, p = p, ds = p }
    for _, region in ipairs(record.smem) do
      check.equal(region.offset >= last, true)
      check.equal(region.bytes, wanted[region.name])
      last, wanted[region.name] = region.offset + region.bytes, nil
    end
    check.equal(next(wanted), nil)
    check.equal(record.entries[2].shared_bytes, last)
  end)
end

-- Every 16 x 16 tile of a product has one warp, and no warp more tiles than registers.
function tests.warps_cover_each_product()
  each_default(function(spec, tile, row)
    local x = family.values(spec, tile, row)
    local m, n = tile.block_m // 16, tile.block_n // 16
    local d, dv = (spec.head_dim + 15) // 16, (spec.head_dim_v + 15) // 16
    local half = tile.num_warps // 2
    local products = {
      { x.s, m, n, half }, { x.dv, n, dv, half }, { x.dk, n, d, half },
      { x.dq, m, d, tile.num_stages == 2 and half or tile.num_warps },
    }
    for i, product in ipairs(products) do
      local p, rows, cols, warps = table.unpack(product)
      check.equal(p.rows * p.cols, warps)
      check.equal(p.rows * p.row_tiles, rows)
      check.equal(p.cols * p.col_tiles * (p.parts or 1) >= cols, true)
      check.equal(p.cols * (p.col_tiles * (p.parts or 1) - 1) < cols, true)
      if i == 1 then check.equal(p.cols * p.col_tiles * p.parts, cols) end
      check.equal(p.numbers, 8 * p.row_tiles * p.col_tiles)
    end
  end)
end

-- dq in fp32 has room for every number of its threads; turns are there where they are taken.
function tests.workspace_is_what_the_kernels_index()
  each_default(function(spec, tile, row)
    for deterministic = 0, 1 do
      spec.deterministic = deterministic
      local workspace = family.record(spec, tile, row).workspace
      local x = family.values(spec, tile, row)
      check.equal(workspace[1].bytes, 4 * x.dq.numbers * x.dq.parts * x.dq_threads)
      check.equal(workspace[1].bytes >= 4 * tile.block_m * x.qk_rows.cols, true)
      check.equal(workspace[2].bytes, 8 * tile.block_m)
      check.equal(#workspace, 2 + deterministic)
      check.equal(x.deterministic, deterministic == 1)
    end
  end)
end

-- arch, head_dim, head_dim_v, { block_m, block_n, num_stages, num_warps }, the sentence
local refusals = {
  { "sm_80", 64, 64, { 64, 64, 2, 6 }, "num_warps 6 is not 4 or 8" },
  { "sm_80", 64, 64, { 144, 64, 2, 8 }, "block_m 144 is not a multiple of 16 from 16 to 128" },
  { "sm_80", 64, 64, { 64, 8, 2, 8 }, "block_n 8 is not a multiple of 16 from 16 to 128" },
  { "sm_80", 64, 64, { 64, 64, 3, 8 }, "num_stages 3 is not 1 or 2" },
  { "sm_80", 64, 64, { 16, 16, 2, 8 }, "scores of 16 x 16 do not come out even for 8 warps" },
  { "sm_86", 128, 128, { 64, 128, 2, 8 },
    "the tile takes 164864 bytes of shared memory, sm_86 has 101376 for a block" },
  { "sm_90", 256, 256, { 32, 128, 1, 8 },
    "the tile keeps 288 scores and gradients in the registers of a thread, 200 fit" },
}

function tests.illegal_tiles_are_refused_with_their_sentence()
  for _, case in ipairs(refusals) do
    local name, head_dim, head_dim_v, numbers, wanted = table.unpack(case)
    local ok, sentence = family.check(spec_of(name, head_dim, head_dim_v), tile_of(numbers),
      arch.find(name))
    check.equal(ok, nil)
    check.equal(sentence, wanted)
  end
end

function tests.other_passes_and_algorithms_are_refused()
  for key, value in pairs({ pass = "forward", algorithm = "standard" }) do
    local ok, reason = family.serves(spec_of("sm_80", 64, 64, { [key] = value }))
    check.equal(ok, nil)
    check.equal(type(reason), "string")
  end
end

-- arch, head_dim, the default
local defaults = {
  { "sm_80", 64, "128x128x2x8" }, { "sm_86", 64, "64x128x2x8" }, { "sm_80", 128, "64x128x2x8" },
  { "sm_86", 128, "32x96x2x8" }, { "sm_120", 160, "64x64x1x8" }, { "sm_89", 240, "32x64x1x8" },
  { "sm_86", 256, "16x64x1x8" }, { "sm_80", 256, "64x64x1x8" }, { "sm_90", 256, "64x64x2x8" },
}

function tests.defaults_are_those_that_were_measured()
  for _, case in ipairs(defaults) do
    local t = family.default_tile(spec_of(case[1], case[2], case[2]), arch.find(case[1]))
    check.equal(("%dx%dx%dx%d"):format(t.block_m, t.block_n, t.num_stages, t.num_warps), case[3])
  end
end

return tests

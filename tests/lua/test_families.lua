-- The kernel families: every spec has a default tile that its family accepts and that fits the
-- architecture, and every illegal tile is refused with its exact sentence. Limits are written out
-- here a second time, so that a wrong row of arch.lua does not excuse itself.
local arch = require("arch")
local check = require("check")

local families = { ampere = require("ampere"), hopper = require("hopper"),
                   standard = require("standard") }

-- name, family, bytes of shared memory a block may have
local archs = {
  { "sm_80", "ampere", 166912 }, { "sm_86", "ampere", 101376 }, { "sm_89", "ampere", 101376 },
  { "sm_90", "ampere", 232448 }, { "sm_90a", "hopper", 232448 }, { "sm_120", "ampere", 101376 },
}

local REGISTERS = 65536 -- of an SM

local tests = {}

local function spec_of(changes)
  local spec = { arch = "sm_80", pass = "forward", algorithm = "flash", dtype = "bf16",
                 head_dim = 128, mask = "none" }
  for name, value in pairs(changes) do spec[name] = value end
  spec.head_dim_v = spec.head_dim_v or spec.head_dim
  return spec
end

-- Every head_dim with itself and with a sample of head_dim_v, for both dtypes and masks.
local function each_spec(body)
  for head_dim = 8, 256, 8 do
    for _, head_dim_v in ipairs({ head_dim, 8, 56, 64, 128, 200, 256 }) do
      for _, dtype in ipairs({ "fp16", "bf16" }) do
        for _, mask in ipairs({ "none", "causal" }) do
          body(spec_of({ head_dim = head_dim, head_dim_v = head_dim_v, dtype = dtype,
                         mask = mask }))
        end
      end
    end
  end
end

-- Calls body(family, spec, tile, row of arch.lua, limit) with every default tile.
local function each_default(body)
  for _, facts in ipairs(archs) do
    local name, flash, limit = table.unpack(facts)
    for _, family in ipairs({ families[flash], families.standard }) do
      each_spec(function(spec)
        spec.arch = name
        local row = arch.find(name)
        local tile, reason = family.default_tile(spec, row)
        if not tile then
          error(("%s %s %d/%d: %s"):format(name, family.name, spec.head_dim, spec.head_dim_v,
            reason))
        end
        body(family, spec, tile, row, limit)
      end)
    end
  end
end

function tests.every_arch_of_the_table_is_tested_here()
  check.equal(#arch.names(), #archs)
  for i, facts in ipairs(archs) do check.equal(arch.names()[i], facts[1]) end
end

function tests.every_spec_is_served_and_has_a_default_tile_that_is_accepted()
  local count = 0
  each_default(function(family, spec, tile, row)
    check.equal(family.serves(spec, row), true)
    check.equal(family.check(spec, tile, row), true)
    count = count + 1
  end)
  check.equal(count, #archs * 2 * 32 * 7 * 2 * 2)
end

function tests.default_tiles_fit_the_shared_memory()
  each_default(function(family, spec, tile, row, limit)
    for _, entry in ipairs(family.record(spec, tile, row).entries) do
      if entry.shared_bytes > limit then
        error(("%s %s %d/%d: %s takes %d bytes of %d"):format(row.name, family.name,
          spec.head_dim, spec.head_dim_v, entry.name, entry.shared_bytes, limit))
      end
    end
  end)
end

-- Regions inside what the entry asks for; only the output may lie over others: over the queries.
function tests.shared_memory_maps_overlap_only_under_the_output()
  each_default(function(family, spec, tile, row)
    local record = family.record(spec, tile, row)
    local end_of_last = 0
    for _, region in ipairs(record.smem) do
      check.equal(region.bytes > 0, true)
      check.equal(region.offset + region.bytes <= record.entries[1].shared_bytes, true)
      if region.offset < end_of_last then
        check.equal(region.name .. " at " .. region.offset, "o at " .. record.smem[1].offset)
        check.equal(record.smem[1].name, "q")
      end
      end_of_last = math.max(end_of_last, region.offset + region.bytes)
    end
    check.equal(end_of_last, record.entries[1].shared_bytes)
  end)
end

-- Bytes of a tile's regions, counted here from its rows: 16-column steps of ampere and standard,
-- 64-column panels of hopper, whose consumers have 64 rows each.
local function region_bytes(family, spec, tile)
  local wide = family.name == "hopper" and 64 or 16
  local qk_row = (spec.head_dim + wide - 1) // wide * wide * 2
  local v_row = (spec.head_dim_v + wide - 1) // wide * wide * 2
  return {
    q = tile.block_m * qk_row, k = tile.num_stages * tile.block_n * qk_row,
    v = tile.num_stages * tile.block_n * v_row, o = tile.block_m * v_row,
    info = 16, failed = 4 * 65, zero = 4,
  }
end

-- Hopper keeps queries three times or twice, each place also for their output, or once; barriers
-- and tile numbers go with the places.
local function add_places(wanted, tile, q_bytes)
  local one, places = math.max(wanted.q, wanted.o), 1
  if q_bytes ~= wanted.q then
    places = q_bytes // one
    wanted.q = places * one
  end
  check.equal(places >= 1 and places <= 3, true)
  local bars = places == 1 and 2 or 3 -- a place and consumer
  wanted.bars = 8 * (4 * tile.num_stages + bars * places * (tile.block_m // 64) + 1)
  wanted.info = 16 * places
end

function tests.regions_hold_what_is_copied_into_them()
  each_default(function(family, spec, tile, row)
    local wanted, regions = region_bytes(family, spec, tile), family.record(spec, tile, row).smem
    if family.name == "hopper" then add_places(wanted, tile, regions[1].bytes) end
    for _, r in ipairs(regions) do check.equal(r.name .. r.bytes, r.name .. wanted[r.name]) end
  end)
end

-- The warps of a block as the entry launches them; one row of a grid per block_m query rows.
function tests.entries_launch_what_the_tile_says()
  each_default(function(family, spec, tile, row)
    local entry = family.record(spec, tile, row).entries[1]
    check.equal(entry.threads, 32 * tile.num_warps)
    local divisor = entry.grid[1][1] == "seqlen_q" and entry.grid[1][2] or entry.grid[2][2]
    check.equal(divisor, tile.block_m)
  end)
end

-- ---- hopper ----

local function each_hopper(body)
  local row = arch.find("sm_90a")
  each_spec(function(spec)
    body(spec, families.hopper.default_tile(spec, row), row)
  end)
end

-- setmaxnreg moves registers inside what the block was launched with: the largest multiple of 8
-- that its threads can have, at most 255 a thread.
function tests.register_pools_of_hopper_divide_what_the_block_has()
  for consumers = 1, 3 do
    local row, spec = arch.find("sm_90a"), spec_of({ head_dim = 64, arch = "sm_90a" })
    local tile = families.hopper.default_tile(spec, row, { block_m = 64 * consumers })
    local v = families.hopper.values(spec, tile, row)
    local threads = 32 * tile.num_warps
    local at_entry = math.min(255, REGISTERS // threads // 8 * 8)
    check.equal(v.consumers, consumers)
    check.equal(threads, 128 * (consumers + 1))
    for _, count in ipairs({ v.producer_registers, v.consumer_registers }) do
      check.equal(count % 8, 0)
      check.equal(count >= 24 and count <= 256, true)
    end
    local pool = v.producer_registers + consumers * v.consumer_registers
    check.equal(pool <= (consumers + 1) * at_entry, true)
    check.equal(128 * pool <= REGISTERS, true)
  end
end

-- Panels of the 128-byte swizzle begin on atoms of 1024 bytes, barriers on 8; one consumer's place
-- holds its queries, and its output where that is staged.
function tests.panels_of_hopper_lie_on_swizzle_atoms()
  each_hopper(function(spec, tile, row)
    local v = families.hopper.values(spec, tile, row)
    for _, name in ipairs({ "q", "k", "v" }) do check.equal(v.at[name] % 1024, 0) end
    check.equal(v.at.bars % 8 + v.at.info % 16 + v.at.failed % 4 + v.at.zero % 4, 0)
    check.equal(v.q_slot % 1024, 0)
    check.equal(v.q_slot >= v.q_panels.total, true)
    check.equal(v.o_staged, v.q_slots > 1)
    if v.o_staged then check.equal(v.q_slot >= 64 * 128 * ((spec.head_dim_v + 63) // 64), true) end
  end)
end

-- As many places for queries as fit, three at most. One place holds no output; another one takes
-- two barriers more a consumer, or three, and 16 bytes.
function tests.queries_of_hopper_have_the_places_that_there_is_room_for()
  local seen = {}
  each_hopper(function(spec, tile, row)
    local v = families.hopper.values(spec, tile, row)
    local bytes = families.hopper.record(spec, tile, row).entries[1].shared_bytes
    local place = math.max(v.q_panels.total, 8192 * ((spec.head_dim_v + 63) // 64))
    seen[v.q_slots] = true
    if v.q_slots == 1 then
      check.equal(bytes + v.consumers * (2 * place - v.q_panels.total) > 232448 - 96, true)
    elseif v.q_slots == 2 then
      check.equal(bytes + v.consumers * place > 232448 - 96, true)
    end
  end)
  check.equal(#seen, 3)
end

-- Boxes are at most 256 rows of 128 bytes; those of q and o are a consumer's rows.
function tests.boxes_of_hopper_are_those_of_its_panels()
  each_hopper(function(spec, tile, row)
    local maps = families.hopper.record(spec, tile, row).maps
    local rows = { q = 64, k = tile.block_n, v = tile.block_n, o = 64 }
    for name, map in pairs(maps) do
      check.equal(map.box_rows, rows[name])
      check.equal(map.box_rows <= 256, true)
      check.equal(map.box_cols .. " " .. map.swizzle, "64 128")
      rows[name] = nil
    end
    check.equal(next(rows), nil)
  end)
end

-- ---- wrappers ----

-- The matrix instructions that the families name exist, and no other word passes for one.
function tests.instructions_of_every_default_are_in_the_list()
  local wrapper_set, wrappers = require("wrapper_set"), require("wrappers")
  each_default(function(family, spec, tile, row)
    local v = family.values(spec, tile, row)
    for _, name in ipairs({ v.mma or v.mma_qk, v.mma or v.mma_pv, v.pack }) do
      local rows = wrapper_set.select(wrappers, name, "cuda")
      check.equal(#rows == 1 and rows[1].name, name)
    end
  end)
  for _, word in ipairs({ "wgmma_ss_n12_bf16", "wgmma_rs_n264_bf16", "wgmma_ss_n64_e4m3_t",
                          "wgmma_rs_n64_bf16_ta", "wgmma_ss_n64_e5m2", "wgmma_ss_n64_bf16_",
                          "mma_m16n8k16_fp32", "mma_m16n8k16_e4m3", "tma_load_4d", "tma_add_6d",
                          "redux_or_i32", "redux_mul_u32", "bulk_add_e4m3" }) do
    check.equal(#wrapper_set.select(wrappers, word, "cuda"), 0)
  end
end

-- ---- refusals ----

-- arch, head_dim, head_dim_v, { block_m, block_n, num_stages, num_warps }, the sentence
local refusals = {
  { "sm_80", 64, 64, { 96, 64, 2, 3 }, "num_warps 3 is not 1, 2, 4 or 8" },
  { "sm_80", 64, 64, { 128, 64, 2, 16 }, "num_warps 16 is not 1, 2, 4 or 8" },
  { "sm_80", 64, 64, { 48, 64, 2, 4 }, "block_m 48 is not 16 or 32 rows for each of 4 warps" },
  { "sm_80", 64, 64, { 256, 64, 2, 4 }, "block_m 256 is not 16 or 32 rows for each of 4 warps" },
  { "sm_80", 64, 64, { 128, 24, 2, 4 }, "block_n 24 is not a multiple of 16 from 16 to 256" },
  { "sm_80", 64, 64, { 128, 272, 1, 4 }, "block_n 272 is not a multiple of 16 from 16 to 256" },
  { "sm_80", 64, 64, { 128, 64, 0, 4 }, "num_stages 0 is not 1 to 4" },
  { "sm_80", 64, 64, { 128, 64, 5, 4 }, "num_stages 5 is not 1 to 4" },
  { "sm_80", 256, 256, { 128, 128, 1, 8 },
    "the tile takes 196608 bytes of shared memory, sm_80 has 166912 for a block" },
  { "sm_86", 256, 256, { 128, 64, 1, 8 },
    "the tile takes 131072 bytes of shared memory, sm_86 has 101376 for a block" },
  { "sm_80", 128, 128, { 128, 96, 1, 4 },
    "the tile keeps 224 scores and outputs in the registers of a thread, 200 fit" },
  { "sm_90a", 128, 128, { 96, 128, 2, 10 },
    "block_m 96 is not 64, 128 or 192: 64 rows for each consumer warpgroup" },
  { "sm_90a", 128, 128, { 256, 128, 2, 20 },
    "block_m 256 is not 64, 128 or 192: 64 rows for each consumer warpgroup" },
  { "sm_90a", 128, 128, { 128, 128, 2, 8 },
    "num_warps 8 does not go with block_m 128: 4 producer warps and 4 for each 64 rows make 12" },
  { "sm_90a", 128, 128, { 128, 120, 2, 12 },
    "block_n 120 is not a multiple of 16 from 16 to 256" },
  { "sm_90a", 128, 128, { 128, 128, 1, 12 }, "num_stages 1 is not 2 to 8" },
  { "sm_90a", 128, 128, { 128, 128, 9, 12 }, "num_stages 9 is not 2 to 8" },
  { "sm_90a", 128, 128, { 128, 128, 4, 12 },
    "the tile takes 295368 bytes of shared memory, sm_90a has 232448 for a block" },
  { "sm_90a", 128, 128, { 192, 128, 2, 16 }, "the tile keeps 160 scores, probabilities and "
    .. "outputs in the registers of a thread, 128 fit" },
}

local function tile_of(numbers)
  return { block_m = numbers[1], block_n = numbers[2], num_stages = numbers[3],
           num_warps = numbers[4] }
end

function tests.illegal_tiles_are_refused_with_their_sentence()
  for _, case in ipairs(refusals) do
    local name, head_dim, head_dim_v, numbers, wanted = table.unpack(case)
    local row = arch.find(name)
    local spec = spec_of({ arch = name, head_dim = head_dim, head_dim_v = head_dim_v })
    local ok, sentence = families[row.families[1]].check(spec, tile_of(numbers), row)
    check.equal(ok, nil)
    check.equal(sentence, wanted)
  end
end

function tests.standard_has_one_tile()
  local spec, row = spec_of({ algorithm = "standard" }), arch.find("sm_80")
  local fields = { "block_m", "block_n", "num_stages", "num_warps" }
  local values = { 64, 64, 1, 4 }
  check.equal(families.standard.check(spec, tile_of(values), row), true)
  for i, field in ipairs(fields) do
    local numbers = { table.unpack(values) }
    numbers[i] = 2 * values[i]
    local ok, sentence = families.standard.check(spec, tile_of(numbers), row)
    check.equal(ok, nil)
    check.equal(sentence, ("%s %d is not %d, the one value of the standard family"):format(field,
      2 * values[i], values[i]))
  end
end

function tests.the_backward_pass_is_refused()
  local spec = spec_of({ pass = "backward" })
  local wanted = { ampere = "the ampere family has no backward pass yet",
                   hopper = "the hopper family has no backward pass yet",
                   standard = "the standard family has no backward pass" }
  for name, sentence in pairs(wanted) do
    local ok, reason = families[name].serves(spec, arch.find("sm_80"))
    check.equal(ok, nil)
    check.equal(reason, sentence)
  end
end

-- ---- given fields ----

-- arch, head_dim, the fields that are given, the tile that keeps them
local choices = {
  { "sm_80", 128, { num_warps = 8 }, "128x48x1x8" },
  { "sm_80", 128, { block_m = 64 }, "64x48x1x4" },
  { "sm_80", 128, { block_n = 64 }, "128x64x1x4" },
  { "sm_80", 64, { num_stages = 3 }, "128x112x3x4" },
  { "sm_86", 256, { num_stages = 2 }, "64x32x2x4" },
  { "sm_90a", 128, { block_m = 64 }, "64x128x2x8" },
  { "sm_90a", 128, { num_warps = 8 }, "64x128x2x8" },
  { "sm_90a", 64, { block_m = 128, num_stages = 3 }, "128x128x3x12" },
  { "sm_90a", 128, { block_m = 192, block_n = 80 }, "192x80x2x16" },
}

function tests.given_fields_are_kept_and_the_others_go_with_them()
  for _, case in ipairs(choices) do
    local name, head_dim, wanted, text = table.unpack(case)
    local row, spec = arch.find(name), spec_of({ arch = case[1], head_dim = head_dim })
    local tile, reason = families[row.families[1]].default_tile(spec, row, wanted)
    if not tile then error(text .. ": " .. reason) end
    check.equal(("%dx%dx%dx%d"):format(tile.block_m, tile.block_n, tile.num_stages,
      tile.num_warps), text)
  end
end

-- Fields that no preferred tile goes with: the first reason is given.
function tests.given_fields_that_cannot_be_kept_give_the_first_reason()
  local row, spec = arch.find("sm_80"), spec_of({ head_dim = 64 })
  local tile, reason = families.ampere.default_tile(spec, row, { block_m = 48, num_stages = 5 })
  check.equal(tile, nil)
  check.equal(reason, "block_m 48 is not 16 or 32 rows for each of 4 warps")
end

return tests

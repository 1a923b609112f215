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

-- Which regions a family lets lie over others: ampere's queries over the slot of keys and values
-- that is filled last, where they go to registers before, and its output over what is done with.
local function may_overlap(family, lower, upper, held)
  if family.name ~= "ampere" then return false end
  if upper.name == "q" then return lower.name == "kv" and held end
  return upper.name == "o" and (lower.name == "kv" or lower.name == "q")
end

-- Regions inside what the entry asks for, apart from each other but for the pairs above.
function tests.shared_memory_maps_overlap_only_where_that_is_said()
  each_default(function(family, spec, tile, row)
    local record = family.record(spec, tile, row)
    local held, last = family.values(spec, tile, row).q_held, 0
    for i, region in ipairs(record.smem) do
      local stop = region.offset + region.bytes
      check.equal(region.bytes > 0, true)
      for j = 1, i - 1 do
        local other = record.smem[j]
        local apart = stop <= other.offset or other.offset + other.bytes <= region.offset
        if not apart and not may_overlap(family, other, region, held) then
          error(("%s %s %d/%d: %s lies over %s"):format(row.name, family.name, spec.head_dim,
            spec.head_dim_v, region.name, other.name))
        end
      end
      last = math.max(last, stop)
    end
    check.equal(last, record.entries[1].shared_bytes)
  end)
end

-- Whether two warps of ampere share 32 rows: o of 32 rows would not fit one warp's registers.
local function in_pairs(spec, tile)
  return tile.block_m == 16 * tile.num_warps and tile.num_warps > 1 and tile.block_n % 32 == 0
         and spec.head_dim_v > 128
end

-- Bytes of a tile's regions, counted here from its rows: 16-column steps of ampere and standard, 32
-- for the values that a pair of warps shares, 64-column panels of hopper, whose consumers have 64
-- rows each.
local function region_bytes(family, spec, tile)
  local wide = family.name == "hopper" and 64 or 16
  local qk_row = (spec.head_dim + wide - 1) // wide * wide * 2
  if family.name == "ampere" and in_pairs(spec, tile) then wide = 32 end
  local v_row = (spec.head_dim_v + wide - 1) // wide * wide * 2
  local k, v = tile.num_stages * tile.block_n * qk_row, tile.num_stages * tile.block_n * v_row
  return {
    q = tile.block_m * qk_row, k = k, v = v, kv = k + v, o = tile.block_m * v_row,
    info = 16, failed = family.name == "ampere" and 4 or 4 * 65, zero = 4,
    p = tile.block_m * tile.block_n * 2, exchange = 2 * tile.block_m * 4,
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

-- The names of the regions, in order.
local function wanted_names(family, spec, tile)
  if family.name == "standard" then return "q k" end
  if family.name == "hopper" then return "q k v bars info failed zero" end
  return "kv q o failed" .. (in_pairs(spec, tile) and " p exchange" or "")
end

function tests.regions_hold_what_is_copied_into_them()
  each_default(function(family, spec, tile, row)
    local wanted, regions = region_bytes(family, spec, tile), family.record(spec, tile, row).smem
    if family.name == "hopper" then add_places(wanted, tile, regions[1].bytes) end
    local names = {}
    for i, r in ipairs(regions) do
      check.equal(r.name .. r.bytes, r.name .. wanted[r.name])
      names[i] = r.name
    end
    check.equal(table.concat(names, " "), wanted_names(family, spec, tile))
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

-- ---- ampere ----

local function tile_of(numbers)
  return { block_m = numbers[1], block_n = numbers[2], num_stages = numbers[3],
           num_warps = numbers[4] }
end

local function text_of(tile)
  return ("%dx%dx%dx%d"):format(tile.block_m, tile.block_n, tile.num_stages, tile.num_warps)
end

-- head_dim, head_dim_v, the tile, what it is: pairs of warps, queries held in registers, or none;
-- scores a thread has of each 16 rows, groups of 16 columns of o, begin of q in shared memory
local decisions = {
  { 64, 64, { 128, 64, 2, 4 }, "held", 16, 4, 16384 },  -- q in the second slot, which it fills
  { 64, 64, { 128, 64, 3, 4 }, "held", 16, 4, 32768 },
  { 64, 64, { 128, 32, 2, 4 }, "held", 16, 4, 16384 },  -- a slot is too small: q behind both
  { 64, 64, { 128, 96, 2, 4 }, "held", 16, 4, 24576 },
  { 16, 16, { 128, 256, 2, 4 }, "held", 16, 1, 16384 }, -- more scores than registers, by slices
  { 64, 64, { 128, 64, 1, 4 }, "plain", 32, 4, 16384 }, -- one slot
  { 64, 64, { 128, 48, 2, 4 }, "plain", 24, 4, 24576 }, -- 48 keys are no slices of 32
  { 64, 64, { 64, 16, 2, 4 }, "plain", 8, 4, 8192 },
  { 64, 96, { 128, 32, 2, 4 }, "held", 16, 6, 20480 },  -- 160 registers, as many as may be
  { 72, 96, { 128, 32, 2, 4 }, "plain", 16, 6, 22528 }, -- 168
  { 80, 80, { 128, 32, 3, 4 }, "held", 16, 5, 30720 },
  { 88, 88, { 128, 32, 3, 4 }, "plain", 16, 6, 36864 },
  { 128, 128, { 64, 32, 2, 4 }, "held", 16, 8, 16384 }, -- 16 rows a warp
  { 256, 128, { 64, 32, 2, 4 }, "held", 16, 8, 49152 },
  { 16, 128, { 64, 32, 1, 4 }, "plain", 16, 8, 9216 },
  { 16, 136, { 64, 32, 1, 4 }, "pairs", 8, 5, 11264 },
  { 16, 160, { 64, 32, 1, 4 }, "pairs", 8, 5, 11264 },
  { 16, 168, { 64, 64, 3, 4 }, "pairs", 16, 6, 79872 }, -- pairs hold no queries
  { 16, 256, { 32, 32, 2, 2 }, "pairs", 8, 8, 34816 },
  { 16, 256, { 16, 32, 1, 1 }, "plain", 16, 16, 17408 },  -- one warp has none beside it
  { 16, 144, { 128, 32, 1, 4 }, "plain", 16, 9, 10240 },  -- 32 rows a warp
  { 16, 144, { 64, 48, 1, 4 }, "plain", 24, 9, 15360 },   -- 48 keys have no halves of 16s
}

function tests.ampere_pairs_warps_and_holds_queries_where_that_fits()
  local row = arch.find("sm_80")
  for i, case in ipairs(decisions) do
    local spec = spec_of({ head_dim = case[1], head_dim_v = case[2] })
    local tile = tile_of(case[3])
    check.equal(families.ampere.check(spec, tile, row), true)
    local v = families.ampere.values(spec, tile)
    local kind = v.q_held and "held" or v.paired and "pairs" or "plain"
    local text = "case " .. i .. ": %s, %d scores, %d groups, q at %d"
    check.equal(text:format(kind, v.s_step, v.o_groups, v.at.q), text:format(table.unpack(case, 4)))
    check.equal(v.q_held and v.paired or false, false)
    check.equal(v.rows, kind == "pairs" and 32 or tile.block_m // tile.num_warps)
    check.equal(v.score_cols, 2 * v.s_step)
  end
end

-- Where queries lie over keys and values: only where they are held, inside the slot that is filled
-- last, which no copy reaches before they are in registers.
function tests.queries_of_ampere_lie_over_the_last_slot_or_nothing()
  local row, count = arch.find("sm_90"), 0
  each_spec(function(spec)
    for _, numbers in ipairs({ { 128, 64, 2, 4 }, { 128, 64, 3, 4 }, { 32, 32, 4, 2 },
                               { 64, 48, 3, 4 }, { 64, 32, 2, 4 }, { 64, 32, 1, 4 } }) do
      local tile = tile_of(numbers)
      local v = families.ampere.check(spec, tile, row) and families.ampere.values(spec, tile)
      local q, kv = v and v.map.list[2], v and v.map.list[1]
      if q and q.offset < kv.bytes then
        check.equal(v.q_held, true)
        check.equal(q.name .. kv.name, "qkv")
        check.equal(q.offset, (tile.num_stages - 1) * kv.bytes // tile.num_stages)
        check.equal(q.offset + q.bytes <= kv.bytes, true)
        count = count + 1
      elseif v and v.q_held then -- a slot has no room for them
        check.equal(q.bytes > kv.bytes // tile.num_stages, true)
      end
    end
  end)
  check.equal(count > 100, true)
end

-- Bytes of an SM, of which each block takes 1024 more than it asks for
local sm_bytes = { sm_80 = 167936, sm_86 = 102400, sm_89 = 102400, sm_90 = 233472,
                   sm_120 = 102400 }

-- arch, head_dim, head_dim_v, the default
local defaults = {
  { "sm_80", 64, 64, "128x64x2x4" }, { "sm_86", 64, 64, "128x64x2x4" },
  { "sm_80", 72, 64, "128x32x3x4" }, { "sm_80", 64, 72, "128x32x3x4" },
  { "sm_80", 128, 128, "128x32x3x4" }, -- two blocks in 164 KiB; in 100 KiB:
  { "sm_86", 80, 80, "128x32x2x4" }, { "sm_86", 96, 96, "128x32x2x4" },
  { "sm_86", 128, 128, "128x32x1x4" }, { "sm_120", 128, 128, "128x32x1x4" },
  { "sm_89", 256, 128, "128x32x1x4" }, -- two fit of none of its tiles: the first that is legal
  { "sm_80", 256, 128, "64x32x1x4" }, { "sm_90", 256, 128, "128x32x2x4" },
  { "sm_80", 192, 192, "64x64x1x4" }, { "sm_80", 256, 256, "64x32x1x4" },
  { "sm_90", 256, 256, "64x64x1x4" }, { "sm_86", 160, 160, "64x32x1x4" },
  { "sm_86", 192, 192, "64x64x1x4" }, { "sm_86", 256, 256, "64x32x1x4" },
  -- what the assembler for sm_120 would spill with
  { "sm_120", 48, 48, "128x64x2x4" }, { "sm_120", 56, 24, "128x32x2x4" },
  { "sm_120", 24, 64, "128x32x2x4" }, { "sm_120", 72, 72, "128x32x2x4" },
  { "sm_80", 192, 128, "128x16x2x4" }, { "sm_86", 64, 256, "64x64x1x4" },
  { "sm_89", 64, 256, "64x64x1x4" }, { "sm_86", 64, 248, "64x32x1x4" },
  { "sm_120", 112, 112, "128x32x1x4" }, { "sm_120", 120, 120, "128x16x2x4" },
}

function tests.defaults_of_ampere_leave_room_for_two_blocks()
  for _, case in ipairs(defaults) do
    local spec = spec_of({ arch = case[1], head_dim = case[2], head_dim_v = case[3] })
    local words = case[1] .. " " .. case[2] .. " " .. case[3] .. " "
    check.equal(words .. text_of(families.ampere.default_tile(spec, arch.find(case[1]))),
                words .. case[4])
  end
end

-- Only where two blocks of the smallest tile would not fit either does one block have the SM.
function tests.one_block_has_an_sm_only_where_two_never_fit()
  local alone = 0
  each_default(function(family, spec, tile, row)
    if family.name ~= "ampere" then return end
    local function two_fit(t)
      local bytes = family.record(spec, t, row).entries[1].shared_bytes
      return 2 * (bytes + 1024) <= sm_bytes[row.name]
    end
    -- sm_86 and sm_89 at 64/256 give up the second block for a tile that spills nothing.
    local spills = spec.head_dim == 64 and spec.head_dim_v == 256
                   and (row.name == "sm_86" or row.name == "sm_89")
    if not two_fit(tile) and not spills then
      alone = alone + 1
      check.equal(two_fit(tile_of({ 64, 32, 1, 4 })), false)
    end
  end)
  check.equal(alone > 0, true)
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
    "the tile takes 230528 bytes of shared memory, sm_80 has 166912 for a block" },
  { "sm_86", 256, 256, { 128, 64, 1, 8 },
    "the tile takes 148608 bytes of shared memory, sm_86 has 101376 for a block" },
  { "sm_80", 128, 128, { 128, 96, 1, 4 },
    "the tile keeps 224 scores and outputs in the registers of a thread, 200 fit" },
  { "sm_80", 64, 256, { 64, 160, 1, 4 }, -- in pairs, 32 rows and half of the columns a warp
    "the tile keeps 208 scores and outputs in the registers of a thread, 200 fit" },
  { "sm_80", 64, 128, { 128, 80, 2, 4 }, -- what is held counts only where it is
    "the tile keeps 208 scores and outputs in the registers of a thread, 200 fit" },
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
  { "sm_80", 128, { num_warps = 8 }, "128x32x3x8" },
  { "sm_80", 128, { block_m = 64 }, "64x32x3x4" },
  { "sm_80", 128, { block_n = 64 }, "128x64x1x4" },
  { "sm_80", 64, { num_stages = 3 }, "128x64x3x4" },
  { "sm_86", 192, { num_stages = 2 }, "64x32x2x4" },
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
    check.equal(text_of(tile), text)
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

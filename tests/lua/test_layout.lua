-- Shared-memory layouts by counting: every address of every shape in use is computed and its bank
-- compared, so that what layout.lua says of bijections and conflicts is a fact about its formulas.
local check = require("check")
local layout = require("layout")

local CHUNK = 16            -- bytes: one row of an ldmatrix, one cp.async
local BANKS = 32            -- of four bytes
local GROUPS = 128 // CHUNK -- of four banks each: what one phase of a 16-byte access may touch
local ROWS = 256            -- more than any tile has

local tests = {}

local function each_layout(body)
  for cols = 16, 256, 16 do body(layout.rows(cols), cols) end
end

-- Raises unless `count` addresses of `width` bytes hit as many different banks of that width.
local function check_banks(what, count, width, address)
  local seen, banks = {}, BANKS * 4 // width
  for i = 0, count - 1 do
    local at = address(i)
    local bank = at // width % banks
    if at % width ~= 0 then error(("%s: %d is not a multiple of %d"):format(what, at, width), 2) end
    if seen[bank] then
      error(("%s: accesses %d and %d hit bank %d"):format(what, seen[bank], i, bank), 2)
    end
    seen[bank] = i
  end
end

function tests.rows_are_a_bijection_onto_their_bytes()
  each_layout(function(l, cols)
    check.equal(l.chunks * CHUNK, cols * 2)
    check.equal(l.pitch, cols * 2)
    local seen = {}
    for row = 0, ROWS - 1 do
      for chunk = 0, l.chunks - 1 do
        local at = l.offset(row, chunk)
        local first = row * l.pitch
        check.equal(at % CHUNK, 0)
        check.equal(at >= first and at < first + l.pitch, true)
        check.equal(seen[at], nil)
        seen[at] = true
      end
    end
  end)
end

-- One ldmatrix reads a chunk of eight consecutive rows in one phase.
function tests.eight_rows_of_one_chunk_hit_eight_bank_groups()
  each_layout(function(l, cols)
    for first = 0, ROWS - 8, 8 do
      for chunk = 0, l.chunks - 1 do
        check_banks(("%d columns, rows from %d, chunk %d"):format(cols, first, chunk), 8, CHUNK,
                    function(i) return l.offset(first + i, chunk) end)
      end
    end
  end)
end

function tests.eight_chunks_of_one_row_hit_eight_bank_groups()
  each_layout(function(l, cols)
    local count = math.min(GROUPS, l.chunks)
    for row = 0, ROWS - 1 do
      for first = 0, l.chunks - count, GROUPS do
        check_banks(("%d columns, row %d, chunks from %d"):format(cols, row, first), count, CHUNK,
                    function(i) return l.offset(row, first + i) end)
      end
    end
  end)
end

-- The epilogue: a warp stores 4 bytes a lane, lanes 4 g to 4 g + 3 into chunk j of row g.
function tests.eight_rows_of_four_lanes_hit_all_banks()
  each_layout(function(l, cols)
    for first = 0, ROWS - 8, 8 do
      for j = 0, l.chunks - 1 do
        check_banks(("%d columns, rows from %d, chunk %d"):format(cols, first, j), BANKS, 4,
                    function(lane) return l.offset(first + lane // 4, j) + lane % 4 * 4 end)
      end
    end
  end)
end

-- The C text of the swizzle is evaluated as Lua: & and >> mean the same in both.
function tests.the_swizzle_text_says_what_offset_does()
  each_layout(function(l)
    local swizzle = load("return function(row) return " .. l.swizzle_text("row") .. " end")()
    for row = 0, ROWS - 1 do
      for chunk = 0, l.chunks - 1 do
        check.equal(row * l.pitch + (chunk ~ swizzle(row)) * CHUNK, l.offset(row, chunk))
      end
    end
  end)
end

function tests.rows_of_another_width_are_refused()
  local ok, message = pcall(layout.rows, 24)
  check.equal(ok, false)
  check.holds(message, "a row holds a multiple of 16 elements")
end

-- ---- copies ----

-- Calls visit(thread, pass, row, chunk) as the loops of ampere.tmpl.cu do; the checks on rows and
-- chunks are made only where the flags ask for them.
local function walk(c, rows, chunks, threads, visit)
  for thread = 0, threads - 1 do
    for i = 0, c.passes - 1 do
      local row = thread // c.wide + c.step * i
      if c.ragged_rows and row >= rows then break end
      for first = 0, chunks - 1, c.wide do
        local chunk = first + thread % c.wide
        if c.ragged_chunks and chunk >= chunks then break end
        visit(thread, i * chunks + first, row, chunk)
      end
    end
  end
end

local function each_copy(body)
  for _, threads in ipairs({ 32, 64, 128, 256 }) do
    for rows = 16, 256, 16 do
      for chunks = 2, 32, 2 do body(layout.copy(rows, chunks, threads), rows, chunks, threads) end
    end
  end
end

function tests.a_copy_visits_every_chunk_once()
  each_copy(function(c, rows, chunks, threads)
    local seen, count = {}, 0
    walk(c, rows, chunks, threads, function(_, _, row, chunk)
      local key = row * chunks + chunk
      if row >= rows or chunk >= chunks or seen[key] then
        error(("%d rows of %d chunks, %d threads: row %d, chunk %d is visited twice or outside")
          :format(rows, chunks, threads, row, chunk))
      end
      seen[key], count = true, count + 1
    end)
    check.equal(count, rows * chunks)
  end)
end

-- Eight neighbouring threads write their 16 bytes in one phase.
function tests.a_copy_writes_without_bank_conflicts()
  for _, threads in ipairs({ 32, 128, 256 }) do
    for chunks = 2, 32, 2 do
      local l, c, seen = layout.rows(8 * chunks), layout.copy(64, chunks, threads), {}
      walk(c, 64, chunks, threads, function(thread, step, row, chunk)
        local bank = l.offset(row, chunk) // CHUNK % GROUPS
        local key = ("%d chunks, threads from %d, step %d, bank group %d"):format(chunks,
          thread // 8 * 8, step, bank)
        if seen[key] then error(key .. " is hit twice") end
        seen[key] = true
      end)
    end
  end
end

-- Rows that share their threads are read from global memory in whole 32-byte sectors.
function tests.a_copy_reads_at_least_64_contiguous_bytes()
  each_copy(function(c, _, chunks)
    check.equal(math.min(c.wide, chunks) * CHUNK >= math.min(64, chunks * CHUNK), true)
  end)
end

-- chunks, threads, neighbours that share a row: at most the eight that one phase takes, but for
-- rows that no power of two from 4 on divides
local shared_rows = {
  { 2, 128, 2 }, { 4, 128, 4 }, { 6, 128, 8 }, { 8, 128, 8 }, { 10, 128, 16 }, { 12, 128, 4 },
  { 16, 128, 8 }, { 18, 128, 32 }, { 24, 128, 8 }, { 28, 64, 4 }, { 32, 128, 8 }, { 32, 32, 8 },
}

function tests.eight_threads_share_a_row_at_most()
  for _, case in ipairs(shared_rows) do
    local c = layout.copy(64, case[1], case[2])
    check.equal(case[1] .. " chunks: " .. c.wide, case[1] .. " chunks: " .. case[3])
    check.equal(c.step, case[2] // case[3])
  end
end

-- ---- panels ----

-- rows, columns; panels, bytes from one to the next: the leading byte offset of a matrix descriptor
-- whose tile is used as it lies (K-major: unused; MN-major: the distance of the panels).
local panels = {
  { 64, 64, 1, 8192 }, { 64, 128, 2, 8192 }, { 64, 8, 1, 8192 }, { 64, 136, 3, 8192 },
  { 128, 64, 1, 16384 }, { 128, 128, 2, 16384 }, { 176, 128, 2, 22528 },
  { 112, 192, 3, 14336 }, { 80, 256, 4, 10240 }, { 80, 248, 4, 10240 },
}

function tests.panels_have_the_strides_of_the_descriptors()
  for _, row in ipairs(panels) do
    local p = layout.panels(row[1], row[2])
    check.equal(p.count, row[3])
    check.equal(p.bytes, row[4])
    check.equal(p.total, row[3] * row[4])
  end
end

-- A swizzle atom is 8 rows of 128 bytes; descriptors with base offset 0 need tiles that begin on
-- one, and a step of 16 columns (32 bytes) or of 16 rows (2048 bytes) must stay in its panel.
function tests.panels_begin_on_swizzle_atoms_and_hold_every_step()
  for rows = 16, 256, 16 do
    for cols = 8, 256, 8 do
      local p = layout.panels(rows, cols)
      local last_step = layout.round_up(cols, 16) // 16 - 1
      check.equal(p.bytes % 1024, 0)
      check.equal(last_step // 4 < p.count, true)
      check.equal(last_step // 4, p.count - 1)
      check.equal((rows // 16 - 1) * 2048 + 2048 <= p.bytes, true)
    end
  end
end

-- ---- the map ----

local function map_text(regions)
  local map, words = layout.map(regions), {}
  for _, r in ipairs(map.list) do
    words[#words + 1] = ("%s %d+%d"):format(r.name, r.offset, r.bytes)
    check.equal(map.at[r.name], r.offset)
  end
  return table.concat(words, ", ") .. ": " .. map.bytes
end

function tests.regions_lie_one_behind_the_other_at_their_alignment()
  check.equal(map_text({}), ": 0")
  check.equal(map_text({ { name = "a", bytes = 100 }, { name = "b", bytes = 8, align = 8 },
                         { name = "c", bytes = 1, align = 1024 }, { name = "d", bytes = 5 } }),
              "a 0+100, b 104+8, c 1024+1, d 1152+5: 1157")
end

function tests.a_region_over_another_begins_where_it_does()
  check.equal(map_text({ { name = "a", bytes = 128 }, { name = "b", bytes = 64 },
                         { name = "c", bytes = 32, over = "b" }, { name = "d", bytes = 8 } }),
              "a 0+128, b 128+64, c 128+32, d 256+8: 264")
  check.equal(map_text({ { name = "a", bytes = 128 }, { name = "b", bytes = 500, over = "a" } }),
              "a 0+128, b 0+500: 500")
end

function tests.a_region_inside_another_begins_behind_its_begin()
  check.equal(map_text({ { name = "a", bytes = 64 }, { name = "b", bytes = 96 },
                         { name = "c", bytes = 32, over = "b", from = 48 },
                         { name = "d", bytes = 8 } }),
              "a 0+64, b 128+96, c 176+32, d 256+8: 264")
  check.equal(map_text({ { name = "a", bytes = 64 },
                         { name = "b", bytes = 32, over = "a", from = 48 } }),
              "a 0+64, b 48+32: 80")
end

-- Every pair of regions, of sizes and alignments that come round with different periods.
function tests.only_declared_regions_overlap()
  local regions, over = {}, {}
  for i = 1, 40 do
    over[i] = i % 7 == 0 and i - 3 or nil
    regions[i] = { name = "r" .. i, bytes = 16 * (i * 37 % 91),
                   align = ({ 8, 128, 1024 })[i % 3 + 1], over = over[i] and "r" .. over[i] or nil }
  end
  local map = layout.map(regions)
  for i, a in ipairs(map.list) do
    check.equal(a.offset >= 0 and a.offset + a.bytes <= map.bytes, true)
    if not over[i] then check.equal(a.offset % regions[i].align, 0) end
    for j = 1, over[i] and 0 or i - 1 do
      check.equal(map.list[j].offset + map.list[j].bytes <= a.offset, true)
    end
  end
end

function tests.what_does_not_fit_is_refused_with_both_sizes()
  local arch = { name = "sm_86", smem_per_block = 101376 }
  check.equal(layout.fits({ bytes = 101376 }, arch), true)
  local ok, sentence = layout.fits({ bytes = 101377 }, arch)
  check.equal(ok, nil)
  check.equal(sentence,
              "the tile takes 101377 bytes of shared memory, sm_86 has 101376 for a block")
end

return tests

-- layout.lua: where the elements of a tile lie in shared memory, and the shared-memory map of a kernel.
--
-- Invariant: every layout is a bijection of its (row, 16-byte chunk) pairs onto its bytes, and the eight rows that one
-- ldmatrix or the eight threads that one 16-byte store phase touches fall into eight different 16-byte bank groups
-- (tests/lua/test_layout.lua proves both). All elements are 2 bytes wide here.

local layout = {}

local function round_up(x, to) return (x + to - 1) // to * to end
layout.round_up = round_up
function layout.ceil_div(x, by) return (x + by - 1) // by end

-- Rows of `cols` elements (a multiple of 16), one behind the other, no padding. The chunk index is XORed with as many bits
-- of the row as make eight consecutive rows hit different banks:
--   row of 8k chunks:      all rows start in bank group 0:          chunk ^ (row & 7)
--   row of 8k + 4 chunks:  rows start in groups 0, 4, 0, 4, ...:    chunk ^ (row >> 1 & 3)
--   row of 4k + 2 chunks:  rows start in groups 0, 2, 4, 6, ...:    chunk ^ (row >> 2 & 1)
function layout.rows(cols)
  assert(cols % 16 == 0, "a row holds a multiple of 16 elements")
  local chunks = cols // 8
  local l = { cols = cols, chunks = chunks, pitch = cols * 2 }
  if chunks % 8 == 0 then l.shift, l.mask = 0, 7
  elseif chunks % 4 == 0 then l.shift, l.mask = 1, 3
  else l.shift, l.mask = 2, 1 end
  -- byte offset of a chunk, as a number and as C text
  function l.offset(row, chunk) return row * l.pitch + (chunk ~ (row >> l.shift & l.mask)) * 16 end
  l.swizzle = l.shift == 0 and ("(%s & %d)") or ("(%s >> " .. l.shift .. " & %d)")
  function l.swizzle_text(row) return l.swizzle:format(row, l.mask) end
  return l
end

-- How `threads` threads copy `rows` rows of `chunks` 16-byte chunks: `wide` neighbouring threads share a row, each takes the
-- chunks wide apart. A power of two that divides the row, if that leaves at least 64 contiguous bytes; otherwise the next
-- power of two above it, with idle threads.
function layout.copy(rows, chunks, threads)
  local wide = chunks & -chunks
  if wide < 4 and chunks > 2 then
    wide = 1
    while wide < chunks do wide = wide * 2 end
  end
  wide = math.min(wide, threads)
  local step = threads // wide
  return { wide = wide, step = step, passes = layout.ceil_div(rows, step), ragged_rows = rows % step ~= 0,
           ragged_chunks = chunks % wide ~= 0 }
end

-- Panels for TMA and wgmma with the 128-byte swizzle: 64 columns each, rows * 128 bytes, one behind the other. Columns past
-- the tensor's are zero-filled by TMA, so any number of columns is padded to whole panels.
function layout.panels(rows, cols)
  local count = layout.ceil_div(cols, 64)
  return { rows = rows, count = count, bytes = rows * 128, total = rows * 128 * count }
end

-- The shared-memory map: regions in order, each at a multiple of its alignment. Regions with the same `at` overlay.
function layout.map(regions)
  local at, by_name, list = 0, {}, {}
  for _, r in ipairs(regions) do
    local offset = r.over and by_name[r.over].offset or round_up(at, r.align or 128)
    local entry = { name = r.name, offset = offset, bytes = r.bytes }
    by_name[r.name], list[#list + 1] = entry, entry
    at = math.max(at, offset + r.bytes)
  end
  return { list = list, by_name = by_name, bytes = at }
end

return layout

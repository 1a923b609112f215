-- layout.lua: where the elements of a tile lie in shared memory, and the shared-memory map of a
-- kernel. All elements are 2 bytes wide here; a chunk is 16 bytes. Called by the families.
--
-- Invariant: every layout is a bijection of its (row, chunk) pairs onto its bytes, and the eight
-- rows that one ldmatrix reads, or the eight threads of one 16-byte store phase write, fall into
-- eight different bank groups of 16 bytes (tests/lua/test_layout.lua proves both).

local layout = {}

function layout.round_up(x, to) return (x + to - 1) // to * to end
function layout.ceil_div(x, by) return (x + by - 1) // by end

-- The multiples of a number up to `most`, as a list.
function layout.multiples(of, most)
  local out = {}
  for x = of, most, of do out[#out + 1] = x end
  return out
end

-- Rows of `cols` elements (a multiple of 16), one behind the other, no padding. The chunk index is
-- XORed with as many bits of the row as make eight consecutive rows hit different banks:
--   row of 8k chunks:      all rows start in bank group 0:          chunk ^ (row & 7)
--   row of 8k + 4 chunks:  rows start in groups 0, 4, 0, 4, ...:    chunk ^ (row >> 1 & 3)
--   row of 4k + 2 chunks:  rows start in groups 0, 2, 4, 6, ...:    chunk ^ (row >> 2 & 1)
function layout.rows(cols)
  assert(cols % 16 == 0, "a row holds a multiple of 16 elements")
  local chunks = cols // 8
  local l = { cols = cols, chunks = chunks, pitch = cols * 2, shift = 2, mask = 1 }
  if chunks % 8 == 0 then
    l.shift, l.mask = 0, 7
  elseif chunks % 4 == 0 then
    l.shift, l.mask = 1, 3
  end
  local moved = l.shift == 0 and "" or " >> " .. l.shift

  -- The byte offset of a chunk, and the C text of what its index is XORed with.
  function l.offset(row, chunk)
    return row * l.pitch + (chunk ~ (row >> l.shift & l.mask)) * 16
  end
  function l.swizzle_text(row) return ("(%s%s & %d)"):format(row, moved, l.mask) end
  return l
end

-- How `threads` threads copy `rows` rows of `chunks` chunks: `wide` neighbouring threads share a
-- row, and each takes the chunks `wide` apart. wide is the largest power of two up to 8 that
-- divides the row, if that leaves at least 64 contiguous bytes; otherwise the next one above the
-- row, with idle threads.
function layout.copy(rows, chunks, threads)
  local wide = math.min(chunks & -chunks, 8)
  if wide < 4 and chunks > 2 then
    wide = 1
    while wide < chunks do wide = wide * 2 end
  end
  wide = math.min(wide, threads)
  local step = threads // wide
  return {
    wide = wide, step = step, passes = layout.ceil_div(rows, step),
    ragged_rows = rows % step ~= 0, ragged_chunks = chunks % wide ~= 0,
  }
end

-- Panels for TMA and wgmma with the 128-byte swizzle: 64 columns each, rows * 128 bytes, one behind
-- the other. TMA fills columns past the tensor's with zeros: any width is padded to whole panels.
function layout.panels(rows, cols)
  local count = layout.ceil_div(cols, 64)
  return { rows = rows, count = count, bytes = rows * 128, total = rows * 128 * count }
end

-- The shared-memory map: regions in order, each at a multiple of its alignment; one with `over`
-- begins `from` bytes (or 0) behind the begin of the region of that name. at: offsets by name.
function layout.map(regions)
  local bytes, at, list = 0, {}, {}
  for i, region in ipairs(regions) do
    local offset = region.over and at[region.over] + (region.from or 0)
                   or layout.round_up(bytes, region.align or 128)
    at[region.name] = offset
    list[i] = { name = region.name, offset = offset, bytes = region.bytes }
    bytes = math.max(bytes, offset + region.bytes)
  end
  return { list = list, at = at, bytes = bytes }
end

-- true where a map fits into a block's shared memory, or nil and one sentence.
function layout.fits(map, arch)
  if map.bytes <= arch.smem_per_block then return true end
  return nil, ("the tile takes %d bytes of shared memory, %s has %d for a block"):format(
    map.bytes, arch.name, arch.smem_per_block)
end

return layout

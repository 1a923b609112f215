-- tiles.lua: the tiles of a spec that are legal, and how long each would take by a model. Both are
-- arithmetic: nothing is rendered, compiled or measured. Called by api.lua for the C side.
--
-- Invariant: list() holds exactly the tiles of the family's axes that its check() accepts, in the
-- order of the axes. predict() is a function of its arguments; docs/tuning.md says what it leaves
-- out.
--
-- A family gives what one key block and one tile cost on a multiprocessor (docs/architecture.md);
-- what all families share is here: how many blocks there are, how the tiles fall on the
-- multiprocessors, and what L2 and device memory take.
local layout = require("layout")

local tiles = {}

-- ---- the search space ----

-- Calls body(tile) with every combination of the axes, the last one turning fastest.
local function combine(axes, depth, tile, body)
  local axis = axes[depth]
  if not axis then return body(tile) end
  for _, value in ipairs(axis.values) do
    tile[axis.name] = value
    combine(axes, depth + 1, tile, body)
  end
end

-- Every legal tile of a spec with all fields filled.
function tiles.list(family, spec, arch)
  local out = {}
  combine(family.axes, 1, {}, function(tile)
    if not family.check(spec, tile, arch) then return end
    local copy = {}
    for name, value in pairs(tile) do copy[name] = value end
    out[#out + 1] = copy
  end)
  return out
end

-- ---- key blocks ----

-- More query tiles of one head than these are counted by so many samples.
local MOST_COUNTED = 4096

-- Keys that the query rows from `first` on see: the last row of the tile sees the most.
local function keys_seen(spec, tile, shape, first)
  if spec.mask ~= "causal" then return shape.seqlen_k end
  local last = math.min(first + tile.block_m, shape.seqlen_q)
  return math.max(0, math.min(shape.seqlen_k, last + shape.seqlen_k - shape.seqlen_q))
end

-- Pairs of a query and a key that it sees, of one head.
local function pairs_seen(spec, shape)
  local q, k = shape.seqlen_q, shape.seqlen_k
  if spec.mask ~= "causal" then return q * k end
  local rows = math.min(q, k) -- those that see a key
  return rows * (k - rows) + rows * (rows + 1) / 2
end

-- Of one head: query tiles, key blocks of all of them, of the longest; and the share of the scores
-- in those blocks that is masked, or lies past the last query or key.
local function count(spec, tile, shape)
  local rows = layout.ceil_div(shape.seqlen_q, tile.block_m)
  local counted = math.min(rows, MOST_COUNTED)
  local blocks, longest = 0, 0
  for i = 0, counted - 1 do
    local row = i * (rows - 1) // math.max(counted - 1, 1)
    local own = layout.ceil_div(keys_seen(spec, tile, shape, row * tile.block_m), tile.block_n)
    blocks, longest = blocks + own, math.max(longest, own)
  end
  blocks = blocks * rows / math.max(counted, 1)
  local scores = blocks * tile.block_m * tile.block_n
  local wasted = scores > 0 and 1 - pairs_seen(spec, shape) / scores or 0
  return { rows = rows, blocks = blocks, longest = longest, wasted = wasted }
end

-- The same of the backward pass, whose tiles own keys of one key head and walk over the query
-- blocks of its group.
local function count_backward(spec, tile, shape)
  local rows = layout.ceil_div(shape.seqlen_k, tile.block_n)
  local all = layout.ceil_div(shape.seqlen_q, tile.block_m)
  local counted, group = math.min(rows, MOST_COUNTED), shape.num_heads // shape.num_heads_k
  local blocks, longest = 0, 0
  for i = 0, counted - 1 do
    local first = i * (rows - 1) // math.max(counted - 1, 1) * tile.block_n
    if spec.mask ~= "causal" then first = 0 else first = first + shape.seqlen_q - shape.seqlen_k end
    local own = group * (all - math.min(all, math.max(0, first) // tile.block_m))
    blocks, longest = blocks + own, math.max(longest, own)
  end
  blocks = blocks * rows / math.max(counted, 1)
  local scores = blocks * tile.block_m * tile.block_n
  local wasted = scores > 0 and 1 - group * pairs_seen(spec, shape) / scores or 0
  return { rows = rows, blocks = blocks, longest = longest, wasted = wasted }
end

-- ---- time ----

-- What takes longest, and what of the rest does not hide behind it.
local function overlapped(hidden, ...)
  local sum, most = 0, 0
  for _, clocks in ipairs({ ... }) do sum, most = sum + clocks, math.max(most, clocks) end
  return most + (1 - hidden) * (sum - most)
end

-- Clocks of a multiprocessor for the tiles that fall on the busiest one. A tile takes cost.tile
-- and its key blocks. Equal tiles come in rounds; unequal ones (causal) even out, but for one
-- tile at the end.
local function clocks_of_tiles(cost, n, heads, num_sms, uneven)
  local total = heads * n.rows
  local resident = math.max(1, math.min(cost.resident, layout.ceil_div(total, num_sms)))
  local hidden = cost.hidden[resident] or cost.hidden[#cost.hidden]
  local block = overlapped(hidden, cost.tensor, cost.softmax, cost.shared)
  local exposed = math.max(0, cost.latency - (cost.ahead + resident - 1) * block)
  block = block + cost.block + exposed
  local whole = total * cost.tile + heads * n.blocks * block -- of all tiles
  local mean, longest = whole / math.max(total, 1), cost.tile + n.longest * block
  local even = whole / num_sms
  if not uneven then return mean * layout.ceil_div(total, num_sms), even, block end
  return math.max(longest, even + cost.tail * mean), even, block
end

-- Bytes of device memory, once each; and what the tiles ask of L2, keys and values again for every
-- tile.
local function bytes_of(spec, tile, shape, n)
  local both = 2 * (spec.head_dim + spec.head_dim_v)
  local rows_q = shape.batch * shape.num_heads * shape.seqlen_q
  local rows_k = shape.batch * shape.num_heads_k * shape.seqlen_k
  local asked = shape.batch * shape.num_heads * n.blocks * tile.block_n
  return rows_q * (both + 4) + rows_k * both, rows_q * (both + 4) + asked * both
end

-- The same of the backward pass: what is read and written once; queries, their dO and sums of dQ
-- for every tile; and what the kernels before and after the main one move, which nothing hides.
local function bytes_backward(spec, tile, shape, n)
  local both = 2 * (spec.head_dim + spec.head_dim_v)
  local rows_q = shape.batch * shape.num_heads * shape.seqlen_q
  local rows_k = shape.batch * shape.num_heads_k * shape.seqlen_k
  local device = rows_q * (2 * both + 4) + rows_k * 2 * both
  local asked = shape.batch * shape.num_heads_k * n.blocks * tile.block_m
                * (both + 4 * spec.head_dim) + rows_k * 2 * both
  return device, asked, rows_q * (4 * spec.head_dim_v + 10 * spec.head_dim + 32)
end

-- Part of the shorter of memory and multiprocessors that does not hide behind the longer: the
-- first tiles wait for their tensors, the last ones store alone.
local MEMORY_EXPOSED = 0.3
local MEMORY_SHARE = 0.83 -- of the nominal bandwidth that is reached

-- The predicted microseconds of one launch and their parts, each as if it had the chip to itself:
-- tensor, softmax, shared (shared memory), l2, memory; of the multiprocessors' time: tile (what is
-- paid once a tile), masked (scores that are computed and thrown away) and tail (multiprocessors
-- without work); and launch. Beside them what a roofline is drawn of: bytes (of device memory), and
-- the nominal roofs gbs and tflops. sizes: batch, seqlen_q, seqlen_k, num_heads, num_heads_k.
function tiles.predict(family, spec, tile, arch, sizes, num_sms)
  local cost, shape = family.cost(spec, tile, arch), {}
  for name, size in pairs(sizes) do shape[name] = size + 0.0 end -- products pass 2^63
  local is_backward = spec.pass == "backward"
  local heads = shape.batch * (is_backward and shape.num_heads_k or shape.num_heads)
  local n = (is_backward and count_backward or count)(spec, tile, shape)
  local per_us = arch.clock_mhz * num_sms -- clocks of all multiprocessors in a microsecond
  local busiest, even, block = clocks_of_tiles(cost, n, heads, num_sms, spec.mask == "causal")
  local device, asked, around = (is_backward and bytes_backward or bytes_of)(spec, tile, shape, n)
  device = device + (cost.scratch or 0) * heads * shape.seqlen_q * shape.seqlen_k
  local parts = {
    tensor = heads * n.blocks * cost.tensor / per_us,
    softmax = heads * n.blocks * cost.softmax / per_us,
    shared = heads * n.blocks * cost.shared / per_us,
    tile = heads * n.rows * cost.tile / per_us,
    masked = heads * n.blocks * block * n.wasted / per_us,
    tail = (busiest - even) / arch.clock_mhz,
    l2 = asked / arch.l2_bytes_clock / per_us,
    memory = device / (arch.memory_gbs * MEMORY_SHARE) / 1e3,
    launch = arch.launch_us,
  }
  if around then
    parts.launch = 3 * arch.launch_us + around / (arch.memory_gbs * MEMORY_SHARE) / 1e3
  end
  local chip = math.max(busiest / arch.clock_mhz, parts.l2)
  parts.time = parts.launch + overlapped(1 - MEMORY_EXPOSED, chip, parts.memory)
  parts.resident = cost.resident
  parts.bytes, parts.gbs = device, arch.memory_gbs
  parts.tflops = arch.tensor_flops * per_us * 1e-6
  return parts
end

return tiles

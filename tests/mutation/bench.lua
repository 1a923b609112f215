-- What the mutation suites run kernels on: small tiles of every shape of kernel text, and problems
-- whose tensors are written as .npy files.
--
-- Ring faults need tiles of one or two key blocks and three tiles a block; mask faults need scores
-- below 0, so that a row of zeros or NaN that gets past the mask is seen; rescaling needs scores
-- that grow in the order in which blocks come, from the last key to the first. What a first pass
-- cannot hold has a problem for each reason: outputs (jump), sums (sum), references (far).
--
-- Invariant: the data are a function of the problem and the kernel alone.
-- Called by deletions.lua, planted.lua and alarms.lua.
local bench = {}

bench.program = (os.getenv("BUILD") or "build") .. "/bin/kiln"

-- masks: of warps to starve, both sides of what the kernel's warps wait for.
local function kernel(name, arch, dtype, mask, dims, tile, masks, algorithm)
  return { name = name, arch = arch, dtype = dtype, mask = mask, head_dim = dims[1],
           head_dim_v = dims[2], block_m = tile[1], block_n = tile[2], num_stages = tile[3],
           num_warps = tile[4], masks = masks, algorithm = algorithm or "flash" }
end

local CONSUMERS = { 0xf0, 0xf00 } -- the first and the second consumer warpgroup of Hopper
local WARPS = { 0x1, 0x2 }

-- Ampere's number is that of slots: a ring where there are several. Queries are held in registers
-- where blocks are slices of 32 keys, and lie in a slot before; two warps share rows where
-- head_dim_v exceeds 128. Hopper's number is that of places for queries: one where two do not fit.
bench.kernels = {
  kernel("ampere-1", "sm_80", "bf16", "none", { 40, 24 }, { 64, 32, 1, 2 }, WARPS),
  kernel("ampere-1-causal", "sm_80", "fp16", "causal", { 16, 64 }, { 32, 16, 1, 2 }, WARPS),
  kernel("ampere-2-causal", "sm_80", "bf16", "causal", { 24, 32 }, { 32, 16, 2, 2 }, WARPS),
  kernel("ampere-3", "sm_80", "fp16", "none", { 16, 16 }, { 64, 16, 3, 2 }, WARPS),
  kernel("ampere-held-2", "sm_80", "fp16", "causal", { 24, 40 }, { 32, 32, 2, 2 }, WARPS),
  kernel("ampere-held-3", "sm_80", "bf16", "none", { 40, 24 }, { 64, 64, 3, 2 }, WARPS),
  kernel("ampere-pair-1", "sm_80", "bf16", "causal", { 24, 144 }, { 64, 32, 1, 4 }, WARPS),
  kernel("ampere-pair-2", "sm_80", "fp16", "none", { 16, 136 }, { 64, 32, 2, 4 }, WARPS),
  kernel("hopper-2", "sm_90a", "bf16", "none", { 64, 128 }, { 128, 32, 2, 12 }, CONSUMERS),
  kernel("hopper-2-causal", "sm_90a", "bf16", "causal", { 72, 40 }, { 128, 32, 3, 12 }, CONSUMERS),
  kernel("hopper-2-fp16", "sm_90a", "fp16", "causal", { 64, 64 }, { 128, 32, 2, 12 }, CONSUMERS),
  kernel("hopper-2-three", "sm_90a", "fp16", "none", { 40, 64 }, { 192, 32, 2, 16 }, CONSUMERS),
  kernel("hopper-1", "sm_90a", "fp16", "none", { 256, 200 }, { 128, 64, 2, 12 }, CONSUMERS),
  kernel("hopper-1-causal", "sm_90a", "bf16", "causal", { 128, 128 }, { 128, 176, 2, 12 },
         CONSUMERS),
  kernel("standard", "sm_80", "bf16", "none", { 24, 40 }, {}, WARPS, "standard"),
  kernel("standard-causal", "sm_80", "fp16", "causal", { 32, 16 }, {}, WARPS, "standard"),
}

local function gradients(name, arch, dtype, mask, dims, tile, is_deterministic)
  local k = kernel(name, arch, dtype, mask, dims, tile, arch == "sm_80" and WARPS or CONSUMERS)
  k.pass, k.deterministic = "backward", is_deterministic
  bench.kernels[#bench.kernels + 1] = k
end

-- Those of Ampere: one place for queries or a ring of two, scores or dq in one part or two, columns
-- that come out even or do not. Those of Hopper, by who forms dq: each consumer by its keys, rows
-- or columns. Wide: one thread block or a pair, one place for dout or two.
gradients("ampere-back-1", "sm_80", "fp16", "none", { 24, 40 }, { 32, 32, 1, 4 })
gradients("ampere-back-1-turns", "sm_80", "fp16", "causal", { 64, 16 }, { 16, 64, 1, 4 }, true)
gradients("ampere-back-2", "sm_80", "bf16", "causal", { 40, 24 }, { 32, 32, 2, 4 })
gradients("ampere-back-2-turns", "sm_80", "bf16", "none", { 128, 64 }, { 32, 64, 2, 8 }, true)
gradients("hopper-back-keys", "sm_90a", "bf16", "none", { 40, 128 }, { 64, 128, 2, 12 })
gradients("hopper-back-keys-turns", "sm_90a", "fp16", "causal", { 64, 64 }, { 64, 128, 2, 12 },
          true)
gradients("hopper-back-rows", "sm_90a", "fp16", "causal", { 64, 64 }, { 128, 128, 2, 12 })
gradients("hopper-back-columns", "sm_90a", "bf16", "causal", { 128, 64 }, { 64, 128, 2, 12 })
gradients("hopper-back-columns-turns", "sm_90a", "bf16", "none", { 72, 104 }, { 64, 128, 2, 12 },
          true)
gradients("wide-back", "sm_90a", "fp16", "none", { 136, 64 }, { 64, 64, 2, 12 })
gradients("wide-back-turns", "sm_90a", "bf16", "causal", { 136, 72 }, { 64, 64, 1, 12 }, true)
gradients("wide-back-pair", "sm_90a", "bf16", "causal", { 256, 136 }, { 64, 128, 1, 12 })
gradients("wide-back-pair-turns", "sm_90a", "fp16", "none", { 200, 64 }, { 64, 128, 1, 12 }, true)

function bench.find(name)
  for _, k in ipairs(bench.kernels) do if k.name == name then return k end end
  error("there is no kernel " .. name)
end

function bench.flags(k)
  local flags = { "--arch", k.arch, "--algorithm", k.algorithm, "--dtype", k.dtype,
                  "--mask", k.mask, "--pass", k.pass or "forward" }
  if k.deterministic then flags[#flags + 1] = "--deterministic" end
  for _, name in ipairs({ "block_m", "block_n", "num_stages", "num_warps" }) do
    if k[name] then
      flags[#flags + 1] = ("--%s %d"):format(name:gsub("_", "-"), k[name])
    end
  end
  return table.concat(flags, " ")
end

-- ---- problems ----

-- Of gradients, whose blocks own keys. many: four key blocks, since only three sums or more show
-- their order; one: a key block of one step; tall: many steps, rows that see no key, and causal
-- blocks that begin behind the first rows; none: no query; turns: key blocks that all begin at one
-- query block. What these add to dq nearly cancels, since ds sums to 0 over the keys, and keys have
-- much in common: so the order of sums shows after dq was rounded, too.
local function sizes_back(name, k)
  local m, n, is_causal = k.block_m, k.block_n, k.mask == "causal"
  return ({
    many = { 1, m + 5, 4, k.deterministic and 1 or 2, 3 * n + n // 4 + 3 },
    tall = { 1, n + 3 * m + 1, 2, 1, is_causal and n + n // 2 or n - 1 },
    one = { 2, m - 3, 2, 2, n // 2 + 1 },
    two = { 1, m + 1, 3, 3, 2 * n },
    low = { 1, m + 1, 2, 1, n + n // 2 + 1 },
    huge = { 1, m + 1, 2, 1, n + n // 4 + 1 },
    none = { 1, 0, 2, 1, n + 1 },
    turns = { 1, m + 1, 2, 1, 4 * n - 5 },
  })[name]
end

-- batch, seqlen_q, num_heads, num_heads_k, seqlen_k. The emulated device has four multiprocessors:
-- twelve tiles are three a block, nine are three or two. Causal kernels get more keys than the
-- diagonal needs, or so few that some rows see none. Where they are whole blocks, a tile of one row
-- sees all of them.
local function sizes(name, k)
  local m, n = k.block_m or 32, k.block_n or 32
  if k.pass == "backward" then return sizes_back(name, k) end
  local rows = 2 * m + m * 3 // 4 + 5
  local many = k.mask == "causal" and rows + 2 * n + 3 or 4 * n + n // 2 + 3
  local whole = k.mask == "causal" and ((2 * m + n) // n + 2) * n or many
  return ({
    many = { 1, k.mask == "causal" and 2 * m + 1 or rows, 4, 2, whole },
    one = { 2, rows, 2, 1, n // 2 + 1 },
    two = { 1, 2 * m + 1, 3, 3, 2 * n },
    rest = { 1, m + 1, 3, 3, 2 * n - 1 },
    grow = { 1, rows, 4, 1, many },
    jump = { 1, rows, 4, 2, many },
    sum = { 1, m + 1, 3, 1, whole },
    far = { 1, m + 1, 3, 1, whole + 2 },
  })[name]
end

local problems = { "many", "one", "two", "rest", "grow", "jump", "sum", "far" }
local problems_back = { "low", "one", "two", "tall", "none", "many" } -- the dearest comes last

-- huge: dP overflows where the key is hidden, which takes a mask and the range of bf16.
function bench.problems_of(k)
  if k.pass ~= "backward" then return problems end
  local names = { table.unpack(problems_back) }
  if k.deterministic then names[#names + 1] = "turns" end
  if k.mask == "causal" and k.dtype == "bf16" then names[#names + 1] = "huge" end
  return names
end

-- Packed floats from which rows are cut: about normal, sums of four uniform numbers.
local pool_rows = 40000
local pool
local function random_row(width, bias)
  pool = pool or {}
  if not pool[bias] then
    local out = {}
    for i = 1, pool_rows do
      local sum = math.random() + math.random() + math.random() + math.random() - 2
      out[i] = ("<f"):pack(sum * 1.7 + bias)
    end
    pool[bias] = table.concat(out)
  end
  local at = math.random(0, pool_rows - width)
  return pool[bias]:sub(4 * at + 1, 4 * (at + width))
end

-- .npy of float32, (batch, rows, heads, dim); row(b, i, h) packs dim floats.
local function save(path, batch, rows, heads, dim, row)
  local head = ("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d, %d, %d), }"):format(
    batch, rows, heads, dim)
  head = head .. (" "):rep(-(#head + 11) % 64) .. "\n"
  local out = { "\x93NUMPY\1\0", ("<I2"):pack(#head), head }
  for b = 1, batch do
    for i = 0, rows - 1 do
      for h = 0, heads - 1 do out[#out + 1] = row(b, i, h) end
    end
  end
  local file = assert(io.open(path, "wb"))
  file:write(table.concat(out))
  file:close()
end

local function first_column(value, row) return ("<f"):pack(value) .. row:sub(5) end

-- Nats by which a key's score leads: 40 over the whole length towards the first key, 200 or 30 at
-- one key, or 88, a little below the end of fp32, at four. low: keys past the end would lead.
local function lead(name, i, h, seqlen_k)
  if name == "low" then return -200 end
  if name == "huge" then return i == seqlen_k - 1 and -200 or 0 end
  if name == "grow" then return 40 * (seqlen_k - i) / seqlen_k end
  if name == "sum" then return i < 4 and 88 or 0 end
  return i ~= seqlen_k // 4 and 0 or h == 0 and 200 or 30
end

-- In these rows, which are never those of a warp's first lane, all scores are far from 0.
local function is_far(i, h) return h == 1 and i % 8 == 3 end

-- Whole numbers, so that products are exact, and in their first column what makes scores far.
local function whole_row(width, first)
  local out = { ("<f"):pack(first) }
  for i = 2, width do out[i] = ("<f"):pack(math.random(-1, 1)) end
  return table.concat(out)
end

-- Which rows meet the jump: always of one warpgroup alone. Some blocks have three such tiles, some
-- none, and some one that is their last.
local function jumps(k, i, h)
  local m = k.block_m or 32
  local is_second = i // 64 % 2 == 1
  if h == 0 then return not is_second and (i < m or i >= 2 * m) end
  if h == 2 and k.mask == "causal" and i >= m then return is_second and i < 2 * m end
  if h == 2 then return not is_second and i < m end
  return h == 3 and is_second and i < 2 * m
end

-- Problems in which the first column makes scores lead; in jump only for some rows.
local leads = { grow = true, sum = true, low = true, huge = true }

local function q_row(name, k, i, h)
  if name == "far" then return whole_row(k.head_dim, is_far(i, h) and 2048 or 0) end
  local row = random_row(k.head_dim, 0.5)
  if leads[name] then return first_column(4, row) end
  if name == "jump" then return first_column(jumps(k, i, h) and 4 or 0, row) end
  return row
end

local function k_row(name, k, i, h, seqlen_k)
  if name == "far" then return whole_row(k.head_dim, 4096) end
  local row = random_row(k.head_dim, name == "turns" and -8 or -0.5)
  if name == "huge" and i < seqlen_k - 1 then return row end
  if not leads[name] and name ~= "jump" then return row end
  return first_column(lead(name, i, h, seqlen_k) / 4 * math.sqrt(k.head_dim), row)
end

-- jump: |v| reaches a large part of the dtype's range, so that outputs overflow where p is not
-- small. sum: |v| is so small that they do not where sums of p do.
local sizes_of_v = { jump = { fp16 = 1e4, bf16 = 1e34 }, sum = { fp16 = 1e-3, bf16 = 1e-30 } }

-- huge: the last key, which only the last row sees, but with p = 0 and dout = 0.
local function v_row(name, k, i, keys)
  local row, out = random_row(k.head_dim_v, 0), {}
  if name == "huge" and i == keys - 1 then return ("<f"):pack(2e38):rep(k.head_dim_v) end
  if not sizes_of_v[name] then return row end
  local size = sizes_of_v[name][k.dtype]
  for i = 1, k.head_dim_v do out[i] = ("<f"):pack(("<f"):unpack(row, 4 * i - 3) * size) end
  return table.concat(out)
end

-- Rows behind the last key hold NaN: nothing of them may be seen.
local function nan_row(width) return ("<f"):pack(0 / 0):rep(width) end

-- Writes the tensors of a problem below `folder`; returns the flags that name them.
function bench.write(folder, name, k)
  local batch, rows, heads, heads_k, keys = table.unpack(sizes(name, k))
  local tail = 7
  math.randomseed(#name * 1000 + keys)
  local base = ("%s/%s-%s-"):format(folder, k.name, name)
  save(base .. "q.npy", batch, rows, heads, k.head_dim,
    function(_, i, h) return q_row(name, k, i, h) end)
  save(base .. "k.npy", batch, keys + tail, heads_k, k.head_dim, function(_, i, h)
    return i < keys and k_row(name, k, i, h, keys) or nan_row(k.head_dim)
  end)
  save(base .. "v.npy", batch, keys + tail, heads_k, k.head_dim_v, function(_, i)
    return i < keys and v_row(name, k, i, keys) or nan_row(k.head_dim_v)
  end)
  local flags = "--q %sq.npy --k %sk.npy --v %sv.npy --seqlen-k %d"
  flags = flags:format(base, base, base, keys)
  if k.pass ~= "backward" then return flags end
  save(base .. "do.npy", batch, rows, heads, k.head_dim_v, function(_, i)
    if name == "huge" and i == rows - 1 then return ("<f"):pack(0):rep(k.head_dim_v) end
    return random_row(k.head_dim_v, 0.5)
  end)
  return ("%s --do %sdo.npy"):format(flags, base)
end

-- ---- running ----

-- Whether no score leads by more than the first pass holds: then nothing is left for the second
-- one. fp16 holds a few nats, bf16 about 60. Hopper's second pass also takes rows that see no key.
local function is_plain(name, k)
  if k.pass == "backward" then return false end -- here a whole forward pass comes first
  return name == "many" or (name == "grow" and k.dtype == "bf16")
    or ((k.mask == "none" or k.arch == "sm_80")
        and (name == "one" or name == "two" or name == "rest"))
end

-- The runs of a kernel: { schedule, problem }. A deletion that can be seen is nearly always seen in
-- the first six; a ring that is too short shows with one warpgroup starved.
local function runs_of(k)
  local runs = {}
  for _, problem in ipairs(bench.problems_of(k)) do runs[#runs + 1] = { "", problem } end
  for i, mask in ipairs(k.masks) do
    runs[#runs + 1] = { "--emu-starve " .. mask, i == 1 and "two" or "one" }
    runs[#runs + 1] = { "--emu-starve " .. mask, k.pass == "backward" and "tall" or "jump" }
  end
  runs[#runs + 1] = { "--emu-schedule random --emu-seed 1", "many" }
  runs[#runs + 1] = { "--emu-schedule random --emu-seed 2", "two" }
  for seed = 3, k.deterministic and 8 or 2 do -- orders of sums
    runs[#runs + 1] = { "--emu-schedule random --emu-seed " .. seed, "turns" }
  end
  return runs
end

-- A folder with a cache of its own.
function bench.temporary()
  local pipe = assert(io.popen("mktemp -d"))
  local folder = pipe:read("l")
  pipe:close()
  assert(os.execute(("mkdir %s/cache %s/data"):format(folder, folder)))
  return folder
end

-- Flags that name the tensors of each problem, written once below folder/data.
local function tensors_of(folder, k)
  local named = {}
  for _, name in ipairs(bench.problems_of(k)) do
    named[name] = bench.write(folder .. "/data", name, k)
  end
  return named
end

-- Writes runs of a kernel, one a line, to folder/LABEL.runs: of runs_of, or lists of runs by label.
-- Those that need no second pass are marked `once` and do without it, so that it cannot repair what
-- the first one lost; of those marked `same` all schedules of a problem must give the same dq.
function bench.write_runs(folder, k, lists)
  local named = tensors_of(folder, k)
  for label, runs in pairs(lists or { [k.name] = runs_of(k) }) do
    local file = assert(io.open(("%s/%s.runs"):format(folder, label), "w"))
    for _, run in ipairs(runs) do
      local kind = k.deterministic and "same" or is_plain(run[2], k) and "once" or "whole"
      file:write(("%s %s %s %s %s\n"):format(kind, run[2], bench.flags(k), named[run[2]], run[1]))
    end
    file:close()
  end
end

-- Has try.sh answer every job, a line of its arguments, `processes` at a time. Returns a table from
-- job to answer.
function bench.try(folder, jobs, processes)
  local list = assert(io.open(folder .. "/jobs", "w"))
  list:write(table.concat(jobs, "\n"), "\n")
  list:close()
  local command = "KILN=%s KILN_CACHE_DIR=%s/cache KILN_JOBS=1 xargs -P %d -L 1 "
                  .. "tests/mutation/try.sh %s <%s/jobs"
  local answers = {}
  local pipe = assert(io.popen(command:format(bench.program, folder, processes, folder, folder)))
  for line in pipe:lines() do
    local job, answer = line:match("^(.-)\t(.*)$")
    answers[job] = answer
  end
  pipe:close()
  return answers
end

return bench

-- Compiles the matrix of kernels with the built program and judges what the compiler says of each:
--   BUILD=build lua5.4 tests/nvrtc_matrix.lua sample|all [ARCH...]      from the checkout's root
-- A kernel passes when it compiles once, freshly and without a remark, fits the shared memory of
-- its architecture, and spills no register. Prints a line for each fault, then
-- `N passed, N failed`.
local program = (os.getenv("BUILD") or "build") .. "/bin/kiln"
local is_all = arg[1] == "all"
assert(is_all or arg[1] == "sample", "the matrix is sample or all")

local PROCESSES = 2

-- Bytes of shared memory that a block may have.
local limits = { sm_80 = 166912, sm_86 = 101376, sm_89 = 101376, sm_90 = 232448, sm_90a = 232448,
                 sm_120 = 101376 }
local archs = { "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_120" }
if #arg > 1 then archs = { table.unpack(arg, 2) } end

local pairs_of_dims = { { 192, 128 }, { 64, 256 }, { 256, 64 }, { 8, 256 }, { 128, 8 } }

-- ---- what is compiled ----

local variants, jobs = {}, {}

-- Passes by name and `deterministic`: what a kernel's name ends with.
local passes = { forward0 = "", backward0 = " backward", backward1 = " backward deterministic" }

local function key_of(v)
  return ("%s %s %s %d/%d %s%s"):format(v.arch, v.algorithm, v.dtype, v.head_dim, v.head_dim_v,
    v.mask, passes[v.pass .. v.deterministic])
end

-- One run of the program: its flags, and the kernels that it must answer for. pass: forward unless
-- given; deterministic: 0 unless given.
local function add_job(algorithm, arch, dtypes, masks, dims, pass, deterministic)
  pass, deterministic = pass or "forward", deterministic or 0
  local widths = {}
  for i, d in ipairs(dims) do widths[i] = d[1] end
  local flags = { "--pass", pass, "--algorithm", algorithm, "--arch", arch,
                  deterministic == 1 and "--deterministic" or "--no-deterministic",
                  "--dtype", table.concat(dtypes, ","), "--mask", table.concat(masks, ","),
                  "--head-dim", table.concat(widths, ",") }
  if #dims == 1 then table.move({ "--head-dim-v", dims[1][2] }, 1, 2, #flags + 1, flags) end
  jobs[#jobs + 1] = table.concat(flags, " ")
  for _, dtype in ipairs(dtypes) do
    for _, mask in ipairs(masks) do
      for _, d in ipairs(dims) do
        variants[#variants + 1] = {
          pass = pass, deterministic = deterministic, algorithm = algorithm, arch = arch,
          dtype = dtype, mask = mask, head_dim = d[1], head_dim_v = d[2] }
      end
    end
  end
end

local function square(widths)
  local dims = {}
  for i, width in ipairs(widths) do dims[i] = { width, width } end
  return dims
end

-- Its gradients have the text and the tiles of sm_86.
local alike = { sm_89 = true }

local function add_all()
  local both, masks = { "fp16", "bf16" }, { "none", "causal" }
  for _, arch in ipairs(archs) do
    for first = 8, 256, 64 do
      local widths = {}
      for width = first, first + 56, 8 do widths[#widths + 1] = width end
      add_job("flash", arch, both, masks, square(widths))
      if not alike[arch] then
        add_job("flash", arch, { "bf16" }, { "causal" }, square(widths), "backward")
        add_job("flash", arch, { "fp16" }, { "none" }, square(widths), "backward")
      end
    end
    for _, dims in ipairs(pairs_of_dims) do
      add_job("flash", arch, both, masks, { dims })
      add_job("flash", arch, { "bf16" }, { "causal" }, { dims }, "backward")
    end
    add_job("flash", arch, { "fp16" }, { "causal" }, square({ 32, 64, 96, 128, 192, 256 }),
      "backward", 1)
    add_job("standard", arch, both, masks, square({ 8, 56, 128, 256 }))
  end
end

-- Each width, pair, dtype and mask, but not with one another.
local function add_sample()
  for i, arch in ipairs(archs) do
    add_job("flash", arch, { "bf16" }, { "causal" }, square({ 8, 56, 128, 200 }))
    add_job("flash", arch, { "fp16" }, { "none" }, square({ 64, 128, 256 }))
    add_job("flash", arch, { "bf16" }, { "none" }, { pairs_of_dims[i % #pairs_of_dims + 1] })
    add_job("flash", arch, { "bf16" }, { "causal" }, square({ 40, 64, 128, 256 }), "backward")
    add_job("flash", arch, { "fp16" }, { "none" }, square({ i % 2 == 0 and 128 or 224 }),
      "backward", i % 2)
  end
  add_job("standard", archs[1], { "bf16" }, { "causal" }, square({ 56, 256 }))
end

-- ---- compiling ----

-- Runs the jobs, PROCESSES at a time, each into files of its own below `folder`.
local function run_jobs(folder)
  local list = assert(io.open(folder .. "/jobs", "w"))
  for i, flags in ipairs(jobs) do list:write(i, " ", flags, "\n") end
  list:close()
  local one = ("%s compile --json --device none $flags >%s/$i.json 2>%s/$i.err || true"):format(
    program, folder, folder)
  assert(os.execute(("KILN_JOBS=1 KILN_CACHE_DIR=%s/cache xargs -P %d -I{} sh -c "
    .. "'set -- {}; i=$1; shift; flags=\"$*\"; %s' <%s/jobs"):format(folder, PROCESSES, one,
    folder)))
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

-- One JSON object of the program's, as far as the judgement needs it.
local function parse(line)
  local k = { line = line, notes = line:match('"notes":%[(.-)%]}$') }
  for _, name in ipairs({ "arch", "pass", "algorithm", "dtype", "mask" }) do
    k[name] = line:match('"' .. name .. '":"([^"]*)"')
  end
  for _, name in ipairs({ "head_dim", "head_dim_v", "registers", "spill_bytes", "shared_bytes" }) do
    k[name] = math.tointeger(tonumber(line:match('"' .. name .. '":(%d+)[,}]')))
    assert(k[name], name .. " is not in " .. line)
  end
  k.deterministic = line:find('"deterministic":1', 1, true) and 1 or 0
  k.source_id = line:match('"source_id":"(%x+)"')
  k.is_cached = line:find('"from_cache":true', 1, true)
  return k
end

-- Kernels by key, each a list; and what the program wrote to stderr.
local function read_results(folder)
  local kernels, errors = {}, {}
  for i in ipairs(jobs) do
    for line in read(("%s/%d.json"):format(folder, i)):gmatch("[^\n]+") do
      local kernel = parse(line)
      local key = key_of(kernel)
      kernels[key] = kernels[key] or {}
      table.insert(kernels[key], kernel)
    end
    errors[#errors + 1] = read(("%s/%d.err"):format(folder, i))
  end
  return kernels, table.concat(errors)
end

-- ---- judging ----

-- The first fault of a kernel, or nil.
local function fault_of(variant, found)
  if #found ~= 1 then return ("compiled %d times"):format(#found) end
  local k, limit = found[1], limits[variant.arch]
  if k.registers < 1 or k.registers > 255 then return k.registers .. " registers" end
  if k.shared_bytes < 1 or k.shared_bytes > limit then
    return ("%d bytes of shared memory, %d is the limit"):format(k.shared_bytes, limit)
  end
  if k.spill_bytes > 0 then return k.spill_bytes .. " bytes of spills" end
  if k.notes ~= "" then return "the compiler remarks: " .. k.notes end
end

-- Source ids that were compiled in this run. Head dims that are padded alike can share a source;
-- any other kernel from the cache would prove nothing about the compiler.
local function compiled_ids(kernels)
  local ids = {}
  for _, list in pairs(kernels) do
    for _, k in ipairs(list) do ids[k.source_id] = ids[k.source_id] or not k.is_cached end
  end
  return ids
end

local function judge(kernels, errors)
  local passed, failed, compiled = 0, 0, compiled_ids(kernels)
  for _, variant in ipairs(variants) do
    local key = key_of(variant)
    local found = kernels[key] or {}
    local fault = fault_of(variant, found)
    if not fault and not compiled[found[1].source_id] then fault = "it came from a cache" end
    if fault then print(key .. ": " .. fault) end
    passed, failed = passed + (fault and 0 or 1), failed + (fault and 1 or 0)
    kernels[key] = nil
  end
  for key in pairs(kernels) do
    print(key .. ": was not asked for")
    failed = failed + 1
  end
  if failed > 0 and errors ~= "" then print(errors) end
  print(("%d passed, %d failed"):format(passed, failed))
  return failed == 0
end

(is_all and add_all or add_sample)()
local pipe = assert(io.popen("mktemp -d"))
local folder = pipe:read("l")
pipe:close()
run_jobs(folder)
local kernels, errors = read_results(folder)
os.execute("rm -rf '" .. folder .. "'")
os.exit(judge(kernels, errors))

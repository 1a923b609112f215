-- Runs the matrix of kernels on the emulator and compares with the fp64 reference:
--   BUILD=build lua5.4 tests/emulator_matrix.lua sample|forward|backward   from the checkout's root
-- Every kernel runs the short problems of `kiln verify` under every schedule (gradients under two
-- of them), with all of the emulator's checks: as late as possible, two masks of warps that starve,
-- two seeds. A kernel and schedule without a result counts as failed. Prints a line for each fault,
-- then `N passed, N failed`, where a test is one problem of one kernel under one schedule.
local program = (os.getenv("BUILD") or "build") .. "/bin/kiln"
local pass = arg[1]
assert(pass == "sample" or pass == "forward" or pass == "backward",
  "the matrix is sample, forward or backward")

local PROCESSES = 2

-- Problems a kernel and schedule at least; verify shares them out where there are many kernels.
local FEWEST = 4

-- The masks starve one warp or every other of four, and the producers or the first consumers of
-- a Hopper kernel.
local forward = {
  { arch = "sm_80", algorithm = "standard", starve = { "0x1", "0xa" } }, -- the slowest goes first
  { arch = "sm_80", algorithm = "flash", starve = { "0x1", "0xa" } },
  { arch = "sm_90a", algorithm = "flash", starve = { "0xf", "0xf0" } },
}
local backward = {
  { arch = "sm_80", algorithm = "flash", pass = "backward", starve = { "0x1", "0xa" } },
  { arch = "sm_80", algorithm = "flash", pass = "backward", deterministic = true },
  { arch = "sm_90a", algorithm = "flash", pass = "backward", starve = { "0xf", "0xf0" } },
  { arch = "sm_90a", algorithm = "flash", pass = "backward", deterministic = true },
}

-- What is deterministic differs in the order of sums alone: one schedule.
local function schedules_of(family)
  if family.deterministic then return { "--emu-schedule late" } end
  return { "--emu-schedule late", "--emu-starve " .. family.starve[1],
           "--emu-starve " .. family.starve[2], "--emu-schedule random --emu-seed 1",
           "--emu-schedule random --emu-seed 2" }
end

-- ---- what is run ----

local jobs = {} -- one row a selection of kernels, with its schedules

local function add_job(family, dtype, mask, head_dims)
  jobs[#jobs + 1] = {
    family = family, dtype = dtype, mask = mask, head_dims = head_dims,
    schedules = schedules_of(family),
    flags = ("--pass %s %s --arch %s --algorithm %s --dtype %s --mask %s --head-dim %s"):format(
      family.pass or "forward", family.deterministic and "--deterministic" or "--no-deterministic",
      family.arch, family.algorithm, dtype, mask, table.concat(head_dims, ",")) }
end

-- Gradients take several times as long: beside the late schedule each selection has one of the
-- others, in turn.
local function take_turns(job, turn)
  local all = job.schedules
  if #all > 2 then job.schedules = { all[1], all[2 + turn % (#all - 1)] } end
end

local function add_all(families)
  for _, family in ipairs(families) do
    for _, dtype in ipairs({ "fp16", "bf16" }) do
      for _, mask in ipairs({ "none", "causal" }) do
        for first = 8, 256, 128 do
          local head_dims = {}
          for d = first, first + 120, 8 do head_dims[#head_dims + 1] = d end
          add_job(family, dtype, mask, head_dims)
          if family.pass then take_turns(jobs[#jobs], #jobs) end
        end
      end
    end
  end
end

-- Few kernels, and so each of them all short problems; the slow ones under two schedules.
local function add_sample()
  local families = { table.unpack(forward) }
  table.move(backward, 1, #backward, #families + 1, families)
  for _, family in ipairs(families) do
    add_job(family, "bf16", "causal", { 72 })
    if family.algorithm == "standard" or family.pass then
      local all = schedules_of(family)
      jobs[#jobs].schedules = { all[1], all[4] }
    end
  end
  add_job(forward[3], "fp16", "none", { 128 })
  add_job(backward[3], "fp16", "none", { 64, 256 })
end

-- ---- running ----

-- Runs the jobs, PROCESSES at a time; the schedules of one follow one another and share its
-- compiled kernels.
local function run_jobs(folder)
  local list = assert(io.open(folder .. "/jobs", "w"))
  for i, job in ipairs(jobs) do
    for s, schedule in ipairs(job.schedules) do
      list:write(("%s verify --device emu --quick %s %s >%s/%d.%d 2>&1; "):format(program,
        job.flags, schedule, folder, i, s))
    end
    list:write("true\n")
  end
  list:close()
  assert(os.execute(("KILN_JOBS=1 KILN_CACHE_DIR=%s/cache xargs -P %d -d '\\n' -n 1 sh -c <%s/jobs")
    :format(folder, PROCESSES, folder)))
end

-- ---- judging ----

-- The line of a kernel as verify prints it, without its counts.
local function name_of(job, head_dim)
  local family = job.family
  return ("%s %s %d %s%s%s%s"):format(family.arch, job.dtype, head_dim, job.mask,
    family.algorithm == "flash" and "" or " " .. family.algorithm,
    family.pass and " " .. family.pass or "", family.deterministic and " deterministic" or "")
end

-- Counts by kernel name, and what else was said.
local function read_counts(path)
  local counts, faults = {}, {}
  for line in io.lines(path) do
    local name, passed, failed = line:match("^(.-): (%d+) passed, (%d+) failed")
    if name then
      counts[name] = { tonumber(passed), tonumber(failed) }
    elseif not line:match("^%d+ passed, 0 failed$") then
      faults[#faults + 1] = line
    end
  end
  return counts, faults
end

local function judge(folder)
  local passed, failed = 0, 0
  for i, job in ipairs(jobs) do
    for s, schedule in ipairs(job.schedules) do
      local counts, faults = read_counts(("%s/%d.%d"):format(folder, i, s))
      local failed_before = failed
      for _, head_dim in ipairs(job.head_dims) do
        local name = name_of(job, head_dim)
        local count = counts[name] or { 0, 0 }
        passed, failed = passed + count[1], failed + count[2]
        if count[1] + count[2] < FEWEST then
          print(("%s (%s): %d problems were run"):format(name, schedule, count[1] + count[2]))
          failed = failed + 1
        end
      end
      if failed > failed_before then
        print(("%s %s:\n%s"):format(job.flags, schedule, table.concat(faults, "\n")))
      end
    end
  end
  print(("%d passed, %d failed"):format(passed, failed))
  return failed == 0
end

if pass == "sample" then add_sample() else add_all(pass == "forward" and forward or backward) end
local pipe = assert(io.popen("mktemp -d"))
local folder = pipe:read("l")
pipe:close()
run_jobs(folder)
local ok = judge(folder)
os.execute("rm -rf '" .. folder .. "'")
os.exit(ok)

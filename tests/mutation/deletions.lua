-- Deletes every site of every template, one at a time, and wants each deletion noticed:
--   BUILD=build lua5.4 tests/mutation/deletions.lua sample|all [KERNEL...]     from the root
-- A deletion that no run notices has to stand in survivors.txt, with its reason; an entry that is
-- noticed after all, or names no site, fails too. Prints a line for each fault, then
-- `N passed, N failed`. With REPORT naming a file, what noticed each deletion is written there.
package.path = "tests/mutation/?.lua;" .. package.path
local bench, sites = require("bench"), require("sites")

local PROCESSES = 2
local SAMPLE = 29 -- the sample takes every so manieth deletion

local is_all = arg[1] == "all"
assert(is_all or arg[1] == "sample", "the deletions are sample or all")

local chosen = {}
for i = 2, #arg do chosen[arg[i]] = true end

-- ---- the list of survivors ----

local REASONS = { dead = true, last = true, redundant = true, silent = true,
                  unseen = true }

-- Lines `reason kernels site`; kernels: names with commas, `*` = all that have the site.
local function read_survivors()
  local list = {}
  for line in sites.read("tests/mutation/survivors.txt"):gmatch("[^\n]+") do
    if not line:find("^#") then
      local reason, kernels, site = line:match("^(%S+)%s+(%S+)%s+(.+)$")
      assert(REASONS[reason], "survivors.txt: no reason in " .. line)
      list[#list + 1] = { reason = reason, kernels = kernels, site = site, line = line, met = 0 }
    end
  end
  return list
end

local function listed(list, kernel, site)
  for _, entry in ipairs(list) do
    local names = "," .. entry.kernels .. ","
    if entry.site == site and (entry.kernels == "*" or names:find("," .. kernel .. ",", 1, true))
    then return entry end
  end
end

-- ---- the jobs ----

-- The numbers of the sites in a kernel's text, ascending.
local function mutants_of(k, folder)
  local pipe = assert(io.popen(("KILN_TEMPLATE_DIR=%s/mutants %s generate %s --head-dim %d "
    .. "--head-dim-v %d --device none"):format(folder, bench.program, bench.flags(k), k.head_dim,
    k.head_dim_v)))
  local seen, numbers = {}, {}
  for number in pipe:read("a"):gmatch("%(lost%((%d+)%) %?") do
    if not seen[number] then numbers[#numbers + 1] = tonumber(number) end
    seen[number] = true
  end
  assert(pipe:close() and #numbers > 0, k.name .. " has no site")
  table.sort(numbers)
  return numbers
end

local function make_jobs(folder)
  local first, jobs, counter = {}, {}, 0
  for _, k in ipairs(bench.kernels) do
    if next(chosen) == nil or chosen[k.name] then
      bench.write_runs(folder, k)
      first[#first + 1] = k.name .. " -1 mutants"
      for _, number in ipairs(mutants_of(k, folder)) do
        counter = counter + 1
        if is_all or counter % SAMPLE == 0 then
          jobs[#jobs + 1] = ("%s %d mutants"):format(k.name, number)
        end
      end
    end
  end
  return first, jobs
end

-- ---- judging ----

local report = os.getenv("REPORT") and assert(io.open(os.getenv("REPORT"), "w"))
local passed, failed = 0, 0

local function count(fault)
  passed, failed = passed + (fault and 0 or 1), failed + (fault and 1 or 0)
  if fault then print(fault) end
end

local function judge(jobs, answers, found, survivors)
  for _, job in ipairs(jobs) do
    local kernel, number = job:match("^(%S+) (%S+)")
    local site, answer = found[number + 1], answers[job] or "no answer"
    local survived, entry = answer:find("^survived"), listed(survivors, kernel, site)
    if entry then entry.met = entry.met + 1 end
    if report then report:write(kernel, "\t", site, "\t", answer, "\n") end
    if survived and not entry then
      count(("%s: nothing notices that this is missing: %s"):format(kernel, site))
    elseif entry and not survived then
      count(("%s: listed as a survivor but noticed: %s (%s)"):format(kernel, site, answer))
    else
      count(answer == "no answer" and job .. ": no answer")
    end
  end
end

local folder = bench.temporary()
local found = sites.plant(folder .. "/mutants")
local survivors = read_survivors()
local first, jobs = make_jobs(folder)
-- Without a deletion every run must pass: this also compiles each kernel once.
for job, answer in pairs(bench.try(folder, first, PROCESSES)) do
  count(not answer:find("^survived") and job .. ": " .. answer)
end
judge(jobs, bench.try(folder, jobs, PROCESSES), found, survivors)
for _, entry in ipairs(survivors) do
  if is_all and next(chosen) == nil and entry.met == 0 then
    count("survivors.txt names no site: " .. entry.line)
  end
end
os.execute("rm -rf '" .. folder .. "'")
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0)

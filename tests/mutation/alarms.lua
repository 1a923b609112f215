-- Runs kernels as they are, many times under many schedules; a word of the emulator about one of
-- them is a false alarm (or a fault of the kernel):
--   BUILD=build lua5.4 tests/mutation/alarms.lua [SEEDS]       from the checkout's root
-- Every kernel and problem of bench.lua runs late, eager, with each of six sets of warps starved
-- and under SEEDS random seeds; of gradients, which take longer, every schedule has one of a
-- kernel's problems, in turn. Prints each alarm, how many runs there were, then
-- `N passed, N failed`.
package.path = "tests/mutation/?.lua;" .. package.path
local bench, sites = require("bench"), require("sites")

local PROCESSES = 2
local seeds = tonumber(arg[1] or 40)

-- Both consumers, the producer, a warp of each warpgroup, first warps, odd warps.
local MASKS = { 0xf0, 0xf00, 0xf, 0x888, 0x1, 0xaaa }

local function schedules()
  local list = { "", "--emu-schedule eager" }
  for _, mask in ipairs(MASKS) do list[#list + 1] = "--emu-starve " .. mask end
  for seed = 1, seeds do list[#list + 1] = "--emu-schedule random --emu-seed " .. seed end
  return list
end

-- A job is problems of a kernel under eight schedules.
local function jobs_of(folder, k)
  local lists, jobs, count = {}, {}, 0
  for i, schedule in ipairs(schedules()) do
    local label = ("%s-%d"):format(k.name, i // 8)
    if not lists[label] then jobs[#jobs + 1] = label .. " -1 plain" end
    lists[label] = lists[label] or {}
    local problems = bench.problems_of(k)
    if k.pass == "backward" then problems = { problems[i % #problems + 1] } end
    for _, problem in ipairs(problems) do
      count = count + 1
      table.insert(lists[label], { schedule, problem })
    end
  end
  bench.write_runs(folder, k, lists)
  return jobs, count
end

local folder = bench.temporary()
assert(os.execute(("mkdir %s/plain && cp -r generator/lua templates %s/plain"):format(folder,
  folder)))
sites.write(folder .. "/plain/repair", "-1\n")
local jobs, wanted, runs, failed = {}, 0, 0, 0
for _, k in ipairs(bench.kernels) do
  local own, count = jobs_of(folder, k)
  table.move(own, 1, #own, #jobs + 1, jobs)
  wanted = wanted + count
end
local answers = bench.try(folder, jobs, PROCESSES)
for _, job in ipairs(jobs) do
  local answer = answers[job] or "no answer"
  local count = answer:match("^survived (%d+) runs")
  runs, failed = runs + (count or 0), failed + (count and 0 or 1)
  if not count then print(job .. ": " .. answer) end
end
os.execute("rm -rf '" .. folder .. "'")
assert(failed > 0 or runs == wanted, "some runs are missing")
print(runs .. " runs without an alarm")
print(("%d passed, %d failed"):format(#jobs - failed, failed))
os.exit(failed == 0)

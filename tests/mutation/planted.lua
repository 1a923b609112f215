-- Plants the faults of faults_backward.lua, which has all, in copies of the templates, one at a
-- time, and wants each named:
--   BUILD=build lua5.4 tests/mutation/planted.lua [PART OF A NAME]       from the checkout's root
-- Prints a line for each fault that is not noticed, or noticed for another reason, then
-- `N passed, N failed`. With REPORT naming a file, what was said of each is written there.
package.path = "tests/mutation/?.lua;" .. package.path
local bench, sites, faults = require("bench"), require("sites"), require("faults_backward")

local PROCESSES = 2

-- Where the nth occurrence of `old` begins and ends; without nth it must be the only one.
local function find_text(text, change, name)
  local from, first, last = 1, nil, nil
  for _ = 1, change.nth or 1 do
    first, last = text:find(change.old, from, true)
    assert(first, ("%s: %s does not hold: %s"):format(name, change.file, change.old))
    from = last + 1
  end
  assert(change.nth or not text:find(change.old, from, true),
    ("%s: %s holds several times: %s"):format(name, change.file, change.old))
  return first, last
end

-- The text of a template with a fault's edits made.
local function editor(fault)
  return function(file, text)
    for _, change in ipairs(fault.edits) do
      if change.file == file then
        local first, last = find_text(text, change, fault.name)
        text = text:sub(1, first - 1) .. change.new .. text:sub(last + 1)
      end
    end
    return text
  end
end

local function make_jobs(folder)
  local jobs, written = {}, {}
  for i, fault in ipairs(faults) do
    if not arg[1] or fault.name:find(arg[1], 1, true) then
      local kernel = bench.find(fault.kernel)
      if not written[kernel.name] then bench.write_runs(folder, kernel) end
      written[kernel.name] = true
      sites.plant(("%s/fault%d"):format(folder, i), editor(fault))
      jobs[#jobs + 1] = { fault = fault, text = ("%s -1 fault%d"):format(kernel.name, i) }
    end
  end
  assert(#jobs > 0, "no fault has that name")
  return jobs
end

local function judge(fault, answer)
  if fault.says == faults.SILENT then
    return not answer:find("^survived") and "is harmless but was reported: " .. answer
  end
  if answer:find("^survived") then return "was not noticed in " .. answer end
  return not answer:find(fault.says, 1, true) and "was noticed for another reason: " .. answer
end

local folder = bench.temporary()
local jobs, texts = make_jobs(folder), {}
for i, job in ipairs(jobs) do texts[i] = job.text end
local answers = bench.try(folder, texts, PROCESSES)
local report = os.getenv("REPORT") and assert(io.open(os.getenv("REPORT"), "w"))
local passed, failed = 0, 0
for _, job in ipairs(jobs) do
  local answer = answers[job.text] or "no answer"
  local sentence = judge(job.fault, answer)
  passed, failed = passed + (sentence and 0 or 1), failed + (sentence and 1 or 0)
  if sentence then print(job.fault.name .. " " .. sentence) end
  if report then report:write(job.fault.name, "\t", answer, "\n") end
end
os.execute("rm -rf '" .. folder .. "'")
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0)

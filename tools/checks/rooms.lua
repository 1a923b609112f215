-- The include rules between rooms: who may see whom. CONTRIBUTING.md gives the reasons.
package.path = arg[0]:gsub("[^/]*$", "?.lua") .. ";" .. package.path
local check = require("check")

-- room → path prefixes of other rooms' headers that it may include
local sees = {
  include = { "kiln/" },
  generator = { "kiln/kiln.h" },
  runtime = { "kiln/kiln.h" },
  autotune = { "kiln/kiln.h" },
  cli = { "kiln/kiln.h" },
  bench = { "kiln/kiln.h" },
  examples = { "kiln/kiln.h" },
  bindings = { "kiln/kiln.h" },
}
-- The one place where rooms meet: it fills the runtime's table of services.
local meeting = {
  ["generator/services.c"] = { "runtime/services.h", "runtime/compile/", "runtime/emulator/",
                             "autotune/tune.h", "autotune/choices.h" },
}

local cuda = { "^cuda", "^nvrtc", "^driver_types", "^vector_types", "^cooperative_groups" }
local lua = { "^lua", "^lauxlib", "^lualib" }
local clock = { "^time%.h", "^sys/time%.h", "^dlfcn%.h" }

local function matches(target, patterns)
  for _, pattern in ipairs(patterns) do
    if target:find(pattern) then return true end
  end
  return false
end

local function allowed(target, prefixes)
  for _, prefix in ipairs(prefixes or {}) do
    if target:sub(1, #prefix) == prefix then return true end
  end
  return false
end

local room_rule = check.rule("room")
local cuda_rule = check.rule("no-cuda-header")
local lua_rule = check.rule("lua-only-in-generator")
local clock_rule = check.rule("generator-is-pure")
local part_rule = check.rule("runtime-without-compiler")
local template_rule = check.rule("template-includes-nothing")
local reads_rule = check.rule("runtime-reads-no-template")

local exists = {}
local paths = check.files()
for _, path in ipairs(paths) do exists[path] = true end

-- The path below the root of an included header that is ours, or nil.
local function resolve(path, target)
  local beside = path:gsub("[^/]*$", "") .. target
  while beside:find("[^/]+/%.%./") do beside = beside:gsub("[^/]+/%.%./", "", 1) end
  if exists[beside] then return beside end
  if exists["include/" .. target] then return "include/" .. target end
  if exists[target] then return target end
  return nil
end

local function judge_room(path, number, room, target)
  local found = resolve(path, target)
  local other = found and found:match("^[^/]*") or target:match("^([^/]*)/")
  if other == room or not (found or sees[other]) then return end
  if allowed(target, sees[room]) or allowed(target, meeting[path]) then return end
  room_rule:fault(path, number, room .. "/ may not include " .. target)
end

local function judge(path, number, room, target)
  if sees[room] then judge_room(path, number, room, target) end
  if matches(target, cuda) then
    cuda_rule:fault(path, number, target .. ": CUDA is reached by dlopen, without its headers")
  end
  if room ~= "generator" and matches(target, lua) then
    lua_rule:fault(path, number, target .. " belongs to generator/ alone")
  end
  if room == "generator" and matches(target, clock) then
    clock_rule:fault(path, number, target .. ": the generator knows no clock and loads no library")
  end
  if path:find("^runtime/[^/]*$") and (target:find("compile/") or target:find("emulator/")) then
    part_rule:fault(path, number, target .. " is not in libkiln_rt")
  end
end

for _, path in ipairs(paths) do
  local room = path:match("^([^/]*)/")
  if path:find("%.[ch]$") and not path:find("^tests/") then
    for number, line in ipairs(check.lines(path)) do
      local target = line:match('^%s*#%s*include%s*[<"]([^>"]*)')
      if target then judge(path, number, room, target) end
      if room == "runtime" and line:find('"[^"]*%.tmpl') then
        reads_rule:fault(path, number, "the runtime names a template")
      end
    end
  elseif path:find("^templates/") then
    for number, line in ipairs(check.lines(path)) do
      if line:find("^%s*#%s*include") then
        template_rule:fault(path, number, "rendered text is whole; use //@ include")
      end
    end
  end
end
check.finish()

-- What the checks of this folder share: the files of a tree, and rules that collect faults.
-- A check is run as `lua5.4 tools/checks/NAME.lua [ROOT]`; it prints each fault as
-- `file:line: rule: sentence` and ends with `N passed, N failed`, counted in rules.
local check = { root = arg[1] or "." }

local rules = {} -- in order of declaration: { name, faults }

-- Declares a rule; rule:fault(file, line, sentence) records a breach of it.
function check.rule(name)
  local rule = { name = name, faults = 0 }
  function rule:fault(file, line, sentence)
    self.faults = self.faults + 1
    print(string.format("%s:%d: %s: %s", file, line, self.name, sentence))
  end
  rules[#rules + 1] = rule
  return rule
end

-- The lines that a command prints in the root.
local function listing(command)
  local pipe = assert(io.popen(string.format("cd '%s' && %s", check.root, command)))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  return lines, pipe:close()
end

-- Paths below the root, sorted, without what git or a build keeps there and without what git
-- ignores; where there is no git, nothing is ignored.
function check.files()
  local skip = "-name .git -o -name .deps -o -name 'build*' -o -name __pycache__"
  local find = string.format("find . \\( %s \\) -prune -o -type f -print", skip)
  local found, ok = listing(find)
  assert(ok, "the tree cannot be listed: " .. check.root)
  local ignored, paths = {}, {}
  for _, line in ipairs(listing(find .. " | git check-ignore --stdin 2>/dev/null")) do
    ignored[line] = true
  end
  for _, line in ipairs(found) do
    if not ignored[line] then paths[#paths + 1] = line:sub(3) end
  end
  table.sort(paths)
  return paths
end

function check.read(path)
  local file = assert(io.open(check.root .. "/" .. path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

-- The lines of a file, without their line ends.
function check.lines(path)
  local lines = {}
  for line in (check.read(path):gsub("\n$", "") .. "\n"):gmatch("(.-)\n") do
    lines[#lines + 1] = line
  end
  return lines
end

-- A list of exceptions: one a line, `#` comments; each maps to its number of uses.
function check.exceptions(path)
  local uses = {}
  local file = io.open(check.root .. "/" .. path, "rb")
  if not file then return uses end
  for line in file:lines() do
    local entry = line:gsub("%s*#.*$", "")
    if entry ~= "" then uses[entry] = 0 end
  end
  file:close()
  return uses
end

-- An exception that nothing needs is a fault: the list shrinks by itself.
function check.unused(uses, path, rule)
  for entry, count in pairs(uses) do
    if count == 0 then rule:fault(path, 1, "'" .. entry .. "' is no longer needed; remove it") end
  end
end

function check.finish()
  local failed = 0
  for _, rule in ipairs(rules) do
    if rule.faults > 0 then failed = failed + 1 end
  end
  print(string.format("%d passed, %d failed", #rules - failed, failed))
  os.exit(failed == 0)
end

return check

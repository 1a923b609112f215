-- Words that must not be in the tree: places of one machine, and hosts of package registries.
-- A documented default is named in tools/checks/allowed_words.txt.
package.path = arg[0]:gsub("[^/]*$", "?.lua") .. ";" .. package.path
local check = require("check")

local machine = check.rule("machine-path")
local scratch = check.rule("scratch-path")
local registry = check.rule("registry-host")

local EXCEPTIONS = "tools/checks/allowed_words.txt"
local allowed = check.exceptions(EXCEPTIONS)

-- Assembled, so that this file does not break its own rule.
local function path_pattern(name) return "%f[%w/._]/" .. name .. "%f[%W]" end
local machine_words = { path_pattern("root"), path_pattern("home") .. "/%w", path_pattern("work") }
local scratch_words = { path_pattern("tmp"), "/var" .. path_pattern("tmp") }
local hosts = { "pypi%." .. "org", "python" .. "hosted%.", "debian%." .. "org", "npm" .. "js%.",
                "crates%." .. "io", "proxy%." .. "golang", "conda%." .. "anaconda" }

local function seek(rule, patterns, path, number, line, sentence)
  for _, pattern in ipairs(patterns) do
    local word = line:match(pattern)
    if word then
      local entry = path .. ": " .. word
      if not allowed[entry] then
        return rule:fault(path, number, "'" .. word .. "': " .. sentence)
      end
      allowed[entry] = allowed[entry] + 1
    end
  end
end

local skipped = { npy = 1, safetensors = 1, cubin = 1, png = 1, LICENSE = 1 }
for _, path in ipairs(check.files()) do
  if not skipped[path:match("[^./]*$")] then
    for number, line in ipairs(check.lines(path)) do
      seek(machine, machine_words, path, number, line, "a place of one machine")
      seek(registry, hosts, path, number, line, "name the package, not the host")
      if not path:find("^tests/") then
        seek(scratch, scratch_words, path, number, line, "the product writes nothing there")
      end
    end
  end
end
check.unused(allowed, EXCEPTIONS, machine)
check.finish()

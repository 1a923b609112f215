-- Proves that the checks can fail: each row plants one fault in a small tree that is otherwise
-- clean, and the check must end with a failure that names the rule. Run by `make check`.
local checks = arg[0]:gsub("/[^/]*$", "")
local tools = checks .. "/.."

local passed, failed = 0, 0

local function run(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local output = pipe:read("a")
  return pipe:close() == true, output
end

local function judge(name, is_right, output)
  if is_right then
    passed = passed + 1
  else
    failed = failed + 1
    print(name .. ": not as expected:\n" .. output)
  end
end

local function plant(root, path, text)
  local folder = path:match("(.*)/") or "."
  assert(os.execute(string.format("mkdir -p '%s/%s'", root, folder)))
  local file = assert(io.open(root .. "/" .. path, "wb"))
  file:write(text)
  file:close()
end

-- Calls body(root) with an empty tree, and removes the tree.
local function with_tree(body)
  local pipe = assert(io.popen("mktemp -d"))
  local root = pipe:read("l")
  assert(pipe:close() and root)
  body(root)
  os.execute("rm -rf '" .. root .. "'")
end

local clean = {
  ["include/kiln/kiln.h"] = "/* Public. */\n#include <stddef.h>\n",
  ["runtime/services.h"] = "/* Services. */\n",
  ["runtime/compile/nvrtc.h"] = "/* NVRTC. */\n",
  ["runtime/launch.c"] = '/* Launch. */\n#include "runtime/services.h"\nint f(void) {\n}\n',
  ["generator/lua.c"] = '/* Lua. */\n#include "kiln/kiln.h"\n#include <lua.h>\n',
  ["generator/services.c"] = '/* Filled. */\n#include "runtime/services.h"\n',
  ["cli/main.c"] = '/* Main. */\n#include "kiln/kiln.h"\n#include "options.h"\n',
  ["cli/options.h"] = "/* Options. */\n",
  ["templates/forward.tmpl.cu"] = "// Forward.\n//@ if causal then\nint x = ${x};\n//@ end\n",
}

local function include(target) return "/* A file. */\n#include " .. target .. "\n" end
local function times(count, text) return string.rep(text, count) end
local long_body = "int f(void) {\n" .. times(60, "  g();\n") .. "}\n"
local deep_body = "int f(void) {\n  " .. times(5, "if (x) { ") .. times(5, "} ") .. ";\n}\n"

-- check, rule that must speak, file, its text
local faults = {
  { "rooms", "room", "generator/a.c", include('"runtime/launch.h"') },
  { "rooms", "room", "generator/a.c", include('"runtime/services.h"') },
  { "rooms", "room", "runtime/a.c", include('"generator/embedded.h"') },
  { "rooms", "room", "runtime/a.c", include('"autotune/search.h"') },
  { "rooms", "room", "autotune/a.c", include('"runtime/services.h"') },
  { "rooms", "room", "autotune/a.c", include('"generator/lua.h"') },
  { "rooms", "room", "cli/a.c", include('"runtime/services.h"') },
  { "rooms", "room", "cli/a.c", include('"../runtime/services.h"') },
  { "rooms", "room", "bench/a.c", include('"cli/options.h"') },
  { "rooms", "room", "examples/a.c", include('"runtime/services.h"') },
  { "rooms", "room", "bindings/python/a.c", include('"runtime/services.h"') },
  { "rooms", "room", "include/kiln/extra.h", include('"runtime/services.h"') },
  { "rooms", "no-cuda-header", "generator/a.c", include("<cuda.h>") },
  { "rooms", "no-cuda-header", "runtime/a.c", include("<nvrtc.h>") },
  { "rooms", "lua-only-in-generator", "runtime/a.c", include("<lua.h>") },
  { "rooms", "lua-only-in-generator", "cli/a.c", include("<lauxlib.h>") },
  { "rooms", "generator-is-pure", "generator/a.c", include("<time.h>") },
  { "rooms", "runtime-without-compiler", "runtime/a.c", include('"runtime/compile/nvrtc.h"') },
  { "rooms", "runtime-reads-no-template", "runtime/a.c", '/* A. */\nopen("a.tmpl.cu");\n' },
  { "rooms", "template-includes-nothing", "templates/a.tmpl.cu", "// A.\n#include <stdint.h>\n" },
  { "limits", "columns", "cli/a.c", "/* A. */\n//" .. times(99, "x") .. "\n" },
  { "limits", "tab", "cli/a.c", "/* A. */\n\tx\n" },
  { "limits", "trailing-blank", "cli/a.c", "/* A. */ \n" },
  { "limits", "last-newline", "cli/a.c", "/* A. */" },
  { "limits", "opening-comment", "cli/a.c", "int x;\n" },
  { "limits", "opening-comment", "generator/lua/a.lua", "return 1\n" },
  { "limits", "unfinished", "cli/a.c", "/* TO" .. "DO */\n" },
  { "limits", "unfinished", "docs/a.md", "FIX" .. "ME\n" },
  { "limits", "file-lines", "cli/a.c", "/* A. */\n" .. times(600, "\n") },
  { "limits", "file-lines", "templates/a.tmpl.cu", "// A.\n" .. times(400, "\n") },
  { "limits", "file-lines", "tests/golden/a.cu", "// A.\n" .. times(1200, "\n") },
  { "limits", "function-lines", "cli/a.c", "/* A. */\n" .. long_body },
  { "limits", "function-lines", "tools/checks/long_functions.txt", "cli/gone.c:f\n" },
  { "limits", "nesting", "cli/a.c", "/* A. */\n" .. deep_body },
  { "limits", "template-macro", "templates/a.tmpl.cu", "// A.\n#define F(x) x\n" },
  { "limits", "template-conditional", "templates/a.tmpl.cu", "// A.\n#ifdef CAUSAL\n" },
  { "limits", "file-bytes", "tests/data/a.npy", times(2000001, "x") },
  { "words", "machine-path", "cli/a.c", "/* A. */\nopen(\"/" .. "home/ann/x\");\n" },
  { "words", "machine-path", "tests/a.lua", "-- A.\nopen('/" .. "root/x')\n" },
  { "words", "scratch-path", "runtime/a.c", "/* A. */\nopen(\"/" .. "tmp/x\");\n" },
  { "words", "registry-host", "tools/a.sh", "# A.\nfetch https://py" .. "pi.org/x\n" },
}

local function test_checks()
  local names = { "rooms", "limits", "words" }
  local function command(name, root)
    return string.format("lua5.4 %s/%s.lua %s", checks, name, root)
  end
  with_tree(function(root)
    for path, text in pairs(clean) do plant(root, path, text) end
    for _, name in ipairs(names) do
      local is_ok, output = run(command(name, root))
      judge(name .. " on a clean tree", is_ok, output)
    end
  end)
  for _, fault in ipairs(faults) do
    local name, rule, path, text = table.unpack(fault)
    with_tree(function(root)
      for clean_path, clean_text in pairs(clean) do plant(root, clean_path, clean_text) end
      plant(root, path, text)
      local is_ok, output = run(command(name, root))
      local is_named = output:find(path .. ":%d+: " .. rule:gsub("%-", "%%-") .. ":")
      judge(name .. ": " .. rule .. " in " .. path, not is_ok and is_named, output)
    end)
  end
end

-- A suite's command, and the sum that run_tests.sh must end with.
local suites = {
  { "echo '3 passed, 0 failed'", true, "3 passed, 0 failed" },
  { "echo '100%: Checks: 7, Failures: 0, Errors: 0'", true, "7 passed, 0 failed" },
  { "echo '2 passed, 0 failed, 1 skipped'", true, "2 passed, 0 failed, 1 skipped" },
  { "echo '57%: Checks: 7, Failures: 2, Errors: 1'; exit 1", false, "4 passed, 3 failed" },
  { "echo '3 passed, 0 failed'; exit 1", false, "3 passed, 1 failed" },
  { "echo '3 passed, 1 failed'", false, "3 passed, 1 failed" },
  { "kill -SEGV $$", false, "0 passed, 1 failed" },
  { "echo fine", false, "0 passed, 1 failed" },
  { "sleep 5; echo '1 passed, 0 failed'", false, "0 passed, 1 failed" },
}

local function test_runner()
  for _, suite in ipairs(suites) do
    local command, is_good, sum = table.unpack(suite)
    with_tree(function(root)
      plant(root, "tests/suites.txt", "check 1 planted " .. command .. "\n")
      local copy = "mkdir '%s/tools' && cp '%s/run_tests.sh' '%s/env.sh' '%s/tools'"
      assert(os.execute(copy:format(root, tools, tools, root)))
      local is_ok, output = run(root .. "/tools/run_tests.sh check")
      local ends_right = output:sub(-#sum - 2) == "\n" .. sum .. "\n"
      judge("run_tests: " .. command, is_ok == is_good and ends_right, output)
    end)
  end
end

-- A library each: what it adds to a right one, linker flags, whether it is right still.
local libraries = {
  { "", "", true },
  { "void helper(void) {}", "", false },
  { "void kiln__hidden(void) {}", "", false },
  { "void gone(void); void kiln_g(void) { gone(); }", "", false },
  { "", "-Wl,--no-as-needed -lgcc_s", false },
  { "", "-Wl,-z,execstack", false },
  { "", "-g", false }, -- holds the directory that it was compiled in
}

local function test_symbols()
  local right = "#include <stdio.h>\nvoid kiln_f(void) { puts(\"\"); }\n"
  for _, library in ipairs(libraries) do
    local code, flags, is_good = table.unpack(library)
    with_tree(function(root)
      plant(root, "lib/a.c", right .. code .. "\n")
      local build = "cd '%s/lib' && cc -shared -fPIC -o libkiln.so a.c %s"
                    .. " && cp libkiln.so libkiln_rt.so"
      assert(os.execute(build:format(root, flags)))
      local is_ok, output = run(checks .. "/symbols.sh " .. root)
      judge("symbols: " .. code .. flags, is_ok == is_good, output)
    end)
  end
end

test_checks()
test_runner()
test_symbols()
print(string.format("%d passed, %d failed", passed, failed))
os.exit(failed == 0)

-- The house limits: 100 columns, files and functions that fit a head, no unfinished place.
-- Exceptions are named, with their reason, in tools/checks/long_functions.txt.
package.path = arg[0]:gsub("[^/]*$", "?.lua") .. ";" .. package.path
local check = require("check")

local COLUMNS, C_FILE, TEMPLATE, RENDERED, FUNCTION, NESTING = 100, 600, 400, 1200, 60, 4
local FILE_BYTES = 2000000

local columns = check.rule("columns")
local tab = check.rule("tab")
local blank = check.rule("trailing-blank")
local ending = check.rule("last-newline")
local opening = check.rule("opening-comment")
local unfinished = check.rule("unfinished")
local file_lines = check.rule("file-lines")
local function_lines = check.rule("function-lines")
local nesting = check.rule("nesting")
local macro = check.rule("template-macro")
local conditional = check.rule("template-conditional")
local bytes = check.rule("file-bytes")

local EXCEPTIONS = "tools/checks/long_functions.txt"
local long_functions = check.exceptions(EXCEPTIONS)

-- Extension → the openings that make a first line a comment, as Lua patterns.
local comment = { c = "^/%*", h = "^/%*", cu = "^/[/*@]", lua = "^%-%-", sh = "^#", cmake = "^#",
                  py = '^["#]' }

local function kind(path)
  local name = path:match("[^/]*$")
  if name == "CMakeLists.txt" then return "cmake" end
  if path:find("^tests/golden/") then return "golden" end
  return name:match("%.([%a]+)$") or ""
end

-- Code without its comments, strings and characters, so that braces in them do not count.
local function bare(line, in_comment)
  if in_comment then
    local stop = line:find("*/", 1, true)
    if not stop then return "", true end
    line = line:sub(stop + 2)
  end
  line = line:gsub("\\.", ""):gsub('"[^"]*"', '""'):gsub("'[^']*'", "0")
  line = line:gsub("/%*.-%*/", ""):gsub("//.*$", "")
  local start = line:find("/*", 1, true)
  if start then return line:sub(1, start - 1), true end
  return line, false
end

local function end_function(path, first, last, name)
  local length = last - first + 1
  if length <= FUNCTION then return end
  local entry = path .. ":" .. name
  if long_functions[entry] then
    long_functions[entry] = long_functions[entry] + 1
    return
  end
  function_lines:fault(path, first, name .. ": " .. length .. " lines, limit " .. FUNCTION)
end

-- Walks the functions of a C file: a head at column 0, a body, a `}` that closes it.
local function check_functions(path, lines)
  local in_comment, code = false, nil
  local head, name, depth = nil, nil, 0
  for number, line in ipairs(lines) do
    code, in_comment = bare(line, in_comment)
    if depth == 0 and code:find("^[%a_]") then head, name = number, code:match("([%w_]+)%(") end
    if depth == 0 and head and not name then name = code:match("([%w_]+)%(") end
    local is_body, deepest = depth > 0, 0
    for brace in code:gmatch("[{}]") do
      depth = depth + (brace == "{" and 1 or -1)
      if brace == "{" then deepest = math.max(deepest, depth) end
    end
    if deepest > NESTING + 1 and name then
      nesting:fault(path, number, "more than " .. NESTING .. " levels inside " .. name)
    end
    if depth == 0 and is_body then
      if name then end_function(path, head, number, name) end
      head, name = nil, nil
    elseif depth == 0 and code:find(";%s*$") then
      head, name = nil, nil
    end
  end
end

local function check_template(path, lines)
  for number, line in ipairs(lines) do
    if line:find("^%s*#%s*define%s+[%w_]+%(") then
      macro:fault(path, number, "no function-like macro here; write a function or a wrapper")
    elseif line:find("^%s*#%s*if") or line:find("^%s*#%s*el") then
      conditional:fault(path, number, "Lua has already decided; use //@ if")
    end
  end
end

local function check_length(path, lines, limit)
  if #lines > limit then
    file_lines:fault(path, #lines, #lines .. " lines, limit " .. limit .. ": split it by idea")
  end
end

local function check_lines(path, lines, is_code)
  for number, line in ipairs(lines) do
    local length = utf8.len(line) or #line
    if is_code and length > COLUMNS then columns:fault(path, number, length .. " columns") end
    if line:find("\t") then tab:fault(path, number, "indent with spaces") end
    if line:find("%s$") then blank:fault(path, number, "blanks at the end of the line") end
    if line:find("%f[%w]TO" .. "DO%f[%W]") or line:find("%f[%w]FIX" .. "ME%f[%W]") then
      unfinished:fault(path, number, "finish it, or leave it out and say so in docs/")
    end
  end
end

local function check_text(path, extension)
  local text = check.read(path)
  local lines = check.lines(path)
  check_lines(path, lines, extension ~= "md" and extension ~= "golden")
  if text ~= "" and text:sub(-1) ~= "\n" then ending:fault(path, #lines, "no last newline") end
  if comment[extension] and not (lines[1] or ""):find(comment[extension]) then
    opening:fault(path, 1, "open with a comment: what it is, what it keeps, who calls it")
  end
  if extension == "c" or extension == "h" then
    check_length(path, lines, C_FILE)
    check_functions(path, lines)
  elseif path:find("^templates/") then
    check_length(path, lines, TEMPLATE)
    check_template(path, lines)
  elseif extension == "golden" then
    check_length(path, lines, RENDERED)
  end
end

local texts = { c = 1, h = 1, lua = 1, cu = 1, sh = 1, py = 1, cmake = 1, md = 1, golden = 1 }
for _, path in ipairs(check.files()) do
  local extension = kind(path)
  if texts[extension] then check_text(path, extension) end
  if #check.read(path) > FILE_BYTES then bytes:fault(path, 1, "over " .. FILE_BYTES .. " bytes") end
end
check.unused(long_functions, EXCEPTIONS, function_lines)
check.finish()

-- The places where a template can lose a statement, and a copy of the templates in which each of
-- them can be switched off.
--
-- A site is a call that stands as a statement (every wait, arrival, fence, barrier, mask, copy and
-- product is one), or an assignment of the kinds `*=`, `+=`, `^=`, `++` and `= 0.0f`. In the copy
-- it reads `(lost(17) ? (void)0 : (void)(bar_wait(...)));`, and what is lost comes from the
-- environment: MUTANT, and ALSO two more. One binary of a kernel holds all its mutants. Text that
-- Lua renders several times, in loops over lists and in functions, has a number for each rendering;
-- the steps of a loop over numbers share one. Registers begin as NaN, so that a missing
-- initialisation is seen.
--
-- Invariant: a site's name is made of the file, the function and the line's text, so that it
-- outlives changes elsewhere. Called by deletions.lua.
local sites = {}

local CHOOSE = [[
char *getenv(const char *name);
int atoi(const char *text);
int sscanf(const char *text, const char *format, ...);
static int lost_sites[3] = {-1, -1, -1};
__attribute__((constructor)) static void choose_mutant(void) {
  if (getenv("MUTANT")) lost_sites[0] = atoi(getenv("MUTANT"));
  if (getenv("ALSO")) sscanf(getenv("ALSO"), "%d %d", &lost_sites[1], &lost_sites[2]);
}
#define UNSET(x) __builtin_memset(&(x), 0xff, sizeof(x))
static inline int lost(int site) {
  return site == lost_sites[0] || site == lost_sites[1] || site == lost_sites[2];
}
]]

-- What a site renders at most often in one kernel. Each planted template begins with COUNT: site()
-- gives the number of a rendering; step: of a loop over numbers, in which it grows.
local MOST = 8
local COUNT = [[
//@ local rendered, last_step = {}, {}
//@ local function site(number, step)
//@   if not (step and last_step[number] and step > last_step[number]) then
//@     rendered[number] = (rendered[number] or 0) + 1
//@   end
//@   last_step[number] = step
//@   if rendered[number] > ${most} then return "too_many_renderings" end
//@   return number + rendered[number] - 1
//@ end
]]

local KEYWORDS = { ["if"] = true, ["for"] = true, ["while"] = true, ["return"] = true }

-- The end of the call whose name ends before `open`, a parenthesis; nil where no `;` follows.
local function call_end(text, open)
  local _, close = text:find("^%b()", open)
  return close and text:sub(close + 1, close + 1) == ";" and close or nil
end

-- First and last position of the statement that begins at `at`, where one does.
local function statement_at(text, at)
  local name_end = at
  while true do -- a name with ${...} in it
    local _, to = text:find("^[%w_]+", name_end)
    if not to then _, to = text:find("^%$%b{}", name_end) end
    if not to then break end
    name_end = to + 1
  end
  local name = text:sub(at, name_end - 1)
  if name == "" or name:find("^%d") or KEYWORDS[name] then return nil end
  if text:sub(name_end, name_end) == "(" then return call_end(text, name_end) end
  local line = text:match("^[^\n]*", at)
  local left, operator = line:match("^([%w_%[%]%.%->%+%* /${}]-) ([%*%+%^]?=) [^;]*;")
  if line:find("^[%w_%->%.]+%+%+;") then return at + #line:match("^[^;]*") - 1 end
  if not left or left:find(" [%a_]+$") then return nil end
  local is_zero = operator == "=" and line:find("^[^;]-%] = 0%.0f;")
  if operator == "=" and not is_zero then return nil end
  return at + #line:match("^[^;]*") - 1
end

-- Positions in a line at which a statement may begin.
local function starts(line)
  local out = {}
  local first = line:find("%S")
  if first then out[1] = first end
  for at in line:gmatch("%) ()") do out[#out + 1] = at end
  for at in line:gmatch("else ()") do out[#out + 1] = at end
  return out
end

local function is_text(line) return not line:find("^%s*//@") and not line:find("^%s*#") end

-- What a `//@` line opens: "list" and "function" render their text several times, a loop over
-- numbers does so under the name of its variable.
local function opened(code)
  if code:find("%f[%w]end$") and code ~= "end" then return nil end
  if code:find("^for [%w_]+, [%w_]+ in") or code:find("^for group = ") then return "list" end
  if code:find("^local function ") then return "function" end
  local step = code:match("^for ([%w_]+) = ")
  if step then return step end
  return (code:find("^if ") or code:find("^while ")) and "if" or nil
end

-- Which blocks `//@` lines up to here leave open, and the function under way.
local function track(line, state)
  local code = line:match("^%s*//@%s*(.-)%s*$")
  if not code then
    if line:find("^typedef struct") then state.is_struct = true end
    if line:find("^}") then state.is_struct = false end
    state.name = line:match("^DEV .-([^%s%*%(]+)%(") or line:match("^KERNEL .-([%w_]+)%(")
      or state.name
    return
  end
  state.name = code:match("^local function ([%w_]+)") or state.name
  if code == "end" then state[#state] = nil else state[#state + 1] = opened(code) end
end

-- What follows a declaration without a value: UNSET(name) for each name, whole ${...} included.
local function unset_text(line, state)
  local kind, names = line:match("^%s+([%w_]+) (.*);$")
  local is_register = kind == "float" or kind == "u32" or kind == "Place" or kind == "Share"
    or kind == "Tile" or kind and kind:find("State$")
  if not is_register or state.is_struct or names:gsub("%b{}", ""):find("[=(]") then return "" end
  local out = {}
  for name in names:gsub("%b[]", ""):gmatch("[^,]+") do
    out[#out + 1] = (" UNSET(%s);"):format(name:match("^[%s%*]*(.-)%s*$"))
  end
  return table.concat(out)
end

-- Whether the text is rendered several times, and the variable of a loop over numbers around it.
local function loops_of(state)
  local several, step = false, nil
  for _, kind in ipairs(state) do
    if kind == "list" or kind == "function" then several = true
    elseif kind ~= "if" then step = kind end
  end
  return several, step
end

-- Wraps the sites of one template; appends them to `found`.
local function plant(file, text, found)
  local out, state, seen = {}, {}, {}
  local position, done = 1, 1 -- of the line; up to where the text has been copied
  for line in text:gmatch("([^\n]*)\n") do
    track(line, state)
    for _, column in ipairs(is_text(line) and starts(line) or {}) do
      local at = position + column - 1
      local stop = at >= done and statement_at(text, at)
      if stop then
        local key = ("%s %s: %s"):format(file, state.name, line:match("^%s*(.-)%s*$"))
        seen[key] = (seen[key] or 0) + 1
        if seen[key] > 1 then key = ("%s #%d"):format(key, seen[key]) end
        local number, several, step = ("%d"):format(#found), loops_of(state)
        if several then number = ("${site(%s%s)}"):format(number, step and ", " .. step or "") end
        for i = 1, several and MOST or 1 do
          found[#found + 1] = several and ("%s [%d]"):format(key, i) or key
        end
        out[#out + 1] = text:sub(done, at - 1)
        out[#out + 1] = ("(lost(%s) ? (void)0 : (void)(%s))"):format(number, text:sub(at, stop))
        done = stop + 1
      end
    end
    local extra = unset_text(line, state)
    if extra ~= "" then
      out[#out + 1] = text:sub(done, position + #line - 1) .. extra
      done = position + #line
    end
    position = position + #line + 1
  end
  out[#out + 1] = text:sub(done)
  return COUNT:gsub("${most}", ("%d"):format(MOST)) .. table.concat(out)
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
end

-- The sites without which Hopper and Ampere compute no tile again.
local REPAIRS = { "finish_fast: sts_flag(any_failed", "sts_flag(smem + ${at.failed}, 1);" }

-- Copies generator/lua and templates below `folder`; returns the sites, mutant i at [i + 1].
-- edit(file, text) may change a template before. folder/repair gets the numbers of the sites above.
function sites.plant(folder, edit)
  assert(os.execute(("mkdir -p '%s' && cp -r generator/lua templates '%s'"):format(folder, folder)))
  local found, listing = {}, assert(io.popen("cd templates && find . -name '*.cu' | sort -r"))
  for name in listing:lines() do
    local file = name:match("^%./(.*)$")
    local text = read("templates/" .. file)
    text = plant(file, edit and edit(file, text) or text, found)
    if file:find("^common/.*args%.tmpl%.cu$") then text = CHOOSE .. text end
    write(folder .. "/templates/" .. file, text)
  end
  listing:close()
  local numbers = {}
  for i, site in ipairs(found) do
    for _, repair in ipairs(REPAIRS) do
      if site:find(repair, 1, true) then numbers[#numbers + 1] = i - 1 end
    end
  end
  write(folder .. "/repair", table.concat(numbers, " ") .. "\n")
  return found
end

sites.read, sites.write = read, write

return sites

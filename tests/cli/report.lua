-- report.lua PAGE [LAW...]: checks a page that --report wrote. Always: it is well-formed, every
-- element closed in order; it names no other file and no host; it has one script, the program's
-- own. A law is WORD=COUNT: how often the word stands in the page.
local passed, failed = 0, 0
local function holds(what, condition)
  if condition then passed = passed + 1 return end
  failed = failed + 1
  io.stderr:write("FAILED: ", what, "\n")
end

local file = assert(io.open(arg[1], "rb"))
local page = file:read("a")
file:close()

-- The first tag that is closed out of order, or left open; nil where there is none.
local function find_open(text)
  local open = {}
  for close, name, rest in text:gmatch("<([/!]?)(%w+)([^<>]*)>") do
    if close == "/" then
      if table.remove(open) ~= name then return name end
    elseif not rest:find("/$") and close ~= "!" then
      open[#open + 1] = name
    end
  end
  return open[1]
end

local body = page:gsub("<style>.-</style>", ""):gsub("<script>.-</script>", "")
holds("well-formed, but for " .. tostring(find_open(body)), not find_open(body))
local bare = body:gsub("<[/!]?%w+[^<>]*>", "")
holds("no < or > outside of tags", not bare:find("[<>]"))
holds("no & but of an entity", not bare:gsub("&#?%w+;", ""):find("&", 1, true))
local tags = {}
for tag in body:gmatch("<%w+([^<>]*)>") do
  tags[#tags + 1] = tag
  local rest = tag:gsub('[%w-]+="[^"]*"', "")
  if rest:find("[^%s/]") and not rest:find("^ html") then holds("attributes of" .. tag, false) end
end
for _, word in ipairs { "https?:", "src%s*=", "url%(", "@import", "<link", "fetch%(", "%son%w+%s*=",
                        "javascript:", 'href="[^#]' } do
  holds("the page names no other file and runs no text: " .. word,
    not table.concat(tags, "\n"):find(word))
end
local _, scripts = page:gsub("<script", "")
holds("one script", scripts == 1)
holds("UTF-8", utf8.len(page))

for i = 2, #arg do
  local word, wanted = arg[i]:match("^(.*)=(%d+)$")
  local count, at = 0, 1
  while true do
    local first, last = page:find(word, at, true)
    if not first then break end
    count, at = count + 1, last + 1
  end
  holds(("%s stands %d times, not %s"):format(word, count, wanted), count == tonumber(wanted))
end

if failed > 0 then print(passed .. " passed, " .. failed .. " failed") end
os.exit(failed == 0)

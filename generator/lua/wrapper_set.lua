-- Which wrappers a kernel text needs: those it names and those that their bodies name in turn.
-- The order is that of the list, but a wrapper follows those it needs. Called by render.lua.
local wrapper_set = {}

-- The text with a blank for each match of `pattern`, which begins with the plain text `opening`:
-- a search for that is much faster than one for the pattern, at every render.
local function blank(text, opening, pattern)
  local parts, from, at = {}, 1, text:find(opening, 1, true)
  while at do
    local _, last = text:find(pattern, at)
    if last then
      parts[#parts + 1] = text:sub(from, at - 1)
      from = last + 1
    end
    at = text:find(opening, (last or at) + 1, true)
  end
  parts[#parts + 1] = text:sub(from)
  return table.concat(parts, " ")
end

-- C text without its comments and strings.
function wrapper_set.code(text)
  text = blank(text, '"', '^"[^"\n]*"')
  return blank(blank(text, "/*", "^/%*.-%*/"), "//", "^//[^\n]*")
end

-- Identifiers of C text, those in comments and strings left out.
function wrapper_set.identifiers(text)
  local found = {}
  for word in wrapper_set.code(text):gmatch("[%w_]+") do
    if not found[word] and not word:find("^%d") then found[word] = true end
  end
  return found
end

local function index_rows(rows)
  local index = { patterns = {} }
  for position, row in ipairs(rows) do
    if row.pattern then
      index.patterns[#index.patterns + 1] = { position = position, row = row }
    else
      index[row.name] = { position = position, row = row }
    end
  end
  return index
end

-- A name that carries a shape has a digit: most names need no look at the patterns.
local function find(index, name)
  local entry = name ~= "patterns" and index[name]
  if entry or not name:find("%d") then return entry or nil end
  for _, candidate in ipairs(index.patterns) do
    local captures = table.pack(name:match(candidate.row.pattern))
    local row = captures[1] and candidate.row.make(table.unpack(captures, 1, captures.n))
    if row then return { position = candidate.position, row = row } end
  end
end

-- The entries that these identifiers name, in the order of the list; equal positions by name.
local function named(index, identifiers)
  local entries = {}
  for name in pairs(identifiers) do
    entries[#entries + 1] = find(index, name)
  end
  table.sort(entries, function(a, b)
    if a.position ~= b.position then return a.position < b.position end
    return a.row.name < b.row.name
  end)
  return entries
end

-- The rows that `text` needs from the list `rows`, and the set of identifiers in the text and those
-- rows. side is "cuda" or "emu": whose bodies are read.
function wrapper_set.select(rows, text, side)
  local index, out, seen = index_rows(rows), {}, {}
  local words = wrapper_set.identifiers(text)
  local function visit(entries)
    for _, entry in ipairs(entries) do
      local row = entry.row
      if not seen[row.name] then
        seen[row.name] = true
        local own = wrapper_set.identifiers(row.params .. " " .. (row[side] or ""))
        visit(named(index, own))
        out[#out + 1] = row
        for name in pairs(own) do words[name] = true end
      end
    end
  end
  visit(named(index, words))
  return out, words
end

return wrapper_set

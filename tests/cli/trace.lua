-- trace.lua EVENTS PAGE BLOCKS [SLICES]: checks what kiln trace gave. EVENTS: its --json; PAGE: the
-- file; BLOCKS: key blocks of the block's one tile; SLICES: for a ring of cp.async, in how many
-- pieces the scores of a block are computed.
-- Events: nothing ends before it begins, every byte lands before a product needs it, no slot is
-- filled while it is in use, a softmax follows its scores. Page: well-formed, whole in itself.
local passed, failed = 0, 0
local function holds(what, condition)
  if condition then passed = passed + 1 return end
  failed = failed + 1
  io.stderr:write("FAILED: ", what, "\n")
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

-- ---- events ----

-- Sites hold no braces, so an event is what stands between two.
local function read_events(text)
  local events = {}
  for body in text:match('"events":%[(.*)%]'):gmatch("%b{}") do
    local event = {}
    for key, value in body:gmatch('"([%a_]+)":(-?[%d.]+)') do event[key] = tonumber(value) end
    for key, value in body:gmatch('"([%a_]+)":"([^"]*)"') do event[key] = value end
    events[#events + 1] = event
  end
  return events
end

local function choose(events, kind, name)
  local out = {}
  for _, e in ipairs(events) do
    if e.kind == kind and (not name or e.name == name) then out[#out + 1] = e end
  end
  table.sort(out, function(a, b) return a.begin < b.begin end)
  return out
end

local function check_order(events)
  local kinds = {}
  for _, e in ipairs(events) do
    kinds[e.kind] = true
    if e["end"] < e.begin then holds(e.kind .. " ends before it begins", false) end
    if e.issued and e.issued > e.begin then holds("a product begins before its issue", false) end
    if e.waited and e.waited < e["end"] then holds(e.kind .. " is waited for too early", false) end
  end
  return kinds
end

-- The loads of a tensor in order: { begin, landed, slot, phase }.
local function boxes(events, name)
  local out, of = {}, {}
  for _, e in ipairs(choose(events, "load", name)) do
    local key = e.index .. "." .. e.phase
    if not of[key] then
      of[key] = { begin = e.begin, landed = 0, slot = e.index, phase = e.phase, row = e.row }
      out[#out + 1] = of[key]
    end
    of[key].landed = math.max(of[key].landed, e["end"])
  end
  return out
end

local function check_slots(events, tensor)
  local emptied = {}
  for _, e in ipairs(choose(events, "phase", tensor .. "_empty")) do
    emptied[e.index .. "." .. e.phase] = e["end"]
  end
  local reused = 0
  for _, box in ipairs(boxes(events, tensor .. "_full")) do
    local before = emptied[box.slot .. "." .. box.phase - 1]
    if box.phase > 0 then
      reused = reused + 1
      holds(tensor .. " slot is filled after it is emptied", before and before <= box.begin)
    end
  end
  holds(tensor .. " slots are used again", reused > 0)
end

local function check_products(events, groups, blocks)
  for name, tensor in pairs { s = "k", o = "v" } do
    local loads, counts = boxes(events, tensor .. "_full"), {}
    holds("loads of " .. tensor, #loads == blocks)
    for _, p in ipairs(choose(events, "product", name)) do
      counts[p.warpgroup] = (counts[p.warpgroup] or 0) + 1
      local load = loads[counts[p.warpgroup]]
      holds(name .. " begins after its " .. tensor .. " landed", load and load.landed <= p.begin)
    end
    for g = 1, groups do holds("products " .. name .. " of group " .. g, counts[g] == blocks) end
  end
end

-- Products share the tensor cores, one instruction at a time: those whose spans meet take as long
-- together as their instructions one after another.
local function check_cores(events)
  local begin, free, cost, short = 0, 0, 0, 0
  for _, p in ipairs(choose(events, "product")) do
    if p.begin >= free then begin, cost = p.begin, 0 end
    free = math.max(free, p["end"])
    cost = cost + p.products * tonumber(p.site:match("wgmma_%a+_n(%d+)")) // 2
    if p["end"] - p.begin < p.products or free - begin < cost then short = short + 1 end
  end
  holds("products take turns", short == 0)
end

local function check_softmax(events, blocks)
  for warp = 4, 11 do
    local ready = {}
    for _, p in ipairs(choose(events, "product", "s")) do
      if p.warpgroup == warp // 4 then ready[#ready + 1] = p["end"] end
    end
    local n = 0
    for _, e in ipairs(choose(events, "softmax")) do
      if e.warp == warp then
        n = n + 1
        holds("softmax follows its scores", ready[n] and ready[n] <= e.begin)
      end
    end
    holds("softmax of each block", n == blocks)
  end
end

local function check_hopper(events, blocks)
  check_slots(events, "k")
  check_slots(events, "v")
  check_products(events, 2, blocks)
  check_cores(events)
  check_softmax(events, blocks)
  holds("stores", #choose(events, "store") > 0)
end

-- The groups of cp.async: begin of the first copy, end of the last. Group 1 is the queries'; then
-- come keys and values by turns, or together in a ring.
local function groups_of(events)
  local groups = {}
  for _, c in ipairs(choose(events, "copy")) do
    local g = groups[c.group] or { begin = math.huge, landed = 0 }
    g.begin, g.landed = math.min(g.begin, c.begin), math.max(g.landed, c["end"])
    groups[c.group] = g
  end
  return groups
end

-- Scores, their softmax and output take turns. A product begins when its group has landed, and when
-- the next one is on its way.
local function check_ampere(events, blocks, slices)
  holds("copies of q, k and v", #choose(events, "copy") == 2 * blocks + 1)
  local groups, last = groups_of(events), slices and blocks + 1 or 2 * blocks + 1
  local softmax, mma = choose(events, "softmax"), choose(events, "mma")
  holds("groups", #groups == last)
  for warp = 0, 3 do
    local n, scores_end = 0, nil
    for _, p in ipairs(mma) do
      if p.warp == warp then
        local g = slices and n // (2 * slices) + 2 or n + 2
        n = n + 1
        holds("product " .. n .. " begins after its copies", groups[g].landed <= p.begin)
        holds("the next copies go on", g == last or groups[g + 1].begin <= p.begin)
        holds("scores and output take turns", p.name == (n % 2 == 1 and "s" or "o"))
        local count = 0
        for _, e in ipairs(softmax) do
          local between = scores_end and scores_end <= e.begin and e["end"] <= p.begin
          if e.warp == warp and between then count = count + 1 end
        end
        holds("one softmax between scores and output", count == (n % 2 == 1 and 0 or 1))
        scores_end = p.name == "s" and p["end"] or nil
      end
    end
    holds("two products a slice", n == 2 * blocks * (slices or 1))
  end
  holds("no other softmax", #softmax == 4 * blocks * (slices or 1))
end

-- ---- the page ----

-- Every tag is closed in order, but for the few that stand alone.
local function well_formed(page)
  local alone, open = { DOCTYPE = true }, {}
  page = page:gsub("<style>.-</style>", ""):gsub("<script>.-</script>", "")
  for close, name, rest in page:gmatch("<([/!]?)([%w]+)([^<>]*)>") do
    if close == "/" then
      if table.remove(open) ~= name then return false end
    elseif not rest:find("/$") and not alone[name] then
      open[#open + 1] = name
    end
  end
  return #open == 0 and not page:gsub("<[/!]?%w+[^<>]*>", ""):find("[<>]")
end

local function check_page(page)
  holds("well-formed", well_formed(page))
  local foreign = { "https?:", "src%s*=", "href%s*=", "url%(", "@import", "<link", "fetch%(" }
  for _, word in ipairs(foreign) do
    holds("the page names no other file: " .. word, not page:find(word))
  end
  holds("says what it is", page:find("A model, not a measurement", 1, true))
  local bars, classes = 0, {}
  for class, b, e in page:gmatch('<g class="b (%a+)" data%-b="(%d+)" data%-e="(%d+)">') do
    bars = bars + 1
    classes[class] = true
    if tonumber(e) < tonumber(b) then holds("a bar ends before it begins", false) end
  end
  holds("bars", bars > 50)
  local _, titles = page:gsub('data%-e="%d+"><title>[^<]', "")
  holds("every bar has a title", titles == bars)
  for _, class in ipairs { "flight", "landed", "wait", "scores", "results", "softmax", "output" } do
    holds("bars of " .. class, classes[class])
  end
end

local events, page, blocks = read_events(read(arg[1])), read(arg[2]), tonumber(arg[3])
local kinds = check_order(events)
holds("there are events", #events > 50)
if kinds.product then
  check_hopper(events, blocks)
else
  check_ampere(events, blocks, tonumber(arg[4]))
end
check_page(page)
print(passed .. " passed, " .. failed .. " failed")
os.exit(failed == 0)

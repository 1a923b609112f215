-- The values of templates/launcher.tmpl.c: a launch record as C. Called by render.lua.
--
-- Invariant: the launcher launches what runtime/launch.c launches from the same record
-- (tests/cli/launcher.sh compares the two, call by call).
local launcher = { template = "launcher.tmpl.c" }

-- What the names of the file begin with; it leaves out what is the default or twice the same.
local function name_of(spec)
  local dims = spec.head_dim_v == spec.head_dim and spec.head_dim
               or spec.head_dim .. "_" .. spec.head_dim_v
  local mask = spec.mask == "none" and "" or "_" .. spec.mask
  return ("kiln_%s_%s_%s_%s%s"):format(spec.algorithm, spec.arch, spec.dtype, dims, mask)
end

-- A command as lines of a comment.
local function folded(words)
  local lines, line = {}, " *  "
  for word in words:gmatch("%-%-%S+ ?[^-%s]*") do
    if #line + #word > 92 then lines[#lines + 1], line = line, " *      " end
    line = line .. " " .. word:gsub(" $", "")
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

-- The factors of bytes * ceil(field / divisor) * ... as C; how many they are
local function factors(first, pairs_of)
  local words = first and { ("%d"):format(first) } or {}
  for _, pair in ipairs(pairs_of) do
    words[#words + 1] = ("blocks(a->%s, %d)"):format(pair[1], pair[2])
  end
  return table.concat(words, ", "), #words
end

-- Maps in the order of the tensors; dim and extents: of the tensor that it describes.
local function maps_of(record)
  local spec, out, index = record.spec, {}, {}
  local tensors = { { "q", spec.head_dim, "queries" }, { "k", spec.head_dim, "keys" },
                    { "v", spec.head_dim_v, "keys" }, { "o", spec.head_dim_v, "queries" } }
  for _, t in ipairs(tensors) do
    local m = record.maps[t[1]]
    if m then
      out[#out + 1] = { name = t[1], dim = t[2], extents = t[3], box_rows = m.box_rows,
                        box_cols = m.box_cols, swizzle = m.swizzle }
      index["map:" .. t[1]] = ("maps[%d].bytes"):format(#out - 1)
      assert(m.swizzle == out[1].swizzle and m.box_cols == out[1].box_cols, "maps differ")
    end
  end
  return out, index
end

local function entries_of(record, index)
  local out = {}
  for i, e in ipairs(record.entries) do
    assert(e.cluster == 1, "the launcher knows no clusters")
    local params = {}
    for j, p in ipairs(e.params) do params[j] = p == "args" and "&args" or index[p] end
    out[i] = { name = e.name, threads = e.threads, shared_bytes = e.shared_bytes,
               persistent = e.persistent, param_list = table.concat(params, ", ") }
    out[i].factors, out[i].count = factors(nil, e.grid)
  end
  return out
end

-- command: the one that makes the kernel
function launcher.values(record, source_id, command)
  local spec, workspace = record.spec, {}
  for i, item in ipairs(record.workspace) do
    assert(not item.zero, "the launcher clears no workspace")
    workspace[i] = { name = item.name }
    workspace[i].factors, workspace[i].count = factors(item.bytes, item.dims)
  end
  local maps, index = maps_of(record)
  local swizzles = { [0] = 0, [32] = 1, [64] = 2, [128] = 3 } -- the driver's numbers
  return {
    name = name_of(spec), source_id = source_id,
    command = (folded(command):gsub("^ %*  ", " *   kiln generate", 1)),
    align = record.align, layout = record.layout, dtype = spec.dtype, mask = spec.mask,
    head_dim = spec.head_dim, head_dim_v = spec.head_dim_v, block_m = record.tile.block_m,
    -- 1 / sqrt(head_dim) as the nearest float
    scale = string.unpack("f", string.pack("f", 1 / math.sqrt(spec.head_dim))),
    maps = maps, map_dtype = spec.dtype == "fp16" and 6 or 9,
    map_swizzle = maps[1] and swizzles[maps[1].swizzle] or 0,
    entries = entries_of(record, index), workspace = workspace,
  }
end

return launcher

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
  local pass = spec.pass == "forward" and ""
               or spec.deterministic == 1 and "_backward_deterministic" or "_backward"
  return ("kiln_%s%s_%s_%s_%s%s"):format(spec.algorithm, pass, spec.arch, spec.dtype, dims, mask)
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

-- The tensors in the order of their maps, as members of the launcher's arguments; dim and extents:
-- of the tensor. Outputs come last.
local function tensors_of(spec)
  local dim, dim_v = spec.head_dim, spec.head_dim_v
  local out = {
    { name = "q", dim = dim, extents = "queries" }, { name = "k", dim = dim, extents = "keys" },
    { name = "v", dim = dim_v, extents = "keys" }, { name = "o", dim = dim_v, extents = "queries" },
  }
  if spec.pass == "backward" then
    out[5] = { name = "dout", map = "do", dim = dim_v, extents = "queries", stride = "do_stride" }
    out[6] = { name = "dq", dim = dim, extents = "queries", is_output = true }
    out[7] = { name = "dk", dim = dim, extents = "keys", is_output = true }
    out[8] = { name = "dv", dim = dim_v, extents = "keys", is_output = true }
  else
    out[4].is_output = true
  end
  for _, t in ipairs(out) do
    t.map, t.stride = t.map or t.name, t.stride or t.name .. "_stride"
  end
  return out
end

local function maps_of(record, tensors)
  local out, index = {}, {}
  for _, t in ipairs(tensors) do
    local m = record.maps[t.map]
    if m then
      out[#out + 1] = { name = t.name, dim = t.dim, extents = t.extents, stride = t.stride,
                        box_rows = m.box_rows, box_cols = m.box_cols, swizzle = m.swizzle }
      index["map:" .. t.map] = ("maps[%d].bytes"):format(#out - 1)
      assert(m.swizzle == out[1].swizzle and m.box_cols == out[1].box_cols, "maps differ")
    end
  end
  return out, index
end

local function entries_of(record, index)
  local out = {}
  for i, e in ipairs(record.entries) do
    assert(e.cluster == 1 or e.persistent == 0 and e.cluster <= 8,
           "the launcher knows no such clusters")
    local params = {}
    for j, p in ipairs(e.params) do params[j] = p == "args" and "&args" or index[p] end
    out[i] = { name = e.name, threads = e.threads, shared_bytes = e.shared_bytes,
               persistent = e.persistent, cluster = e.cluster,
               param_list = table.concat(params, ", ") }
    out[i].factors, out[i].count = factors(nil, e.grid)
  end
  return out
end

-- command: the one that makes the kernel
function launcher.values(record, source_id, command)
  local spec, workspace, clears, clusters = record.spec, {}, false, false
  for i, item in ipairs(record.workspace) do
    workspace[i] = { name = item.name, zero = item.zero }
    workspace[i].factors, workspace[i].count = factors(item.bytes, item.dims)
    clears = clears or item.zero
  end
  for _, e in ipairs(record.entries) do clusters = clusters or e.cluster > 1 end
  local tensors, backward = tensors_of(spec), spec.pass == "backward"
  local maps, index = maps_of(record, tensors)
  local swizzles = { [0] = 0, [32] = 1, [64] = 2, [128] = 3 } -- the driver's numbers
  return {
    name = name_of(spec), source_id = source_id,
    command = (folded(command):gsub("^ %*  ", " *   kiln generate", 1)),
    align = record.align, layout = record.layout, dtype = spec.dtype, mask = spec.mask,
    head_dim = spec.head_dim, head_dim_v = spec.head_dim_v, block_m = record.tile.block_m,
    block_n = record.tile.block_n, backward = backward, clears = clears, clusters = clusters,
    args_type = backward and "kiln_launcher_backward_args" or "kiln_launcher_args",
    tensors = tensors, is_deterministic = spec.deterministic == 1,
    -- 1 / sqrt(head_dim) as the nearest float
    scale = string.unpack("f", string.pack("f", 1 / math.sqrt(spec.head_dim))),
    maps = maps, map_dtype = spec.dtype == "fp16" and 6 or 9,
    map_swizzle = maps[1] and swizzles[maps[1].swizzle] or 0,
    entries = entries_of(record, index), workspace = workspace,
  }
end

return launcher

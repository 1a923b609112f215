-- The CUDA side of a rendered file's prelude: types, the words that mark functions and entries, and
-- those wrappers that the kernel text names. The emulator's side is emulator.lua; the kernel text
-- between them is the same bytes. Called by render.lua.
local cuda_prelude = {}

local types = [[
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
]]

-- What is written only where the kernel text or a wrapper names it, in this order.
local optional = {
  { name = "TensorMap", text = "struct __align__(64) TensorMap { u64 words[16]; };" },
  { name = "INFINITY_F", text = "#define INFINITY_F __int_as_float(0x7f800000)" },
  { name = "NEG_INFINITY", text = "#define NEG_INFINITY __int_as_float(0xff800000)" },
}

-- KERNEL is one word for all entries of a source, so its limits are those of the largest. It says
-- clusters only where all entries have them; the launch always does.
local function kernel_word(entries)
  local threads, cluster = 0, math.huge
  for _, entry in ipairs(entries) do
    threads = math.max(threads, entry.threads)
    cluster = math.min(cluster, entry.cluster or 1)
  end
  local text = ('#define KERNEL extern "C" __global__ __launch_bounds__(%d, 1)'):format(threads)
  if cluster > 1 then text = text .. (" __cluster_dims__(%d, 1, 1)"):format(cluster) end
  return text
end

-- "u32 at, const u32 *r" -> "at, r": a macro's parameters are the names alone.
local function parameter_names(params)
  if params == "void" then return "" end
  local names = {}
  for param in params:gmatch("[^,]+") do names[#names + 1] = param:match("([%a_][%w_]*)%s*$") end
  return table.concat(names, ", ")
end

local function wrapper(row)
  if row.macro then
    local body = row.cuda:gsub("\n", " \\\n")
    return ("#define %s(%s) %s"):format(row.name, parameter_names(row.params), body)
  end
  return ("DEV %s %s(%s) {\n  %s\n}"):format(row.ret, row.name, row.params, row.cuda)
end

-- rows: the wrappers in use, each after those it needs. entries: of the launch record.
-- words: the set of identifiers in the kernel text and in those wrappers.
function cuda_prelude.prelude(rows, entries, words)
  local out = { types .. "#define DEV static __device__ __forceinline__",
                "#define PARAM const __grid_constant__", kernel_word(entries) }
  for _, item in ipairs(optional) do
    if words[item.name] then out[#out + 1] = item.text end
  end
  out[#out + 1] = ""
  for _, row in ipairs(rows) do out[#out + 1] = wrapper(row) end
  return table.concat(out, "\n") .. "\n\n"
end

return cuda_prelude

-- The emulator's side of a rendered file: what stands before and behind the kernel text so that the
-- host's C compiler makes a shared object of it. The CUDA side is cuda_prelude.lua; the kernel text
-- between prelude and postlude is the same bytes.
--
-- Invariant: an instruction is a call through one table of functions, `kiln_emu`, whose layout is
-- the whole wrapper list in its order, whatever the kernel uses. runtime/emulator/api.h holds the
-- same list for the host; tests/lua/test_emulator.lua compares the two.
-- Called by render.lua; api_list also by that test.
local wrapper_set = require("wrapper_set")
local wrappers = require("wrappers")

local emulator = {}

-- ---- the function table ----

-- "u32 at, int x" -> { "at", "x" }
local function names_of(params)
  local names = {}
  if params == "void" then return names end
  for param in params:gmatch("[^,]+") do names[#names + 1] = param:match("([%a_][%w_]*)%s*$") end
  return names
end

-- Parameters of a table member: the wrapper's own, then the place in the template.
local function with_site(params)
  return (params == "void" and "" or params .. ", ") .. "const char *site"
end

-- Members in the order of the list. Rows with a C body of their own need none; rows with a pattern
-- name the one member that serves all their shapes, or those of several rows.
local function members()
  local out = {}
  for _, row in ipairs(wrappers) do
    local member = row.pattern and row.member or row
    if not row.emu and not row.member_of then
      out[#out + 1] = { name = member.name, ret = member.ret, params = with_site(member.params) }
    end
  end
  return out
end

-- The list as api.h spells it: one line X(ret, name, (params)) a member.
function emulator.api_list()
  local lines = {}
  for i, m in ipairs(members()) do
    lines[i] = ("X(%s, %s, (%s))"):format(m.ret, m.name, m.params)
  end
  return lines
end

local function struct()
  local lines = {}
  for i, m in ipairs(members()) do
    lines[i] = ("  %s (*%s)(%s);"):format(m.ret, m.name, m.params)
  end
  return "typedef struct {\n" .. table.concat(lines, "\n") .. "\n} kiln_emu_api;\n"
end

-- ---- the prelude ----

local types = [[
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef struct __attribute__((aligned(64))) TensorMap { u64 words[16]; } TensorMap;
#define DEV static inline __attribute__((unused))
#define KERNEL static
#define PARAM const
#define INFINITY_F __builtin_inff()
#define NEG_INFINITY (-__builtin_inff())
#define EMU_EXPORT __attribute__((visibility("default")))
#define EMU_FP16 0
#define EMU_BF16 1
#define EMU_E4M3 2
#define EMU_FP32 3
#define EMU_STRING(x) #x
#define EMU_LINE(x) EMU_STRING(x)
#define SITE(text) __FILE__ ":" EMU_LINE(__LINE__) ": " text
]]

-- The C library's functions that kernel text may call by the names that CUDA has too.
local math = [[
float exp2f(float x);
float log2f(float x);
float fabsf(float x);
float fmaf(float a, float b, float c);
float fmaxf(float a, float b);
float fminf(float a, float b);
float tanhf(float x);
]]

-- Round to nearest even, as cvt.rn does; every NaN becomes 0x7fff.
local conversions = [[
DEV u32 emu_bits(float x) { u32 u; __builtin_memcpy(&u, &x, 4); return u; }
DEV float emu_float(u32 u) { float x; __builtin_memcpy(&x, &u, 4); return x; }
DEV u32 emu_bf16(float x) {
  const u32 u = emu_bits(x);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
DEV u32 emu_fp16(float x) {
  const u32 sign = emu_bits(x) >> 16 & 0x8000, u = emu_bits(x) & 0x7fffffff;
  if (u > 0x7f800000) return 0x7fff;
  if (u >= 0x477ff000) return sign | 0x7c00; /* 65520 and above */
  if (u < 0x38800000) return sign | (emu_bits(emu_float(u) + 0.5f) - 0x3f000000); /* subnormal */
  return sign | (u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13;
}
DEV float emu_wide_fp16(u32 x) {
  const float magnitude = emu_float((x & 0x7fff) << 13) * 0x1p112f; /* exact */
  const u32 special = (x & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
  return emu_float(emu_bits(magnitude) | special | (x & 0x8000) << 16);
}
/* Numbers too large become 448. */
DEV u32 emu_e4m3(float x) {
  const u32 sign = emu_bits(x) >> 24 & 0x80, u = emu_bits(x) & 0x7fffffff;
  if (u > 0x7f800000) return 0x7f;
  if (u >= 0x43e00000) return sign | 0x7e; /* 448 and above */
  if (u < 0x3c800000) return sign | (emu_bits(emu_float(u) + 16384.f) - 0x46800000); /* subnormal */
  return sign | (u - 0x3c000000 + 0x7ffff + (u >> 20 & 1)) >> 20;
}
]]

local function scalar(row)
  return ("DEV %s %s(%s) { %s }\n"):format(row.ret, row.name, row.params, row.emu)
end

-- #define name(a, b) kiln_emu->name(a, b, SITE("name(" #a ", " #b ")"))
local function instruction(row)
  local names, shown = names_of(row.params), {}
  for i, name in ipairs(names) do shown[i] = "#" .. name end
  local text = #names == 0 and ('"%s()"'):format(row.name)
    or ('"%s(" %s ")"'):format(row.name, table.concat(shown, ' ", " '))
  local call = row.call or { row.name, table.unpack(names) }
  local arguments = { table.unpack(call, 2) }
  arguments[#arguments + 1] = "SITE(" .. text .. ")"
  return ("#define %s(%s) kiln_emu->%s(%s)\n"):format(row.name, table.concat(names, ", "), call[1],
    table.concat(arguments, ", "))
end

-- rows: the wrappers in use, each after those it needs (wrapper_set.lua).
function emulator.prelude(rows)
  local out = { types, math, conversions, struct(), "static const kiln_emu_api *kiln_emu;\n" }
  for _, row in ipairs(rows) do out[#out + 1] = row.emu and scalar(row) or instruction(row) end
  return table.concat(out) .. "\n"
end

-- ---- the postlude ----

-- The types of an entry's parameters, read from `KERNEL void name(PARAM Type a, PARAM Type b)`.
local function parameter_types(name, kernel_text)
  local params = kernel_text:match("KERNEL%s+void%s+" .. name .. "%s*(%b())")
  if not params then error("the template has no entry KERNEL void " .. name .. "(...)", 0) end
  local out = {}
  for type in params:gmatch("PARAM%s+([%a_][%w_]*)") do out[#out + 1] = type end
  return out
end

-- A function that calls the entry with the parameters at the given addresses, and their sizes.
local function thunk(name, parameters)
  local copies, arguments, sizes = {}, {}, {}
  for i, type in ipairs(parameters) do
    copies[i] = ("  %s p%d;\n"):format(type, i)
      .. ("  __builtin_memcpy(&p%d, params[%d], sizeof p%d);\n"):format(i, i - 1, i)
    arguments[i], sizes[i] = "p" .. i, ("sizeof(%s)"):format(type)
  end
  return ("static void kiln_emu_run_%s(void **params) {\n"):format(name)
    .. table.concat(copies) .. ("  %s(%s);\n}\n"):format(name, table.concat(arguments, ", "))
    .. ("static const unsigned long kiln_emu_sizes_%s[] = {%s};\n"):format(name,
      #sizes > 0 and table.concat(sizes, ", ") or "0")
end

-- The identifiers of each function of the text, by the function's name, and those of the rest.
local function functions_of(kernel_text)
  local found = {}
  local rest = wrapper_set.code(kernel_text):gsub("([%a_][%w_]*)%s*%b()%s*(%b{})",
    function(name, body)
      found[name] = wrapper_set.identifiers(body)
      return " "
    end)
  return found, wrapper_set.identifiers(rest)
end

-- Whether blocks of an entry talk to each other through global memory, so that they must not run
-- in parallel: whether what it calls, directly or not, names a wrapper that does. One that is named
-- outside of functions, in a macro say, is anyone's.
local function talks(entry, functions, rest, rows)
  local reached, to_read = {}, { functions[entry] or {}, rest }
  while #to_read > 0 do
    for name in pairs(table.remove(to_read)) do
      if not reached[name] then
        reached[name] = true
        to_read[#to_read + 1] = functions[name]
      end
    end
  end
  for _, row in ipairs(rows) do
    if row.talks and reached[row.name] then return 1 end
  end
  return 0
end

local row_text = '  {"%s", kiln_emu_run_%s, %d, kiln_emu_sizes_%s, %d},\n'

local tail = [[
EMU_EXPORT const unsigned long kiln_emu_api_size = sizeof(kiln_emu_api);
EMU_EXPORT void kiln_emu_init(const kiln_emu_api *api);
void kiln_emu_init(const kiln_emu_api *api) { kiln_emu = api; }
]]

-- entries: of the launch record. kernel_text: rendered. rows: as above.
function emulator.postlude(entries, kernel_text, rows)
  local out, table_rows = { '\n#line 1 "/kiln/emulator"\n' }, {}
  local functions, rest = functions_of(kernel_text)
  for i, entry in ipairs(entries) do
    local parameters = parameter_types(entry.name, kernel_text)
    out[#out + 1] = thunk(entry.name, parameters)
    table_rows[i] = row_text:format(entry.name, entry.name, #parameters, entry.name,
      talks(entry.name, functions, rest, rows))
  end
  out[#out + 1] = "typedef struct {\n  const char *name;\n  void (*run)(void **params);\n"
    .. "  int num_params;\n  const unsigned long *sizes;\n  int talks;\n} kiln_emu_entry;\n"
    .. "EMU_EXPORT const kiln_emu_entry kiln_emu_entries[] = {\n" .. table.concat(table_rows)
    .. "  {0, 0, 0, 0, 0}};\n"
  out[#out + 1] = tail
  return table.concat(out)
end

return emulator

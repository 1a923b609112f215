-- lua5.4 tests/conformance/compose.lua FOLDER: writes every case into FOLDER: NAME.cu for CUDA,
-- NAME.c for the emulator (the same kernel text behind the two preludes), NAME.in, and the list of
-- all in `manifest`. Fails when a row of wrappers.lua has no micro-kernel.
--
-- The manifest is read by conformance.c and tools/gpu/conformance.py; a case is
--   case NAME ID ARCH ENTRY THREADS GRID_X GRID_Y CLUSTER SHARED IN_BYTES OUT_BYTES
--   map SPACE OFFSET DIM*4 STRIDE*3 BOX*4 SWIZZLE DTYPE        parameters, in order
--   map1, map2, map3, map5: the same of another rank
--   word SPACE VALUE                                           then the words of the last one
--   check KIND OFFSET BYTES RELATIVE ABSOLUTE
--   end
-- SPACE is in, out (an address: VALUE bytes further) or value. ID changes with anything that the
-- answer depends on, so that an old answer is not taken for a new one's. That of a whole kernel is
-- the problem's: within its bound, every text and tile must give the same answer.
local here = arg[0]:gsub("[^/]*$", "")
local root = here .. "../../"
package.path = here .. "?.lua;" .. root .. "tests/lua/?.lua;" .. root .. "generator/lua/?.lua"
package.preload.host = function() return require("fake_host")(root) end
local wrapper_set = require("wrapper_set")
local wrappers = require("wrappers")
local cuda_prelude = require("cuda_prelude")
local emulator = require("emulator")
local cases = require("cases").list

local folder = assert(arg[1], "usage: compose.lua FOLDER")

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

local function write(name, text)
  local file = assert(io.open(folder .. "/" .. name, "wb"))
  assert(file:write(text))
  assert(file:close())
end

local ARGS = "typedef struct {\n  const char *in;\n  char *out;\n} Args;\n"

local function kernel_text(case)
  local text = read(here .. "kernels/" .. case.kernel .. ".cu")
  return ARGS .. text:gsub("%${([%w_]+)}", function(name)
    return tostring(case.values[name] or error(case.name .. " has no value " .. name))
  end)
end

-- Both texts of a micro-kernel.
local function compose(case)
  local text, entries = kernel_text(case), { { name = "conformance", threads = case.threads,
                                               cluster = case.cluster } }
  local rows, words = wrapper_set.select(wrappers, text, "cuda")
  case.entry, case.text = "conformance", text
  case.cuda = cuda_prelude.prelude(rows, entries, words) .. text
  case.emulated = emulator.prelude(wrapper_set.select(wrappers, text, "emu"), entries) .. text
    .. emulator.postlude(entries, text, rows)
end

-- ---- the manifest ----

-- FNV-1a, 64 bits.
local function digest(text)
  local hash = 0xcbf29ce484222325
  for i = 1, #text do hash = (hash ~ text:byte(i)) * 0x100000001b3 end
  return ("%016x"):format(hash)
end

local function manifest_lines(case)
  local lines = {}
  local function add(...) lines[#lines + 1] = table.concat({ ... }, " ") end
  for _, m in ipairs(case.maps) do
    add(#m.dims == 4 and "map" or "map" .. #m.dims, m.space, m.offset, table.concat(m.dims, " "),
        table.concat({ table.concat(m.strides, " "), table.concat(m.box, " ") },
                     #m.dims > 1 and " " or ""), m.swizzle, m.dtype)
  end
  for _, word in ipairs(case.words) do add("word", word[1], ("%d"):format(word[2])) end
  for _, c in ipairs(case.checks) do
    add("check", c[1], c[2], c[3], ("%.9g"):format(c[4]), ("%.9g"):format(c[5]))
  end
  add("end")
  local body = table.concat(lines, "\n") .. "\n"
  local shape = table.concat({ case.arch, case.entry, case.threads, case.grid[1], case.grid[2],
                               case.cluster, case.shared, #case.input, case.output }, " ")
  local question = case.problem and { case.problem, case.input }
    or { case.text, case.input, shape, (body:gsub("check[^\n]*\n", "")) }
  local id = digest(table.concat(question, "\0"))
  return ("case %s %s %s\n%s"):format(case.name, id, shape, body)
end

-- ---- is every wrapper shown? ----

-- Shapes of pattern rows that must be there, by the row's pattern.
local function wanted_shapes(row)
  local names = {}
  if row.pattern:find("^%^mma") then
    names = { "mma_m16n8k16_bf16", "mma_m16n8k16_fp16" }
  elseif row.pattern:find("^%^touch") then
    names = { "touch_f32x8", "touch_u32x4" }
  elseif row.pattern:find("^%^redux") then
    names = { "redux_add_u32", "redux_add_i32", "redux_min_u32", "redux_min_i32", "redux_max_u32",
              "redux_and_u32", "redux_or_u32", "redux_xor_u32" }
  elseif row.pattern:find("^%^bulk_add") then
    names = { "bulk_add_fp32", "bulk_add_fp16", "bulk_add_bf16" }
  elseif row.pattern:find("^%^tma_") then
    local name = row.pattern:match("^%^(tma_[%l_]-)_%(")
    for _, rank in ipairs(name == "tma_add" and { 1, 2, 3, 4, 5 } or { 1, 2, 3, 5 }) do
      names[#names + 1] = ("%s_%dd"):format(name, rank)
    end
  elseif row.pattern:find("^%^wgmma_%(%%l") then
    for _, n in ipairs({ 16, 64, 80, 128 }) do
      for _, form in ipairs({ "set_ss_n%d_bf16", "add_rs_n%d_bf16", "add_ss_n%d_bf16_t",
                              "add_rs_n%d_bf16_t", "set_rs_n%d_bf16_flat",
                              "add_ss_n%d_bf16_flat" }) do
        names[#names + 1] = "wgmma_" .. form:format(n)
      end
    end
  elseif row.pattern:find("^%^wgmma") then
    for _, n in ipairs({ 8, 64, 96, 128, 256 }) do
      for _, from in ipairs({ "ss", "rs" }) do
        names[#names + 1] = ("wgmma_%s_n%d_e4m3"):format(from, n)
      end
    end
    for _, ending in ipairs({ "_ta", "_tab" }) do
      for _, dtype in ipairs({ "bf16", "fp16" }) do
        names[#names + 1] = ("wgmma_ss_n128_%s%s"):format(dtype, ending)
      end
    end
    for _, n in ipairs({ 8, 16, 64, 80, 112, 128, 240, 256 }) do
      for _, dtype in ipairs({ "bf16", "fp16" }) do
        for _, from in ipairs({ "ss", "rs" }) do
          for _, trans in ipairs({ "", "_t" }) do
            names[#names + 1] = ("wgmma_%s_n%d_%s%s"):format(from, n, dtype, trans)
          end
        end
      end
    end
  end
  assert(#names > 0, "a new pattern row: say in compose.lua which shapes of " .. row.pattern
    .. " need a micro-kernel")
  return names
end

local function check_complete()
  local shown, count = {}, 0
  for _, case in ipairs(cases) do
    local named = wrapper_set.identifiers(case.text)
    for _, name in ipairs(case.shows) do
      assert(named[name], case.name .. " says that it shows " .. name .. ", and does not name it")
      shown[name] = true
    end
  end
  for _, row in ipairs(wrappers) do
    for _, name in ipairs(row.pattern and wanted_shapes(row) or { row.name }) do
      assert(shown[name], "no micro-kernel shows " .. name .. ": add one to cases.lua")
      count = count + 1
    end
  end
  return count
end

for _, case in ipairs(cases) do compose(case) end
local count = check_complete()
local all = table.move(cases, 1, #cases, 1, {})
for _, case in ipairs(require("forward").cases(require("render"))) do all[#all + 1] = case end
local lines = {}
for i, case in ipairs(all) do
  lines[i] = manifest_lines(case)
  write(case.name .. ".cu", case.cuda)
  write(case.name .. ".c", case.emulated)
  write(case.name .. ".in", case.input)
end
write("manifest", table.concat(lines))
print(("%d wrappers and shapes of %d rows, %d cases"):format(count, #wrappers, #all))

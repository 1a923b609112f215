-- The emulator's side of the wrapper list: the table that kernels call is the one that the host
-- implements, and the text around a kernel names everything that the kernel uses.
local check = require("check")
local emulator = require("emulator")
local wrapper_set = require("wrapper_set")
local wrappers = require("wrappers")

local tests = {}

-- The members of the list in the host's header, each as one line.
local function host_list()
  local root = arg[0]:match("^(.*)tests/lua/run%.lua$") or "./"
  local file = assert(io.open(root .. "runtime/emulator/api.h"))
  local text = file:read("a"):match("#define KILN_EMU_API%(X%)(.-)\n//")
  local out = {}
  text = text:gsub("\\", " "):gsub("%s+", " ")
  file:close()
  for member in text:gmatch("X(%b())") do out[#out + 1] = "X" .. member end
  return out
end

function tests.the_host_implements_the_list()
  local rendered, implemented = emulator.api_list(), host_list() -- differ? tools/emulator_api.lua
  for i = 1, math.max(#rendered, #implemented) do
    check.equal(implemented[i], rendered[i])
  end
end

function tests.the_struct_of_a_kernel_is_the_list()
  local prelude = emulator.prelude({})
  local body = prelude:match("typedef struct {\n(.-)\n} kiln_emu_api;")
  local members = {}
  for ret, name, params in body:gmatch("  ([^\n]-) %(%*([%w_]+)%)(%b());") do
    members[#members + 1] = ("X(%s, %s, %s)"):format(ret, name, params)
  end
  for i, line in ipairs(emulator.api_list()) do
    check.equal(members[i], line)
  end
  check.equal(#members, #emulator.api_list())
end

local function rows(text) return wrapper_set.select(wrappers, text, "emu") end

function tests.a_wrapper_becomes_a_call_with_its_place()
  local prelude = emulator.prelude(rows("named_sync(1, 64);"))
  check.holds(prelude, '#define named_sync(id, threads) kiln_emu->named_sync(id, threads, '
    .. 'SITE("named_sync(" #id ", " #threads ")"))')
  check.lacks(prelude, "#define named_arrive")
end

function tests.a_shape_becomes_arguments_of_one_member()
  local prelude = emulator.prelude(rows("wgmma_rs_n64_fp16_t(d, a, b, 1); touch_f32x32(d);"))
  check.holds(prelude, "kiln_emu->wgmma(64, EMU_FP16, 1, d, a, 0, b, accumulate, ")
  check.holds(prelude, "kiln_emu->touch(r, 32, ")
end

-- "1 0": for each entry of the text in turn whether its blocks talk.
local function who_talks(text)
  local entries, marks = {}, {}
  for name in text:gmatch("KERNEL void (%w+)") do entries[#entries + 1] = { name = name } end
  local postlude = emulator.postlude(entries, text, rows(text))
  for mark in postlude:gmatch("kiln_emu_sizes_%w+, (%d)},") do marks[#marks + 1] = mark end
  return table.concat(marks, " ")
end

function tests.entries_whose_blocks_talk_are_marked()
  check.equal(who_talks("KERNEL void f(void) { atomic_add_u64(p, 1); }\n"), "1")
  check.equal(who_talks("KERNEL void f(void) { sync_threads(); }\n"), "0")
  check.equal(who_talks("KERNEL void f(void) { if (x) { } /* atomic_add_u64 */ }\n"
    .. "KERNEL void g(void) { red_add_f32(p, x); }\n"), "0 1")
end

function tests.an_entry_talks_through_what_it_calls()
  check.equal(who_talks("DEV void a(u32 *p) { if (p) { red_add_f32(p, x); } }\n"
    .. "DEV void b(u32 *p) { a(p); }\nDEV void c(u32 *p) { c(p); }\n"
    .. "KERNEL void f(void) { b(p); }\nKERNEL void g(void) { c(p); }\n"), "1 0")
  check.equal(who_talks("#define ADD(p) red_add_f32(p, 1.f)\nDEV void c(u32 *p) { }\n"
    .. "KERNEL void f(void) { c(p); }\nKERNEL void g(void) { ADD(p); }\n"), "1 1")
end

function tests.an_entry_takes_its_parameters_by_address()
  local text = "KERNEL void f(PARAM TensorMap map_q,\n              PARAM ForwardArgs args) {}\n"
  local postlude = emulator.postlude({ { name = "f" } }, text, {})
  check.holds(postlude, "TensorMap p1;")
  check.holds(postlude, "f(p1, p2);")
  check.holds(postlude, "{sizeof(TensorMap), sizeof(ForwardArgs)}")
end

function tests.an_entry_that_is_missing_is_named()
  check.raises("the template has no entry KERNEL void g(...)", emulator.postlude,
    { { name = "g" } }, "KERNEL void f(PARAM A a) {}", {})
end

return tests

-- Resolving and rendering with a family of the tests: what is filled in, what is refused, what the
-- text and the record hold. The real families have tests of their own.
local check = require("check")
local engine = require("engine")
local host = require("host")

-- The tiny family of tests/data/family stands for "ampere" and "standard"; "hopper" refuses.
local folder = debug.getinfo(1, "S").source:match("^@(.*)lua/test_render%.lua$") .. "data/family/"
local tiny = dofile(folder .. "lua/ampere.lua")
local standard = setmetatable({ name = "standard" }, { __index = tiny })
local refusing = { serves = function() return nil, "the other family refuses" end }

local function read_tiny(name)
  local file = assert(io.open(folder .. "templates/" .. name))
  local text = file:read("a")
  file:close()
  return text
end

-- Loads render.lua apart from the other tests, with these families and the tiny template.
local function load_render(families)
  local saved, template = {}, host.template
  for name, family in pairs(families) do
    saved[name] = package.loaded[name]
    package.loaded[name] = family
  end
  host.template = read_tiny
  package.loaded.render = nil
  return require("render"), function()
    host.template = template
    package.loaded.render = nil
    for name in pairs(families) do package.loaded[name] = saved[name] end
  end
end

local function with_tiny(test)
  return function()
    local render, restore = load_render({ ampere = tiny, standard = standard, hopper = refusing })
    local ok, message = xpcall(test, debug.traceback, render)
    restore()
    if not ok then error(message, 0) end
  end
end

local function spec_of(changes)
  local spec = { arch = "sm_80", pass = "forward", algorithm = "flash", dtype = "bf16",
                 head_dim = 128, head_dim_v = 0, mask = "none" }
  for name, value in pairs(changes or {}) do spec[name] = value end
  return spec
end

local function tile_of(changes)
  local tile = { block_m = 0, block_n = 0, num_stages = 0, num_warps = 0 }
  for name, value in pairs(changes or {}) do tile[name] = value end
  return tile
end

local function text_of(tile)
  return ("%dx%dx%dx%d"):format(tile.block_m, tile.block_n, tile.num_stages, tile.num_warps)
end

local tests = {}

tests.zeros_are_filled_and_the_arguments_untouched = with_tiny(function(render)
  local spec, tile = spec_of(), tile_of()
  local whole, chosen = render.resolve(spec, tile)
  check.equal(whole.head_dim_v, 128)
  check.equal(text_of(chosen), "128x64x1x4")
  check.equal(spec.head_dim_v, 0)
  check.equal(text_of(tile), "0x0x0x0")
  spec.deterministic = 1
  check.equal(render.resolve(spec, tile).deterministic, 0) -- forward passes are all alike
end)

tests.given_fields_are_kept = with_tiny(function(render)
  local _, tile = render.resolve(spec_of(), tile_of({ num_warps = 8 }))
  check.equal(text_of(tile), "128x64x1x8")
  -- 64 rows do not go with the default's 64 keys; the family has a default for them.
  _, tile = render.resolve(spec_of(), tile_of({ block_m = 64 }))
  check.equal(text_of(tile), "64x32x1x4")
end)

tests.what_no_default_goes_with_is_refused = with_tiny(function(render)
  check.refused("block_m 64 is not twice block_n 64", "invalid",
                render.resolve(spec_of(), tile_of({ block_m = 64, block_n = 64 })))
end)

tests.a_family_without_a_tile_for_the_wish_is_refused_by_its_check = function()
  local stubborn = setmetatable({
    default_tile = function(_, _, wanted)
      if not wanted then return { block_m = 128, block_n = 64, num_stages = 1, num_warps = 4 } end
    end }, { __index = tiny })
  local render, restore = load_render({ ampere = stubborn })
  local got = table.pack(render.resolve(spec_of(), tile_of({ block_m = 64 })))
  restore()
  check.refused("block_m 64 is not twice block_n 64", "invalid", table.unpack(got))
end

tests.resolving_twice_changes_nothing = with_tiny(function(render)
  local spec, tile = render.resolve(spec_of(), tile_of({ block_m = 64 }))
  local again, chosen = render.resolve(spec, tile)
  for name, value in pairs(spec) do check.equal(again[name], value) end
  check.equal(text_of(chosen), text_of(tile))
end)

tests.refusals_come_through = with_tiny(function(render)
  local function refused(sentence, kind, changes, tile)
    check.refused(sentence, kind, render.resolve(spec_of(changes), tile_of(tile)))
    check.refused(sentence, kind, render.render(spec_of(changes), tile_of(tile), {}))
  end
  refused("head_dim 59 is not a multiple of 8 up to 256; the nearest legal values are 56 and 64",
          "invalid", { head_dim = 59 })
  refused("deterministic 2 is not within 0 to 1; the nearest legal value is 1", "invalid",
          { deterministic = 2 })
  refused("arch is empty and there is no device to ask", "invalid", { arch = "" })
  refused("num_stages -1 is not within 1 to 8; the nearest legal value is 1; "
          .. "0 leaves the choice to Kiln", "invalid", nil, { num_stages = -1 })
  refused("the tiny family has no head_dim_v above 128", "unsupported", { head_dim_v = 136 })
  refused("the other family refuses", "unsupported", { arch = "sm_90a" })
end)

tests.standard_is_a_family_of_every_arch = with_tiny(function(render)
  for _, arch in ipairs({ "sm_80", "sm_90", "sm_90a", "sm_120" }) do
    local spec = spec_of({ arch = arch, algorithm = "standard" })
    local _, _, record = render.render(spec, tile_of(), {})
    check.holds(record, '"family":"standard"')
  end
end)

tests.header_states_command_identity_and_memory = with_tiny(function(render)
  local text, id = render.render(spec_of({ mask = "causal" }), tile_of({ block_m = 64 }), {})
  local header, body = text:match("^(.-\n)(\n.*)$")
  check.equal(header, table.concat({
    "// kiln 0.0.0  do not edit",
    "// kiln generate --arch sm_80 --dtype bf16 --head-dim 128 --causal --block-m 64 --block-n 32 "
      .. "--num-stages 1 --num-warps 4",
    "// source id " .. id,
    "// family ampere",
    "// spec arch=sm_80 pass=forward algorithm=flash dtype=bf16 head_dim=128 head_dim_v=128 "
      .. "mask=causal",
    "// tile block_m=64 block_n=32 num_stages=1 num_warps=4",
    "// shared memory 4096 of 166912 bytes",
    "//    offset     bytes  region",
    "//         0      3072  q",
    "//      3072      1024  k",
    "" }, "\n"))
  check.equal(host.digested, body)
  check.equal(id, host.sha256(body))
end)

tests.prelude_holds_what_the_text_names_and_no_more = with_tiny(function(render)
  local text = render.render(spec_of(), tile_of(), {})
  for _, name in ipairs({ "DEV float ex2(", "DEV u32 shared_base(", "DEV void sts_i32(",
                          "#define cp_async_wait(pending) asm", "__launch_bounds__(128, 1)\n" }) do
    check.holds(text, name)
  end
  for _, name in ipairs({ "DEV void sync_warp(", "DEV float lg2(", "TensorMap", "NEG_INFINITY",
                          "__cluster_dims__" }) do
    check.lacks(text, name)
  end
end)

tests.plain_text_is_the_same_without_lines = with_tiny(function(render)
  local with = render.render(spec_of(), tile_of(), {})
  local plain, id = render.render(spec_of(), tile_of(), { plain = true })
  check.holds(with, '#line 3 "/kiln/templates/tiny.tmpl.cu"\nKERNEL void kiln_forward(')
  check.lacks(plain, "#line")
  check.holds(plain, " --num-warps 4 --plain\n")
  local function below(text) return text:gsub("#line [^\n]*\n", ""):match("\n(\n.*)$") end
  check.equal(below(plain), below(with))
  check.holds(plain, id)
end)

tests.both_preludes_surround_the_same_kernel_text = with_tiny(function(render)
  local function kernel(text) return text:match("(#line %d+ \"/kiln/templates/.-\n}\n)") end
  local cuda, cuda_id = render.render(spec_of(), tile_of(), {})
  local emulated, emulated_id = render.render(spec_of(), tile_of(), { emulator = true })
  check.holds(kernel(cuda), "KERNEL void kiln_forward(")
  check.equal(kernel(emulated), kernel(cuda))
  check.lacks(emulated, "__global__")
  check.equal(cuda_id == emulated_id, false)
end)

tests.record_has_every_member_in_its_order = with_tiny(function(render)
  local _, _, record = render.render(spec_of({ dtype = "fp16" }), tile_of(), {})
  check.equal(record, '{"format":1,"kiln":"0.0.0","family":"ampere","layout":"forward.1",'
    .. '"align":16,"spec":{"arch":"sm_80","pass":"forward","algorithm":"flash","dtype":"fp16",'
    .. '"head_dim":128,"head_dim_v":128,"mask":"none"},"tile":{"block_m":128,"block_n":64,'
    .. '"num_stages":1,"num_warps":4},"workspace":[{"name":"counter","bytes":16,"dims":[],'
    .. '"zero":true}],"maps":{"q":{"box_rows":32,"box_cols":64,"swizzle":0},"v":{"box_rows":64,'
    .. '"box_cols":64,"swizzle":128}},"entries":[{"name":"kiln_forward","threads":128,'
    .. '"cluster":1,"shared_bytes":4096,"persistent":0,"grid":[["seqlen_q",128],["batch",1]],'
    .. '"params":["args"]}],"smem":[{"name":"q","offset":0,"bytes":3072},'
    .. '{"name":"k","offset":3072,"bytes":1024}]}')
end)

tests.a_family_that_asks_for_too_much_is_a_fault = function()
  local greedy = setmetatable({ record = function()
    return { entries = { { name = "kiln_forward", threads = 32, shared_bytes = 166913, grid = {},
                           params = {} } } }
  end }, { __index = tiny })
  local render, restore = load_render({ ampere = greedy })
  local ok, message = pcall(render.render, spec_of(), tile_of(), {})
  restore()
  check.equal(ok, false)
  check.equal(message,
              "family ampere let 166913 bytes of shared memory pass; sm_80 has 166912 a block")
end

-- ---- wrappers and the CUDA prelude ----

local wrapper_set = require("wrapper_set")

local rows = {
  { name = "alpha", ret = "void", params = "void", cuda = "beta(1); gamma_x3();" },
  { name = "beta", ret = "int", params = "int x", cuda = "return x;" },
  { name = "never", ret = "void", params = "void", cuda = "" },
  { pattern = "^gamma_x(%d+)$", make = function(n)
    if n == "0" then return nil end
    return { name = "gamma_x" .. n, ret = "void", params = "void", cuda = 'asm("never");' }
  end },
}

local function selected(text)
  local names = {}
  for i, row in ipairs(wrapper_set.select(rows, text, "cuda")) do names[i] = row.name end
  return table.concat(names, " ")
end

function tests.wrappers_follow_those_they_need()
  check.equal(selected("alpha();"), "beta gamma_x3 alpha")
  check.equal(selected("gamma_x7(); beta(2); gamma_x12();"), "beta gamma_x12 gamma_x7")
end

function tests.comments_strings_and_near_names_ask_for_nothing()
  check.equal(selected('// alpha()\n/* beta\n alpha */ f("never");\n#line 3 "alpha"\n'),
              "")
  check.equal(selected("alphabet(); gamma_x(); gamma_x0(); x.y_alpha; 1alpha"), "")
  check.equal(selected('f("/*"); beta(1); g("*/");'), "beta")
end

function tests.optional_types_follow_wrappers_and_bounds_the_largest_entry()
  local prelude = require("cuda_prelude").prelude(
    { { name = "load", ret = "void", params = "const TensorMap *map, u32 at", macro = true,
        cuda = "f(map, at)" } },
    { { threads = 128, cluster = 2 }, { threads = 384, cluster = 2 } }, { TensorMap = true })
  check.holds(prelude, "struct __align__(64) TensorMap { u64 words[16]; };\n")
  check.holds(prelude, "#define load(map, at) f(map, at)\n")
  check.holds(prelude, '#define KERNEL extern "C" __global__ __launch_bounds__(384, 1) '
                       .. "__cluster_dims__(2, 1, 1)\n")
end

function tests.a_source_says_clusters_only_where_all_entries_have_them()
  local prelude = require("cuda_prelude").prelude(
    {}, { { threads = 128 }, { threads = 384, cluster = 2 } }, {})
  check.holds(prelude, '#define KERNEL extern "C" __global__ __launch_bounds__(384, 1)\n')
end

-- ---- JSON ----

function tests.json_is_canonical()
  local json = require("json")
  check.equal(json.encode({ b = 1, a = { true, "x" }, c = json.array({}), d = {} }),
              '{"a":[true,"x"],"b":1,"c":[],"d":{}}')
  check.equal(json.encode(json.object({ a = 1, z = 2, b = 3 }, { "z", "missing", "b" })),
              '{"z":2,"b":3,"a":1}')
  check.equal(json.encode('"\\\n\t\1'), '"\\"\\\\\\n\\t\\u0001"')
  check.raises("JSON cannot hold float", json.encode, 1.5)
  check.raises("JSON cannot hold nil", json.encode, nil)
end

function tests.f32_is_one_function_for_families_too()
  check.equal(engine.f32(0.125), "0.125f")
end

return tests

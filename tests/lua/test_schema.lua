-- The schema: every refusal's exact sentence, and what a legal text becomes.
local check = require("check")
local schema = require("schema")

local function refused(sentence, kind, ...)
  check.refused(sentence, kind, schema.set(...))
end

local tests = {}

function tests.legal_texts_become_what_c_stores()
  check.equal(schema.set("spec", "arch", "sm_90a"), "sm_90a")
  check.equal(schema.set("spec", "arch", ""), "")
  check.equal(schema.set("spec", "pass", "forward"), 0)
  check.equal(schema.set("spec", "algorithm", "standard"), 1)
  check.equal(schema.set("spec", "dtype", "fp16"), 0)
  check.equal(schema.set("spec", "dtype", "bf16"), 1)
  check.equal(schema.set("spec", "mask", "causal"), 1)
  check.equal(schema.set("spec", "head_dim_v", "0"), 0)
  check.equal(schema.set("tile", "num_stages", "2"), 2)
  check.equal(schema.set("tile", "block_m", "0"), 0)
end

function tests.every_multiple_of_eight_is_a_head_dim()
  for head_dim = 8, 256, 8 do
    check.equal(schema.set("spec", "head_dim", tostring(head_dim)), head_dim)
    check.equal(schema.set("spec", "head_dim_v", tostring(head_dim)), head_dim)
  end
end

function tests.head_dims_are_refused_with_their_neighbours()
  local rule = "is not a multiple of 8 up to 256; the nearest legal "
  refused("head_dim 59 " .. rule .. "values are 56 and 64", "invalid", "spec", "head_dim", "59")
  refused("head_dim 0 " .. rule .. "value is 8", "invalid", "spec", "head_dim", "0")
  refused("head_dim 264 " .. rule .. "value is 256", "invalid", "spec", "head_dim", "264")
  refused("head_dim -8 " .. rule .. "value is 8", "invalid", "spec", "head_dim", "-8")
  refused("head_dim_v 3 " .. rule .. "value is 8; 0 takes head_dim", "invalid", "spec",
          "head_dim_v", "3")
end

function tests.texts_that_are_no_whole_numbers_are_refused()
  for _, text in ipairs({ "", "x", "1.5", "0x40", " 64", "64 ", "1e2", "99999999999999999999" }) do
    refused(("head_dim '%s' is not a whole number; legal are the multiples of 8 up to 256"):format(
      text), "invalid", "spec", "head_dim", text)
  end
end

function tests.tiles_are_refused_with_their_range()
  refused("block_m 40 is not a multiple of 16 up to 256; the nearest legal values are 32 and 48; "
          .. "0 leaves the choice to Kiln", "invalid", "tile", "block_m", "40")
  refused("num_stages 9 is not within 1 to 8; the nearest legal value is 8; "
          .. "0 leaves the choice to Kiln", "invalid", "tile", "num_stages", "9")
  refused("num_warps 'many' is not a whole number; legal are 1 to 16; "
          .. "0 leaves the choice to Kiln", "invalid", "tile", "num_warps", "many")
end

function tests.features_that_are_not_built_are_named()
  refused("dtype e4m3 is not built yet; legal are fp16 and bf16", "unsupported", "spec", "dtype",
          "e4m3")
  refused("dtype fp32 is for outputs and statistics alone; legal are fp16 and bf16", "unsupported",
          "spec", "dtype", "fp32")
end

function tests.unknown_words_are_refused_with_the_legal_ones()
  refused("dtype 'half' is unknown; legal are fp16 and bf16", "invalid", "spec", "dtype", "half")
  refused("mask 'local' is unknown; legal are none and causal", "invalid", "spec", "mask", "local")
  refused("arch 'sm_70' is unknown; legal are sm_80, sm_86, sm_89, sm_90, sm_90a and sm_120",
          "invalid", "spec", "arch", "sm_70")
  refused("a tile has no field 'block_k'; "
          .. "its fields are block_m, block_n, num_stages and num_warps",
          "invalid", "tile", "block_k", "1")
end

function tests.numbers_of_c_and_names_of_lua_go_both_ways()
  local raw = { arch = "sm_80", pass = 0, algorithm = 1, dtype = 0, head_dim = 64, head_dim_v = 0,
                mask = 1 }
  local spec = schema.decode("spec", raw)
  check.equal(spec.algorithm .. spec.dtype .. spec.mask, "standardfp16causal")
  local back = schema.encode("spec", spec)
  for name, value in pairs(raw) do check.equal(back[name], value) end
  raw.dtype = 7
  check.refused("dtype 7 is unknown; legal are fp16 and bf16", "invalid",
                schema.decode("spec", raw))
end

function tests.check_looks_at_every_field()
  local good = { arch = "sm_80", pass = "forward", algorithm = "flash", dtype = "bf16",
                 head_dim = 64, head_dim_v = 0, mask = "none" }
  check.equal(schema.check("spec", good), true)
  local wrong = { arch = "sm_1", pass = "sideways", algorithm = "fast", dtype = "e4m3",
                  head_dim = 7, head_dim_v = 300, mask = "some", deterministic = 2 }
  for name, value in pairs(wrong) do
    local spec = setmetatable({ [name] = value }, { __index = good })
    local ok, sentence = schema.check("spec", spec)
    check.equal(ok, nil)
    check.holds(sentence, name .. " ")
  end
end

function tests.flags_ask_for_the_members_again()
  local spec = { arch = "sm_80", pass = "forward", algorithm = "flash", dtype = "bf16",
                 head_dim = 128, head_dim_v = 128, mask = "causal" }
  check.equal(table.concat(schema.flags("spec", spec), " "),
              "--arch sm_80 --dtype bf16 --head-dim 128 --causal")
  spec.head_dim_v, spec.mask, spec.algorithm = 64, "none", "standard"
  check.equal(table.concat(schema.flags("spec", spec), " "),
              "--arch sm_80 --algorithm standard --dtype bf16 --head-dim 128 --head-dim-v 64")
end

-- What came after records were written and packs were built is named only where it says something.
function tests.late_fields_are_silent_at_their_default()
  local spec = { arch = "sm_80", pass = "backward", algorithm = "flash", dtype = "bf16",
                 head_dim = 128, head_dim_v = 128, mask = "none" }
  local function words() return table.concat(schema.written("spec", spec), " ") end
  local old = "arch pass algorithm dtype head_dim head_dim_v mask"
  check.equal(words(), old)
  check.equal(schema.encode("spec", spec).deterministic, 0)
  check.equal(schema.check("spec", spec), true)
  spec.deterministic = 0
  check.equal(words(), old)
  check.lacks(table.concat(schema.flags("spec", spec), " "), "deterministic")
  spec.deterministic = 1
  check.equal(words(), old .. " deterministic")
  check.holds(table.concat(schema.flags("spec", spec), " "), " --deterministic")
  check.equal(#schema.written("tile", {}), 4)
end

function tests.description_holds_every_field_and_arch()
  local text = schema.describe()
  check.holds(text, '{"fields":[{"group":"spec","name":"arch","type":"enum","default":"",'
                    .. '"values":["sm_80"')
  check.holds(text, '"values":["fp16","bf16"],"numbers":[0,1],"flag":"--dtype"')
  check.holds(text, '"type":"int","default":128,"min":8,"max":256,"multiple":8,"flag":"--head-dim"')
  check.holds(text, '"flags":[{"flag":"--causal","value":"causal"},'
                    .. '{"flag":"--no-causal","value":"none"}]')
  check.holds(text, '"flags":[{"flag":"--deterministic","value":"1"},')
  check.holds(text, '"archs":[{"name":"sm_80","families":["ampere"],"smem_per_block":166912')
  check.lacks(text, "e4m3")
  for _, group in ipairs({ "spec", "tile" }) do
    for _, name in ipairs(schema.names(group)) do check.holds(text, '"name":"' .. name .. '"') end
  end
end

return tests

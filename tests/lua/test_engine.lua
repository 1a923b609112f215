-- The template engine: exact text, exact lines, exact error messages.
local check = require("check")
local engine = require("engine")

local function load_text(text, chunk, env) return load(text, chunk, "t", env) end

local function new(files) return engine.new(function(name) return files[name] end, load_text) end

-- Renders lines as the template x.tmpl.cu.
local function plain(lines, values)
  local files = { ["x.tmpl.cu"] = table.concat(lines, "\n") .. "\n" }
  return new(files).render("x.tmpl.cu", values or {}, true)
end

local function raises(message, lines, values)
  check.raises("templates/x.tmpl.cu:" .. message, plain, lines, values)
end

local tests = {}

function tests.text_passes_through_untouched()
  check.equal(plain({ "  int x = a[3] % 2; // '\"\\n", "", "#pragma unroll" }),
              "  int x = a[3] % 2; // '\"\\n\n\n#pragma unroll\n")
end

function tests.values_are_strings_and_integers()
  check.equal(plain({ "${a}|${b}|${b + 1}|" }, { a = "text", b = -7 }), "text|-7|-6|\n")
end

function tests.braces_and_strings_nest_inside_an_expression()
  check.equal(plain({ "[${f{ '}', \"{\\\"\" }}]" }, { f = table.concat }), "[}{\"]\n")
  check.equal(plain({ "${ ({ { 4 } })[1][1] }" }), "4\n")
end

function tests.control_lines_leave_no_line()
  check.equal(plain({ "a", "//@", "//@ if true then", "  b", "    //@ end", "c" }), "a\n  b\nc\n")
end

function tests.loops_and_locals_span_lines()
  check.equal(plain({ "//@ local n = 2", "//@ for i = 0, n do", "x${i}", "//@ end" }),
              "x0\nx1\nx2\n")
end

function tests.functions_of_a_template_emit_where_they_are_called()
  check.equal(plain({ "//@ local function pair(i)", "x${i}", "//@ end", "//@ pair(1)", "y",
                      "//@ pair(2)" }), "x1\ny\nx2\n")
end

function tests.carriage_returns_are_dropped()
  check.equal(plain({ "a\r", "//@ local b = 1\r", "${b}\r" }), "a\n1\n")
end

function tests.line_numbers_appear_where_they_jump()
  local e = new({ ["x.tmpl.cu"] = "a\nb\n//@ local n = 1\nc\nd\n"
                                  .. "//@ for i = 1, 2 do\ne\n//@ end\nf\n" })
  check.equal(e.render("x.tmpl.cu", {}), table.concat({
    '#line 1 "/kiln/templates/x.tmpl.cu"', "a", "b",
    '#line 4 "/kiln/templates/x.tmpl.cu"', "c", "d",
    '#line 7 "/kiln/templates/x.tmpl.cu"', "e",
    '#line 7 "/kiln/templates/x.tmpl.cu"', "e",
    '#line 9 "/kiln/templates/x.tmpl.cu"', "f", "" }, "\n"))
end

function tests.a_blank_line_takes_no_line_number()
  local e = new({ ["x.tmpl.cu"] = "a\n//@ local n = 1\n\nb\n" })
  check.equal(e.render("x.tmpl.cu", {}), table.concat({
    '#line 1 "/kiln/templates/x.tmpl.cu"', "a", "",
    '#line 4 "/kiln/templates/x.tmpl.cu"', "b", "" }, "\n"))
end

function tests.a_value_of_many_lines_is_counted()
  local e = new({ ["x.tmpl.cu"] = "${two}\nb\n" })
  check.equal(e.render("x.tmpl.cu", { two = "p\nq" }), table.concat({
    '#line 1 "/kiln/templates/x.tmpl.cu"', "p", "q",
    '#line 2 "/kiln/templates/x.tmpl.cu"', "b", "" }, "\n"))
end

function tests.include_shares_the_values_and_keeps_its_own_lines()
  local e = new({ ["x.tmpl.cu"] = 'a\n//@ include("common/y.tmpl.cu")\nb\n',
                  ["common/y.tmpl.cu"] = "//@ local own = 1\ny${n}${own}\n" })
  check.equal(e.render("x.tmpl.cu", { n = 5 }), table.concat({
    '#line 1 "/kiln/templates/x.tmpl.cu"', "a",
    '#line 2 "/kiln/templates/common/y.tmpl.cu"', "y51",
    '#line 3 "/kiln/templates/x.tmpl.cu"', "b", "" }, "\n"))
end

function tests.an_engine_renders_again_with_other_values()
  local e = new({ ["x.tmpl.cu"] = "${n}\n" })
  check.equal(e.render("x.tmpl.cu", { n = 1 }, true), "1\n")
  check.equal(e.render("x.tmpl.cu", { n = 2 }, true), "2\n")
  check.raises("templates/x.tmpl.cu:1: unknown name 'n'", e.render, "x.tmpl.cu", {}, true)
  check.equal(e.render("x.tmpl.cu", { n = 3 }, true), "3\n")
end

function tests.unknown_names_are_named_with_their_line()
  raises("4: unknown name 'y'", { "a", "//@ local x = 1", "", "${x} ${y}" })
  raises("2: unknown name 'seqlen_shift'", { "a", "//@ if seqlen_shift then", "//@ end" })
end

function tests.lua_outside_the_list_is_unknown()
  for name in ("tostring require load os io print _G setmetatable"):gmatch("%S+") do
    raises(("1: unknown name '%s'"):format(name), { "${" .. name .. "}" })
  end
end

function tests.globals_cannot_be_written()
  raises("2: 'x' is not declared: write 'local x'", { "a", "//@ x = 1" })
end

function tests.nil_fields_tables_functions_and_booleans_are_refused()
  local values = { t = {}, f = print, yes = true }
  raises("1: ${t.x} is nil, not text or an integer", { "${t.x}" }, values)
  raises("1: ${t} is a table, not text or an integer", { "${t}" }, values)
  raises("1: ${f} is a function, not text or an integer", { "${f}" }, values)
  raises("1: ${yes} is a boolean, not text or an integer", { "${yes}" }, values)
end

function tests.floats_need_f32()
  raises("2: ${x} is an unformatted float: write ${f32(x)}", { "", "${x}" }, { x = 0.1 })
  raises("1: ${4 / 2} is an unformatted float: write ${f32(4 / 2)}", { "${4 / 2}" })
  check.equal(plain({ "${f32(0.1)} ${f32(1)} ${f32(-2.0)} ${f32(1e30)} ${f32(1 / 3)}" }),
              "0.1f 1.0f -2.0f 1e+30f 0.333333333f\n")
  raises("1: f32 cannot write inf", { "${f32(1 / 0)}" })
  raises("1: f32 needs a number, not a string", { "${f32('1')}" })
end

function tests.syntax_errors_name_the_line()
  raises("2: unexpected symbol near ')'", { "a", "${}" })
  raises("2: '${' is not closed on its line", { "a", "x ${f('}') y" })
  raises("2: syntax error near 'i'", { "a", "//@ fo i = 1" })
  raises("3: 'end' expected (to close 'if' at line 1) near <eof>",
         { "//@ if true then", "a", "b" })
end

function tests.errors_inside_an_include_name_the_included_file()
  local e = new({ ["x.tmpl.cu"] = '//@ include("y.tmpl.cu")\n', ["y.tmpl.cu"] = "\n${z}\n" })
  check.raises("templates/y.tmpl.cu:2: unknown name 'z'", e.render, "x.tmpl.cu", {})
end

function tests.sixteen_templates_may_nest()
  local files = { ["x17.tmpl.cu"] = "end\n" }
  for i = 1, 16 do
    files[("x%d.tmpl.cu"):format(i)] = ('//@ include("x%d.tmpl.cu")\n'):format(i + 1)
  end
  check.equal(new(files).render("x2.tmpl.cu", {}, true), "end\n")
  check.raises("templates/x16.tmpl.cu:1: include of 'x17.tmpl.cu' is nested deeper than 16",
               new(files).render, "x1.tmpl.cu", {}, true)
end

function tests.includes_are_checked()
  raises("2: there is no template 'no.tmpl.cu'", { "", '//@ include("no.tmpl.cu")' })
  raises("1: include of 'x.tmpl.cu' is nested deeper than 16", { '//@ include("x.tmpl.cu")' })
  raises("1: include needs the name of a template", { "//@ include(nil)" })
end

return tests

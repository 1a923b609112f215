-- What the rows of wrappers.lua are made of: asm statements in as many lines as they need, and the
-- rows of wrappers whose name carries a shape.
--
-- Invariant: a maker returns nil where no instruction has that shape.
-- Called by wrappers.lua.
local forms = {}

-- ---- asm statements ----

local COLUMNS = 100
local INDENT = "\n" .. (" "):rep(#"  asm volatile(")

-- The lines of a comma-separated text, each at most `width` columns; commas and blanks are kept.
local function folded(text, width)
  local lines, line = {}, ""
  for item in text:gmatch("[^,]+,? ?") do
    if line ~= "" and #line + #item > width then
      lines[#lines + 1], line = line, ""
    end
    line = line .. item
  end
  lines[#lines + 1] = line
  return lines
end

-- PTX, one instruction a line, as adjacent C string literals.
local function literals(code)
  local out = {}
  for line in (code .. "\n"):gmatch("%s*(.-)\n") do
    local pieces = folded(line, COLUMNS - #INDENT - #'"\\n"')
    pieces[#pieces] = pieces[#pieces] .. "\\n"
    for _, piece in ipairs(pieces) do out[#out + 1] = '"' .. piece .. '"' end
  end
  out[#out] = out[#out]:gsub('\\n"$', '"')
  return out
end

-- Outputs, inputs and clobbers; those that do not fit one line begin a line each.
local function operand_lines(operands)
  local width, out = COLUMNS - #INDENT - #");", {}
  if #operands <= width then return { operands } end
  for part in (operands .. " : "):gmatch("(.-) : ") do
    for i, line in ipairs(folded(part, width)) do
      local colon = i == 1 and #out > 0 and ": " or ""
      out[#out + 1] = colon .. line:match("^(.-)%s*$")
    end
  end
  return out
end

-- asm volatile with these operands, in as many lines as it needs.
function forms.asm(code, operands)
  local lines = literals(code)
  local short = ("asm volatile(%s %s);"):format(lines[1], operands)
  if #lines == 1 and #short <= COLUMNS - 2 then return short end
  for _, line in ipairs(operand_lines(operands)) do lines[#lines + 1] = line end
  return "asm volatile(" .. table.concat(lines, INDENT) .. ");"
end
local asm = forms.asm

-- The same with a memory clobber: for what touches memory, a barrier or an asynchronous queue.
function forms.ptx(code, operands) return asm(code, (operands or "::") .. ' : "memory"') end

-- "form, form, ..." with %d counting from `first`.
function forms.list(form, count, first)
  local items = {}
  for i = 1, count do items[i] = form:format((first or 0) + i - 1) end
  return table.concat(items, ", ")
end
local ptx, list = forms.ptx, forms.list

forms.OUT_R4 = list('"=r"(r[%d])', 4)
forms.IN_R4 = list('"r"(r[%d])', 4)

-- ---- warps ----

local redux_codes = { add = 0, min = 1, max = 2, ["and"] = 3, ["or"] = 4, xor = 5 }

-- redux_<op>_<type>: min and max of either sign, add, and bits as u32.
function forms.redux(op, type)
  local is_bits = op == "and" or op == "or" or op == "xor"
  local is_legal = type == "u32" or type == "i32" and not is_bits
  if not redux_codes[op] or not is_legal then return nil end
  local ret = type == "i32" and "int" or "u32"
  local suffix = is_bits and "b32" or type == "i32" and "s32" or "u32"
  return {
    name = ("redux_%s_%s"):format(op, type), ret = ret, params = ret .. " x", isa = "redux.sync",
    call = { "redux", redux_codes[op], type == "i32" and "1" or "0", "(u32)(x)" },
    cuda = ('%s y;\n  asm volatile("redux.sync.%s.%s %%0, %%1, 0xffffffff;" : "=r"(y) : "r"(x));\n')
      :format(ret, op, suffix) .. "  return y;",
  }
end

-- ---- matrix products ----

-- Operand types and the depth of one instruction of wgmma.
local ptx_type = { bf16 = "bf16", fp16 = "f16", e4m3 = "e4m3" }
local depth = { bf16 = 16, fp16 = 16, e4m3 = 32 }

function forms.mma(dtype)
  local t = ptx_type[dtype]
  if not t or depth[dtype] ~= 16 then return nil end
  return {
    name = "mma_m16n8k16_" .. dtype, ret = "void", isa = "mma.sync",
    params = "float *d, const u32 *a, const u32 *b",
    call = { "mma_m16n8k16", "EMU_" .. dtype:upper(), "d", "a", "b" },
    cuda = asm(("mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 "):format(t, t)
                 .. "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};",
               ": " .. list('"+f"(d[%d])', 4) .. " : " .. list('"r"(a[%d])', 4) .. ", "
                 .. list('"r"(b[%d])', 2)),
  }
end

-- Which operands are MN-major, by the name's end: bit 0 = b, bit 1 = a. Registers and 8-bit numbers
-- are K-major.
local majors = { [""] = 0, _t = 1, _ta = 2, _tab = 3 }

-- The operands of wgmma, numbered: d, then a (a descriptor or four registers), b, accumulate. The
-- last immediates tell which operands are MN-major; a in registers has none, 8-bit numbers neither.
function forms.wgmma(from, n, dtype, ending)
  local t, count, trans = ptx_type[dtype], tonumber(n) // 2, majors[ending]
  if not t or not trans or count < 4 or count > 128 or count % 4 ~= 0 then return nil end
  local in_smem = from == "ss"
  if trans > 1 and not in_smem or trans > 0 and dtype == "e4m3" then return nil end
  local next_operand = count + (in_smem and 1 or 4)
  local a = in_smem and "%" .. count or "{" .. list("%%%d", 4, count) .. "}"
  local order = (in_smem and (", %d"):format(trans >> 1) or "") .. (", %d"):format(trans & 1)
  local code = ([[
    {
    .reg .pred p;
    setp.ne.b32 p, %%%d, 0;
    wgmma.mma_async.sync.aligned.m64n%sk%d.f32.%s.%s {%s}, %s, %%%d, p, 1, 1%s;
    }]]):format(next_operand + 1, n, depth[dtype], t, t, list("%%%d", count), a, next_operand,
                dtype == "e4m3" and "" or order)
  return {
    name = ("wgmma_%s_n%s_%s%s"):format(from, n, dtype, ending), ret = "void",
    params = ("float *d, %s, u64 b, int accumulate"):format(in_smem and "u64 a" or "const u32 *a"),
    isa = "wgmma.mma_async",
    call = { "wgmma", n, "EMU_" .. dtype:upper(), tostring(trans), "d", in_smem and "0" or "a",
             in_smem and "a" or "0", "b", "accumulate" },
    cuda = asm(code, ": " .. list('"+f"(d[%d])', count) .. " : "
                 .. (in_smem and '"l"(a)' or list('"r"(a[%d])', 4)) .. ', "l"(b), "r"(accumulate)'),
  }
end

-- What the upper word of a descriptor is: of tiles with the 128-byte swizzle, eight rows are 1024
-- bytes. Flat: rows of 16 bytes, whose eight bf16 numbers serve for both halves of the depth; a has
-- one core matrix for all rows.
local uppers = { tile = { a = "0x40000040", b = "0x40000040" }, flat = { a = "0", b = "8" } }

-- The same with descriptors that are put together from lower words and offsets (units of 16 bytes)
-- inside the instruction: kept as 64-bit numbers they would fill registers. set: d is written
-- only. Operands that PTX wants as immediates make it a macro.
function forms.wgmma_at(mode, from, n, dtype, ending)
  local t, count, is_flat = ptx_type[dtype], tonumber(n) // 2, ending == "_flat"
  local trans, upper = majors[is_flat and "" or ending], uppers[is_flat and "flat" or "tile"]
  if mode ~= "add" and mode ~= "set" or not t or depth[dtype] ~= 16 or not trans then return nil end
  if count < 4 or count > 128 or count % 4 ~= 0 or trans > 1 and from == "rs" then return nil end
  local in_smem = from == "ss"
  local steps = count + (in_smem and 2 or 5) -- the first operand behind d, a and b
  local a, b = in_smem and "da" or "{" .. list("%%%d", 4, count) .. "}", steps - 1
  local set_up = ("add.u32 y, %%%d, %%%d;\nmov.b64 db, {y, %s};"):format(
    b, in_smem and steps + 1 or steps, upper.b)
  if in_smem then
    set_up = ("add.u32 x, %%%d, %%%d;\nmov.b64 da, {x, %s};\n"):format(count, steps, upper.a)
             .. set_up
  end
  local order = (in_smem and (", %d"):format(trans >> 1) or "") .. (", %d"):format(trans & 1)
  local code = ([[
    {
    .reg .b32 x, y;
    .reg .b64 da, db;
    %s
    wgmma.mma_async.sync.aligned.m64n%sk16.f32.%s.%s {%s}, %s, db, %d, 1, 1%s;
    }]]):format(set_up, n, t, t, list("%%%d", count), a, mode == "add" and 1 or 0, order)
  local function wide(word, step, high)
    return ("((u64)%su << 32 | (u32)((%s) + (%s)))"):format(high, word, step)
  end
  local a_params = in_smem and "u32 a, int a_step" or "const u32 *a"
  return {
    name = ("wgmma_%s_%s_n%s_%s%s"):format(mode, from, n, dtype, ending), ret = "void",
    params = "float *d, " .. a_params .. ", u32 b, int b_step", isa = "wgmma.mma_async",
    macro = true,
    call = { "wgmma", n, "EMU_" .. dtype:upper(), tostring(trans), "d", in_smem and "0" or "a",
             in_smem and wide("a", "a_step", upper.a) or "0", wide("b", "b_step", upper.b),
             mode == "add" and "1" or "0" },
    cuda = asm(code, ": " .. list(mode == "add" and '"+f"((d)[%d])' or '"=f"((d)[%d])', count)
                 .. " : " .. (in_smem and '"r"(a)' or list('"r"((a)[%d])', 4)) .. ', "r"(b)'
                 .. (in_smem and ', "n"(a_step)' or "") .. ', "n"(b_step)'):gsub(";$", ""),
  }
end

function forms.touch(kind, n)
  local is_float = kind == "f32"
  return {
    name = "touch_" .. kind .. "x" .. n, ret = "void",
    params = is_float and "float *r" or "u32 *r", isa = "none: a compiler barrier",
    call = { "touch", "r", n },
    cuda = ptx("", ": " .. list(is_float and '"+f"(r[%d])' or '"+r"(r[%d])', tonumber(n)) .. " :"),
  }
end

-- ---- TMA boxes of a rank other than 4, and sums of any rank ----

-- The call of an emulator's member that takes five coordinates: the rest are 0.
local function with_coordinates(call, rank)
  for i = 0, 4 do call[#call + 1] = i < rank and "c" .. i or "0" end
  return call
end

local function tile_load(rank, is_multicast)
  local name = is_multicast and "tma_load_multicast" or "tma_load"
  local call = with_coordinates({ "tma_load_tile", rank, "to", "map", "bar" }, rank)
  call[#call + 1] = "policy"
  call[#call + 1] = is_multicast and "(u16)(blocks)" or "-1"
  local last = 3 + rank
  return {
    name = ("%s_%dd"):format(name, rank), ret = "void", isa = "cp.async.bulk.tensor",
    params = "u32 to, const TensorMap *map, u32 bar, " .. list("int c%d", rank) .. ", u64 policy"
      .. (is_multicast and ", u16 blocks" or ""),
    call = call,
    cuda = ptx(("cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes%s"
                .. ".L2::cache_hint [%%0], [%%1, {%s}], [%%2]%s, %%%d;")
                 :format(rank, is_multicast and ".multicast::cluster" or "",
                         list("%%%d", rank, 3), is_multicast and ", %" .. last or "",
                         last + (is_multicast and 1 or 0)),
               ':: "r"(to), "l"(map), "r"(bar), ' .. list('"r"(c%d)', rank)
                 .. (is_multicast and ', "h"(blocks)' or "") .. ', "l"(policy)'),
  }
end

function forms.tma_load(rank) return rank ~= "4" and tile_load(tonumber(rank), false) or nil end

function forms.tma_load_multicast(rank)
  return rank ~= "4" and tile_load(tonumber(rank), true) or nil
end

local function tile_store(rank, name, opcode, is_sum)
  return {
    name = ("%s_%dd"):format(name, rank), ret = "void", isa = opcode,
    params = "const TensorMap *map, u32 from, " .. list("int c%d", rank), talks = is_sum,
    call = with_coordinates({ "tma_store_tile", rank, is_sum and "1" or "0", "map", "from" }, rank),
    cuda = ptx(("%s.%dd.global.shared::cta%s.bulk_group [%%0, {%s}], [%%1];")
                 :format(opcode, rank, is_sum and ".add.tile" or "", list("%%%d", rank, 2)),
               ':: "l"(map), "r"(from), ' .. list('"r"(c%d)', rank)),
  }
end

function forms.tma_store(rank)
  if rank == "4" then return nil end
  return tile_store(tonumber(rank), "tma_store", "cp.async.bulk.tensor", false)
end

function forms.tma_add(rank)
  return tile_store(tonumber(rank), "tma_add", "cp.reduce.async.bulk.tensor", true)
end

-- ---- sums of bytes in a row ----

local sum_type = { fp32 = "f32", fp16 = "noftz.f16", bf16 = "noftz.bf16" }

function forms.bulk_add(dtype)
  if not sum_type[dtype] then return nil end
  return {
    name = "bulk_add_" .. dtype, ret = "void", params = "void *to, u32 from, u32 bytes",
    isa = "cp.reduce.async.bulk", talks = true,
    call = { "bulk_add", "EMU_" .. dtype:upper(), "to", "from", "bytes" },
    cuda = ptx(("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.%s [%%0], [%%1], %%2;")
                 :format(sum_type[dtype]), ':: "l"(to), "r"(from), "r"(bytes)'),
  }
end

return forms

-- wrappers.lua: the one list of instruction wrappers that kernel text may call.
--
-- Invariant: one row, one instruction (or one CUDA intrinsic); nothing here knows about attention.
-- A row holds
--   name, ret, params   the C signature; shared-memory addresses are u32, arrays of registers
--                       are passed as pointers
--   isa                 where the PTX ISA (or the CUDA C guide) defines it
--   cuda                the body of an inline device function; with macro = true the replacement
--                       of a function-like macro, for operands that PTX wants as immediates
--   emu                 only for pure scalar helpers: the C body on the CPU. All others become
--                       `kiln_emu->name(..., SITE)`
--   talks               true where blocks meet in global memory: the emulator then runs them one
--                       after another
-- or, where the name carries a shape, `pattern` and `make(captures...)`, which returns such a row
-- with `call`: the emulator's member and its arguments; `member` is that member's signature, one
-- for all shapes.
-- The order of the rows is that of the emulator's function table. Read by render.lua, emulator.lua.

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
local function asm(code, operands)
  local lines = literals(code)
  local short = ("asm volatile(%s %s);"):format(lines[1], operands)
  if #lines == 1 and #short <= COLUMNS - 2 then return short end
  for _, line in ipairs(operand_lines(operands)) do lines[#lines + 1] = line end
  return "asm volatile(" .. table.concat(lines, INDENT) .. ");"
end

-- The same with a memory clobber: for what touches memory, a barrier or an asynchronous queue.
local function ptx(code, operands) return asm(code, (operands or "::") .. ' : "memory"') end

-- "form, form, ..." with %d counting from `first`.
local function list(form, count, first)
  local items = {}
  for i = 1, count do items[i] = form:format((first or 0) + i - 1) end
  return table.concat(items, ", ")
end

local OUT_R4 = list('"=r"(r[%d])', 4)
local IN_R4 = list('"r"(r[%d])', 4)

-- ---- rows whose name carries a shape ----

local ptx_type = { bf16 = "bf16", fp16 = "f16" }

local function mma_row(dtype)
  local t = ptx_type[dtype]
  if not t then return nil end
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

-- The operands of wgmma, numbered: d, then a (a descriptor or four registers), b, accumulate. The
-- last immediates tell which operands are MN-major; a in registers has none.
local function wgmma_row(from, n, dtype, trans)
  local t, count = ptx_type[dtype], tonumber(n) // 2
  local is_legal = count >= 4 and count <= 128 and count % 4 == 0 and (trans == "" or trans == "_t")
  if not t or not is_legal then return nil end
  local in_smem, b_major = from == "ss", trans == "_t" and "1" or "0"
  local next_operand = count + (in_smem and 1 or 4)
  local a = in_smem and "%" .. count or "{" .. list("%%%d", 4, count) .. "}"
  local code = ([[
    {
    .reg .pred p;
    setp.ne.b32 p, %%%d, 0;
    wgmma.mma_async.sync.aligned.m64n%sk16.f32.%s.%s {%s}, %s, %%%d, p, 1, 1, %s;
    }]]):format(next_operand + 1, n, t, t, list("%%%d", count), a, next_operand,
                in_smem and "0, " .. b_major or b_major)
  return {
    name = ("wgmma_%s_n%s_%s%s"):format(from, n, dtype, trans), ret = "void",
    params = ("float *d, %s, u64 b, int accumulate"):format(in_smem and "u64 a" or "const u32 *a"),
    isa = "wgmma.mma_async",
    call = { "wgmma", n, "EMU_" .. dtype:upper(), b_major, "d", in_smem and "0" or "a",
             in_smem and "a" or "0", "b", "accumulate" },
    cuda = asm(code, ": " .. list('"+f"(d[%d])', count) .. " : "
                 .. (in_smem and '"l"(a)' or list('"r"(a[%d])', 4)) .. ', "l"(b), "r"(accumulate)'),
  }
end

local function touch_row(kind, n)
  local is_float = kind == "f32"
  return {
    name = "touch_" .. kind .. "x" .. n, ret = "void",
    params = is_float and "float *r" or "u32 *r", isa = "none: a compiler barrier",
    call = { "touch", "r", n },
    cuda = ptx("", ": " .. list(is_float and '"+f"(r[%d])' or '"+r"(r[%d])', tonumber(n)) .. " :"),
  }
end

-- ---- the list ----

local TMA_LOAD = "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"

return {
  -- threads, blocks, warps
  { name = "thread_index", ret = "int", params = "void", isa = "special registers",
    cuda = "return (int)threadIdx.x;" },
  { name = "block_index", ret = "i64", params = "void", isa = "special registers",
    cuda = "return (i64)blockIdx.y * gridDim.x + blockIdx.x;" },
  -- Volatile, so that reading it again is a way not to keep what follows from it in registers.
  { name = "block_index_again", ret = "i64", params = "void", isa = "special registers",
    cuda = "u32 x, y, w;\n  " .. asm([[
      mov.u32 %0, %%ctaid.x;
      mov.u32 %1, %%ctaid.y;
      mov.u32 %2, %%nctaid.x;]], ': "=r"(x), "=r"(y), "=r"(w)') .. "\n  return (i64)y * w + x;" },
  { name = "num_blocks", ret = "i64", params = "void", isa = "special registers",
    cuda = "return (i64)gridDim.x * gridDim.y;" },
  { name = "sync_threads", ret = "void", params = "void", isa = "barrier",
    cuda = "__syncthreads();" },
  { name = "sync_warp", ret = "void", params = "void", isa = "bar.warp.sync",
    cuda = "__syncwarp();" },
  { name = "named_sync", ret = "void", params = "int id, int threads", isa = "barrier",
    cuda = ptx("bar.sync %0, %1;", ':: "r"(id), "r"(threads)') },
  { name = "named_arrive", ret = "void", params = "int id, int threads", isa = "barrier",
    cuda = ptx("bar.arrive %0, %1;", ':: "r"(id), "r"(threads)') },
  { name = "shfl_i32", ret = "int", params = "int x, int lane", isa = "shfl.sync",
    cuda = "return __shfl_sync(0xffffffffu, x, lane);" },
  { name = "shfl_xor_f32", ret = "float", params = "float x, int lanes", isa = "shfl.sync",
    cuda = "return __shfl_xor_sync(0xffffffffu, x, lanes);" },
  { name = "shfl_xor_u32", ret = "u32", params = "u32 x, int lanes", isa = "shfl.sync",
    cuda = "return __shfl_xor_sync(0xffffffffu, x, lanes);" },
  { name = "any_sync", ret = "int", params = "int x", isa = "vote.sync",
    cuda = "return __any_sync(0xffffffffu, x);" },
  { name = "redux_max_i32", ret = "int", params = "int x", isa = "redux.sync",
    cuda = 'int y;\n  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));\n'
      .. "  return y;" },

  -- scalar arithmetic
  { name = "ex2", ret = "float", params = "float x", isa = "ex2.approx.ftz.f32",
    cuda = 'float y;\n  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));\n  return y;',
    emu = "float y = exp2f(x); return y < 1.17549435e-38f ? 0.f : y;" },
  { name = "lg2", ret = "float", params = "float x", isa = "lg2.approx.ftz.f32",
    cuda = 'float y;\n  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));\n  return y;',
    emu = "return log2f(fabsf(x) < 1.17549435e-38f ? 0.f : x);" },
  { name = "pack_bf16", ret = "u32", params = "float lo, float hi", isa = "cvt.rn.bf16x2.f32",
    cuda = 'u32 r;\n  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));\n'
      .. "  return r;",
    emu = "return emu_bf16(lo) | emu_bf16(hi) << 16;" },
  { name = "pack_fp16", ret = "u32", params = "float lo, float hi", isa = "cvt.rn.f16x2.f32",
    cuda = 'u32 r;\n  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));\n'
      .. "  return r;",
    emu = "return emu_fp16(lo) | emu_fp16(hi) << 16;" },

  -- shared memory, generic proxy
  -- The dynamic shared memory starts on a multiple of 1024 bytes, where the 128-byte swizzle of TMA
  -- and wgmma begins anew.
  { name = "shared_base", ret = "u32", params = "void", isa = "cvta.to.shared",
    cuda = "extern __shared__ __align__(1024) unsigned char shared_bytes[];\n"
      .. "  return (u32)__cvta_generic_to_shared(shared_bytes);" },
  { name = "lds_i32", ret = "int", params = "u32 at", isa = "ld.shared",
    cuda = "int x;\n  " .. ptx("ld.volatile.shared.s32 %0, [%1];", ': "=r"(x) : "r"(at)')
      .. "\n  return x;" },
  { name = "sts_i32", ret = "void", params = "u32 at, int x", isa = "st.shared",
    cuda = ptx("st.volatile.shared.s32 [%0], %1;", ':: "r"(at), "r"(x)') },
  { name = "lds_f32", ret = "float", params = "u32 at", isa = "ld.shared",
    cuda = "float x;\n  " .. ptx("ld.volatile.shared.f32 %0, [%1];", ': "=f"(x) : "r"(at)')
      .. "\n  return x;" },
  { name = "sts_f32", ret = "void", params = "u32 at, float x", isa = "st.shared",
    cuda = ptx("st.volatile.shared.f32 [%0], %1;", ':: "r"(at), "f"(x)') },
  { name = "sts_u32", ret = "void", params = "u32 at, u32 x", isa = "st.shared",
    cuda = ptx("st.shared.b32 [%0], %1;", ':: "r"(at), "r"(x)') },
  { name = "lds_u32x4", ret = "void", params = "u32 *r, u32 at", isa = "ld.shared",
    cuda = ptx("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];", ": " .. OUT_R4 .. ' : "r"(at)') },
  -- Flags that are raced on purpose: one 32-bit word, no order with anything else.
  { name = "lds_flag", ret = "int", params = "u32 at", isa = "ld.relaxed.cta.shared",
    cuda = "int x;\n  " .. ptx("ld.relaxed.cta.shared.s32 %0, [%1];", ': "=r"(x) : "r"(at)')
      .. "\n  return x;" },
  { name = "sts_flag", ret = "void", params = "u32 at, int x", isa = "st.relaxed.cta.shared",
    cuda = ptx("st.relaxed.cta.shared.s32 [%0], %1;", ':: "r"(at), "r"(x)') },
  { name = "ldmatrix_x4", ret = "void", params = "u32 *r, u32 at", isa = "ldmatrix",
    cuda = ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];",
               ": " .. OUT_R4 .. ' : "r"(at)') },
  { name = "ldmatrix_x4_trans", ret = "void", params = "u32 *r, u32 at", isa = "ldmatrix",
    cuda = ptx("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];",
               ": " .. OUT_R4 .. ' : "r"(at)') },
  { name = "stmatrix_x4", ret = "void", params = "u32 at, const u32 *r", isa = "stmatrix",
    cuda = ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};",
               ':: "r"(at), ' .. IN_R4) },

  -- global memory
  { name = "ldg_f32", ret = "float", params = "const float *p", isa = "ld.global",
    cuda = "return *p;" },
  { name = "stg_f32", ret = "void", params = "float *p, float x", isa = "st.global",
    cuda = "*p = x;" },
  { name = "ldg_u16", ret = "u32", params = "const u16 *p", isa = "ld.global",
    cuda = "return *p;" },
  { name = "stg_u16", ret = "void", params = "u16 *p, u32 x", isa = "st.global",
    cuda = "*p = (u16)x;" },
  { name = "stg_u32", ret = "void", params = "void *p, u32 x", isa = "st.global",
    cuda = "*(u32 *)p = x;" },
  { name = "ldg_u32x4", ret = "void", params = "u32 *r, const void *p", isa = "ld.global",
    cuda = ptx("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];", ": " .. OUT_R4 .. ' : "l"(p)') },
  { name = "stg_u32x4", ret = "void", params = "void *p, const u32 *r", isa = "st.global",
    cuda = ptx("st.global.v4.b32 [%0], {%1, %2, %3, %4};", ':: "l"(p), ' .. IN_R4) },
  { name = "atomic_add_u64", ret = "u64", params = "u64 *p, u64 x", isa = "atom.global",
    talks = true, cuda = "return atomicAdd((unsigned long long *)p, (unsigned long long)x);" },

  -- atomics in global memory, at the scope of the device. Those without a word on order have none.
  { name = "atomic_add_u32", ret = "u32", params = "u32 *p, u32 x", isa = "atom.global",
    talks = true, cuda = "return atomicAdd(p, x);" },
  { name = "atomic_inc_u32", ret = "u32", params = "u32 *p, u32 last", isa = "atom.global",
    talks = true, cuda = "return atomicInc(p, last);" },
  { name = "atomic_exch_u32", ret = "u32", params = "u32 *p, u32 x", isa = "atom.global",
    talks = true, cuda = "return atomicExch(p, x);" },
  { name = "atomic_cas_u32", ret = "u32", params = "u32 *p, u32 expected, u32 x",
    isa = "atom.global", talks = true, cuda = "return atomicCAS(p, expected, x);" },
  { name = "atomic_max_i32", ret = "int", params = "int *p, int x", isa = "atom.global",
    talks = true, cuda = "return atomicMax(p, x);" },
  { name = "atomic_add_f32", ret = "float", params = "float *p, float x", isa = "atom.global",
    talks = true, cuda = "return atomicAdd(p, x);" },
  { name = "atomic_add_u32_acq_rel", ret = "u32", params = "u32 *p, u32 x", isa = "atom.global",
    talks = true,
    cuda = "u32 y;\n  " .. ptx("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;",
                               ': "=r"(y) : "l"(p), "r"(x)') .. "\n  return y;" },
  { name = "red_add_f32", ret = "void", params = "float *p, float x", isa = "red.global",
    talks = true, cuda = ptx("red.relaxed.gpu.global.add.f32 [%0], %1;", ':: "l"(p), "f"(x)') },
  { name = "red_add_f32x2", ret = "void", params = "float *p, const float *x", isa = "red.global",
    talks = true, cuda = ptx("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};",
                             ':: "l"(p), "f"(x[0]), "f"(x[1])') },
  { name = "red_add_f32x4", ret = "void", params = "float *p, const float *x", isa = "red.global",
    talks = true, cuda = ptx("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};",
                             ':: "l"(p), ' .. list('"f"(x[%d])', 4)) },
  -- Semaphores in global memory: what a thread wrote before it releases is there for the one that
  -- has acquired the value.
  { name = "ldg_acquire_u32", ret = "u32", params = "const u32 *p", isa = "ld.acquire",
    talks = true,
    cuda = "u32 x;\n  " .. ptx("ld.acquire.gpu.global.u32 %0, [%1];", ': "=r"(x) : "l"(p)')
      .. "\n  return x;" },
  { name = "stg_release_u32", ret = "void", params = "u32 *p, u32 x", isa = "st.release",
    talks = true, cuda = ptx("st.release.gpu.global.u32 [%0], %1;", ':: "l"(p), "r"(x)') },
  { name = "red_add_u32_release", ret = "void", params = "u32 *p, u32 x", isa = "red.global",
    talks = true, cuda = ptx("red.release.gpu.global.add.u32 [%0], %1;", ':: "l"(p), "r"(x)') },
  { name = "semaphore_wait", ret = "void", params = "const u32 *p, u32 value", isa = "ld.acquire",
    talks = true,
    cuda = ptx([[
      {
      .reg .pred p;
      .reg .b32 x;
      L_try:
      ld.acquire.gpu.global.u32 x, [%0];
      setp.eq.u32 p, x, %1;
      @p bra L_done;
      bra L_try;
      L_done:
      }]], ':: "l"(p), "r"(value)') },
  { name = "fence_gpu", ret = "void", params = "void", isa = "fence",
    cuda = ptx("fence.acq_rel.gpu;") },

  -- cp.async (sm_80): bytes, 0 to 16, are read; the rest of the 16 is written as zero
  { name = "cp_async_16", ret = "void", params = "u32 to, const void *from, int bytes",
    isa = "cp.async",
    cuda = ptx("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;",
               ':: "r"(to), "l"(from), "r"(bytes)') },
  { name = "cp_async_commit", ret = "void", params = "void", isa = "cp.async.commit_group",
    cuda = ptx("cp.async.commit_group;") },
  { name = "cp_async_wait", ret = "void", params = "int pending", isa = "cp.async.wait_group",
    macro = true, cuda = 'asm volatile("cp.async.wait_group " #pending ";" ::: "memory")' },

  -- mma.sync (sm_80): d (16 x 8, fp32) += a (16 x 16) . b (16 x 8); fragments: docs/layouts.md
  { pattern = "^mma_m16n8k16_(%w+)$", make = mma_row,
    member = { name = "mma_m16n8k16", ret = "void",
               params = "int dtype, float *d, const u32 *a, const u32 *b" } },

  -- mbarrier (sm_90)
  { name = "bar_init", ret = "void", params = "u32 bar, u32 arrivals", isa = "mbarrier.init",
    cuda = ptx("mbarrier.init.shared::cta.b64 [%0], %1;", ':: "r"(bar), "r"(arrivals)') },
  { name = "fence_bar_init", ret = "void", params = "void", isa = "fence.mbarrier_init",
    cuda = ptx("fence.mbarrier_init.release.cluster;") },
  { name = "bar_expect", ret = "void", params = "u32 bar, u32 bytes", isa = "mbarrier.arrive",
    cuda = ptx("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
               ':: "r"(bar), "r"(bytes)') },
  { name = "bar_arrive", ret = "void", params = "u32 bar", isa = "mbarrier.arrive",
    cuda = ptx("mbarrier.arrive.shared::cta.b64 _, [%0];", ':: "r"(bar)') },
  { name = "bar_arrive_peer", ret = "void", params = "u32 bar, u32 block",
    isa = "mapa; mbarrier.arrive",
    cuda = ptx([[
      {
      .reg .b32 a;
      mapa.shared::cluster.u32 a, %0, %1;
      mbarrier.arrive.shared::cluster.b64 _, [a];
      }]], ':: "r"(bar), "r"(block)') },
  { name = "bar_wait", ret = "void", params = "u32 bar, u32 parity", isa = "mbarrier.try_wait",
    cuda = ptx([[
      {
      .reg .pred p;
      L_try:
      mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;
      @p bra L_done;
      bra L_try;
      L_done:
      }]], ':: "r"(bar), "r"(parity)') },

  -- TMA (sm_90)
  { name = "tma_load", ret = "void", isa = "cp.async.bulk.tensor",
    params = "u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, "
      .. "u64 policy",
    cuda = ptx(TMA_LOAD .. ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;",
               ':: "r"(to), "l"(map), "r"(bar), "r"(col), "r"(row), "r"(head), "r"(batch), '
                 .. '"l"(policy)') },
  { name = "tma_load_multicast", ret = "void", isa = "cp.async.bulk.tensor",
    params = "u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, "
      .. "u64 policy, u16 blocks",
    cuda = ptx(TMA_LOAD .. ".multicast::cluster.L2::cache_hint "
                 .. "[%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;",
               ':: "r"(to), "l"(map), "r"(bar), "r"(col), "r"(row), "r"(head), "r"(batch), '
                 .. '"h"(blocks), "l"(policy)') },
  { name = "tma_store", ret = "void", isa = "cp.async.bulk.tensor",
    params = "const TensorMap *map, u32 from, int col, int row, int head, int batch",
    cuda = ptx("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group "
                 .. "[%0, {%2, %3, %4, %5}], [%1];",
               ':: "l"(map), "r"(from), "r"(col), "r"(row), "r"(head), "r"(batch)') },
  { name = "tma_prefetch_map", ret = "void", params = "const TensorMap *map",
    isa = "prefetch.tensormap", cuda = ptx("prefetch.tensormap [%0];", ':: "l"(map)') },
  { name = "bulk_commit", ret = "void", params = "void", isa = "cp.async.bulk.commit_group",
    cuda = ptx("cp.async.bulk.commit_group;") },
  { name = "bulk_wait", ret = "void", params = "int pending", isa = "cp.async.bulk.wait_group",
    macro = true, cuda = 'asm volatile("cp.async.bulk.wait_group " #pending ";" ::: "memory")' },
  { name = "bulk_wait_read", ret = "void", params = "int pending", isa = "cp.async.bulk.wait_group",
    macro = true,
    cuda = 'asm volatile("cp.async.bulk.wait_group.read " #pending ";" ::: "memory")' },
  { name = "fence_async", ret = "void", params = "void", isa = "fence.proxy.async",
    cuda = ptx("fence.proxy.async.shared::cta;") },

  -- clusters, register pool (sm_90)
  { name = "cluster_sync", ret = "void", params = "void", isa = "barrier.cluster",
    cuda = ptx([[
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;]]) },
  { name = "cluster_rank", ret = "u32", params = "void", isa = "special registers",
    cuda = 'u32 r;\n  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));\n  return r;' },
  { name = "reg_dec", ret = "void", params = "int count", isa = "setmaxnreg",
    macro = true, cuda = 'asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(count))' },
  { name = "reg_inc", ret = "void", params = "int count", isa = "setmaxnreg",
    macro = true, cuda = 'asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(count))' },

  -- wgmma (sm_90a)
  { name = "wgmma_fence", ret = "void", params = "void", isa = "wgmma.fence",
    cuda = ptx("wgmma.fence.sync.aligned;") },
  { name = "wgmma_commit", ret = "void", params = "void", isa = "wgmma.commit_group",
    cuda = ptx("wgmma.commit_group.sync.aligned;") },
  { name = "wgmma_wait", ret = "void", params = "int pending", isa = "wgmma.wait_group",
    macro = true,
    cuda = 'asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")' },
  -- wgmma_<A>_n<N>_<dtype>[_t]: d (64 x N, fp32) = a (64 x 16) . b (16 x N), + d unless accumulate
  -- is 0.  A = ss: from shared memory by descriptor, K-major; rs: from registers.  _t: b is
  -- MN-major, a row-major (k, n) tile; otherwise K-major, a row-major (n, k) tile.
  { pattern = "^wgmma_([rs]s)_n(%d+)_(%w+)(_?t?)$", make = wgmma_row,
    member = { name = "wgmma", ret = "void",
               params = "int n, int dtype, int trans, float *d, const u32 *registers, u64 a, "
                 .. "u64 b, int accumulate" } },
  -- A barrier for the compiler: nothing that uses these registers moves across. The emulator checks
  -- here that no wgmma in flight owns them.
  { pattern = "^touch_([fu]32)x(%d+)$", make = touch_row,
    member = { name = "touch", ret = "void", params = "const void *registers, int count" } },
}

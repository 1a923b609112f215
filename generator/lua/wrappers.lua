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
--   talks               true where blocks meet in global memory: the emulator then runs them in
--                       turns on one host thread
-- or, where the name carries a shape, `pattern` and `make(captures...)`, which returns such a row
-- with `call`: the emulator's member and its arguments; `member` is that member's signature, one
-- for all shapes; `member_of` names a member that another row has.
-- The order of the rows is that of the emulator's function table. Read by render.lua, emulator.lua.
local forms = require("wrapper_forms")
local asm, ptx, list = forms.asm, forms.ptx, forms.list
local OUT_R4, IN_R4 = forms.OUT_R4, forms.IN_R4

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
  { pattern = "^redux_(%l+)_([iu]32)$", make = forms.redux,
    member = { name = "redux", ret = "u32", params = "int op, int is_signed, u32 x" } },
  { name = "shfl_f32", ret = "float", params = "float x, int lane", isa = "shfl.sync",
    cuda = "return __shfl_sync(0xffffffffu, x, lane);" },
  { name = "shfl_up_i32", ret = "int", params = "int x, int lanes", isa = "shfl.sync",
    cuda = "return __shfl_up_sync(0xffffffffu, x, lanes);" },
  { name = "shfl_down_i32", ret = "int", params = "int x, int lanes", isa = "shfl.sync",
    cuda = "return __shfl_down_sync(0xffffffffu, x, lanes);" },
  { name = "all_sync", ret = "int", params = "int x", isa = "vote.sync",
    cuda = "return __all_sync(0xffffffffu, x);" },
  { name = "ballot_sync", ret = "u32", params = "int x", isa = "vote.sync",
    cuda = "return __ballot_sync(0xffffffffu, x);" },
  -- 1 in one lane of the warp, always the same, which need not be lane 0.
  { name = "elect_one", ret = "int", params = "void", isa = "elect.sync",
    cuda = "int x;\n  " .. asm([[
      {
      .reg .pred p;
      elect.sync _|p, 0xffffffff;
      selp.b32 %0, 1, 0, p;
      }]], ': "=r"(x)') .. "\n  return x;" },

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
  -- Two e4m3 numbers in the lower half; what is too large becomes 448.
  { name = "pack_e4m3", ret = "u32", params = "float lo, float hi",
    isa = "cvt.rn.satfinite.e4m3x2.f32",
    cuda = "u16 r;\n  "
      .. 'asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));\n'
      .. "  return r;",
    emu = "return emu_e4m3(lo) | emu_e4m3(hi) << 8;" },
  { name = "unpack_fp16", ret = "float", params = "u32 x", isa = "cvt.f32.f16",
    cuda = 'float y;\n  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((u16)x));\n  return y;',
    emu = "return emu_wide_fp16(x & 0xffff);" },
  { name = "unpack_bf16", ret = "float", params = "u32 x", isa = "mov.b32",
    cuda = "return __uint_as_float(x << 16);", emu = "return emu_float(x << 16);" },
  { name = "as_float", ret = "float", params = "u32 x", isa = "mov.b32",
    cuda = "return __uint_as_float(x);", emu = "return emu_float(x);" },
  { name = "as_u32", ret = "u32", params = "float x", isa = "mov.b32",
    cuda = "return __float_as_uint(x);", emu = "return emu_bits(x);" },
  { name = "tanh_approx", ret = "float", params = "float x", isa = "tanh.approx.f32",
    cuda = 'float y;\n  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));\n  return y;',
    emu = "return tanhf(x);" },
  -- Four of the eight bytes of x (0 to 3) and y (4 to 7), by the nibbles of the selector.
  { name = "byte_perm", ret = "u32", params = "u32 x, u32 y, u32 selector", isa = "prmt",
    cuda = "return __byte_perm(x, y, selector);",
    emu = "const u64 all = (u64)y << 32 | x;\n  u32 r = 0;\n"
      .. "  for (int i = 0; i < 4; i++)\n"
      .. "    r |= (u32)(all >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;\n  return r;" },

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
  { name = "stmatrix_x4_trans", ret = "void", params = "u32 at, const u32 *r", isa = "stmatrix",
    cuda = ptx("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};",
               ':: "r"(at), ' .. IN_R4) },
  { name = "sts_u32x4", ret = "void", params = "u32 at, const u32 *r", isa = "st.shared",
    cuda = ptx("st.shared.v4.b32 [%0], {%1, %2, %3, %4};", ':: "r"(at), ' .. IN_R4) },
  -- Atomics in shared memory, without order.
  { name = "atomic_shared_add_u32", ret = "u32", params = "u32 at, u32 x", isa = "atom.shared",
    cuda = "u32 y;\n  " .. ptx("atom.shared.add.u32 %0, [%1], %2;",
                               ': "=r"(y) : "r"(at), "r"(x)') .. "\n  return y;" },
  { name = "atomic_shared_max_i32", ret = "int", params = "u32 at, int x", isa = "atom.shared",
    cuda = "int y;\n  " .. ptx("atom.shared.max.s32 %0, [%1], %2;",
                               ': "=r"(y) : "r"(at), "r"(x)') .. "\n  return y;" },
  { name = "atomic_shared_add_f32", ret = "float", params = "u32 at, float x", isa = "atom.shared",
    cuda = "float y;\n  " .. ptx("atom.shared.add.f32 %0, [%1], %2;",
                                 ': "=f"(y) : "r"(at), "f"(x)') .. "\n  return y;" },

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
  { pattern = "^mma_m16n8k16_(%w+)$", make = forms.mma,
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
  -- 1 when the phase is complete; it may also fail for no reason.
  { name = "bar_try", ret = "int", params = "u32 bar, u32 parity", isa = "mbarrier.try_wait",
    cuda = "int x;\n  " .. ptx([[
      {
      .reg .pred p;
      mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;
      selp.b32 %0, 1, 0, p;
      }]], ': "=r"(x) : "r"(bar), "r"(parity)') .. "\n  return x;" },

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
  -- Boxes of other ranks: tma_load_2d and so on; c0 is the column. tma_add: the map's numbers grow.
  { pattern = "^tma_load_([1-5])d$", make = forms.tma_load,
    member = { name = "tma_load_tile", ret = "void",
               params = "int rank, u32 to, const TensorMap *map, u32 bar, "
                 .. list("int c%d", 5) .. ", u64 policy, int blocks" } },
  { pattern = "^tma_load_multicast_([1-5])d$", make = forms.tma_load_multicast,
    member_of = "tma_load_tile" },
  { pattern = "^tma_store_([1-5])d$", make = forms.tma_store,
    member = { name = "tma_store_tile", ret = "void",
               params = "int rank, int add, const TensorMap *map, u32 from, "
                 .. list("int c%d", 5) } },
  { pattern = "^tma_add_([1-5])d$", make = forms.tma_add, member_of = "tma_store_tile" },
  -- Bytes in a row, without a tensor map: multiples of 16 at multiples of 16.
  { name = "bulk_load", ret = "void", isa = "cp.async.bulk",
    params = "u32 to, const void *from, u32 bytes, u32 bar, u64 policy",
    cuda = ptx("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 .. "[%0], [%1], %2, [%3], %4;",
               ':: "r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy)') },
  { name = "bulk_store", ret = "void", params = "void *to, u32 from, u32 bytes",
    isa = "cp.async.bulk",
    cuda = ptx("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;",
               ':: "l"(to), "r"(from), "r"(bytes)') },
  -- To the same or another block of the cluster, whose mbarrier counts the bytes.
  { name = "bulk_copy_peer", ret = "void",
    params = "u32 to, u32 from, u32 bytes, u32 bar, u32 block", isa = "mapa; cp.async.bulk",
    cuda = ptx([[
      {
      .reg .b32 d, m;
      mapa.shared::cluster.u32 d, %0, %4;
      mapa.shared::cluster.u32 m, %3, %4;
      cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [d], [%1], %2, [m];
      }]], ':: "r"(to), "r"(from), "r"(bytes), "r"(bar), "r"(block)') },
  { pattern = "^bulk_add_(%w+)$", make = forms.bulk_add,
    member = { name = "bulk_add", ret = "void",
               params = "int dtype, void *to, u32 from, u32 bytes" } },
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
  { name = "fence_async_global", ret = "void", params = "void", isa = "fence.proxy.async",
    cuda = ptx("fence.proxy.async.global;") },

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

  -- a grid behind another in one stream (sm_90)
  { name = "grid_wait", ret = "void", params = "void", isa = "griddepcontrol",
    cuda = ptx("griddepcontrol.wait;") },
  { name = "grid_launch_dependents", ret = "void", params = "void", isa = "griddepcontrol",
    cuda = ptx("griddepcontrol.launch_dependents;") },

  -- wgmma (sm_90a)
  { name = "wgmma_fence", ret = "void", params = "void", isa = "wgmma.fence",
    cuda = ptx("wgmma.fence.sync.aligned;") },
  { name = "wgmma_commit", ret = "void", params = "void", isa = "wgmma.commit_group",
    cuda = ptx("wgmma.commit_group.sync.aligned;") },
  { name = "wgmma_wait", ret = "void", params = "int pending", isa = "wgmma.wait_group",
    macro = true,
    cuda = 'asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")' },
  -- wgmma_<A>_n<N>_<dtype>[_t|_ta|_tab]: d (64 x N, fp32) = a (64 x K) . b (K x N), + d unless
  -- accumulate is 0; K is 16, or 32 of e4m3. A = ss: from shared memory by descriptor; rs: from
  -- registers. Operands in shared memory are K-major, a row-major (n, k) or (m, k) tile. _t: b is
  -- MN-major, a row-major (k, n) tile; _ta: a is; _tab: both are.
  { pattern = "^wgmma_([rs]s)_n(%d+)_(%w+)(_?%l*)$", make = forms.wgmma,
    member = { name = "wgmma", ret = "void",
               params = "int n, int dtype, int major, float *d, const u32 *registers, u64 a, "
                 .. "u64 b, int accumulate" } },
  -- wgmma_add_... and wgmma_set_...: the same by the lower words of descriptors of tiles with the
  -- 128-byte swizzle and offsets from them, in units of 16 bytes; set overwrites d. _flat: of rows
  -- of 16 bytes.
  { pattern = "^wgmma_(%l+)_([rs]s)_n(%d+)_(%w+)(_?%l*)$", make = forms.wgmma_at,
    member_of = "wgmma" },
  -- A barrier for the compiler: nothing that uses these registers moves across. It stands behind
  -- every wgmma_wait for the registers that are used next; in the emulator the results appear here.
  { pattern = "^touch_([fu]32)x(%d+)$", make = forms.touch,
    member = { name = "touch", ret = "void", params = "const void *registers, int count" } },
}

-- wrappers.lua: the one list of instruction wrappers that kernel text may call.
--
-- Invariant: one row, one instruction (or one CUDA intrinsic); nothing here knows about attention. A row holds
--   name, ret, params   the C signature; shared-memory addresses are u32, registers arrays are passed as pointers
--   cuda                the body of a `static __device__ __forceinline__` function; with macro = true the replacement of a
--                       function-like macro (for operands that PTX wants as immediates)
--   emu                 only for pure scalar helpers: the C body on the CPU. All others become `kiln_emu->name(..., SITE)`
--   isa                 where the PTX ISA (or the CUDA C guide) defines it
--   talks               true where blocks meet in global memory: the emulator then runs them one after another
-- or, where the name carries a shape, `pattern` and `make(captures...)`, which returns such a row with `call`: the
-- emulator's member and its arguments; `member` is that member's signature, one for all shapes.

local rows = {}
local function row(r) rows[#rows + 1] = r end

-- asm volatile with a memory clobber: everything that touches memory, a barrier or an asynchronous queue
local function ptx(text, operands) return ('asm volatile("%s" %s : "memory");'):format(text, operands or "::") end

---- threads, blocks, warps --------------------------------------------------------------------------------------------
row { name = "thread_index", ret = "int", params = "void", cuda = "return (int)threadIdx.x;", isa = "special registers" }
-- Volatile, so that reading it again is a way not to keep what follows from it in registers.
row { name = "block_index", ret = "i64", params = "void", isa = "special registers",
      cuda = 'u32 x, y, w; asm volatile("mov.u32 %0, %%ctaid.x;\\nmov.u32 %1, %%ctaid.y;\\nmov.u32 %2, %%nctaid.x;" '
        .. ': "=r"(x), "=r"(y), "=r"(w)); return (i64)y * w + x;' }
row { name = "num_blocks", ret = "i64", params = "void", cuda = "return (i64)gridDim.x * gridDim.y;", isa = "special registers" }
row { name = "sync_threads", ret = "void", params = "void", cuda = "__syncthreads();", isa = "barrier" }
row { name = "sync_warp", ret = "void", params = "void", cuda = "__syncwarp();", isa = "bar.warp.sync" }
row { name = "named_sync", ret = "void", params = "int id, int threads",
      cuda = ptx("bar.sync %0, %1;", ':: "r"(id), "r"(threads)'), isa = "barrier" }
row { name = "named_arrive", ret = "void", params = "int id, int threads",
      cuda = ptx("bar.arrive %0, %1;", ':: "r"(id), "r"(threads)'), isa = "barrier" }
row { name = "shfl_i32", ret = "int", params = "int x, int lane",
      cuda = "return __shfl_sync(0xffffffffu, x, lane);", isa = "shfl.sync" }
row { name = "shfl_xor_f32", ret = "float", params = "float x, int lanes",
      cuda = "return __shfl_xor_sync(0xffffffffu, x, lanes);", isa = "shfl.sync" }
row { name = "any_sync", ret = "int", params = "int x", cuda = "return __any_sync(0xffffffffu, x);", isa = "vote.sync" }
row { name = "redux_max_i32", ret = "int", params = "int x",
      cuda = 'int y; asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x)); return y;', isa = "redux.sync" }

---- scalar arithmetic -------------------------------------------------------------------------------------------------
row { name = "ex2", ret = "float", params = "float x", isa = "ex2.approx.ftz.f32",
      cuda = 'float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y;',
      emu = "float y = exp2f(x); return y < 1.17549435e-38f ? 0.f : y;" }
row { name = "lg2", ret = "float", params = "float x", isa = "lg2.approx.ftz.f32",
      cuda = 'float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y;', emu = "return log2f(x);" }
row { name = "pack_bf16", ret = "u32", params = "float lo, float hi", isa = "cvt.rn.bf16x2.f32",
      cuda = 'u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r;',
      emu = "return emu_bf16(lo) | emu_bf16(hi) << 16;" }
row { name = "pack_fp16", ret = "u32", params = "float lo, float hi", isa = "cvt.rn.f16x2.f32",
      cuda = 'u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r;',
      emu = "return emu_fp16(lo) | emu_fp16(hi) << 16;" }

---- shared memory, generic proxy --------------------------------------------------------------------------------------
-- The dynamic shared memory starts on a multiple of 1024: the 128-byte swizzle of TMA and wgmma repeats every 1024 bytes.
row { name = "shared_base", ret = "u32", params = "void", isa = "cvta.to.shared",
      cuda = "extern __shared__ __align__(1024) unsigned char shared_bytes[]; return (u32)__cvta_generic_to_shared(shared_bytes);" }
row { name = "lds_i32", ret = "int", params = "u32 at", isa = "ld.shared",
      cuda = 'int x; asm volatile("ld.volatile.shared.s32 %0, [%1];" : "=r"(x) : "r"(at) : "memory"); return x;' }
row { name = "sts_i32", ret = "void", params = "u32 at, int x", isa = "st.shared",
      cuda = ptx("st.volatile.shared.s32 [%0], %1;", ':: "r"(at), "r"(x)') }
row { name = "lds_f32", ret = "float", params = "u32 at", isa = "ld.shared",
      cuda = 'float x; asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory"); return x;' }
row { name = "sts_f32", ret = "void", params = "u32 at, float x", isa = "st.shared",
      cuda = ptx("st.volatile.shared.f32 [%0], %1;", ':: "r"(at), "f"(x)') }
row { name = "sts_u32", ret = "void", params = "u32 at, u32 x", isa = "st.shared",
      cuda = ptx("st.shared.b32 [%0], %1;", ':: "r"(at), "r"(x)') }
row { name = "lds_u32x4", ret = "void", params = "u32 *r, u32 at", isa = "ld.shared",
      cuda = ptx("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];", ': "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at)') }
-- Flags that are raced on purpose: one 32-bit word, no order with anything else.
row { name = "lds_flag", ret = "int", params = "u32 at", isa = "ld.relaxed.cta.shared",
      cuda = 'int x; asm volatile("ld.relaxed.cta.shared.s32 %0, [%1];" : "=r"(x) : "r"(at) : "memory"); return x;' }
row { name = "sts_flag", ret = "void", params = "u32 at, int x", isa = "st.relaxed.cta.shared",
      cuda = ptx("st.relaxed.cta.shared.s32 [%0], %1;", ':: "r"(at), "r"(x)') }
row { name = "ldmatrix_x4", ret = "void", params = "u32 *r, u32 at", isa = "ldmatrix",
      cuda = ptx("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];",
                 ': "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at)') }
row { name = "ldmatrix_x4_trans", ret = "void", params = "u32 *r, u32 at", isa = "ldmatrix",
      cuda = ptx("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];",
                 ': "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at)') }
row { name = "stmatrix_x4", ret = "void", params = "u32 at, const u32 *r", isa = "stmatrix",
      cuda = ptx("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};",
                 ':: "r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])') }

---- global memory -----------------------------------------------------------------------------------------------------
row { name = "ldg_f32", ret = "float", params = "const float *p", cuda = "return *p;", isa = "ld.global" }
row { name = "stg_f32", ret = "void", params = "float *p, float x", cuda = "*p = x;", isa = "st.global" }
row { name = "ldg_u16", ret = "u32", params = "const u16 *p", cuda = "return *p;", isa = "ld.global" }
row { name = "stg_u16", ret = "void", params = "u16 *p, u32 x", cuda = "*p = (u16)x;", isa = "st.global" }
row { name = "stg_u32", ret = "void", params = "void *p, u32 x", cuda = "*(u32 *)p = x;", isa = "st.global" }
row { name = "ldg_u32x4", ret = "void", params = "u32 *r, const void *p", isa = "ld.global",
      cuda = ptx("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];", ': "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(p)') }
row { name = "stg_u32x4", ret = "void", params = "void *p, const u32 *r", isa = "st.global",
      cuda = ptx("st.global.v4.b32 [%0], {%1, %2, %3, %4};", ':: "l"(p), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])') }
row { name = "atomic_add_u64", ret = "u64", params = "u64 *p, u64 x", isa = "atom.global", talks = true,
      cuda = "return atomicAdd((unsigned long long *)p, (unsigned long long)x);" }

---- cp.async (sm_80) --------------------------------------------------------------------------------------------------
-- bytes: 0 to 16 are read, the rest of the 16 is written as zero.
row { name = "cp_async_16", ret = "void", params = "u32 to, const void *from, int bytes", isa = "cp.async",
      cuda = ptx("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;", ':: "r"(to), "l"(from), "r"(bytes)') }
row { name = "cp_async_commit", ret = "void", params = "void", cuda = ptx("cp.async.commit_group;"), isa = "cp.async.commit_group" }
row { name = "cp_async_wait", ret = "void", params = "int pending", macro = true, isa = "cp.async.wait_group",
      cuda = 'asm volatile("cp.async.wait_group " #pending ";" ::: "memory")' }

---- mma.sync (sm_80) --------------------------------------------------------------------------------------------------
-- d (16 x 8, fp32) += a (16 x 16) . b (16 x 8); fragments as in docs/layouts.md
row { pattern = "^mma_m16n8k16_(%w+)$",
  member = { name = "mma_m16n8k16", ret = "void", params = "int dtype, float *d, const u32 *a, const u32 *b" },
  make = function(dtype)
  local t = ({ bf16 = "bf16", fp16 = "f16" })[dtype]
  return t and { name = "mma_m16n8k16_" .. dtype, ret = "void", params = "float *d, const u32 *a, const u32 *b", isa = "mma.sync",
    call = { "mma_m16n8k16", "EMU_" .. dtype:upper(), "d", "a", "b" },
    cuda = ('asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%%0, %%1, %%2, %%3}, {%%4, %%5, %%6, %%7}, {%%8, %%9}, {%%0, %%1, %%2, %%3};" '
      .. ': "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));'):format(t, t) }
end }

---- mbarrier (sm_90) --------------------------------------------------------------------------------------------------
row { name = "bar_init", ret = "void", params = "u32 bar, u32 arrivals", isa = "mbarrier.init",
      cuda = ptx("mbarrier.init.shared::cta.b64 [%0], %1;", ':: "r"(bar), "r"(arrivals)') }
row { name = "fence_bar_init", ret = "void", params = "void", cuda = ptx("fence.mbarrier_init.release.cluster;"), isa = "fence.mbarrier_init" }
row { name = "bar_expect", ret = "void", params = "u32 bar, u32 bytes", isa = "mbarrier.arrive",
      cuda = ptx("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", ':: "r"(bar), "r"(bytes)') }
row { name = "bar_arrive", ret = "void", params = "u32 bar", isa = "mbarrier.arrive",
      cuda = ptx("mbarrier.arrive.shared::cta.b64 _, [%0];", ':: "r"(bar)') }
row { name = "bar_arrive_peer", ret = "void", params = "u32 bar, u32 block", isa = "mapa; mbarrier.arrive",
      cuda = ptx("{\\n.reg .b32 a;\\nmapa.shared::cluster.u32 a, %0, %1;\\nmbarrier.arrive.shared::cluster.b64 _, [a];\\n}", ':: "r"(bar), "r"(block)') }
row { name = "bar_wait", ret = "void", params = "u32 bar, u32 parity", isa = "mbarrier.try_wait",
      cuda = ptx("{\\n.reg .pred p;\\nL_try:\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n@p bra L_done;\\nbra L_try;\\nL_done:\\n}",
                 ':: "r"(bar), "r"(parity)') }

---- TMA (sm_90) -------------------------------------------------------------------------------------------------------
row { name = "tma_load", ret = "void", params = "u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, u64 policy",
      isa = "cp.async.bulk.tensor",
      cuda = ptx("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;",
                 ':: "r"(to), "l"(map), "r"(bar), "r"(col), "r"(row), "r"(head), "r"(batch), "l"(policy)') }
row { name = "tma_load_multicast", ret = "void",
      params = "u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, u64 policy, u16 blocks",
      isa = "cp.async.bulk.tensor",
      cuda = ptx("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;",
                 ':: "r"(to), "l"(map), "r"(bar), "r"(col), "r"(row), "r"(head), "r"(batch), "h"(blocks), "l"(policy)') }
row { name = "tma_store", ret = "void", params = "const TensorMap *map, u32 from, int col, int row, int head, int batch",
      isa = "cp.async.bulk.tensor",
      cuda = ptx("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];",
                 ':: "l"(map), "r"(from), "r"(col), "r"(row), "r"(head), "r"(batch)') }
row { name = "tma_prefetch_map", ret = "void", params = "const TensorMap *map", isa = "prefetch.tensormap",
      cuda = ptx("prefetch.tensormap [%0];", ':: "l"(map)') }
row { name = "bulk_commit", ret = "void", params = "void", cuda = ptx("cp.async.bulk.commit_group;"), isa = "cp.async.bulk.commit_group" }
row { name = "bulk_wait", ret = "void", params = "int pending", macro = true, isa = "cp.async.bulk.wait_group",
      cuda = 'asm volatile("cp.async.bulk.wait_group " #pending ";" ::: "memory")' }
row { name = "bulk_wait_read", ret = "void", params = "int pending", macro = true, isa = "cp.async.bulk.wait_group",
      cuda = 'asm volatile("cp.async.bulk.wait_group.read " #pending ";" ::: "memory")' }
row { name = "fence_async", ret = "void", params = "void", cuda = ptx("fence.proxy.async.shared::cta;"), isa = "fence.proxy.async" }

---- clusters, register pool (sm_90) -----------------------------------------------------------------------------------
row { name = "cluster_sync", ret = "void", params = "void", isa = "barrier.cluster",
      cuda = ptx("barrier.cluster.arrive.release.aligned;\\nbarrier.cluster.wait.acquire.aligned;") }
row { name = "cluster_rank", ret = "u32", params = "void", isa = "special registers",
      cuda = 'u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r;' }
row { name = "reg_dec", ret = "void", params = "int count", macro = true, isa = "setmaxnreg",
      cuda = 'asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(count))' }
row { name = "reg_inc", ret = "void", params = "int count", macro = true, isa = "setmaxnreg",
      cuda = 'asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(count))' }

---- wgmma (sm_90a) ----------------------------------------------------------------------------------------------------
row { name = "wgmma_fence", ret = "void", params = "void", cuda = ptx("wgmma.fence.sync.aligned;"), isa = "wgmma.fence" }
row { name = "wgmma_commit", ret = "void", params = "void", cuda = ptx("wgmma.commit_group.sync.aligned;"), isa = "wgmma.commit_group" }
row { name = "wgmma_wait", ret = "void", params = "int pending", macro = true, isa = "wgmma.wait_group",
      cuda = 'asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")' }

local function operands(count, from, form)
  local t = {}
  for i = 0, count - 1 do t[#t + 1] = form:format(from + i) end
  return table.concat(t, ", ")
end

-- wgmma_<A>_n<N>_<dtype>[_t]: d (64 x N, fp32) = a (64 x 16) . b (16 x N) [+ d when accumulate != 0]
--   A = ss: from shared memory by descriptor, K-major; rs: from registers
--   _t: b is MN-major (a row-major (k, n) tile); otherwise K-major (a row-major (n, k) tile)
row { pattern = "^wgmma_([rs]s)_n(%d+)_(%w+)(_?t?)$",
  member = { name = "wgmma", ret = "void",
             params = "int n, int dtype, int trans, float *d, const u32 *registers, u64 a, u64 b, int accumulate" },
  make = function(from, n, dtype, trans)
  local t, count = ({ bf16 = "bf16", fp16 = "f16" })[dtype], tonumber(n) // 2
  if not t or count < 4 or count > 128 or count % 4 ~= 0 or (trans ~= "" and trans ~= "_t") then return nil end
  local a = from == "ss" and "%" .. count or "{" .. operands(4, count, "%%%d") .. "}"
  local b, flag = count + (from == "ss" and 1 or 4), count + (from == "ss" and 2 or 5)
  local majors = from == "ss" and (trans == "_t" and "0, 1" or "0, 0") or (trans == "_t" and "1" or "0")
  local regs = {}
  for i = 0, count - 1 do regs[#regs + 1] = ('"+f"(d[%d])'):format(i) end
  return { name = ("wgmma_%s_n%s_%s%s"):format(from, n, dtype, trans), ret = "void", isa = "wgmma.mma_async",
    params = "float *d, " .. (from == "ss" and "u64 a" or "const u32 *a") .. ", u64 b, int accumulate",
    call = { "wgmma", n, "EMU_" .. dtype:upper(), trans == "_t" and "1" or "0", "d", from == "ss" and "0" or "a",
             from == "ss" and "a" or "0", "b", "accumulate" },
    cuda = ('asm volatile("{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\nwgmma.mma_async.sync.aligned.m64n%sk16.f32.%s.%s {%s}, %s, %%%d, p, 1, 1, %s;\\n}" : %s : %s, "l"(b), "r"(accumulate));')
      :format(flag, n, t, t, operands(count, 0, "%%%d"), a, b, majors, table.concat(regs, ", "),
              from == "ss" and '"l"(a)' or '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])') }
end }

-- Register barriers for the compiler: nothing that uses these registers moves across. The emulator checks here that no
-- wgmma in flight owns them.
row { pattern = "^touch_([fu]32)x(%d+)$",
  member = { name = "touch", ret = "void", params = "const void *registers, int count" },
  make = function(kind, n)
  local regs, form = {}, kind == "f32" and '"+f"(r[%d])' or '"+r"(r[%d])'
  for i = 0, tonumber(n) - 1 do regs[#regs + 1] = form:format(i) end
  return { name = "touch_" .. kind .. "x" .. n, ret = "void", params = (kind == "f32" and "float" or "u32") .. " *r",
    call = { "touch", "r", n },
    cuda = 'asm volatile("" : ' .. table.concat(regs, ", ") .. ' :: "memory");', isa = "none: a compiler barrier" }
end }

return rows

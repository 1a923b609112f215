// kiln 0.1.0  do not edit
// kiln generate --arch sm_90a --pass backward --dtype bf16 --head-dim 256 --causal --block-m 64 --block-n 128 --num-stages 1 --num-warps 12 --plain
// source id 0ae76b3e0a108b4d61e752414e107431aa5709bac80be4f8527c9dff2dadef1b
// family hopper_wide_backward
// spec arch=sm_90a pass=backward algorithm=flash dtype=bf16 head_dim=256 head_dim_v=256 mask=causal
// tile block_m=64 block_n=128 num_stages=1 num_warps=12
// shared memory 221312 of 232448 bytes
//    offset     bytes  region
//         0     32768  k
//     32768     16384  peer_k
//     49152     32768  v
//     81920     65536  q
//    147456     32768  do
//    180224      8192  p
//    188416     32768  ds
//    221184       128  bars

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
#define DEV static __device__ __forceinline__
#define PARAM const __grid_constant__
#define KERNEL extern "C" __global__ __launch_bounds__(384, 1)
struct __align__(64) TensorMap { u64 words[16]; };
#define NEG_INFINITY __int_as_float(0xff800000)

DEV int thread_index(void) {
  return (int)threadIdx.x;
}
DEV i64 block_index(void) {
  return (i64)blockIdx.y * gridDim.x + blockIdx.x;
}
DEV void sync_warp(void) {
  __syncwarp();
}
DEV float shfl_xor_f32(float x, int lanes) {
  return __shfl_xor_sync(0xffffffffu, x, lanes);
}
DEV u32 shfl_xor_u32(u32 x, int lanes) {
  return __shfl_xor_sync(0xffffffffu, x, lanes);
}
DEV int redux_max_i32(int x) {
  int y;
  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}
DEV float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV u32 pack_bf16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
DEV float unpack_bf16(u32 x) {
  return __uint_as_float(x << 16);
}
DEV float as_float(u32 x) {
  return __uint_as_float(x);
}
DEV u32 shared_base(void) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  return (u32)__cvta_generic_to_shared(shared_bytes);
}
DEV void ldmatrix_x4(u32 *r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void stmatrix_x4(u32 at, const u32 *r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
DEV float ldg_f32(const float *p) {
  return *p;
}
DEV void stg_f32(float *p, float x) {
  *p = x;
}
DEV void ldg_u32x4(u32 *r, const void *p) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(p) : "memory");
}
DEV void stg_u32x4(void *p, const u32 *r) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "l"(p), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
DEV void red_add_f32x4(float *p, const float *x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(p), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}
DEV void bar_init(u32 bar, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(arrivals) : "memory");
}
DEV void fence_bar_init(void) {
  asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory");
}
DEV void bar_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(bar), "r"(bytes) : "memory");
}
DEV void bar_arrive(u32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
DEV void bar_arrive_peer(u32 bar, u32 block) {
  asm volatile("{\n"
               ".reg .b32 a;\n"
               "mapa.shared::cluster.u32 a, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [a];\n"
               "}"
               :: "r"(bar), "r"(block) : "memory");
}
DEV void bar_wait(u32 bar, u32 parity) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               "L_try:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra L_done;\n"
               "bra L_try;\n"
               "L_done:\n"
               "}"
               :: "r"(bar), "r"(parity) : "memory");
}
DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, u64 policy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
               "[%1, {%3, %4, %5, %6}], [%2], %7;"
               :: "r"(to), "l"(map), "r"(bar), "r"(col), "r"(row), "r"(head), "r"(batch),
               "l"(policy)
               : "memory");
}
DEV void tma_load_multicast(u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, u64 policy, u16 blocks) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], "
               "[%1, {%3, %4, %5, %6}], [%2], %7, %8;"
               :: "r"(to), "l"(map), "r"(bar), "r"(col), "r"(row), "r"(head), "r"(batch),
               "h"(blocks), "l"(policy)
               : "memory");
}
DEV void bulk_copy_peer(u32 to, u32 from, u32 bytes, u32 bar, u32 block) {
  asm volatile("{\n"
               ".reg .b32 d, m;\n"
               "mapa.shared::cluster.u32 d, %0, %4;\n"
               "mapa.shared::cluster.u32 m, %3, %4;\n"
               "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [d], "
               "[%1], %2, [m];\n"
               "}"
               :: "r"(to), "r"(from), "r"(bytes), "r"(bar), "r"(block) : "memory");
}
DEV void fence_async(void) {
  asm volatile("fence.proxy.async.shared::cta;" :: : "memory");
}
DEV void cluster_sync(void) {
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;"
               :: : "memory");
}
DEV u32 cluster_rank(void) {
  u32 r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
#define reg_dec(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(count))
#define reg_inc(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(count))
DEV void wgmma_fence(void) {
  asm volatile("wgmma.fence.sync.aligned;" :: : "memory");
}
DEV void wgmma_commit(void) {
  asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory");
}
#define wgmma_wait(pending) asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")
#define wgmma_add_ss_n256_bf16_tab(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %128, %130;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %129, %131;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
               "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
               "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
               "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, " \
               "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, " \
               "%114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
               "%127}, da, db, 1, 1, 1, 1, 1;\n" \
               "}" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), \
               "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), \
               "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), \
               "+f"((d)[15]), "+f"((d)[16]), "+f"((d)[17]), "+f"((d)[18]), "+f"((d)[19]), \
               "+f"((d)[20]), "+f"((d)[21]), "+f"((d)[22]), "+f"((d)[23]), "+f"((d)[24]), \
               "+f"((d)[25]), "+f"((d)[26]), "+f"((d)[27]), "+f"((d)[28]), "+f"((d)[29]), \
               "+f"((d)[30]), "+f"((d)[31]), "+f"((d)[32]), "+f"((d)[33]), "+f"((d)[34]), \
               "+f"((d)[35]), "+f"((d)[36]), "+f"((d)[37]), "+f"((d)[38]), "+f"((d)[39]), \
               "+f"((d)[40]), "+f"((d)[41]), "+f"((d)[42]), "+f"((d)[43]), "+f"((d)[44]), \
               "+f"((d)[45]), "+f"((d)[46]), "+f"((d)[47]), "+f"((d)[48]), "+f"((d)[49]), \
               "+f"((d)[50]), "+f"((d)[51]), "+f"((d)[52]), "+f"((d)[53]), "+f"((d)[54]), \
               "+f"((d)[55]), "+f"((d)[56]), "+f"((d)[57]), "+f"((d)[58]), "+f"((d)[59]), \
               "+f"((d)[60]), "+f"((d)[61]), "+f"((d)[62]), "+f"((d)[63]), "+f"((d)[64]), \
               "+f"((d)[65]), "+f"((d)[66]), "+f"((d)[67]), "+f"((d)[68]), "+f"((d)[69]), \
               "+f"((d)[70]), "+f"((d)[71]), "+f"((d)[72]), "+f"((d)[73]), "+f"((d)[74]), \
               "+f"((d)[75]), "+f"((d)[76]), "+f"((d)[77]), "+f"((d)[78]), "+f"((d)[79]), \
               "+f"((d)[80]), "+f"((d)[81]), "+f"((d)[82]), "+f"((d)[83]), "+f"((d)[84]), \
               "+f"((d)[85]), "+f"((d)[86]), "+f"((d)[87]), "+f"((d)[88]), "+f"((d)[89]), \
               "+f"((d)[90]), "+f"((d)[91]), "+f"((d)[92]), "+f"((d)[93]), "+f"((d)[94]), \
               "+f"((d)[95]), "+f"((d)[96]), "+f"((d)[97]), "+f"((d)[98]), "+f"((d)[99]), \
               "+f"((d)[100]), "+f"((d)[101]), "+f"((d)[102]), "+f"((d)[103]), "+f"((d)[104]), \
               "+f"((d)[105]), "+f"((d)[106]), "+f"((d)[107]), "+f"((d)[108]), "+f"((d)[109]), \
               "+f"((d)[110]), "+f"((d)[111]), "+f"((d)[112]), "+f"((d)[113]), "+f"((d)[114]), \
               "+f"((d)[115]), "+f"((d)[116]), "+f"((d)[117]), "+f"((d)[118]), "+f"((d)[119]), \
               "+f"((d)[120]), "+f"((d)[121]), "+f"((d)[122]), "+f"((d)[123]), "+f"((d)[124]), \
               "+f"((d)[125]), "+f"((d)[126]), "+f"((d)[127]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_add_ss_n64_bf16(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 1, 1, 1, 0, 0;\n" \
               "}" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), \
               "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), \
               "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), \
               "+f"((d)[15]), "+f"((d)[16]), "+f"((d)[17]), "+f"((d)[18]), "+f"((d)[19]), \
               "+f"((d)[20]), "+f"((d)[21]), "+f"((d)[22]), "+f"((d)[23]), "+f"((d)[24]), \
               "+f"((d)[25]), "+f"((d)[26]), "+f"((d)[27]), "+f"((d)[28]), "+f"((d)[29]), \
               "+f"((d)[30]), "+f"((d)[31]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_add_ss_n64_bf16_t(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 1, 1, 1, 0, 1;\n" \
               "}" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), \
               "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), \
               "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), \
               "+f"((d)[15]), "+f"((d)[16]), "+f"((d)[17]), "+f"((d)[18]), "+f"((d)[19]), \
               "+f"((d)[20]), "+f"((d)[21]), "+f"((d)[22]), "+f"((d)[23]), "+f"((d)[24]), \
               "+f"((d)[25]), "+f"((d)[26]), "+f"((d)[27]), "+f"((d)[28]), "+f"((d)[29]), \
               "+f"((d)[30]), "+f"((d)[31]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_set_ss_n64_bf16(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 0, 1, 1, 0, 0;\n" \
               "}" \
               : "=f"((d)[0]), "=f"((d)[1]), "=f"((d)[2]), "=f"((d)[3]), "=f"((d)[4]), \
               "=f"((d)[5]), "=f"((d)[6]), "=f"((d)[7]), "=f"((d)[8]), "=f"((d)[9]), \
               "=f"((d)[10]), "=f"((d)[11]), "=f"((d)[12]), "=f"((d)[13]), "=f"((d)[14]), \
               "=f"((d)[15]), "=f"((d)[16]), "=f"((d)[17]), "=f"((d)[18]), "=f"((d)[19]), \
               "=f"((d)[20]), "=f"((d)[21]), "=f"((d)[22]), "=f"((d)[23]), "=f"((d)[24]), \
               "=f"((d)[25]), "=f"((d)[26]), "=f"((d)[27]), "=f"((d)[28]), "=f"((d)[29]), \
               "=f"((d)[30]), "=f"((d)[31]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_set_ss_n64_bf16_t(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 0, 1, 1, 0, 1;\n" \
               "}" \
               : "=f"((d)[0]), "=f"((d)[1]), "=f"((d)[2]), "=f"((d)[3]), "=f"((d)[4]), \
               "=f"((d)[5]), "=f"((d)[6]), "=f"((d)[7]), "=f"((d)[8]), "=f"((d)[9]), \
               "=f"((d)[10]), "=f"((d)[11]), "=f"((d)[12]), "=f"((d)[13]), "=f"((d)[14]), \
               "=f"((d)[15]), "=f"((d)[16]), "=f"((d)[17]), "=f"((d)[18]), "=f"((d)[19]), \
               "=f"((d)[20]), "=f"((d)[21]), "=f"((d)[22]), "=f"((d)[23]), "=f"((d)[24]), \
               "=f"((d)[25]), "=f"((d)[26]), "=f"((d)[27]), "=f"((d)[28]), "=f"((d)[29]), \
               "=f"((d)[30]), "=f"((d)[31]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
DEV void touch_f32x128(float *r) {
  asm volatile(""
               : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]), "+f"(r[4]), "+f"(r[5]),
               "+f"(r[6]), "+f"(r[7]), "+f"(r[8]), "+f"(r[9]), "+f"(r[10]), "+f"(r[11]),
               "+f"(r[12]), "+f"(r[13]), "+f"(r[14]), "+f"(r[15]), "+f"(r[16]), "+f"(r[17]),
               "+f"(r[18]), "+f"(r[19]), "+f"(r[20]), "+f"(r[21]), "+f"(r[22]), "+f"(r[23]),
               "+f"(r[24]), "+f"(r[25]), "+f"(r[26]), "+f"(r[27]), "+f"(r[28]), "+f"(r[29]),
               "+f"(r[30]), "+f"(r[31]), "+f"(r[32]), "+f"(r[33]), "+f"(r[34]), "+f"(r[35]),
               "+f"(r[36]), "+f"(r[37]), "+f"(r[38]), "+f"(r[39]), "+f"(r[40]), "+f"(r[41]),
               "+f"(r[42]), "+f"(r[43]), "+f"(r[44]), "+f"(r[45]), "+f"(r[46]), "+f"(r[47]),
               "+f"(r[48]), "+f"(r[49]), "+f"(r[50]), "+f"(r[51]), "+f"(r[52]), "+f"(r[53]),
               "+f"(r[54]), "+f"(r[55]), "+f"(r[56]), "+f"(r[57]), "+f"(r[58]), "+f"(r[59]),
               "+f"(r[60]), "+f"(r[61]), "+f"(r[62]), "+f"(r[63]), "+f"(r[64]), "+f"(r[65]),
               "+f"(r[66]), "+f"(r[67]), "+f"(r[68]), "+f"(r[69]), "+f"(r[70]), "+f"(r[71]),
               "+f"(r[72]), "+f"(r[73]), "+f"(r[74]), "+f"(r[75]), "+f"(r[76]), "+f"(r[77]),
               "+f"(r[78]), "+f"(r[79]), "+f"(r[80]), "+f"(r[81]), "+f"(r[82]), "+f"(r[83]),
               "+f"(r[84]), "+f"(r[85]), "+f"(r[86]), "+f"(r[87]), "+f"(r[88]), "+f"(r[89]),
               "+f"(r[90]), "+f"(r[91]), "+f"(r[92]), "+f"(r[93]), "+f"(r[94]), "+f"(r[95]),
               "+f"(r[96]), "+f"(r[97]), "+f"(r[98]), "+f"(r[99]), "+f"(r[100]), "+f"(r[101]),
               "+f"(r[102]), "+f"(r[103]), "+f"(r[104]), "+f"(r[105]), "+f"(r[106]),
               "+f"(r[107]), "+f"(r[108]), "+f"(r[109]), "+f"(r[110]), "+f"(r[111]),
               "+f"(r[112]), "+f"(r[113]), "+f"(r[114]), "+f"(r[115]), "+f"(r[116]),
               "+f"(r[117]), "+f"(r[118]), "+f"(r[119]), "+f"(r[120]), "+f"(r[121]),
               "+f"(r[122]), "+f"(r[123]), "+f"(r[124]), "+f"(r[125]), "+f"(r[126]), "+f"(r[127])
               : : "memory");
}
DEV void touch_f32x32(float *r) {
  asm volatile(""
               : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]), "+f"(r[4]), "+f"(r[5]),
               "+f"(r[6]), "+f"(r[7]), "+f"(r[8]), "+f"(r[9]), "+f"(r[10]), "+f"(r[11]),
               "+f"(r[12]), "+f"(r[13]), "+f"(r[14]), "+f"(r[15]), "+f"(r[16]), "+f"(r[17]),
               "+f"(r[18]), "+f"(r[19]), "+f"(r[20]), "+f"(r[21]), "+f"(r[22]), "+f"(r[23]),
               "+f"(r[24]), "+f"(r[25]), "+f"(r[26]), "+f"(r[27]), "+f"(r[28]), "+f"(r[29]),
               "+f"(r[30]), "+f"(r[31])
               : : "memory");
}

/* Parameter layout backward.1: strides in elements; lse in natural logarithm, (batch, num_heads,
 * seqlen_q). */
typedef struct {
  i64 batch, row, head;
} Stride;
typedef struct {
  const void *q, *k, *v, *o, *dout;
  const float *lse;
  void *dq, *dk, *dv;
  void *workspace;
  i64 workspace_at[4]; /* where its items begin, in the launch record's order: bytes */
  Stride q_stride, k_stride, v_stride, o_stride, do_stride, dq_stride, dk_stride, dv_stride;
  i64 tiles; /* work items of the entry's grid */
  i32 batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  i32 group;           /* query heads per key head */
  i32 m_blocks;        /* ceil(seqlen_q / block_m) */
  i32 n_blocks;        /* ceil(seqlen_k / block_n) */
  float softmax_scale; /* multiplies q.k */
  float scale_log2;    /* softmax_scale * log2(e), but 2^-100 at least */
} BackwardArgs;

/* FlashAttention backward for TMA and wgmma, for wide heads. A thread block owns 64 keys of
 * one key head and walks over the blocks of 64 queries that see them, for every query head of
 * the group. Warpgroup 0 is the producer. Of a step, consumer 1 forms S = Q K^T, P and
 * dV += P^T dO, consumer 2 dP = dO V^T, dS and dK += dS^T Q; P and dS lie in shared memory. Each
 * forms its columns of dQ = dS K one step late, while S becomes P.
 *
 * Two thread blocks are a cluster: they walk together, each loads half of the queries for both, and
 * they exchange dS, so that each forms half of the columns of dQ for the keys of both. What they
 * add to dQ in global memory, which is the bottleneck otherwise, is half as much.
 */
/* What both Hopper families of the backward pass share. */

/* The sum of the products of eight pairs of 16-bit numbers. */
DEV float dot(const u32 *u, const u32 *w) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sum = fmaf(unpack_bf16(u[i] & 0xffff), unpack_bf16(w[i] & 0xffff), sum);
    sum = fmaf(unpack_bf16(u[i] >> 16), unpack_bf16(w[i] >> 16), sum);
  }
  return sum;
}

/* Transposes 4 x 4 words among the four lanes of a quad: lane i's word j becomes lane j's word
 * i. */
DEV void quad_transpose(u32 *w, int lane) {
  const int odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 t = shfl_xor_u32(odd ? w[i] : w[i + 1], 1);
    w[i] = odd ? t : w[i];
    w[i + 1] = odd ? w[i + 1] : t;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const u32 t = shfl_xor_u32(high ? w[i] : w[i + 2], 2);
    w[i] = high ? t : w[i];
    w[i + 2] = high ? w[i + 2] : t;
  }
}

/* Tile t where the tiles of a section of `width` key heads come by key block, then the next
 * section: its key head, batch included, and its key block. */
DEV i64 head_of_section(i64 t, i64 width, const BackwardArgs *a, int *n) {
  const i64 section = t / (width * a->n_blocks), rest = t - section * width * a->n_blocks;
  const i64 begin = section * width, left = (i64)a->num_heads_k * a->batch - begin;
  width = width < left ? width : left;
  *n = (int)(rest / width);
  return begin + (rest - *n * width);
}
/* ---- before: statistics of the queries, and sums that begin at 0 ---- */

/* Of a row -lse log2(e), so that P = 2^(s + that), and delta = rowsum(dO o). A row that sees no
 * key, or lies past the end, gets P = 0. Query blocks of 64 rows: m block fastest, then head,
 * then batch; 32 lanes a row. All loads are started before the first is used. */
KERNEL void kiln_preprocess(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * 64;
  const int lane = thread_index() % 32, row0 = thread_index() / 32;
  char *sums = (char *)a.workspace + a.workspace_at[0] + block * 65536;
  float *statistics = (float *)((char *)a.workspace + a.workspace_at[1]) + block * 128;
  const char *o = (const char *)a.o + 16 * lane +
                  2 * (batch * a.o_stride.batch + head * a.o_stride.head);
  const char *dout = (const char *)a.dout + 16 * lane +
                     2 * (batch * a.do_stride.batch + head * a.do_stride.head);
  u32 u[8][4], w[8][4];
  const u32 zero[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const i64 row = first + row0 + 8 * i;
#pragma unroll
    for (int j = 0; j < 4; j++) u[i][j] = w[i][j] = 0;
    if (row >= a.seqlen_q || row >= first + 64 || lane >= 32) continue;
    ldg_u32x4(u[i], o + 2 * row * a.o_stride.row);
    ldg_u32x4(w[i], dout + 2 * row * a.do_stride.row);
  }
#pragma unroll 4
  for (int i = thread_index(); i < 4096; i += 256) stg_u32x4(sums + 16 * i, zero);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int r = row0 + 8 * i;
    const i64 row = first + r;
    float delta = dot(u[i], w[i]);
    delta += shfl_xor_f32(delta, 1);
    delta += shfl_xor_f32(delta, 2);
    delta += shfl_xor_f32(delta, 4);
    delta += shfl_xor_f32(delta, 8);
    delta += shfl_xor_f32(delta, 16);
    if (lane != 0 || r >= 64) continue;
    const float lse =
        row < a.seqlen_q ? ldg_f32(a.lse + head_index * a.seqlen_q + row) : NEG_INFINITY;
    stg_f32(statistics + r, lse == NEG_INFINITY ? lse : -lse * 1.44269504f);
    stg_f32(statistics + 64 + r, delta);
  }
}

/* ---- barriers: full = the bytes have landed, empty = every reader is done. What another barrier
 * tells is not waited for: P is there, so the keys and queries it was made of are. ---- */

DEV u32 q_full(u32 smem, int slot) { return smem + 221184 + 8 * slot; }
DEV u32 q_empty(u32 smem, int slot) { return smem + 221200 + 8 * slot; }
DEV u32 ds_full(u32 smem, int slot) { return smem + 221216 + 8 * slot; }
DEV u32 ds_empty(u32 smem, int slot) { return smem + 221232 + 8 * slot; }
DEV u32 do_full(u32 smem, int slot) { return smem + 221248 + 8 * slot; }
DEV u32 do_empty(u32 smem, int slot) { return smem + 221256 + 8 * slot; }
DEV u32 peer_full(u32 smem, int slot) { return smem + 221264 + 8 * slot; }
DEV u32 k_full(u32 smem) { return smem + 221280; }
DEV u32 v_full(u32 smem) { return smem + 221288; }
DEV u32 p_full(u32 smem) { return smem + 221296; }
DEV u32 p_empty(u32 smem) { return smem + 221304; }

/* ---- tiles ---- */

/* A tile of keys. Query blocks before m0 see none of them; those before masked see some. */
typedef struct {
  int n, head_k, batch;
  int first; /* key of the thread block */
  int m0, masked;
} Tile;

/* The tiles of a section of heads whose queries, gradients and sums stay in L2, by key block; then
 * the next section. The first block, which the most queries see, comes first. */
DEV Tile tile_of(i64 t, int rank, const BackwardArgs *a) {
  Tile x;
  i64 head;
  const i64 bytes = (i64)a->group * a->seqlen_q * 2048;
  i64 width = 16777216 / (bytes > 0 ? bytes : 1);
  width = width < 1 ? 1 : width;
  head = head_of_section(t, width, a, &x.n);
  /* The first query that sees a key; the first that sees all of the thread block's. */
  const i64 some = x.n * (i64)128 - ((i64)a->seqlen_k - a->seqlen_q);
  const i64 all = some + rank * 64 + 63;
  const i64 m0 = some < 0 ? 0 : some / 64, masked = (all + 63) / 64;
  x.m0 = m0 < a->m_blocks ? (int)m0 : a->m_blocks;
  x.masked = all <= 0 ? 0 : masked < a->m_blocks ? (int)masked : a->m_blocks;
  x.first = x.n * 128 + rank * 64;
  if ((i64)x.first + 64 > a->seqlen_k) x.masked = a->m_blocks;
  x.batch = (int)(head / a->num_heads_k);
  x.head_k = (int)(head - (i64)x.batch * a->num_heads_k);
  return x;
}
/* Steps of a tile: a query block of a query head each */
DEV int steps_of(Tile x, const BackwardArgs *a) { return (a->m_blocks - x.m0) * a->group; }

/* ---- producer: one thread ---- */

/* Sends keys and values once, the other thread block's keys in the columns of this one's dQ too,
 * then a query block and its dO a step: half of the rows, to both thread blocks. */
DEV void produce(u32 smem, int rank, Tile x, const TensorMap *map_q, const TensorMap *map_k,
                 const TensorMap *map_v, const TensorMap *map_do, const BackwardArgs *a) {
  const u64 keep = 0x14F0000000000000ull, once = 0x12F0000000000000ull; /* L2: evict last, first */
  const int steps = steps_of(x, a), row_k = x.first;
  int head = x.head_k * a->group, m = x.m0;
  if (steps == 0) return;
  bar_expect(k_full(smem), 49152);
  for (int c = 0; c < 4; c++)
    tma_load(smem + 0 + c * 8192, map_k, k_full(smem), 64 * c, row_k, x.head_k, x.batch,
             once);
  for (int c = 0; c < 2; c++)
    tma_load(smem + 32768 + c * 8192, map_k, k_full(smem), 64 * (2 * rank + c),
             row_k + (rank ? -64 : 64), x.head_k, x.batch, once);
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int slot = i & 1;
    bar_wait(q_empty(smem, slot), (i >> 1 & 1) ^ 1);
    bar_expect(q_full(smem, slot), 32768);
    const u32 to_q = smem + 81920 + slot * 32768 + rank * 4096;
    for (int c = 0; c < 4; c++)
      tma_load_multicast(to_q + c * 8192, map_q, q_full(smem, slot), 64 * c,
                         m * 64 + rank * 32, head, x.batch, keep, 3);
    if (i == 0) {
      bar_expect(v_full(smem), 32768);
      for (int c = 0; c < 4; c++)
        tma_load(smem + 49152 + c * 8192, map_v, v_full(smem), 64 * c, row_k, x.head_k,
                 x.batch, once);
    }
    const int place = 0, parity = i & 1;
    bar_wait(do_empty(smem, place), parity ^ 1);
    bar_expect(do_full(smem, place), 32768);
    const u32 to_do = smem + 147456 + place * 32768 + rank * 4096;
    for (int c = 0; c < 4; c++)
      tma_load_multicast(to_do + c * 8192, map_do, do_full(smem, place), 64 * c,
                         m * 64 + rank * 32, head, x.batch, keep, 3);
    if (++m == a->m_blocks) {
      m = x.m0;
      head++;
    }
  }
}

/* ---- sender: one thread ---- */

/* Copies dS of a step to the other thread block, whose own arrives the same way. */
DEV void send_ds(u32 smem, int rank, Tile x, const BackwardArgs *a) {
  const int steps = steps_of(x, a);
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int slot = i & 1;
    const u32 from = smem + 188416 + slot * 16384;
    bar_wait(ds_full(smem, slot), i >> 1 & 1);
    bar_expect(peer_full(smem, slot), 8192);
    bulk_copy_peer(from + 8192, from, 8192, peer_full(smem, slot), (u32)rank ^ 1);
  }
}
/* ---- consumers: a warpgroup each ---- */

typedef struct {
  u32 smem, matrix;        /* matrix: lower word of the descriptor of shared memory's first byte */
  u32 own_columns;         /* the same, but of K from the thread block's columns of dQ on */
  int warp, lane, row;     /* row: the thread's first in a block; the other is eight further */
  u32 fragment;            /* bytes from the begin of P or dS to the lane's row of a fragment */
  const float *statistics; /* of that row, in the present query block */
  float *sums;             /* where the lane adds to dQ of the query block before */
} Consumer;

/* Lower word of a shared-memory matrix descriptor, 128-byte swizzle; panel_stride: bytes between
 * groups of 64 columns of a tile that is read by columns. */
DEV u32 descriptor(u32 address, u32 panel_stride) {
  return (address >> 4 & 0x3fff) | panel_stride >> 4 << 16;
}

/* ---- products; all are started only ---- */

/* s (queries x keys) = Q K^T */
DEV void issue_scores(const Consumer *me, float *s, int slot) {
  const u32 q = me->matrix + slot * 2048;
  wgmma_fence();
  wgmma_set_ss_n64_bf16(s, q, 5120,
           me->matrix, 0);
  wgmma_add_ss_n64_bf16(s, q, 5122,
           me->matrix, 2);
  wgmma_add_ss_n64_bf16(s, q, 5124,
           me->matrix, 4);
  wgmma_add_ss_n64_bf16(s, q, 5126,
           me->matrix, 6);
  wgmma_add_ss_n64_bf16(s, q, 5632,
           me->matrix, 512);
  wgmma_add_ss_n64_bf16(s, q, 5634,
           me->matrix, 514);
  wgmma_add_ss_n64_bf16(s, q, 5636,
           me->matrix, 516);
  wgmma_add_ss_n64_bf16(s, q, 5638,
           me->matrix, 518);
  wgmma_add_ss_n64_bf16(s, q, 6144,
           me->matrix, 1024);
  wgmma_add_ss_n64_bf16(s, q, 6146,
           me->matrix, 1026);
  wgmma_add_ss_n64_bf16(s, q, 6148,
           me->matrix, 1028);
  wgmma_add_ss_n64_bf16(s, q, 6150,
           me->matrix, 1030);
  wgmma_add_ss_n64_bf16(s, q, 6656,
           me->matrix, 1536);
  wgmma_add_ss_n64_bf16(s, q, 6658,
           me->matrix, 1538);
  wgmma_add_ss_n64_bf16(s, q, 6660,
           me->matrix, 1540);
  wgmma_add_ss_n64_bf16(s, q, 6662,
           me->matrix, 1542);
  wgmma_commit();
}
/* t (queries x keys) = dO V^T */
DEV void issue_gradients(const Consumer *me, float *t, int place) {
  const u32 dout = me->matrix + place * 2048;
  wgmma_fence();
  wgmma_set_ss_n64_bf16(t, dout, 9216,
           me->matrix, 3072);
  wgmma_add_ss_n64_bf16(t, dout, 9218,
           me->matrix, 3074);
  wgmma_add_ss_n64_bf16(t, dout, 9220,
           me->matrix, 3076);
  wgmma_add_ss_n64_bf16(t, dout, 9222,
           me->matrix, 3078);
  wgmma_add_ss_n64_bf16(t, dout, 9728,
           me->matrix, 3584);
  wgmma_add_ss_n64_bf16(t, dout, 9730,
           me->matrix, 3586);
  wgmma_add_ss_n64_bf16(t, dout, 9732,
           me->matrix, 3588);
  wgmma_add_ss_n64_bf16(t, dout, 9734,
           me->matrix, 3590);
  wgmma_add_ss_n64_bf16(t, dout, 10240,
           me->matrix, 4096);
  wgmma_add_ss_n64_bf16(t, dout, 10242,
           me->matrix, 4098);
  wgmma_add_ss_n64_bf16(t, dout, 10244,
           me->matrix, 4100);
  wgmma_add_ss_n64_bf16(t, dout, 10246,
           me->matrix, 4102);
  wgmma_add_ss_n64_bf16(t, dout, 10752,
           me->matrix, 4608);
  wgmma_add_ss_n64_bf16(t, dout, 10754,
           me->matrix, 4610);
  wgmma_add_ss_n64_bf16(t, dout, 10756,
           me->matrix, 4612);
  wgmma_add_ss_n64_bf16(t, dout, 10758,
           me->matrix, 4614);
  wgmma_commit();
}
/* dV (keys x columns) += P^T dO */
DEV void issue_dv(const Consumer *me, float *dv, int place) {
  const u32 dout = me->matrix + place * 2048;
  wgmma_fence();
  wgmma_add_ss_n256_bf16_tab(dv,
           me->matrix, 11264, dout, 9216);
  wgmma_add_ss_n256_bf16_tab(dv,
           me->matrix, 11392, dout, 9344);
  wgmma_add_ss_n256_bf16_tab(dv,
           me->matrix, 11520, dout, 9472);
  wgmma_add_ss_n256_bf16_tab(dv,
           me->matrix, 11648, dout, 9600);
  wgmma_commit();
}
/* dK (keys x columns) += dS^T Q; dS and Q have the same place in their rings */
DEV void issue_dk(const Consumer *me, float *dk, int slot) {
  const u32 ds = me->matrix + slot * 1024;
  const u32 q = me->matrix + slot * 2048;
  wgmma_fence();
  wgmma_add_ss_n256_bf16_tab(dk, ds, 11776, q, 5120);
  wgmma_add_ss_n256_bf16_tab(dk, ds, 11904, q, 5248);
  wgmma_add_ss_n256_bf16_tab(dk, ds, 12032, q, 5376);
  wgmma_add_ss_n256_bf16_tab(dk, ds, 12160, q, 5504);
  wgmma_commit();
}
/* dQ (queries x 64 columns) = dS K over the keys of both thread blocks */
DEV void issue_dq1_1(const Consumer *me, float *dq, int slot) {
  const u32 ds = me->matrix + slot * 1024;
  const u32 k = me->own_columns;
  wgmma_fence();
  wgmma_set_ss_n64_bf16_t(dq, ds, 11776,
           k, 0);
  wgmma_add_ss_n64_bf16_t(dq, ds, 11778,
           k, 128);
  wgmma_add_ss_n64_bf16_t(dq, ds, 11780,
           k, 256);
  wgmma_add_ss_n64_bf16_t(dq, ds, 11782,
           k, 384);
  wgmma_add_ss_n64_bf16_t(dq, ds, 12288,
           me->matrix, 2048);
  wgmma_add_ss_n64_bf16_t(dq, ds, 12290,
           me->matrix, 2176);
  wgmma_add_ss_n64_bf16_t(dq, ds, 12292,
           me->matrix, 2304);
  wgmma_add_ss_n64_bf16_t(dq, ds, 12294,
           me->matrix, 2432);
  wgmma_commit();
}
/* dQ (queries x 64 columns) = dS K over the keys of both thread blocks */
DEV void issue_dq1_2(const Consumer *me, float *dq, int slot) {
  const u32 ds = me->matrix + slot * 1024;
  const u32 k = me->own_columns;
  wgmma_fence();
  wgmma_set_ss_n64_bf16_t(dq, ds, 11776,
           k, 512);
  wgmma_add_ss_n64_bf16_t(dq, ds, 11778,
           k, 640);
  wgmma_add_ss_n64_bf16_t(dq, ds, 11780,
           k, 768);
  wgmma_add_ss_n64_bf16_t(dq, ds, 11782,
           k, 896);
  wgmma_add_ss_n64_bf16_t(dq, ds, 12288,
           me->matrix, 2560);
  wgmma_add_ss_n64_bf16_t(dq, ds, 12290,
           me->matrix, 2688);
  wgmma_add_ss_n64_bf16_t(dq, ds, 12292,
           me->matrix, 2816);
  wgmma_add_ss_n64_bf16_t(dq, ds, 12294,
           me->matrix, 2944);
  wgmma_commit();
}

/* ---- between the products ---- */

DEV void arrive(const Consumer *me, u32 bar) {
  if (me->lane == 0) bar_arrive(bar);
}
/* Arrives at the barriers of both thread blocks. */
DEV void arrive_both(const Consumer *me, u32 bar) {
  if (me->lane < 2) bar_arrive_peer(bar, me->lane);
}
/* Puts `hidden` at keys past the end and past the diagonal. */
DEV void mask_block(const Consumer *me, float *s, float hidden, Tile x, int m,
                    const BackwardArgs *a) {
  const int column = x.first + 2 * (me->lane & 3), end = a->seqlen_k - column;
  const i64 see = (i64)m * 64 + me->row + 1 + a->seqlen_k - a->seqlen_q - column;
  const int limit0 = see < end ? (int)see : end, limit1 = see + 8 < end ? (int)see + 8 : end;
#pragma unroll
  for (int j = 0; j < 8; j++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s[4 * j + i] = 8 * j + i < limit0 ? s[4 * j + i] : hidden;
      s[4 * j + 2 + i] = 8 * j + i < limit1 ? s[4 * j + 2 + i] : hidden;
    }
  }
}
/* p = 2^(s c + bias), rounded to bf16 */
DEV void exponentials(u32 *p, const float *s, const float *bias, float c) {
#pragma unroll
  for (int i = 0; i < 16; i++)
    p[i] = pack_bf16(ex2(fmaf(s[2 * i], c, bias[i % 2])), ex2(fmaf(s[2 * i + 1], c, bias[i % 2])));
}
/* P (queries x keys) to shared memory, for both consumers */
DEV void store_block(const Consumer *me, u32 tile, const u32 *p) {
  const u32 to = me->smem + tile + me->fragment;
#pragma unroll
  for (int k = 0; k < 4; k++) stmatrix_x4(to ^ 32 * k, p + 4 * k);
}
/* dS = P t from P to another place in shared memory, 16 keys at a time */
DEV void differentiate(const Consumer *me, u32 from, u32 to, const float *t) {
  const u32 lane_from = me->smem + from + me->fragment, lane_to = me->smem + to + me->fragment;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    u32 p[4];
    ldmatrix_x4(p, lane_from ^ 32 * k);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *y = t + 8 * k + 2 * i;
      const float low = as_float(p[i] << 16), high = as_float(p[i] & 0xffff0000u);
      p[i] = pack_bf16(low * y[0], high * y[1]);
    }
    stmatrix_x4(lane_to ^ 32 * k, p);
  }
}
/* What the warp has stored is there for products of both consumers. */
DEV void publish(const Consumer *me, u32 full) {
  fence_async();
  sync_warp();
  arrive(me, full);
}

/* ---- dQ: added to sums in global memory, in the order of fragments ---- */

/* `eights` times eight columns from column 8 * eight on */
DEV void add_part(const Consumer *me, const float *dq, int eight, int eights) {
#pragma unroll
  for (int j = 0; j < eights; j++) red_add_f32x4(me->sums + (eight + j) * 512, dq + 4 * j);
}
/* On to the sum of the query block behind, m; the first of the next head behind the last. */
DEV void next_sum(Consumer *me, Tile x, int m) {
  const i64 blocks = m == x.m0 ? x.m0 + 1 : 1;
  me->sums += blocks * 16384;
}

/* ---- to rows of 16-bit numbers ---- */

/* The fragments of `eights` times eight columns, times scale. to: the thread's first row at this
 * lane's chunk of 16 bytes; the other row is `further` bytes behind. chunks0, chunks1: how many
 * chunks the rows have from this lane's on. */
DEV void store_part(const float *x, int eights, float scale, char *to, i64 further, int chunks0,
                    int chunks1, int lane) {
#pragma unroll
  for (int j = 0; j < (eights + 3) / 4; j++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      u32 w[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (4 * j + i >= eights) continue;
        const float *y = x + 16 * j + 4 * i + 2 * r;
        w[i] = pack_bf16(y[0] * scale, y[1] * scale);
      }
      quad_transpose(w, lane);
      if (4 * j < (r ? chunks1 : chunks0)) stg_u32x4(to + r * further + 64 * j, w);
    }
  }
}
DEV void store_dk(const Consumer *me, const float *dk, Tile x,
              const BackwardArgs *a) {
  const int quad = me->lane & 3, row = x.first + me->row, chunks = 32 - quad;
  char *to = (char *)a->dk + 2 * (x.batch * a->dk_stride.batch +
                                row * a->dk_stride.row +
                                x.head_k * a->dk_stride.head + 8 * quad);
  store_part(dk, 32, a->softmax_scale, to, 16 * a->dk_stride.row,
             row < a->seqlen_k ? chunks : 0, row + 8 < a->seqlen_k ? chunks : 0, me->lane);
}
DEV void store_dv(const Consumer *me, const float *dv, Tile x,
              const BackwardArgs *a) {
  const int quad = me->lane & 3, row = x.first + me->row, chunks = 32 - quad;
  char *to = (char *)a->dv + 2 * (x.batch * a->dv_stride.batch +
                                row * a->dv_stride.row +
                                x.head_k * a->dv_stride.head + 8 * quad);
  store_part(dv, 32, 1.0f, to, 16 * a->dv_stride.row,
             row < a->seqlen_k ? chunks : 0, row + 8 < a->seqlen_k ? chunks : 0, me->lane);
}
/* ---- the walk ---- */

DEV Consumer consumer_of(u32 smem, int warp, int rank, Tile x, const BackwardArgs *a) {
  Consumer me;
  me.smem = smem;
  me.matrix = descriptor(smem, 8192);
  me.own_columns = me.matrix + rank * 1024;
  me.warp = warp;
  me.lane = thread_index() & 31;
  me.row = warp % 4 * 16 + me.lane / 4;
  me.fragment = (warp % 4 * 16 + (me.lane & 15)) * 128 + ((me.lane >> 4 ^ (me.lane & 7)) << 4);
  const i64 block = ((i64)x.batch * a->num_heads + x.head_k * a->group) * a->m_blocks + x.m0;
  const char *workspace = (const char *)a->workspace;
  me.statistics = (const float *)(workspace + a->workspace_at[1]) + block * 128 + me.row;
  me.sums = (float *)(workspace + a->workspace_at[0]) + block * 16384 + warp % 4 * 128 +
            4 * me.lane + rank * 8192;
  return me;
}

/* Consumer 1: S, P, dV */
DEV void run_scores(Consumer *me, Tile x, const BackwardArgs *a) {
  float dv[128], s[32];
  float dq1[32];
#pragma unroll
  for (int i = 0; i < 128; i++) dv[i] = 0.0f;
  touch_f32x128(dv); /* else the zeros come behind the fence */
  const int steps = redux_max_i32(steps_of(x, a));
  const u32 smem = me->smem;
  const float c = a->scale_log2;
  int m = x.m0;
  if (steps > 0) {
    bar_wait(k_full(smem), 0);
    {
      const int i = 0;
      const int slot = i & 1;
      const int place = 0, turn = i & 1;
      u32 p[16];
      const float bias[2] = {ldg_f32(me->statistics), ldg_f32(me->statistics + 8)};
      bar_wait(q_full(smem, slot), i >> 1 & 1);
      issue_scores(me, s, slot);
      wgmma_wait(0);
      touch_f32x32(s);
      arrive_both(me, q_empty(smem, slot));
      if (m < x.masked) mask_block(me, s, NEG_INFINITY, x, m, a);
      exponentials(p, s, bias, c);
      store_block(me, 180224, p);
      publish(me, p_full(smem));
      bar_wait(p_full(smem), i & 1);
      bar_wait(do_full(smem, place), turn);
      issue_dv(me, dv, place);
      wgmma_wait(0);
      touch_f32x128(dv);
      arrive_both(me, do_empty(smem, place));
      arrive(me, p_empty(smem));
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)128;
    }
#pragma unroll 1
    for (int i = 1; i < steps; i++) {
      const int slot = i & 1;
      const int place = 0, turn = i & 1;
      const int before = (i & 1) ^ 1;
      u32 p[16];
      const float bias[2] = {ldg_f32(me->statistics), ldg_f32(me->statistics + 8)};
      bar_wait(q_full(smem, slot), i >> 1 & 1);
      issue_scores(me, s, slot);
      /* The sender, which has waited for ds_full, arrives there too. */
      bar_wait(peer_full(smem, before), (i - 1) >> 1 & 1);
      issue_dq1_1(me, dq1, before);
      wgmma_wait(1);
      touch_f32x32(s);
      arrive_both(me, q_empty(smem, slot));
      if (m < x.masked) mask_block(me, s, NEG_INFINITY, x, m, a);
      exponentials(p, s, bias, c);
      bar_wait(p_empty(smem), (i & 1) ^ 1);
      store_block(me, 180224, p);
      publish(me, p_full(smem));
      bar_wait(p_full(smem), i & 1);
      bar_wait(do_full(smem, place), turn);
      issue_dv(me, dv, place);
      wgmma_wait(1);
      touch_f32x32(dq1);
      arrive_both(me, ds_empty(smem, before));
      add_part(me, dq1, 0, 8);
      next_sum(me, x, m);
      wgmma_wait(0);
      touch_f32x128(dv);
      arrive_both(me, do_empty(smem, place));
      arrive(me, p_empty(smem));
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)128;
    }
  }
  store_dv(me, dv, x, a); /* while dS of the last step is awaited */
  if (steps > 0) {
    {
      const int i = steps;
      const int before = (i & 1) ^ 1;
      /* The sender, which has waited for ds_full, arrives there too. */
      bar_wait(peer_full(smem, before), (i - 1) >> 1 & 1);
      issue_dq1_1(me, dq1, before);
      wgmma_wait(0);
      touch_f32x32(dq1);
      add_part(me, dq1, 0, 8);
    }
  }
}
/* Consumer 2: dP, dS, dK */
DEV void run_gradients(Consumer *me, Tile x, const BackwardArgs *a) {
  float dk[128], t[32];
  float dq1[32];
#pragma unroll
  for (int i = 0; i < 128; i++) dk[i] = 0.0f;
  touch_f32x128(dk); /* else the zeros come behind the fence */
  const int steps = redux_max_i32(steps_of(x, a));
  const u32 smem = me->smem;
  int m = x.m0;
  if (steps > 0) {
    bar_wait(v_full(smem), 0);
    {
      const int i = 0;
      const int slot = i & 1;
      const int place = 0, turn = i & 1;
      const float *own = me->statistics + 64;
      const float delta[2] = {ldg_f32(own), ldg_f32(own + 8)};
      bar_wait(do_full(smem, place), turn);
      issue_gradients(me, t, place);
      bar_wait(p_full(smem), i & 1);
      wgmma_wait(0);
      touch_f32x32(t);
      arrive_both(me, do_empty(smem, place));
#pragma unroll
      for (int j = 0; j < 32; j++) t[j] -= delta[j / 2 % 2];
      if (m < x.masked) mask_block(me, t, 0.0f, x, m, a); /* it may be infinite where P is 0 */
      differentiate(me, 180224, 188416 + slot * 16384, t);
      publish(me, ds_full(smem, slot));
      arrive(me, p_empty(smem));
      bar_wait(ds_full(smem, slot), i >> 1 & 1);
      issue_dk(me, dk, slot);
      wgmma_wait(0);
      touch_f32x128(dk);
      arrive_both(me, q_empty(smem, slot));
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)128;
    }
#pragma unroll 1
    for (int i = 1; i < steps; i++) {
      const int slot = i & 1;
      const int place = 0, turn = i & 1;
      const int before = (i & 1) ^ 1;
      const float *own = me->statistics + 64;
      const float delta[2] = {ldg_f32(own), ldg_f32(own + 8)};
      bar_wait(do_full(smem, place), turn);
      issue_gradients(me, t, place);
      /* The sender, which has waited for ds_full, arrives there too. */
      bar_wait(peer_full(smem, before), (i - 1) >> 1 & 1);
      issue_dq1_2(me, dq1, before);
      bar_wait(p_full(smem), i & 1);
      wgmma_wait(1);
      touch_f32x32(t);
      arrive_both(me, do_empty(smem, place));
#pragma unroll
      for (int j = 0; j < 32; j++) t[j] -= delta[j / 2 % 2];
      if (m < x.masked) mask_block(me, t, 0.0f, x, m, a); /* it may be infinite where P is 0 */
      bar_wait(ds_empty(smem, slot), (i >> 1 & 1) ^ 1);
      differentiate(me, 180224, 188416 + slot * 16384, t);
      publish(me, ds_full(smem, slot));
      arrive(me, p_empty(smem));
      bar_wait(ds_full(smem, slot), i >> 1 & 1);
      issue_dk(me, dk, slot);
      wgmma_wait(1);
      touch_f32x32(dq1);
      arrive_both(me, ds_empty(smem, before));
      add_part(me, dq1, 8, 8);
      next_sum(me, x, m);
      wgmma_wait(0);
      touch_f32x128(dk);
      arrive_both(me, q_empty(smem, slot));
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)128;
    }
  }
  store_dk(me, dk, x, a); /* while dS of the last step is awaited */
  if (steps > 0) {
    {
      const int i = steps;
      const int before = (i & 1) ^ 1;
      /* The sender, which has waited for ds_full, arrives there too. */
      bar_wait(peer_full(smem, before), (i - 1) >> 1 & 1);
      issue_dq1_2(me, dq1, before);
      wgmma_wait(0);
      touch_f32x32(dq1);
      add_part(me, dq1, 8, 8);
    }
  }
}

KERNEL void kiln_backward(PARAM TensorMap map_q, PARAM TensorMap map_k, PARAM TensorMap map_v,
                          PARAM TensorMap map_do, PARAM BackwardArgs a) {
  const u32 smem = shared_base();
  const int warp = redux_max_i32(thread_index() / 32);
  const int rank = redux_max_i32((int)cluster_rank());
  const i64 t = block_index() / 2;
  if (t >= a.tiles) return;
  if (thread_index() == 0) {
    bar_init(k_full(smem), 1);
    bar_init(v_full(smem), 1);
    bar_init(p_full(smem), 4); /* one arrival a warp */
    bar_init(p_empty(smem), 8);
    for (int i = 0; i < 2; i++) {
      bar_init(q_full(smem, i), 1);
      bar_init(q_empty(smem, i), 16);
      bar_init(ds_full(smem, i), 4);
      bar_init(ds_empty(smem, i), 16);
      bar_init(peer_full(smem, i), 1);
    }
    for (int i = 0; i < 1; i++) {
      bar_init(do_full(smem, i), 1);
      bar_init(do_empty(smem, i), 16);
    }
    fence_bar_init();
  }
  cluster_sync();
  const Tile x = tile_of(t, rank, &a);
  if (warp < 4) {
    reg_dec(24);
    if (thread_index() == 0) produce(smem, rank, x, &map_q, &map_k, &map_v, &map_do, &a);
    if (thread_index() == 32) send_ds(smem, rank, x, &a);
    sync_warp();
  } else {
    reg_inc(240);
    Consumer me = consumer_of(smem, warp, rank, x, &a);
    if (warp < 8) run_scores(&me, x, &a);
    else run_gradients(&me, x, &a);
  }
  cluster_sync(); /* until then the other thread block reaches into this one's shared memory */
}
/* ---- after: dQ = scale times the sums, from the order of fragments to rows ---- */

/* All loads are started before the first is used. */
KERNEL void kiln_convert(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const i64 first = (block - head_index * a.m_blocks) * 64;
  const int lane = thread_index() & 31;
  const char *sums = (const char *)a.workspace + a.workspace_at[0] + block * 65536 + 16 * lane;
  char *dq = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head);
  float x[4][16];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int part = thread_index() / 32 + 8 * i;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int eight = part / 4 * 4 + j; /* of columns */
      u32 w[4] = {0, 0, 0, 0};
      if (eight < 32) ldg_u32x4(w, sums + eight * 2048 + part % 4 * 512);
#pragma unroll
      for (int r = 0; r < 4; r++) x[i][4 * j + r] = as_float(w[r]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int part = thread_index() / 32 + 8 * i;
    const int chunk = part / 4 * 4 + (lane & 3), is_inside = chunk < 32;
    const i64 row = first + part % 4 * 16 + lane / 4;
    store_part(x[i], 4, a.softmax_scale, dq + 2 * row * a.dq_stride.row + 16 * chunk,
               16 * a.dq_stride.row, is_inside && row < a.seqlen_q,
               is_inside && row + 8 < a.seqlen_q, lane);
  }
}

// kiln 0.1.0  do not edit
// kiln generate --arch sm_90a --pass backward --dtype fp16 --head-dim 192 --head-dim-v 128 --deterministic --block-m 64 --block-n 64 --num-stages 2 --num-warps 12 --plain
// source id 0365a072d63323d181161e233c79ca66a813a52058905b4415e529b804688588
// family hopper_wide_backward
// spec arch=sm_90a pass=backward algorithm=flash dtype=fp16 head_dim=192 head_dim_v=128 mask=none deterministic=1
// tile block_m=64 block_n=64 num_stages=2 num_warps=12
// shared memory 147616 of 232448 bytes
//    offset     bytes  region
//         0     24576  k
//     24576     16384  v
//     40960     49152  q
//     90112     32768  do
//    122880      8192  p
//    131072     16384  ds
//    147456       160  bars

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
DEV void sync_threads(void) {
  __syncthreads();
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
DEV u32 pack_fp16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
DEV float unpack_fp16(u32 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((u16)x));
  return y;
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
DEV void red_add_u32_release(u32 *p, u32 x) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" :: "l"(p), "r"(x) : "memory");
}
DEV void semaphore_wait(const u32 *p, u32 value) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               ".reg .b32 x;\n"
               "L_try:\n"
               "ld.acquire.gpu.global.u32 x, [%0];\n"
               "setp.eq.u32 p, x, %1;\n"
               "@p bra L_done;\n"
               "bra L_try;\n"
               "L_done:\n"
               "}"
               :: "l"(p), "r"(value) : "memory");
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
DEV void fence_async(void) {
  asm volatile("fence.proxy.async.shared::cta;" :: : "memory");
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
#define wgmma_add_ss_n128_fp16_tab(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %64, %66;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %65, %67;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
               "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, da, db, 1, 1, 1, 1, 1;\n" \
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
               "+f"((d)[60]), "+f"((d)[61]), "+f"((d)[62]), "+f"((d)[63]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_add_ss_n192_fp16_tab(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %96, %98;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %97, %99;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
               "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
               "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
               "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, da, db, 1, 1, 1, 1, 1;\n" \
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
               "+f"((d)[95]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_add_ss_n32_fp16_t(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %16, %18;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %17, %19;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, " \
               "%7, %8, %9, %10, %11, %12, %13, %14, %15}, da, db, 1, 1, 1, 0, 1;\n" \
               "}" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), \
               "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), \
               "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), \
               "+f"((d)[15]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_add_ss_n64_fp16(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, " \
               "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
               "%23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 1, 1, 1, 0, 0;\n" \
               "}" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), \
               "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), \
               "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), \
               "+f"((d)[15]), "+f"((d)[16]), "+f"((d)[17]), "+f"((d)[18]), "+f"((d)[19]), \
               "+f"((d)[20]), "+f"((d)[21]), "+f"((d)[22]), "+f"((d)[23]), "+f"((d)[24]), \
               "+f"((d)[25]), "+f"((d)[26]), "+f"((d)[27]), "+f"((d)[28]), "+f"((d)[29]), \
               "+f"((d)[30]), "+f"((d)[31]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_add_ss_n64_fp16_t(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, " \
               "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
               "%23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 1, 1, 1, 0, 1;\n" \
               "}" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), \
               "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), \
               "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), \
               "+f"((d)[15]), "+f"((d)[16]), "+f"((d)[17]), "+f"((d)[18]), "+f"((d)[19]), \
               "+f"((d)[20]), "+f"((d)[21]), "+f"((d)[22]), "+f"((d)[23]), "+f"((d)[24]), \
               "+f"((d)[25]), "+f"((d)[26]), "+f"((d)[27]), "+f"((d)[28]), "+f"((d)[29]), \
               "+f"((d)[30]), "+f"((d)[31]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_set_ss_n32_fp16_t(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %16, %18;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %17, %19;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, " \
               "%7, %8, %9, %10, %11, %12, %13, %14, %15}, da, db, 0, 1, 1, 0, 1;\n" \
               "}" \
               : "=f"((d)[0]), "=f"((d)[1]), "=f"((d)[2]), "=f"((d)[3]), "=f"((d)[4]), \
               "=f"((d)[5]), "=f"((d)[6]), "=f"((d)[7]), "=f"((d)[8]), "=f"((d)[9]), \
               "=f"((d)[10]), "=f"((d)[11]), "=f"((d)[12]), "=f"((d)[13]), "=f"((d)[14]), \
               "=f"((d)[15]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_set_ss_n64_fp16(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, " \
               "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
               "%23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 0, 1, 1, 0, 0;\n" \
               "}" \
               : "=f"((d)[0]), "=f"((d)[1]), "=f"((d)[2]), "=f"((d)[3]), "=f"((d)[4]), \
               "=f"((d)[5]), "=f"((d)[6]), "=f"((d)[7]), "=f"((d)[8]), "=f"((d)[9]), \
               "=f"((d)[10]), "=f"((d)[11]), "=f"((d)[12]), "=f"((d)[13]), "=f"((d)[14]), \
               "=f"((d)[15]), "=f"((d)[16]), "=f"((d)[17]), "=f"((d)[18]), "=f"((d)[19]), \
               "=f"((d)[20]), "=f"((d)[21]), "=f"((d)[22]), "=f"((d)[23]), "=f"((d)[24]), \
               "=f"((d)[25]), "=f"((d)[26]), "=f"((d)[27]), "=f"((d)[28]), "=f"((d)[29]), \
               "=f"((d)[30]), "=f"((d)[31]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
#define wgmma_set_ss_n64_fp16_t(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0x40000040};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, " \
               "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
               "%23, %24, %25, %26, %27, %28, %29, %30, %31}, da, db, 0, 1, 1, 0, 1;\n" \
               "}" \
               : "=f"((d)[0]), "=f"((d)[1]), "=f"((d)[2]), "=f"((d)[3]), "=f"((d)[4]), \
               "=f"((d)[5]), "=f"((d)[6]), "=f"((d)[7]), "=f"((d)[8]), "=f"((d)[9]), \
               "=f"((d)[10]), "=f"((d)[11]), "=f"((d)[12]), "=f"((d)[13]), "=f"((d)[14]), \
               "=f"((d)[15]), "=f"((d)[16]), "=f"((d)[17]), "=f"((d)[18]), "=f"((d)[19]), \
               "=f"((d)[20]), "=f"((d)[21]), "=f"((d)[22]), "=f"((d)[23]), "=f"((d)[24]), \
               "=f"((d)[25]), "=f"((d)[26]), "=f"((d)[27]), "=f"((d)[28]), "=f"((d)[29]), \
               "=f"((d)[30]), "=f"((d)[31]) \
               : "r"(a), "r"(b), "n"(a_step), "n"(b_step))
DEV void touch_f32x16(float *r) {
  asm volatile(""
               : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]), "+f"(r[4]), "+f"(r[5]),
               "+f"(r[6]), "+f"(r[7]), "+f"(r[8]), "+f"(r[9]), "+f"(r[10]), "+f"(r[11]),
               "+f"(r[12]), "+f"(r[13]), "+f"(r[14]), "+f"(r[15])
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
DEV void touch_f32x64(float *r) {
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
               "+f"(r[60]), "+f"(r[61]), "+f"(r[62]), "+f"(r[63])
               : : "memory");
}
DEV void touch_f32x96(float *r) {
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
               "+f"(r[90]), "+f"(r[91]), "+f"(r[92]), "+f"(r[93]), "+f"(r[94]), "+f"(r[95])
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
 */
/* What both Hopper families of the backward pass share. */

/* The sum of the products of eight pairs of 16-bit numbers. */
DEV float dot(const u32 *u, const u32 *w) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sum = fmaf(unpack_fp16(u[i] & 0xffff), unpack_fp16(w[i] & 0xffff), sum);
    sum = fmaf(unpack_fp16(u[i] >> 16), unpack_fp16(w[i] >> 16), sum);
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
 * then batch; 16 lanes a row. All loads are started before the first is used. */
KERNEL void kiln_preprocess(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * 64;
  const int lane = thread_index() % 16, row0 = thread_index() / 16;
  char *sums = (char *)a.workspace + a.workspace_at[0] + block * 49152;
  float *statistics = (float *)((char *)a.workspace + a.workspace_at[1]) + block * 128;
  const char *o = (const char *)a.o + 16 * lane +
                  2 * (batch * a.o_stride.batch + head * a.o_stride.head);
  const char *dout = (const char *)a.dout + 16 * lane +
                     2 * (batch * a.do_stride.batch + head * a.do_stride.head);
  u32 u[4][4], w[4][4];
  const u32 zero[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const i64 row = first + row0 + 16 * i;
#pragma unroll
    for (int j = 0; j < 4; j++) u[i][j] = w[i][j] = 0;
    if (row >= a.seqlen_q || row >= first + 64 || lane >= 16) continue;
    ldg_u32x4(u[i], o + 2 * row * a.o_stride.row);
    ldg_u32x4(w[i], dout + 2 * row * a.do_stride.row);
  }
#pragma unroll 4
  for (int i = thread_index(); i < 3072; i += 256) stg_u32x4(sums + 16 * i, zero);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = row0 + 16 * i;
    const i64 row = first + r;
    float delta = dot(u[i], w[i]);
    delta += shfl_xor_f32(delta, 1);
    delta += shfl_xor_f32(delta, 2);
    delta += shfl_xor_f32(delta, 4);
    delta += shfl_xor_f32(delta, 8);
    if (lane != 0 || r >= 64) continue;
    const float lse =
        row < a.seqlen_q ? ldg_f32(a.lse + head_index * a.seqlen_q + row) : NEG_INFINITY;
    stg_f32(statistics + r, lse == NEG_INFINITY ? lse : -lse * 1.44269504f);
    stg_f32(statistics + 64 + r, delta);
  }
}

/* ---- barriers: full = the bytes have landed, empty = every reader is done. What another barrier
 * tells is not waited for: P is there, so the keys and queries it was made of are. ---- */

DEV u32 q_full(u32 smem, int slot) { return smem + 147456 + 8 * slot; }
DEV u32 q_empty(u32 smem, int slot) { return smem + 147472 + 8 * slot; }
DEV u32 ds_full(u32 smem, int slot) { return smem + 147488 + 8 * slot; }
DEV u32 ds_empty(u32 smem, int slot) { return smem + 147504 + 8 * slot; }
DEV u32 do_full(u32 smem, int slot) { return smem + 147520 + 8 * slot; }
DEV u32 do_empty(u32 smem, int slot) { return smem + 147536 + 8 * slot; }
DEV u32 turn_full(u32 smem, int group) { return smem + 147552 + 8 * group; }
DEV u32 turn_done(u32 smem, int group) { return smem + 147568 + 8 * group; }
DEV u32 k_full(u32 smem) { return smem + 147584; }
DEV u32 v_full(u32 smem) { return smem + 147592; }
DEV u32 p_full(u32 smem) { return smem + 147600; }
DEV u32 p_empty(u32 smem) { return smem + 147608; }

/* ---- tiles ---- */

/* A tile of keys. Query blocks before m0 see none of them; those before masked see some. */
typedef struct {
  int n, head_k, batch;
  int first; /* key of the thread block */
  int m0, masked;
} Tile;

/* The tiles of a section of heads by key block, then the next section: those of a head, which add
 * in turns, begin one behind the other, so that none waits for long. */
DEV Tile tile_of(i64 t, int rank, const BackwardArgs *a) {
  Tile x;
  i64 head;
  i64 width = 384 / ((i64)a->group * a->m_blocks + 1) + 1;
  head = head_of_section(t, width, a, &x.n);
  x.m0 = x.masked = 0;
  x.first = x.n * 64 + rank * 64;
  if ((i64)x.first + 64 > a->seqlen_k) x.masked = a->m_blocks;
  x.batch = (int)(head / a->num_heads_k);
  x.head_k = (int)(head - (i64)x.batch * a->num_heads_k);
  return x;
}
/* Steps of a tile: a query block of a query head each */
DEV int steps_of(Tile x, const BackwardArgs *a) { return (a->m_blocks - x.m0) * a->group; }

/* ---- producer: one thread ---- */

/* Sends keys and values once, then a query block and its dO a step. */
DEV void produce(u32 smem, int rank, Tile x, const TensorMap *map_q, const TensorMap *map_k,
                 const TensorMap *map_v, const TensorMap *map_do, const BackwardArgs *a) {
  const u64 keep = 0x14F0000000000000ull, once = 0x12F0000000000000ull; /* L2: evict last, first */
  const int steps = steps_of(x, a), row_k = x.first;
  int head = x.head_k * a->group, m = x.m0;
  if (steps == 0) return;
  bar_expect(k_full(smem), 24576);
  for (int c = 0; c < 3; c++)
    tma_load(smem + 0 + c * 8192, map_k, k_full(smem), 64 * c, row_k, x.head_k, x.batch,
             once);
  (void)rank;
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int slot = i & 1;
    bar_wait(q_empty(smem, slot), (i >> 1 & 1) ^ 1);
    bar_expect(q_full(smem, slot), 24576);
    for (int c = 0; c < 3; c++)
      tma_load(smem + 40960 + slot * 24576 + c * 8192, map_q, q_full(smem, slot),
               64 * c, m * 64, head, x.batch, keep);
    if (i == 0) {
      bar_expect(v_full(smem), 16384);
      for (int c = 0; c < 2; c++)
        tma_load(smem + 24576 + c * 8192, map_v, v_full(smem), 64 * c, row_k, x.head_k,
                 x.batch, once);
    }
    const int place = slot, parity = i >> 1 & 1;
    bar_wait(do_empty(smem, place), parity ^ 1);
    bar_expect(do_full(smem, place), 16384);
    for (int c = 0; c < 2; c++)
      tma_load(smem + 90112 + place * 16384 + c * 8192, map_do,
               do_full(smem, place), 64 * c, m * 64, head, x.batch, keep);
    if (++m == a->m_blocks) {
      m = x.m0;
      head++;
    }
  }
}

/* ---- turns: a thread for each consumer ---- */

/* Tiles add to dQ in turns, in the order of their keys: a semaphore for each query block and
 * consumer counts those that have. The consumer goes on while its additions end. */
DEV void keep_turns(u32 smem, int rank, int group, Tile x, const BackwardArgs *a) {
  const int steps = steps_of(x, a);
  const i64 block = ((i64)x.batch * a->num_heads + x.head_k * a->group) * a->m_blocks + x.m0;
  u32 *semaphore = (u32 *)((char *)a->workspace + a->workspace_at[2]) +
                   2 * block + 2 * rank + group;
  int m = x.m0;
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int turn = x.n;
    semaphore_wait(semaphore, (u32)turn);
    bar_arrive(turn_full(smem, group));
    bar_wait(turn_done(smem, group), i & 1);
    red_add_u32_release(semaphore, 1);
    semaphore += 2;
    if (++m == a->m_blocks) {
      m = x.m0;
      semaphore += (i64)2 * x.m0;
    }
  }
}
/* ---- consumers: a warpgroup each ---- */

typedef struct {
  u32 smem, matrix;        /* matrix: lower word of the descriptor of shared memory's first byte */
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
  const u32 q = me->matrix + slot * 1536;
  wgmma_fence();
  wgmma_set_ss_n64_fp16(s, q, 2560,
           me->matrix, 0);
  wgmma_add_ss_n64_fp16(s, q, 2562,
           me->matrix, 2);
  wgmma_add_ss_n64_fp16(s, q, 2564,
           me->matrix, 4);
  wgmma_add_ss_n64_fp16(s, q, 2566,
           me->matrix, 6);
  wgmma_add_ss_n64_fp16(s, q, 3072,
           me->matrix, 512);
  wgmma_add_ss_n64_fp16(s, q, 3074,
           me->matrix, 514);
  wgmma_add_ss_n64_fp16(s, q, 3076,
           me->matrix, 516);
  wgmma_add_ss_n64_fp16(s, q, 3078,
           me->matrix, 518);
  wgmma_add_ss_n64_fp16(s, q, 3584,
           me->matrix, 1024);
  wgmma_add_ss_n64_fp16(s, q, 3586,
           me->matrix, 1026);
  wgmma_add_ss_n64_fp16(s, q, 3588,
           me->matrix, 1028);
  wgmma_add_ss_n64_fp16(s, q, 3590,
           me->matrix, 1030);
  wgmma_commit();
}
/* t (queries x keys) = dO V^T */
DEV void issue_gradients(const Consumer *me, float *t, int place) {
  const u32 dout = me->matrix + place * 1024;
  wgmma_fence();
  wgmma_set_ss_n64_fp16(t, dout, 5632,
           me->matrix, 1536);
  wgmma_add_ss_n64_fp16(t, dout, 5634,
           me->matrix, 1538);
  wgmma_add_ss_n64_fp16(t, dout, 5636,
           me->matrix, 1540);
  wgmma_add_ss_n64_fp16(t, dout, 5638,
           me->matrix, 1542);
  wgmma_add_ss_n64_fp16(t, dout, 6144,
           me->matrix, 2048);
  wgmma_add_ss_n64_fp16(t, dout, 6146,
           me->matrix, 2050);
  wgmma_add_ss_n64_fp16(t, dout, 6148,
           me->matrix, 2052);
  wgmma_add_ss_n64_fp16(t, dout, 6150,
           me->matrix, 2054);
  wgmma_commit();
}
/* dV (keys x columns) += P^T dO */
DEV void issue_dv(const Consumer *me, float *dv, int place) {
  const u32 dout = me->matrix + place * 1024;
  wgmma_fence();
  wgmma_add_ss_n128_fp16_tab(dv,
           me->matrix, 7680, dout, 5632);
  wgmma_add_ss_n128_fp16_tab(dv,
           me->matrix, 7808, dout, 5760);
  wgmma_add_ss_n128_fp16_tab(dv,
           me->matrix, 7936, dout, 5888);
  wgmma_add_ss_n128_fp16_tab(dv,
           me->matrix, 8064, dout, 6016);
  wgmma_commit();
}
/* dK (keys x columns) += dS^T Q; dS and Q have the same place in their rings */
DEV void issue_dk(const Consumer *me, float *dk, int slot) {
  const u32 ds = me->matrix + slot * 512;
  const u32 q = me->matrix + slot * 1536;
  wgmma_fence();
  wgmma_add_ss_n192_fp16_tab(dk, ds, 8192, q, 2560);
  wgmma_add_ss_n192_fp16_tab(dk, ds, 8320, q, 2688);
  wgmma_add_ss_n192_fp16_tab(dk, ds, 8448, q, 2816);
  wgmma_add_ss_n192_fp16_tab(dk, ds, 8576, q, 2944);
  wgmma_commit();
}
/* dQ (queries x columns 0 to 63) = dS K */
DEV void issue_dq1_1(const Consumer *me, float *dq, int slot) {
  const u32 ds = me->matrix + slot * 512;
  const u32 k = me->matrix;
  wgmma_fence();
  wgmma_set_ss_n64_fp16_t(dq, ds, 8192,
           k, 0);
  wgmma_add_ss_n64_fp16_t(dq, ds, 8194,
           k, 128);
  wgmma_add_ss_n64_fp16_t(dq, ds, 8196,
           k, 256);
  wgmma_add_ss_n64_fp16_t(dq, ds, 8198,
           k, 384);
  wgmma_commit();
}
/* dQ (queries x columns 64 to 95) = dS K */
DEV void issue_dq2_1(const Consumer *me, float *dq, int slot) {
  const u32 ds = me->matrix + slot * 512;
  const u32 k = me->matrix;
  wgmma_fence();
  wgmma_set_ss_n32_fp16_t(dq, ds, 8192,
           k, 512);
  wgmma_add_ss_n32_fp16_t(dq, ds, 8194,
           k, 640);
  wgmma_add_ss_n32_fp16_t(dq, ds, 8196,
           k, 768);
  wgmma_add_ss_n32_fp16_t(dq, ds, 8198,
           k, 896);
  wgmma_commit();
}
/* dQ (queries x columns 96 to 127) = dS K */
DEV void issue_dq1_2(const Consumer *me, float *dq, int slot) {
  const u32 ds = me->matrix + slot * 512;
  const u32 k = me->matrix;
  wgmma_fence();
  wgmma_set_ss_n32_fp16_t(dq, ds, 8192,
           k, 516);
  wgmma_add_ss_n32_fp16_t(dq, ds, 8194,
           k, 644);
  wgmma_add_ss_n32_fp16_t(dq, ds, 8196,
           k, 772);
  wgmma_add_ss_n32_fp16_t(dq, ds, 8198,
           k, 900);
  wgmma_commit();
}
/* dQ (queries x columns 128 to 191) = dS K */
DEV void issue_dq2_2(const Consumer *me, float *dq, int slot) {
  const u32 ds = me->matrix + slot * 512;
  const u32 k = me->matrix;
  wgmma_fence();
  wgmma_set_ss_n64_fp16_t(dq, ds, 8192,
           k, 1024);
  wgmma_add_ss_n64_fp16_t(dq, ds, 8194,
           k, 1152);
  wgmma_add_ss_n64_fp16_t(dq, ds, 8196,
           k, 1280);
  wgmma_add_ss_n64_fp16_t(dq, ds, 8198,
           k, 1408);
  wgmma_commit();
}

/* ---- between the products ---- */

DEV void arrive(const Consumer *me, u32 bar) {
  if (me->lane == 0) bar_arrive(bar);
}
/* Puts `hidden` at keys past the end. */
DEV void mask_block(const Consumer *me, float *s, float hidden, Tile x, int m,
                    const BackwardArgs *a) {
  const int column = x.first + 2 * (me->lane & 3), end = a->seqlen_k - column;
  const int limit0 = end, limit1 = end;
  (void)m;
#pragma unroll
  for (int j = 0; j < 8; j++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s[4 * j + i] = 8 * j + i < limit0 ? s[4 * j + i] : hidden;
      s[4 * j + 2 + i] = 8 * j + i < limit1 ? s[4 * j + 2 + i] : hidden;
    }
  }
}
/* p = 2^(s c + bias), rounded to fp16 */
DEV void exponentials(u32 *p, const float *s, const float *bias, float c) {
#pragma unroll
  for (int i = 0; i < 16; i++)
    p[i] = pack_fp16(ex2(fmaf(s[2 * i], c, bias[i % 2])), ex2(fmaf(s[2 * i + 1], c, bias[i % 2])));
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
      const float low = unpack_fp16(p[i] & 0xffff), high = unpack_fp16(p[i] >> 16);
      p[i] = pack_fp16(low * y[0], high * y[1]);
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
  me->sums += blocks * 12288;
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
        w[i] = pack_fp16(y[0] * scale, y[1] * scale);
      }
      quad_transpose(w, lane);
      if (4 * j < (r ? chunks1 : chunks0)) stg_u32x4(to + r * further + 64 * j, w);
    }
  }
}
DEV void store_dk(const Consumer *me, const float *dk, Tile x,
              const BackwardArgs *a) {
  const int quad = me->lane & 3, row = x.first + me->row, chunks = 24 - quad;
  char *to = (char *)a->dk + 2 * (x.batch * a->dk_stride.batch +
                                row * a->dk_stride.row +
                                x.head_k * a->dk_stride.head + 8 * quad);
  store_part(dk, 24, a->softmax_scale, to, 16 * a->dk_stride.row,
             row < a->seqlen_k ? chunks : 0, row + 8 < a->seqlen_k ? chunks : 0, me->lane);
}
DEV void store_dv(const Consumer *me, const float *dv, Tile x,
              const BackwardArgs *a) {
  const int quad = me->lane & 3, row = x.first + me->row, chunks = 16 - quad;
  char *to = (char *)a->dv + 2 * (x.batch * a->dv_stride.batch +
                                row * a->dv_stride.row +
                                x.head_k * a->dv_stride.head + 8 * quad);
  store_part(dv, 16, 1.0f, to, 16 * a->dv_stride.row,
             row < a->seqlen_k ? chunks : 0, row + 8 < a->seqlen_k ? chunks : 0, me->lane);
}
/* ---- the walk ---- */

DEV Consumer consumer_of(u32 smem, int warp, int rank, Tile x, const BackwardArgs *a) {
  Consumer me;
  me.smem = smem;
  me.matrix = descriptor(smem, 8192);
  me.warp = warp;
  me.lane = thread_index() & 31;
  me.row = warp % 4 * 16 + me.lane / 4;
  me.fragment = (warp % 4 * 16 + (me.lane & 15)) * 128 + ((me.lane >> 4 ^ (me.lane & 7)) << 4);
  const i64 block = ((i64)x.batch * a->num_heads + x.head_k * a->group) * a->m_blocks + x.m0;
  const char *workspace = (const char *)a->workspace;
  me.statistics = (const float *)(workspace + a->workspace_at[1]) + block * 128 + me.row;
  me.sums = (float *)(workspace + a->workspace_at[0]) + block * 12288 + warp % 4 * 128 +
            4 * me.lane + rank * 0;
  return me;
}

/* Consumer 1: S, P, dV */
DEV void run_scores(Consumer *me, Tile x, const BackwardArgs *a) {
  float dv[64], s[32];
  float dq1[32];
  float dq2[16];
#pragma unroll
  for (int i = 0; i < 64; i++) dv[i] = 0.0f;
  touch_f32x64(dv); /* else the zeros come behind the fence */
  const int steps = redux_max_i32(steps_of(x, a));
  const u32 smem = me->smem;
  const float c = a->scale_log2;
  int m = x.m0;
  if (steps > 0) {
    bar_wait(k_full(smem), 0);
    {
      const int i = 0;
      const int slot = i & 1;
      const int place = slot, turn = i >> 1 & 1;
      u32 p[16];
      const float bias[2] = {ldg_f32(me->statistics), ldg_f32(me->statistics + 8)};
      bar_wait(q_full(smem, slot), i >> 1 & 1);
      issue_scores(me, s, slot);
      wgmma_wait(0);
      touch_f32x32(s);
      arrive(me, q_empty(smem, slot));
      if (m < x.masked) mask_block(me, s, NEG_INFINITY, x, m, a);
      exponentials(p, s, bias, c);
      store_block(me, 122880, p);
      publish(me, p_full(smem));
      bar_wait(p_full(smem), i & 1);
      bar_wait(do_full(smem, place), turn);
      issue_dv(me, dv, place);
      wgmma_wait(0);
      touch_f32x64(dv);
      arrive(me, do_empty(smem, place));
      arrive(me, p_empty(smem));
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)128;
    }
#pragma unroll 1
    for (int i = 1; i < steps; i++) {
      const int slot = i & 1;
      const int place = slot, turn = i >> 1 & 1;
      const int before = (i & 1) ^ 1;
      u32 p[16];
      const float bias[2] = {ldg_f32(me->statistics), ldg_f32(me->statistics + 8)};
      bar_wait(q_full(smem, slot), i >> 1 & 1);
      issue_scores(me, s, slot);
      bar_wait(ds_full(smem, before), (i - 1) >> 1 & 1);
      issue_dq1_1(me, dq1, before);
      wgmma_wait(1);
      touch_f32x32(s);
      arrive(me, q_empty(smem, slot));
      if (m < x.masked) mask_block(me, s, NEG_INFINITY, x, m, a);
      exponentials(p, s, bias, c);
      bar_wait(p_empty(smem), (i & 1) ^ 1);
      store_block(me, 122880, p);
      publish(me, p_full(smem));
      issue_dq2_1(me, dq2, before);
      bar_wait(p_full(smem), i & 1);
      bar_wait(do_full(smem, place), turn);
      issue_dv(me, dv, place);
      wgmma_wait(2);
      touch_f32x32(dq1);
      bar_wait(turn_full(smem, 0), before); /* whose turn it is; before = i - 1 mod 2 */
      add_part(me, dq1, 0, 8);
      wgmma_wait(1);
      touch_f32x16(dq2);
      arrive(me, ds_empty(smem, before));
      add_part(me, dq2, 8, 4);
      sync_warp();
      arrive(me, turn_done(smem, 0));
      next_sum(me, x, m);
      wgmma_wait(0);
      touch_f32x64(dv);
      arrive(me, do_empty(smem, place));
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
      bar_wait(ds_full(smem, before), (i - 1) >> 1 & 1);
      issue_dq1_1(me, dq1, before);
      issue_dq2_1(me, dq2, before);
      wgmma_wait(1);
      touch_f32x32(dq1);
      bar_wait(turn_full(smem, 0), before); /* whose turn it is; before = i - 1 mod 2 */
      add_part(me, dq1, 0, 8);
      wgmma_wait(0);
      touch_f32x16(dq2);
      add_part(me, dq2, 8, 4);
      sync_warp();
      arrive(me, turn_done(smem, 0));
    }
  }
}
/* Consumer 2: dP, dS, dK */
DEV void run_gradients(Consumer *me, Tile x, const BackwardArgs *a) {
  float dk[96], t[32];
  float dq1[16];
  float dq2[32];
#pragma unroll
  for (int i = 0; i < 96; i++) dk[i] = 0.0f;
  touch_f32x96(dk); /* else the zeros come behind the fence */
  const int steps = redux_max_i32(steps_of(x, a));
  const u32 smem = me->smem;
  int m = x.m0;
  if (steps > 0) {
    bar_wait(v_full(smem), 0);
    {
      const int i = 0;
      const int slot = i & 1;
      const int place = slot, turn = i >> 1 & 1;
      const float *own = me->statistics + 64;
      const float delta[2] = {ldg_f32(own), ldg_f32(own + 8)};
      bar_wait(do_full(smem, place), turn);
      issue_gradients(me, t, place);
      bar_wait(p_full(smem), i & 1);
      wgmma_wait(0);
      touch_f32x32(t);
      arrive(me, do_empty(smem, place));
#pragma unroll
      for (int j = 0; j < 32; j++) t[j] -= delta[j / 2 % 2];
      differentiate(me, 122880, 131072 + slot * 8192, t);
      publish(me, ds_full(smem, slot));
      arrive(me, p_empty(smem));
      bar_wait(ds_full(smem, slot), i >> 1 & 1);
      issue_dk(me, dk, slot);
      wgmma_wait(0);
      touch_f32x96(dk);
      arrive(me, q_empty(smem, slot));
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)128;
    }
#pragma unroll 1
    for (int i = 1; i < steps; i++) {
      const int slot = i & 1;
      const int place = slot, turn = i >> 1 & 1;
      const int before = (i & 1) ^ 1;
      const float *own = me->statistics + 64;
      const float delta[2] = {ldg_f32(own), ldg_f32(own + 8)};
      bar_wait(do_full(smem, place), turn);
      issue_gradients(me, t, place);
      issue_dq1_2(me, dq1, before);
      bar_wait(p_full(smem), i & 1);
      wgmma_wait(1);
      touch_f32x32(t);
      arrive(me, do_empty(smem, place));
#pragma unroll
      for (int j = 0; j < 32; j++) t[j] -= delta[j / 2 % 2];
      bar_wait(ds_empty(smem, slot), (i >> 1 & 1) ^ 1);
      differentiate(me, 122880, 131072 + slot * 8192, t);
      publish(me, ds_full(smem, slot));
      arrive(me, p_empty(smem));
      issue_dq2_2(me, dq2, before);
      bar_wait(ds_full(smem, slot), i >> 1 & 1);
      issue_dk(me, dk, slot);
      wgmma_wait(2);
      touch_f32x16(dq1);
      bar_wait(turn_full(smem, 1), before); /* whose turn it is; before = i - 1 mod 2 */
      add_part(me, dq1, 12, 4);
      wgmma_wait(1);
      touch_f32x32(dq2);
      arrive(me, ds_empty(smem, before));
      add_part(me, dq2, 16, 8);
      sync_warp();
      arrive(me, turn_done(smem, 1));
      next_sum(me, x, m);
      wgmma_wait(0);
      touch_f32x96(dk);
      arrive(me, q_empty(smem, slot));
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)128;
    }
  }
  store_dk(me, dk, x, a); /* while dS of the last step is awaited */
  if (steps > 0) {
    {
      const int i = steps;
      const int before = (i & 1) ^ 1;
      issue_dq1_2(me, dq1, before);
      issue_dq2_2(me, dq2, before);
      wgmma_wait(1);
      touch_f32x16(dq1);
      bar_wait(turn_full(smem, 1), before); /* whose turn it is; before = i - 1 mod 2 */
      add_part(me, dq1, 12, 4);
      wgmma_wait(0);
      touch_f32x32(dq2);
      add_part(me, dq2, 16, 8);
      sync_warp();
      arrive(me, turn_done(smem, 1));
    }
  }
}

KERNEL void kiln_backward(PARAM TensorMap map_q, PARAM TensorMap map_k, PARAM TensorMap map_v,
                          PARAM TensorMap map_do, PARAM BackwardArgs a) {
  const u32 smem = shared_base();
  const int warp = redux_max_i32(thread_index() / 32);
  const int rank = 0;
  const i64 t = block_index();
  if (t >= a.tiles) return;
  if (thread_index() == 0) {
    bar_init(k_full(smem), 1);
    bar_init(v_full(smem), 1);
    bar_init(p_full(smem), 4); /* one arrival a warp */
    bar_init(p_empty(smem), 8);
    for (int i = 0; i < 2; i++) {
      bar_init(q_full(smem, i), 1);
      bar_init(q_empty(smem, i), 8);
      bar_init(ds_full(smem, i), 4);
      bar_init(turn_full(smem, i), 1);
      bar_init(turn_done(smem, i), 4);
      bar_init(ds_empty(smem, i), 8);
    }
    for (int i = 0; i < 2; i++) {
      bar_init(do_full(smem, i), 1);
      bar_init(do_empty(smem, i), 8);
    }
    fence_bar_init();
  }
  sync_threads();
  const Tile x = tile_of(t, rank, &a);
  if (warp < 4) {
    reg_dec(24);
    if (thread_index() == 0) produce(smem, rank, x, &map_q, &map_k, &map_v, &map_do, &a);
    if (thread_index() == 64 || thread_index() == 96)
      keep_turns(smem, rank, thread_index() / 32 - 2, x, &a);
  } else {
    reg_inc(240);
    Consumer me = consumer_of(smem, warp, rank, x, &a);
    if (warp < 8) run_scores(&me, x, &a);
    else run_gradients(&me, x, &a);
  }
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
  const char *sums = (const char *)a.workspace + a.workspace_at[0] + block * 49152 + 16 * lane;
  char *dq = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head);
  float x[3][16];
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int part = thread_index() / 32 + 8 * i;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int eight = part / 4 * 4 + j; /* of columns */
      u32 w[4] = {0, 0, 0, 0};
      if (eight < 24) ldg_u32x4(w, sums + eight * 2048 + part % 4 * 512);
#pragma unroll
      for (int r = 0; r < 4; r++) x[i][4 * j + r] = as_float(w[r]);
    }
  }
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int part = thread_index() / 32 + 8 * i;
    const int chunk = part / 4 * 4 + (lane & 3), is_inside = chunk < 24;
    const i64 row = first + part % 4 * 16 + lane / 4;
    store_part(x[i], 4, a.softmax_scale, dq + 2 * row * a.dq_stride.row + 16 * chunk,
               16 * a.dq_stride.row, is_inside && row < a.seqlen_q,
               is_inside && row + 8 < a.seqlen_q, lane);
  }
}

// kiln 0.1.0  do not edit
// kiln generate --arch sm_90a --pass backward --dtype bf16 --head-dim 128 --causal --block-m 64 --block-n 128 --num-stages 2 --num-warps 12 --plain
// source id 59e98e3628b2b922827b82685a355e9290628717fd73f3e5b47b0a37aca578c1
// family hopper_backward
// spec arch=sm_90a pass=backward algorithm=flash dtype=bf16 head_dim=128 head_dim_v=128 mask=causal
// tile block_m=64 block_n=128 num_stages=2 num_warps=12
// shared memory 166912 of 232448 bytes
//    offset     bytes  region
//         0     32768  k
//     32768     32768  v
//     65536     32768  q
//     98304     32768  do
//    131072      2048  statistics
//    133120       256  ones
//    133376       128  bars
//    134144     32768  ds

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
DEV void sts_u32(u32 at, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" :: "r"(at), "r"(x) : "memory");
}
DEV void stmatrix_x4_trans(u32 at, const u32 *r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
DEV float ldg_f32(const float *p) {
  return *p;
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
DEV void bulk_load(u32 to, const void *from, u32 bytes, u32 bar, u64 policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
               "[%1], %2, [%3], %4;"
               :: "r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy) : "memory");
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
#define wgmma_add_rs_n128_bf16_t(d, a, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 y, %68, %69;\n" \
               "mov.b64 db, {y, 0x40000040};\n" \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
               "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, db, 1, " \
               "1, 1, 1;\n" \
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
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b), "n"(b_step))
#define wgmma_add_rs_n64_bf16_flat(d, a, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 y, %36, %37;\n" \
               "mov.b64 db, {y, 8};\n" \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, " \
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, db, 1, " \
               "1, 1, 0;\n" \
               "}" \
               : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), "+f"((d)[4]), \
               "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7]), "+f"((d)[8]), "+f"((d)[9]), \
               "+f"((d)[10]), "+f"((d)[11]), "+f"((d)[12]), "+f"((d)[13]), "+f"((d)[14]), \
               "+f"((d)[15]), "+f"((d)[16]), "+f"((d)[17]), "+f"((d)[18]), "+f"((d)[19]), \
               "+f"((d)[20]), "+f"((d)[21]), "+f"((d)[22]), "+f"((d)[23]), "+f"((d)[24]), \
               "+f"((d)[25]), "+f"((d)[26]), "+f"((d)[27]), "+f"((d)[28]), "+f"((d)[29]), \
               "+f"((d)[30]), "+f"((d)[31]) \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b), "n"(b_step))
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
#define wgmma_add_ss_n64_bf16_flat(d, a, a_step, b, b_step) asm volatile("{\n" \
               ".reg .b32 x, y;\n" \
               ".reg .b64 da, db;\n" \
               "add.u32 x, %32, %34;\n" \
               "mov.b64 da, {x, 0};\n" \
               "add.u32 y, %33, %35;\n" \
               "mov.b64 db, {y, 8};\n" \
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
DEV void touch_u32x16(u32 *r) {
  asm volatile(""
               : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]), "+r"(r[4]), "+r"(r[5]),
               "+r"(r[6]), "+r"(r[7]), "+r"(r[8]), "+r"(r[9]), "+r"(r[10]), "+r"(r[11]),
               "+r"(r[12]), "+r"(r[13]), "+r"(r[14]), "+r"(r[15])
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

/* FlashAttention backward for TMA and wgmma. A thread block owns 128 keys of one key head
 * and walks over the blocks of 64 queries that see them, for every query head of the group.
 * Warpgroup 0 is the producer; the two consumers own 64 keys each. S^T = K Q^T and dP^T = V dO^T
 * stay in registers, where P^T and dS^T are the first operands of dV += P^T dO and dK += dS^T Q. dS
 * goes through shared memory, since dQ = dS K sums over the keys of both; dQ of one block is formed
 * while the next is computed, so the consumers may drift apart by a block.
 *
 * The statistics of the queries come in through the tensor cores: a row's -lse / scale and -delta
 * are three bf16 numbers each, and the last instruction of S^T and of dP^T multiplies them by
 * ones. So P = 2^((S - lse / scale) c) and dS = P (dP - delta) cost one multiplication a score
 * each. */
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

/* -lse / scale and -delta = -rowsum(dO o) of a query as three bf16 numbers each, which together
 * have the bits of an fp32. A row that sees no key, or lies past the end, gets P = 0. */
DEV void split_bf16(float x, u32 *part) {
#pragma unroll
  for (int i = 0; i < 3; i++) {
    part[i] = pack_bf16(x, 0.0f) & 0xffff;
    x -= unpack_bf16(part[i]);
  }
}

/* Query blocks of 64 rows: m block fastest, then head, then batch; 16 lanes a row.
 * All loads are started before the first is used. */
KERNEL void kiln_preprocess(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * 64;
  const int lane = thread_index() % 16, row0 = thread_index() / 16;
  char *sums = (char *)a.workspace + a.workspace_at[0] + block * 32768;
  char *statistics = (char *)a.workspace + a.workspace_at[1] + block * 1024;
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
  for (int i = thread_index(); i < 2048; i += 256)
    stg_u32x4(sums + 16 * i, zero);
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
    u32 x[3], y[3];
    split_bf16(lse == NEG_INFINITY ? -3e38f : -lse * 1.44269504f / a.scale_log2, x);
    split_bf16(-delta, y);
    const u32 words[4] = {x[0] | x[1] << 16, x[2] | y[0] << 16, y[1] | y[2] << 16, 0};
    stg_u32x4(statistics + 16 * r, words);
  }
}
/* ---- after: dQ = scale times the sums, from the order of fragments to rows ---- */

/* A warp converts a part of a query block whose first row of dQ is at `dq`; rows: those that are
 * inside the tensor. All loads are started before the first is used. */
DEV void convert_part(const char *sums, int part, char *dq, i64 row_bytes, int rows, float scale) {
  const int lane = thread_index() & 31;
  const int row = part % 4 * 16 + lane / 4;
  const int first = part / 4 * 8 + (lane & 3); /* chunk */
  u32 x[8][4];
#pragma unroll
  for (int j = 0; j < 8; j++)
    ldg_u32x4(x[j], sums + part * 4096 + 512 * j + 16 * lane);
#pragma unroll
  for (int j = 8; j < 8; j++)
    x[j][0] = x[j][1] = x[j][2] = x[j][3] = 0;
#pragma unroll
  for (int j = 0; j < 8; j += 4) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      u32 w[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        w[i] = pack_bf16(as_float(x[j + i][2 * r]) * scale, as_float(x[j + i][2 * r + 1]) * scale);
      quad_transpose(w, lane);
      if (row + 8 * r < rows && first + j < 16)
        stg_u32x4(dq + (row + 8 * r) * row_bytes + 16 * (first + j), w);
    }
  }
}

/* Query block `block`, counted over all heads, by warp `warp` of 8. */
DEV void convert_block(i64 block, int warp, const BackwardArgs *a) {
  const i64 head_index = block / a->m_blocks, batch = head_index / a->num_heads;
  const i64 first = (block - head_index * a->m_blocks) * 64;
  char *dq = (char *)a->dq + 2 * (batch * a->dq_stride.batch +
                                  (head_index - batch * a->num_heads) * a->dq_stride.head +
                                  first * a->dq_stride.row);
  const i64 rows = a->seqlen_q - first;
  convert_part((const char *)a->workspace + a->workspace_at[0] + block * 32768, warp, dq,
               2 * a->dq_stride.row, rows < 64 ? (int)rows : 64, a->softmax_scale);
}

KERNEL void kiln_convert(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  convert_block(block_index(), thread_index() / 32, &a);
}

/* ---- barriers: full = the bytes have landed, empty = every reader is done. A place for dO is
 * empty where that for the queries is: its readers are done before. ---- */

DEV u32 q_full(u32 smem, int slot) { return smem + 133376 + 8 * slot; }
DEV u32 q_empty(u32 smem, int slot) { return smem + 133392 + 8 * slot; }
DEV u32 do_full(u32 smem, int slot) { return smem + 133408 + 8 * slot; }
DEV u32 ds_full(u32 smem, int slot) { return smem + 133424 + 8 * slot; }
DEV u32 ds_empty(u32 smem, int slot) { return smem + 133440 + 8 * slot; }
DEV u32 k_full(u32 smem) { return smem + 133456; }
DEV u32 v_full(u32 smem) { return smem + 133464; }

/* ---- tiles ---- */

/* A tile of keys. Query blocks before m0 see none of them; those before masked see some. */
typedef struct {
  int n, head_k, batch;
  int m0, masked;
} Tile;

/* The tiles of a section of heads whose queries, gradients and sums stay in L2, by key block; then
 * the next section. The first block, which the most queries see, comes first. */
DEV Tile tile_of(i64 t, const BackwardArgs *a) {
  Tile x;
  i64 head;
  const i64 bytes = (i64)a->group * a->seqlen_q * 1024;
  const i64 most = 41943040 / (bytes > 0 ? bytes : 1);
  i64 width = 16777216 / (bytes > 0 ? bytes : 1); /* the fastest, but of 8 heads at least */
  if (width < 8) width = most < 1 ? 1 : most < 8 ? most : 8;
  head = head_of_section(t, width, a, &x.n);
  const i64 diagonal = (i64)a->seqlen_k - a->seqlen_q;
  const i64 first = x.n * (i64)128 - diagonal, last = first + 127;
  const i64 m0 = first < 0 ? 0 : first / 64;
  x.m0 = m0 < a->m_blocks ? (int)m0 : a->m_blocks;
  const i64 masked = last <= 0 ? 0 : (last + 63) / 64;
  x.masked = masked < a->m_blocks ? (int)masked : a->m_blocks;
  if ((x.n + 1) * (i64)128 > a->seqlen_k) x.masked = a->m_blocks;
  x.batch = (int)(head / a->num_heads_k);
  x.head_k = (int)(head - (i64)x.batch * a->num_heads_k);
  return x;
}
/* Steps of a tile: a query block of a query head each */
DEV int steps_of(Tile x, const BackwardArgs *a) { return (a->m_blocks - x.m0) * a->group; }

/* ---- producer: one thread ---- */

/* Sends keys and values once, then a query block and its dO a step, a ring of two places each. The
 * statistics travel with the queries. */
DEV void produce(u32 smem, Tile x, const TensorMap *map_q, const TensorMap *map_k,
                 const TensorMap *map_v, const TensorMap *map_do, const BackwardArgs *a) {
  /* In L2: evict last, evict first */
  const u64 keep = 0x14F0000000000000ull, once = 0x12F0000000000000ull;
  const int steps = steps_of(x, a), row_k = x.n * 128;
  const char *statistics = (const char *)a->workspace + a->workspace_at[1];
  int head = x.head_k * a->group, m = x.m0;
  if (steps == 0) return;
  bar_expect(k_full(smem), 32768);
  for (int c = 0; c < 2; c++)
    tma_load(smem + 0 + c * 16384, map_k, k_full(smem), 64 * c, row_k, x.head_k,
             x.batch, once);
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int slot = i & 1, parity = (i >> 1 & 1) ^ 1;
    const i64 block = ((i64)x.batch * a->num_heads + head) * a->m_blocks + m;
    bar_wait(q_empty(smem, slot), parity);
    bar_expect(q_full(smem, slot), 17408);
    for (int c = 0; c < 2; c++)
      tma_load(smem + 65536 + slot * 16384 + c * 8192, map_q,
               q_full(smem, slot), 64 * c, m * 64, head, x.batch, keep);
    bulk_load(smem + 131072 + slot * 1024,
              statistics + block * 1024, 1024, q_full(smem, slot), keep);
    if (i == 0) {
      bar_expect(v_full(smem), 32768);
      for (int c = 0; c < 2; c++)
        tma_load(smem + 32768 + c * 16384, map_v, v_full(smem), 64 * c, row_k,
                 x.head_k, x.batch, once);
    }
    bar_expect(do_full(smem, slot), 16384);
    for (int c = 0; c < 2; c++)
      tma_load(smem + 98304 + slot * 16384 + c * 8192, map_do,
               do_full(smem, slot), 64 * c, m * 64, head, x.batch, keep);
    if (++m == a->m_blocks) {
      m = x.m0;
      head++;
    }
  }
}
/* ---- consumers: a warpgroup each ---- */

typedef struct {
  u32 smem;
  int group, lane, warp_row; /* warp_row: first of the warp's 16 keys within the tile */
  /* Lower words of descriptors: of K and V by row (this group's 64 keys), of the first places of
   * the rings, by row and by column; of dS; of what dQ multiplies it by. */
  u32 k, v, q_rows, do_rows, q_columns, do_columns, ds, k_columns;
  u32 statistics, ones;
  u32 ones_s[4];             /* the first operand that takes -lse / scale to S */
  float *sums;               /* this lane's part of the dQ that is put out next */
} Consumer;

/* Lower word of a shared-memory matrix descriptor, 128-byte swizzle; panel_stride: bytes between
 * groups of 64 columns of a tile that is read by columns. */
DEV u32 descriptor(u32 address, u32 panel_stride) {
  return (address >> 4 & 0x3fff) | panel_stride >> 4 << 16;
}

/* ---- products; all are started only ---- */

/* s (64 keys x 64 queries) = K Q^T - lse / scale, of the ring's place. The products first,
 * in the forward pass's order: then S is what lse was made of, and of large scores only the
 * difference is rounded. */
DEV void issue_scores(const Consumer *me, float *s, int slot) {
  const u32 q = me->q_rows + slot * 1024;
  const u32 statistics = me->statistics + slot * 64;
  wgmma_fence();
  wgmma_set_ss_n64_bf16(s, me->k, 0, q, 0);
  wgmma_add_ss_n64_bf16(s, me->k, 2, q, 2);
  wgmma_add_ss_n64_bf16(s, me->k, 4, q, 4);
  wgmma_add_ss_n64_bf16(s, me->k, 6, q, 6);
  wgmma_add_ss_n64_bf16(s, me->k, 1024, q, 512);
  wgmma_add_ss_n64_bf16(s, me->k, 1026, q, 514);
  wgmma_add_ss_n64_bf16(s, me->k, 1028, q, 516);
  wgmma_add_ss_n64_bf16(s, me->k, 1030, q, 518);
  wgmma_add_rs_n64_bf16_flat(s, me->ones_s, statistics, 0);
  wgmma_commit();
}
/* t (64 keys x 64 queries) = V dO^T - delta */
DEV void issue_gradients(const Consumer *me, float *t, int slot) {
  const u32 dout = me->do_rows + slot * 1024;
  const u32 statistics = me->statistics + slot * 64;
  wgmma_fence();
  wgmma_set_ss_n64_bf16(t, me->v, 0, dout, 0);
  wgmma_add_ss_n64_bf16(t, me->v, 2, dout, 2);
  wgmma_add_ss_n64_bf16(t, me->v, 4, dout, 4);
  wgmma_add_ss_n64_bf16(t, me->v, 6, dout, 6);
  wgmma_add_ss_n64_bf16(t, me->v, 1024, dout, 512);
  wgmma_add_ss_n64_bf16(t, me->v, 1026, dout, 514);
  wgmma_add_ss_n64_bf16(t, me->v, 1028, dout, 516);
  wgmma_add_ss_n64_bf16(t, me->v, 1030, dout, 518);
  wgmma_add_ss_n64_bf16_flat(t, me->ones, 0, statistics, 0);
  wgmma_commit();
}
/* dv (64 keys x 128) += p dout */
DEV void issue_dv(const Consumer *me, float *dv, const u32 *p, int slot) {
  const u32 x = me->do_columns + slot * 1024;
  wgmma_fence();
  wgmma_add_rs_n128_bf16_t(dv, p + 0, x, 0);
  wgmma_add_rs_n128_bf16_t(dv, p + 4, x, 128);
  wgmma_add_rs_n128_bf16_t(dv, p + 8, x, 256);
  wgmma_add_rs_n128_bf16_t(dv, p + 12, x, 384);
  wgmma_commit();
}
/* dk (64 keys x 128) += p q */
DEV void issue_dk(const Consumer *me, float *dk, const u32 *p, int slot) {
  const u32 x = me->q_columns + slot * 1024;
  wgmma_fence();
  wgmma_add_rs_n128_bf16_t(dk, p + 0, x, 0);
  wgmma_add_rs_n128_bf16_t(dk, p + 4, x, 128);
  wgmma_add_rs_n128_bf16_t(dk, p + 8, x, 256);
  wgmma_add_rs_n128_bf16_t(dk, p + 12, x, 384);
  wgmma_commit();
}
/* dq (64 queries x this group's 64 columns) = dS K */
DEV void issue_dq(const Consumer *me, float *dq, int buffer) {
  const u32 ds = me->ds + buffer * 1024;
  wgmma_fence();
  wgmma_set_ss_n64_bf16_t(dq, ds, 0, me->k_columns, 0);
  wgmma_add_ss_n64_bf16_t(dq, ds, 2, me->k_columns, 128);
  wgmma_add_ss_n64_bf16_t(dq, ds, 4, me->k_columns, 256);
  wgmma_add_ss_n64_bf16_t(dq, ds, 6, me->k_columns, 384);
  wgmma_add_ss_n64_bf16_t(dq, ds, 512, me->k_columns, 512);
  wgmma_add_ss_n64_bf16_t(dq, ds, 514, me->k_columns, 640);
  wgmma_add_ss_n64_bf16_t(dq, ds, 516, me->k_columns, 768);
  wgmma_add_ss_n64_bf16_t(dq, ds, 518, me->k_columns, 896);
  wgmma_commit();
}

/* ---- between the products ---- */

/* Puts `hidden` at keys past the end and those past a query's diagonal: rows
 * are keys, columns queries of block m. */
DEV void mask_block(const Consumer *me, float *s, float hidden, Tile x, int m,
                    const BackwardArgs *a) {
  const int key = x.n * 128 + me->warp_row + me->lane / 4;
  /* The first query that sees the key, from this lane's first column on */
  const i64 from = (i64)key - a->seqlen_k + a->seqlen_q - (i64)m * 64 - 2 * (me->lane & 3);
  const int from0 = from < 0 ? 0 : from > 64 ? 64 : (int)from;
  const int from1 = from + 8 < 0 ? 0 : from + 8 > 64 ? 64 : (int)(from + 8);
  const int first0 = key < a->seqlen_k ? from0 : 64;
  const int first1 = key + 8 < a->seqlen_k ? from1 : 64;
#pragma unroll
  for (int j = 0; j < 8; j++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s[4 * j + i] = 8 * j + i >= first0 ? s[4 * j + i] : hidden;
      s[4 * j + 2 + i] = 8 * j + i >= first1 ? s[4 * j + 2 + i] : hidden;
    }
  }
}
/* s <- 2^(s c) */
DEV void exponentials(float *s, float c) {
#pragma unroll
  for (int i = 0; i < 32; i++) s[i] = ex2(s[i] * c);
}
/* Rounded to bf16: accumulators and first operands have the same layout. */
DEV void pack_block(u32 *to, const float *from) {
#pragma unroll
  for (int i = 0; i < 16; i++) to[i] = pack_bf16(from[2 * i], from[2 * i + 1]);
}
/* Lays dS^T into shared memory as dS: rows are queries, a panel of 64 keys for each group. */
DEV void store_ds(const Consumer *me, const u32 *g, int buffer) {
  const int row = (me->lane >> 4) * 8 + (me->lane & 7);
  const int chunk = me->warp_row % 64 / 8 + (me->lane >> 3 & 1);
  const u32 panel = me->smem + 134144 + buffer * 16384 +
                    me->group * 8192;
  const u32 to = panel + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll
  for (int j = 0; j < 4; j++) stmatrix_x4_trans(to + 2048 * j, g + 4 * j);
}
DEV void arrive(const Consumer *me, u32 bar) {
  if (me->lane == 0) bar_arrive(bar);
}
/* Adds the part of dQ to the sum in global memory. */
DEV void put_dq(const Consumer *me, const float *dq) {
#pragma unroll
  for (int j = 0; j < 8; j++) red_add_f32x4(me->sums + 128 * j, dq + 4 * j);
}

/* ---- dK and dV ---- */

DEV void store_dk(const Consumer *me, const float *dk, Tile x,
                    const BackwardArgs *a) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = x.n * 128 + me->warp_row + me->lane / 4 + 8 * r;
    char *to = (char *)a->dk + 2 * (x.batch * a->dk_stride.batch +
                                  row * a->dk_stride.row +
                                  x.head_k * a->dk_stride.head + 8 * (me->lane & 3));
    /* Chunks of the row from this lane's first on */
    const int chunks = row < a->seqlen_k ? 16 - (me->lane & 3) : 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 w[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (4 * j + i >= 16) continue;
        const float *y = dk + 16 * j + 4 * i + 2 * r;
        w[i] = pack_bf16(y[0] * a->softmax_scale, y[1] * a->softmax_scale);
      }
      quad_transpose(w, me->lane);
      if (4 * j < chunks) stg_u32x4(to + 64 * j, w);
    }
  }
}
DEV void store_dv(const Consumer *me, const float *dv, Tile x,
                    const BackwardArgs *a) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = x.n * 128 + me->warp_row + me->lane / 4 + 8 * r;
    char *to = (char *)a->dv + 2 * (x.batch * a->dv_stride.batch +
                                  row * a->dv_stride.row +
                                  x.head_k * a->dv_stride.head + 8 * (me->lane & 3));
    /* Chunks of the row from this lane's first on */
    const int chunks = row < a->seqlen_k ? 16 - (me->lane & 3) : 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 w[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (4 * j + i >= 16) continue;
        const float *y = dv + 16 * j + 4 * i + 2 * r;
        w[i] = pack_bf16(y[0], y[1]);
      }
      quad_transpose(w, me->lane);
      if (4 * j < chunks) stg_u32x4(to + 64 * j, w);
    }
  }
}

/* ---- the walk ---- */

DEV Consumer consumer_of(u32 smem, int warp, Tile x, const BackwardArgs *a) {
  Consumer me;
  me.smem = smem;
  me.group = warp / 4 - 1;
  me.lane = thread_index() & 31;
  me.warp_row = (warp - 4) * 16;
  me.k = descriptor(smem + 0 + me.group * 8192, 0);
  me.v = descriptor(smem + 32768 + me.group * 8192, 0);
  me.q_rows = descriptor(smem + 65536, 0);
  me.do_rows = descriptor(smem + 98304, 0);
  me.q_columns = descriptor(smem + 65536, 8192);
  me.do_columns = descriptor(smem + 98304, 8192);
  me.ds = descriptor(smem + 134144, 0);
  me.k_columns = descriptor(smem + 0 + me.group * 16384, 16384);
  me.statistics = descriptor(smem + 131072, 0);
  me.ones = descriptor(smem + 133120, 128);
  const int quad = me.lane & 3;
  me.ones_s[0] = me.ones_s[1] = quad == 0 ? 0x3f803f80u : quad == 1 ? 0x3f80u : 0;
  me.ones_s[2] = me.ones_s[3] = 0;
  const i64 block = ((i64)x.batch * a->num_heads + x.head_k * a->group) * a->m_blocks + x.m0;
  me.sums = (float *)((char *)a->workspace + a->workspace_at[0] + block * 32768) +
            (warp - 4) * 1024 + 4 * me.lane;
  return me;
}

DEV void consume(u32 smem, int warp, Tile x, const BackwardArgs *a) {
  float s[32], t[32], dk[64], dv[64];
  u32 p[16], g[16];
  const int steps = redux_max_i32(steps_of(x, a));
  Consumer me = consumer_of(smem, warp, x, a);
  const float c = a->scale_log2;
  int m = x.m0;
#pragma unroll
  for (int i = 0; i < 64; i++) dk[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < 64; i++) dv[i] = 0.0f;
  if (steps > 0) {
    bar_wait(k_full(smem), 0);
    bar_wait(q_full(smem, 0), 0);
    /* Half of the diagonal's tiles: no query of the first block sees a key of this group. */
    const i64 unseen = (i64)x.n * 128 + 64 * me.group - a->seqlen_k + a->seqlen_q -
                       ((i64)m + 1) * 64;
    if (redux_max_i32(unseen >= 0)) {
#pragma unroll
      for (int j = 0; j < 16; j++) g[j] = 0;
      store_ds(&me, g, 0);
      fence_async();
      sync_warp();
      arrive(&me, ds_full(smem, 0));
      if (++m == a->m_blocks) m = x.m0;
      if (steps > 1) bar_wait(q_full(smem, 1), 0);
      issue_scores(&me, s, steps > 1);
      bar_wait(v_full(smem), 0);
      if (steps > 1) bar_wait(do_full(smem, 1), 0);
      wgmma_wait(0);
      touch_f32x32(s);
      arrive(&me, q_empty(smem, 0));
    } else {
      issue_scores(&me, s, 0);
      bar_wait(v_full(smem), 0);
      wgmma_wait(0);
      touch_f32x32(s);
      bar_wait(do_full(smem, 0), 0);
      const int i = 0;
      const int slot = i & 1;
      /* S^T of the next step; after the last one it is that of the last again, and not used. */
      const int more = i + 1 < steps, next = more ? slot ^ 1 : slot, next_parity = (i + 1) >> 1 & 1;
      issue_gradients(&me, t, slot);
      if (m < x.masked) mask_block(&me, s, NEG_INFINITY, x, m, a);
      exponentials(s, c);
      pack_block(p, s);
      issue_dv(&me, dv, p, slot);
      wgmma_wait(1);
      touch_f32x32(t);
      if (m < x.masked) mask_block(&me, t, 0.0f, x, m, a); /* it may be infinite where P is 0 */
#pragma unroll
      for (int j = 0; j < 32; j++) t[j] *= s[j];
      pack_block(g, t);
      store_ds(&me, g, slot);
      fence_async();
      sync_warp();
      arrive(&me, ds_full(smem, slot));
      issue_dk(&me, dk, g, slot);
      wgmma_wait(1);
      touch_u32x16(p);
      touch_f32x64(dv);
      if (++m == a->m_blocks) m = x.m0;
      if (more) bar_wait(q_full(smem, next), next_parity);
      issue_scores(&me, s, next);
      if (more) bar_wait(do_full(smem, next), next_parity);
      wgmma_wait(0);
      touch_f32x32(s);
      touch_f32x64(dk);
      touch_u32x16(g);
      arrive(&me, q_empty(smem, slot));
    }
#pragma unroll 1
    for (int i = 1; i < steps; i++) {
      const int slot = i & 1;
      /* S^T of the next step; after the last one it is that of the last again, and not used. */
      const int more = i + 1 < steps, next = more ? slot ^ 1 : slot, next_parity = (i + 1) >> 1 & 1;
      float dq[32];
      issue_gradients(&me, t, slot);
      if (m < x.masked) mask_block(&me, s, NEG_INFINITY, x, m, a);
      exponentials(s, c);
      pack_block(p, s);
      issue_dv(&me, dv, p, slot);
      wgmma_wait(1);
      touch_f32x32(t);
      if (m < x.masked) mask_block(&me, t, 0.0f, x, m, a); /* it may be infinite where P is 0 */
#pragma unroll
      for (int j = 0; j < 32; j++) t[j] *= s[j];
      pack_block(g, t);
      bar_wait(ds_empty(smem, slot), (i >> 1 & 1) ^ 1);
      store_ds(&me, g, slot);
      fence_async();
      sync_warp();
      arrive(&me, ds_full(smem, slot));
      bar_wait(ds_full(smem, slot ^ 1), (i - 1) >> 1 & 1);
      issue_dq(&me, dq, slot ^ 1);
      issue_dk(&me, dk, g, slot);
      wgmma_wait(1);
      touch_u32x16(p);
      touch_f32x64(dv);
      touch_f32x32(dq);
      arrive(&me, ds_empty(smem, slot ^ 1));
      put_dq(&me, dq);
      me.sums += 8192;
      if (m == x.m0) me.sums += (i64)x.m0 * 8192;
      if (++m == a->m_blocks) m = x.m0;
      if (more) bar_wait(q_full(smem, next), next_parity);
      issue_scores(&me, s, next);
      if (more) bar_wait(do_full(smem, next), next_parity);
      wgmma_wait(0);
      touch_f32x32(s);
      touch_f32x64(dk);
      touch_u32x16(g);
      arrive(&me, q_empty(smem, slot));
    }
    const int last = steps - 1;
    float dq[32];
    bar_wait(ds_full(smem, last & 1), last >> 1 & 1);
    issue_dq(&me, dq, last & 1);
    wgmma_wait(0);
    touch_f32x32(dq);
    put_dq(&me, dq);
  }
  store_dv(&me, dv, x, a);
  store_dk(&me, dk, x, a);
}

KERNEL void kiln_backward(PARAM TensorMap map_q, PARAM TensorMap map_k, PARAM TensorMap map_v,
                          PARAM TensorMap map_do, PARAM BackwardArgs a) {
  const u32 smem = shared_base();
  const int warp = redux_max_i32(thread_index() / 32);
  if (block_index() >= a.tiles) return;
  if (thread_index() == 0) {
    bar_init(k_full(smem), 1);
    bar_init(v_full(smem), 1);
    for (int i = 0; i < 2; i++) {
      bar_init(q_full(smem, i), 1);
      bar_init(q_empty(smem, i), 8); /* one arrival a warp */
      bar_init(do_full(smem, i), 1);
      bar_init(ds_full(smem, i), 8);
      bar_init(ds_empty(smem, i), 8);
    }
    fence_bar_init();
  }
  /* Ones for -delta: a core matrix of columns 0 to 7, and zeros for columns 8 to 15. */
  if (thread_index() < 64) {
    const int word = thread_index() & 3, is_zero = thread_index() >= 32;
    sts_u32(smem + 133120 + 4 * thread_index(),
            is_zero ? 0 : word == 1 ? 0x3f800000u : word == 2 ? 0x3f803f80u : 0);
    fence_async();
  }
  sync_threads();
  const Tile x = tile_of(block_index(), &a);
  if (warp < 4) {
    reg_dec(24);
    if (thread_index() == 0) produce(smem, x, &map_q, &map_k, &map_v, &map_do, &a);
  } else {
    reg_inc(240);
    consume(smem, warp, x, &a);
  }
}

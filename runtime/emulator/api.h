/* The instructions that emulated kernel text calls, as one list: the function table between the
 * shared object that the host's compiler makes of a kernel and the emulator. The kernel's side of
 * it is rendered from generator/lua/wrappers.lua by emulator.lua; tests/lua/test_emulator.lua
 * checks that this list is the same in names, order and signatures. kiln__emu_NAME implements NAME;
 * table.c collects them. `site` is the place in the template: "file:line: text". */
#ifndef KILN_EMULATOR_API_H
#define KILN_EMULATOR_API_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

typedef struct TensorMap TensorMap; /* tensor_map.h */

// clang-format off
#define KILN_EMU_API(X) \
  X(int, thread_index, (const char *site)) \
  X(i64, block_index, (const char *site)) \
  X(i64, block_index_again, (const char *site)) \
  X(i64, num_blocks, (const char *site)) \
  X(void, sync_threads, (const char *site)) \
  X(void, sync_warp, (const char *site)) \
  X(void, named_sync, (int id, int threads, const char *site)) \
  X(void, named_arrive, (int id, int threads, const char *site)) \
  X(int, shfl_i32, (int x, int lane, const char *site)) \
  X(float, shfl_xor_f32, (float x, int lanes, const char *site)) \
  X(u32, shfl_xor_u32, (u32 x, int lanes, const char *site)) \
  X(int, any_sync, (int x, const char *site)) \
  X(int, redux_max_i32, (int x, const char *site)) \
  X(u32, redux, (int op, int is_signed, u32 x, const char *site)) \
  X(float, shfl_f32, (float x, int lane, const char *site)) \
  X(int, shfl_up_i32, (int x, int lanes, const char *site)) \
  X(int, shfl_down_i32, (int x, int lanes, const char *site)) \
  X(int, all_sync, (int x, const char *site)) \
  X(u32, ballot_sync, (int x, const char *site)) \
  X(int, elect_one, (const char *site)) \
  X(u32, shared_base, (const char *site)) \
  X(int, lds_i32, (u32 at, const char *site)) \
  X(void, sts_i32, (u32 at, int x, const char *site)) \
  X(float, lds_f32, (u32 at, const char *site)) \
  X(void, sts_f32, (u32 at, float x, const char *site)) \
  X(void, sts_u32, (u32 at, u32 x, const char *site)) \
  X(void, lds_u32x4, (u32 *r, u32 at, const char *site)) \
  X(int, lds_flag, (u32 at, const char *site)) \
  X(void, sts_flag, (u32 at, int x, const char *site)) \
  X(void, ldmatrix_x4, (u32 *r, u32 at, const char *site)) \
  X(void, ldmatrix_x4_trans, (u32 *r, u32 at, const char *site)) \
  X(void, stmatrix_x4, (u32 at, const u32 *r, const char *site)) \
  X(void, stmatrix_x4_trans, (u32 at, const u32 *r, const char *site)) \
  X(void, sts_u32x4, (u32 at, const u32 *r, const char *site)) \
  X(u32, atomic_shared_add_u32, (u32 at, u32 x, const char *site)) \
  X(int, atomic_shared_max_i32, (u32 at, int x, const char *site)) \
  X(float, atomic_shared_add_f32, (u32 at, float x, const char *site)) \
  X(float, ldg_f32, (const float *p, const char *site)) \
  X(void, stg_f32, (float *p, float x, const char *site)) \
  X(u32, ldg_u16, (const u16 *p, const char *site)) \
  X(void, stg_u16, (u16 *p, u32 x, const char *site)) \
  X(void, stg_u32, (void *p, u32 x, const char *site)) \
  X(void, ldg_u32x4, (u32 *r, const void *p, const char *site)) \
  X(void, stg_u32x4, (void *p, const u32 *r, const char *site)) \
  X(u64, atomic_add_u64, (u64 *p, u64 x, const char *site)) \
  X(u32, atomic_add_u32, (u32 *p, u32 x, const char *site)) \
  X(u32, atomic_inc_u32, (u32 *p, u32 last, const char *site)) \
  X(u32, atomic_exch_u32, (u32 *p, u32 x, const char *site)) \
  X(u32, atomic_cas_u32, (u32 *p, u32 expected, u32 x, const char *site)) \
  X(int, atomic_max_i32, (int *p, int x, const char *site)) \
  X(float, atomic_add_f32, (float *p, float x, const char *site)) \
  X(u32, atomic_add_u32_acq_rel, (u32 *p, u32 x, const char *site)) \
  X(void, red_add_f32, (float *p, float x, const char *site)) \
  X(void, red_add_f32x2, (float *p, const float *x, const char *site)) \
  X(void, red_add_f32x4, (float *p, const float *x, const char *site)) \
  X(u32, ldg_acquire_u32, (const u32 *p, const char *site)) \
  X(void, stg_release_u32, (u32 *p, u32 x, const char *site)) \
  X(void, red_add_u32_release, (u32 *p, u32 x, const char *site)) \
  X(void, semaphore_wait, (const u32 *p, u32 value, const char *site)) \
  X(void, fence_gpu, (const char *site)) \
  X(void, cp_async_16, (u32 to, const void *from, int bytes, const char *site)) \
  X(void, cp_async_commit, (const char *site)) \
  X(void, cp_async_wait, (int pending, const char *site)) \
  X(void, mma_m16n8k16, (int dtype, float *d, const u32 *a, const u32 *b, const char *site)) \
  X(void, bar_init, (u32 bar, u32 arrivals, const char *site)) \
  X(void, fence_bar_init, (const char *site)) \
  X(void, bar_expect, (u32 bar, u32 bytes, const char *site)) \
  X(void, bar_arrive, (u32 bar, const char *site)) \
  X(void, bar_arrive_peer, (u32 bar, u32 block, const char *site)) \
  X(void, bar_wait, (u32 bar, u32 parity, const char *site)) \
  X(int, bar_try, (u32 bar, u32 parity, const char *site)) \
  X(void, tma_load, (u32 to, const TensorMap *map, u32 bar, int col, int row, int head, \
    int batch, u64 policy, const char *site)) \
  X(void, tma_load_multicast, (u32 to, const TensorMap *map, u32 bar, int col, int row, \
    int head, int batch, u64 policy, u16 blocks, const char *site)) \
  X(void, tma_store, (const TensorMap *map, u32 from, int col, int row, int head, int batch, \
    const char *site)) \
  X(void, tma_load_tile, (int rank, u32 to, const TensorMap *map, u32 bar, int c0, int c1, \
    int c2, int c3, int c4, u64 policy, int blocks, const char *site)) \
  X(void, tma_store_tile, (int rank, int add, const TensorMap *map, u32 from, int c0, int c1, \
    int c2, int c3, int c4, const char *site)) \
  X(void, bulk_load, (u32 to, const void *from, u32 bytes, u32 bar, u64 policy, \
    const char *site)) \
  X(void, bulk_store, (void *to, u32 from, u32 bytes, const char *site)) \
  X(void, bulk_copy_peer, (u32 to, u32 from, u32 bytes, u32 bar, u32 block, const char *site)) \
  X(void, bulk_add, (int dtype, void *to, u32 from, u32 bytes, const char *site)) \
  X(void, tma_prefetch_map, (const TensorMap *map, const char *site)) \
  X(void, bulk_commit, (const char *site)) \
  X(void, bulk_wait, (int pending, const char *site)) \
  X(void, bulk_wait_read, (int pending, const char *site)) \
  X(void, fence_async, (const char *site)) \
  X(void, fence_async_global, (const char *site)) \
  X(void, cluster_sync, (const char *site)) \
  X(u32, cluster_rank, (const char *site)) \
  X(void, reg_dec, (int count, const char *site)) \
  X(void, reg_inc, (int count, const char *site)) \
  X(void, grid_wait, (const char *site)) \
  X(void, grid_launch_dependents, (const char *site)) \
  X(void, wgmma_fence, (const char *site)) \
  X(void, wgmma_commit, (const char *site)) \
  X(void, wgmma_wait, (int pending, const char *site)) \
  X(void, wgmma, (int n, int dtype, int major, float *d, const u32 *registers, u64 a, u64 b, \
    int accumulate, const char *site)) \
  X(void, touch, (const void *registers, int count, const char *site))
// clang-format on

typedef struct kiln_emu_api {
#define X(ret, name, params) ret(*name) params;
  KILN_EMU_API(X)
#undef X
} kiln_emu_api;

#define X(ret, name, params) ret kiln__emu_##name params;
KILN_EMU_API(X)
#undef X

extern const kiln_emu_api kiln__emu_table;

/* What the shared object exports: kiln_emu_entries (ended by a NULL name), kiln_emu_api_size
 * and kiln_emu_init(). */
typedef struct kiln_emu_entry {
  const char *name;
  void (*run)(void **params); /* addresses of the by-value parameters, in order */
  int num_params;
  const unsigned long *sizes; /* bytes of each parameter */
  int talks;                  /* blocks meet in global memory: none may run beside another */
} kiln_emu_entry;

#endif

// A kernel that computes nothing; sync_warp( in a comment asks for no wrapper.
//@ local rows = block_m // 2
KERNEL void kiln_forward(PARAM int args) {
  u32 at = shared_base();
  sts_f32(at, ex2(${f32(half)}));
//@ if fault then
//@   include(fault)
//@ end
  cp_async_wait(0);
  sts_i32(at, ${rows} * ${head_dim});
}

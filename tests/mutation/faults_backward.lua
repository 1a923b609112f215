-- All planted faults: to those of faults.lua, of the forward pass, it adds those of the backward
-- one.
--
-- Invariant: as in faults.lua. Called by planted.lua.
local faults = require("faults")
local fault, edit = faults.fault, faults.edit
local VALUES, BITS = faults.VALUES, "dq has other bits"

local hopper, consume = "backward/hopper.tmpl.cu", "backward/hopper_consume.tmpl.cu"
local produce, before = "backward/hopper_produce.tmpl.cu", "backward/hopper_preprocess.tmpl.cu"
local convert = "backward/hopper_convert.tmpl.cu"
local wide, walk = "backward/hopper_wide.tmpl.cu", "backward/hopper_wide_walk.tmpl.cu"
local wide_produce = "backward/hopper_wide_produce.tmpl.cu"
local wide_consume = "backward/hopper_wide_consume.tmpl.cu"
local wide_before = "backward/hopper_wide_before.tmpl.cu"
local wide_after = "backward/hopper_wide_after.tmpl.cu"
local ampere, ampere_warp = "backward/ampere.tmpl.cu", "backward/ampere_warp.tmpl.cu"
local ampere_before, ampere_after = "backward/preprocess.tmpl.cu", "backward/convert.tmpl.cu"

-- ---- hopper ----

fault("back: queries of another head", "hopper-back-columns", VALUES,
  edit(produce, "int head = x.head_k * a->group, m = x.m0;", "int head = x.head_k, m = x.m0;"))
fault("back: missing mask", "hopper-back-keys", VALUES,
  edit(consume, "      if (m < x.masked) mask_block(&me, s, NEG_INFINITY, x, m, a);\n", ""))
fault("back: dp of hidden keys", "hopper-back-columns", VALUES,
  edit(consume, "if (m < x.masked) mask_block(&me, t, 0.0f, x, m, a);", ""))
fault("back: causal mask off by one", "hopper-back-rows", VALUES,
  edit(consume, "a->seqlen_q - (i64)m * ${block_m} - 2 *",
    "a->seqlen_q - 1 - (i64)m * ${block_m} - 2 *"))
fault("back: turn off by one", "hopper-back-columns-turns", "deadlock",
  edit(produce, "semaphore_wait(semaphore, (u32)before);",
    "semaphore_wait(semaphore, (u32)before + 1);"))
fault("back: no turn among consumers", "hopper-back-keys-turns", "deadlock",
  edit(produce, "(u32)(2 * before + group)", "(u32)(2 * before)"))
fault("back: no turns", "hopper-back-columns-turns", BITS,
  edit(produce, "    semaphore_wait(semaphore, (u32)before);\n", ""))
fault("back: turn given before the sum has arrived", "hopper-back-keys-turns", BITS,
  edit(produce, "    bulk_wait(0);\n", "    bulk_wait_read(0);\n"))
fault("back: missing proxy fence before ds", "hopper-back-columns", "has no fence.proxy.async",
  edit(consume, "      store_ds(&me, g, slot);\n      fence_async();\n",
    "      store_ds(&me, g, slot);\n"))
fault("back: ds of the other consumer not waited for", "hopper-back-rows", "is not ordered after",
  edit(consume, "      bar_wait(ds_full(smem, slot ^ 1), (i - 1) >> 1 & 1);\n", ""))
fault("back: q released before dk", "hopper-back-keys", "may still read",
  edit(consume, "      wgmma_wait(0);\n      touch_f32x${block_m // 2}(s);\n"
    .. "      touch_f32x${d16 // 2}(dk);\n      touch_u32x${block_m // 4}(g);\n"
    .. "      arrive(&me, q_empty(smem, slot));\n",
    "      arrive(&me, q_empty(smem, slot));\n      wgmma_wait(0);\n"
    .. "      touch_f32x${block_m // 2}(s);\n      touch_f32x${d16 // 2}(dk);\n"
    .. "      touch_u32x${block_m // 4}(g);\n"))
fault("back: statistics without their bytes", "hopper-back-keys",
  "more than expected have landed",
  edit(produce, "${q_panels.total + 16 * block_m}", "${q_panels.total}"))
fault("back: dq not scaled", "hopper-back-columns", VALUES,
  edit(convert, ": ${block_m}, a->softmax_scale);", ": ${block_m}, 1.0f);"))
fault("back: sums of dq not cleared", "hopper-back-rows", VALUES,
  edit(before, "    stg_u32x4(sums + 16 * i, zero);", "    ;"))
fault("back: rows past the end are stored", "hopper-back-keys", "lie in no device memory",
  edit(consume, "row < a->seqlen_k ? ${t.dim // 8}", "1 ? ${t.dim // 8}"))

-- ---- hopper, wide heads ----

fault("wide: queries of another head", "wide-back", VALUES,
  edit(wide_produce, "int head = x.head_k * a->group, m = x.m0;",
    "int head = x.head_k, m = x.m0;"))
fault("wide: missing mask", "wide-back", VALUES,
  edit(walk, "      if (m < x.masked) mask_block(me, s, NEG_INFINITY, x, m, a);\n", ""))
fault("wide: dp of hidden keys", "wide-back-pair", VALUES,
  edit(walk, "if (m < x.masked) mask_block(me, t, 0.0f, x, m, a);", ""))
fault("wide: pair: mask of the first thread block for both", "wide-back-pair", VALUES,
  edit(wide, "const i64 all = some + rank * ${block} +", "const i64 all = some +"))
fault("wide: turn off by one", "wide-back-turns", "deadlock",
  edit(wide_produce, "semaphore_wait(semaphore, (u32)turn);",
    "semaphore_wait(semaphore, (u32)turn + 1);"))
fault("wide: no turns", "wide-back-pair-turns", BITS,
  edit(wide_produce, "    semaphore_wait(semaphore, (u32)turn);\n", ""))
fault("wide: pair: ds of the peer not waited for", "wide-back-pair",
  "that nothing has written",
  edit(walk, "      bar_wait(peer_full(smem, before), (i - 1) >> 1 & 1);\n", ""))
fault("wide: pair: released for the own thread block alone", "wide-back-pair",
  "is not ordered after",
  edit(wide, "bar_init(q_empty(smem, i), ${pair and 16 or 8});",
    "bar_init(q_empty(smem, i), 8);"))
fault("wide: pair: one leaves while the other sends", "wide-back-pair", "ended",
  edit(wide, "  cluster_sync(); /* until then", "  /* until then"))
fault("wide: missing proxy fence before p and ds", "wide-back", "has no fence.proxy.async",
  edit(wide_consume, "  fence_async();\n", ""))
fault("wide: dq not scaled", "wide-back", VALUES,
  edit(wide_after, "a.softmax_scale, dq +", "1.0f, dq +"))
fault("wide: sums of dq not cleared", "wide-back-pair", VALUES,
  edit(wide_before, " stg_u32x4(sums + 16 * i, zero);", ";"))

-- ---- ampere ----

local HEAD = "Step step = { x.head * a->group, a->m_blocks - 1 };"
local OTHER_HEAD = "Step step = { x.head, a->m_blocks - 1 };"

fault("ampere: back: queries of another head", "ampere-back-1", VALUES,
  edit(ampere, HEAD, OTHER_HEAD, 1), edit(ampere, HEAD, OTHER_HEAD))
fault("ampere: back: missing mask of p", "ampere-back-2", VALUES,
  edit(ampere, "if (is_masked(x.first, step.block, a))\n        hide(s", "if (0)\n        hide(s"))
fault("ampere: back: causal mask off by one", "ampere-back-2", VALUES,
  edit(ampere_warp, "row + 1 + a->seqlen_k", "row + 2 + a->seqlen_k"))
fault("ampere: back: turn off by one", "ampere-back-1-turns", "deadlock",
  edit(ampere, "semaphore_wait(turn_of(x, s, a), (u32)x.block)",
    "semaphore_wait(turn_of(x, s, a), (u32)x.block + 1)"))
fault("ampere: back: no turns", "ampere-back-2-turns", BITS,
  edit(ampere, "  if (me == 32) semaphore_wait(turn_of(x, s, a), (u32)x.block);\n", ""))
fault("ampere: back: turn handed on before its additions", "ampere-back-2-turns", "deadlock",
  edit(ampere, "red_add_u32_release(turn_of(x, before, a), 1)",
    "red_add_u32_release(turn_of(x, s, a), 1)"))
fault("ampere: back: queries in the slot that is read", "ampere-back-2", "is not ordered after",
  edit(ampere, "feed_q(ring + (${stage_bytes} - slot)", "feed_q(ring + slot"))
local MEETS = "    meet_second();\n"
local FEEDS = "//@ if is_ring then\n    if (left > 1) feed_q(ring + (${stage_bytes} - slot)," ..
  " next, x.batch, a);\n    cp_async_commit();\n//@ end\n"
fault("ampere: back: queries before the halves have met", "ampere-back-2", "is not ordered after",
  edit(ampere, MEETS .. FEEDS, FEEDS .. MEETS))
local SYNC = "  named_sync(${MEET}, ${threads});\n"
local ARRIVE = "  named_arrive(${MET}, ${threads});\n"
fault("ampere: back: both halves arrive first", "ampere-back-1", "a second time",
  edit(ampere, SYNC .. ARRIVE, ARRIVE .. SYNC))
fault("ampere: back: p not waited for", "ampere-back-1", "is not ordered after",
  edit(ampere, "      named_sync(${P_READY} + part, ${threads});\n",
    "      named_arrive(${P_READY} + part, ${threads});\n"))
fault("ampere: back: dq not scaled", "ampere-back-1", VALUES,
  edit(ampere_after, "a.softmax_scale${unscaled};", "1.0f${unscaled};"))

return faults

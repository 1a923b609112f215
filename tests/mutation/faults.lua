-- The planted faults: each a mistake that somebody could make, as exact edits of the templates, the
-- kernel it is planted in, and a part of what the emulator must say of it. SILENT faults are none
-- by the rules of the ISA, and nothing may be said.
--
-- Invariant: the text that an edit replaces occurs once in its file; `nth` names one of several.
-- Called by planted.lua.
local SILENT, VALUES = "SILENT", "is outside its tolerance"

local hopper, consume = "forward/hopper.tmpl.cu", "forward/hopper_consume.tmpl.cu"
local produce, fast = "forward/hopper_produce.tmpl.cu", "forward/hopper_fast.tmpl.cu"
local store = "forward/hopper_store.tmpl.cu"
local exact, ampere = "forward/hopper_exact.tmpl.cu", "forward/ampere.tmpl.cu"

local faults = { SILENT = SILENT }

local function fault(name, kernel, says, ...)
  faults[#faults + 1] = { name = name, kernel = kernel, says = says, edits = { ... } }
end

local function edit(file, old, new, nth) return { file = file, old = old, new = new, nth = nth } end

-- A change of one rendering of a text that Lua renders for k and v.
local function only(name, old, new)
  return edit(produce, old, ("\n//@ if t.name == %q then\n%s\n//@ else\n%s\n//@ end\n"):format(name,
    new, old))
end

-- ---- waits and releases ----

local K_FULL = "  bar_wait(k_full(me->smem, me->k_ring.slot), me->k_ring.parity);\n"
local V_FULL = "  bar_wait(v_full(me->smem, me->v_ring.slot), me->v_ring.parity);\n"
local Q_FULL = "  bar_wait(q_full(me->smem, x.slot, me->group), me->q_ring.parity);\n"
local EMPTY = "bar_wait(${t.name}_empty(me->smem, ring->slot), ring->parity ^ 1);"

fault("K full wait dropped", "hopper-2", "is not ordered after", edit(consume, K_FULL, ""))
fault("V full wait dropped", "hopper-2", "is not ordered after", edit(consume, V_FULL, ""))
fault("Q full wait dropped", "hopper-2", "is not ordered after", edit(consume, Q_FULL, ""))
fault("K empty wait dropped", "hopper-2", "has no arrivals left", only("k", EMPTY, ""))
fault("V empty wait dropped", "hopper-2", "may still read", only("v", EMPTY, ""))
fault("Q empty wait dropped", "hopper-2", "may still read",
  edit(produce, "bar_wait(q_empty(me->smem, slot, w), me->ring.q.parity ^ 1);", "continue;"))
fault("producer parity starts at 0", "hopper-2", "deadlock",
  edit(produce, EMPTY, (EMPTY:gsub(" ^ 1", ""))))
fault("consumer parity starts at 1", "hopper-2", "is not ordered after",
  edit(consume, "  me.c = a->scale_log2;\n", "  me.c = a->scale_log2;\n  me.k_ring.parity = 1;\n"))
fault("parity never flips", "hopper-2", "has no arrivals left",
  edit(hopper, "  ring->parity ^= ring->slot == slots - 1;\n", ""))
fault("Q parity wrong", "hopper-2", "deadlock",
  edit(produce, "me->ring.q.parity ^ 1", "me->ring.q.parity"))
fault("only lane 0 waits for K full, a barrier behind it", "hopper-2", SILENT,
  edit(consume, K_FULL, "  if (me->lane == 0)" .. K_FULL:sub(2)))
fault("only lane 0 waits for V full", "hopper-2", "is not ordered after",
  edit(consume, V_FULL, "  if (me->lane == 0)" .. V_FULL:sub(2)))
fault("K empty count too small", "hopper-2", "may still read",
  edit(hopper, "bar_init(k_empty(smem, i), ${4 * consumers})",
    "bar_init(k_empty(smem, i), ${2 * consumers})"))
fault("K empty count too large", "hopper-2", "deadlock",
  edit(hopper, "bar_init(k_empty(smem, i), ${4 * consumers})",
    "bar_init(k_empty(smem, i), ${4 * consumers + 1})"))
fault("only warp 0 of a warpgroup releases K", "hopper-2", "may still read",
  edit(hopper, "bar_init(k_empty(smem, i), ${4 * consumers})",
    "bar_init(k_empty(smem, i), ${consumers})"),
  edit(consume, "if (me->lane == 0) bar_arrive(k_empty",
    "if (me->lane == 0 && me->warp_row == 0) bar_arrive(k_empty"))
fault("missing sync_threads after the barriers' initialisation",
  "hopper-2", "the initialisation of mbarrier",
  edit(hopper, "  sync_threads();\n", ""))
fault("missing fence after the barriers' initialisation", "hopper-2", "without fence_bar_init",
  edit(hopper, "    fence_bar_init();\n", ""))
fault("expect half of the bytes", "hopper-2", "more than expected have landed",
  edit(produce, "ring->slot), ${t.panels.total});", "ring->slot), ${t.panels.total // 2});"))
fault("expect twice the bytes", "hopper-2", "deadlock",
  edit(produce, "ring->slot), ${t.panels.total});", "ring->slot), ${t.panels.total * 2});"))
fault("named barrier with 128 threads", "hopper-2", "deadlock",
  edit(consume, "named_arrive(1 + (me->group + 1) % ${consumers}, 256);",
    "named_arrive(1 + (me->group + 1) % ${consumers}, 128);"))
fault("missing arrival at the next turn", "hopper-2", "deadlock",
  edit(consume, "  named_arrive(1 + (me->group + 1) % ${consumers}, 256);\n", ""))
fault("the second pass does not wait for the first", "hopper-2", "deadlock",
  edit(consume, "  bar_wait(fast_done(smem), 0);\n", ""))
fault("the producer reads the flags too early", "hopper-2", "deadlock",
  edit(produce, "    if (!again) bar_wait(fast_done(smem), 0);\n", ""))
fault("flags are not cleared", "hopper-2", "that nothing has written",
  edit(hopper, "for (int i = 0; i <= ${flags}; i++) sts_flag(smem + ${at.failed} + 4 * i, 0);",
    ""))

-- ---- wgmma ----

local STEADY = [[
      wgmma_wait(1);
      touch_f32x${block_n // 2}(s);
      free_k(me);
]]
local NO_TOUCH = "\n      touch_f32x${block_n // 2}(s);\n      touch_f32x${dv16 // 2}(o);\n"
                 .. "      touch_u32x${block_n // 4}(p);\n      free_v(me);\n"
local FENCE = "  wgmma_fence();\n"

fault("missing wgmma wait for the scores, touch kept", "hopper-2", "is used while its wgmma",
  edit(fast, STEADY, STEADY:gsub("^.-\n", ""), 2))
fault("missing wgmma wait for the scores, no touch", "hopper-2", "accumulator register",
  edit(fast, STEADY, "      free_k(me);\n", 2))
fault("wait 1 where wait 0 is needed", "hopper-2", "an operand register of",
  edit(fast, "      wgmma_wait(0);" .. NO_TOUCH, "      wgmma_wait(1);\n      free_v(me);\n"))
fault("K released before its wait", "hopper-2", "may still read",
  edit(fast, STEADY, "      free_k(me);\n" .. STEADY:gsub("      free_k%(me%);\n", ""), 2))
fault("V released before its wait", "hopper-2", "may still read",
  edit(fast, "      wgmma_wait(0);" .. NO_TOUCH,
    "      free_v(me);\n      wgmma_wait(0);" .. NO_TOUCH:gsub("      free_v%(me%);\n", "")))
fault("p overwritten before its wait", "hopper-2", "an operand register of",
  edit(fast, "      wgmma_wait(0);" .. NO_TOUCH,
    "      pack_probabilities(p, s);\n      wgmma_wait(0);" .. NO_TOUCH))
fault("o scaled while in flight", "hopper-2", "accumulator register",
  edit(fast, "      issue_both(me, s, o, p);\n" .. STEADY,
    "      issue_both(me, s, o, p);\n      o[3] *= 1.5f;\n" .. STEADY, 2))
fault("missing wgmma_fence before the output", "hopper-2", "without wgmma_fence",
  edit(consume, FENCE, "", 2))
fault("missing wgmma_fence before the scores", "hopper-2", "without wgmma_fence",
  edit(consume, FENCE, "", 1))
fault("missing wgmma_fence before both", "hopper-2", "without wgmma_fence",
  edit(consume, FENCE, "", 1),
  edit(consume, FENCE, ""))
fault("wrong k-step of K", "hopper-2", "is not ordered after",
  edit(consume, "matrix(k + i / 4 * ${k_panels.bytes // 16} + i % 4 * 2)",
    "matrix(k + i / 4 * ${k_panels.bytes // 16} + i % 4 * 4)"))
fault("wrong k-step of V", "hopper-2", VALUES, edit(consume, "v + i * 128", "v + i * 64"))
fault("wrong stride between eight rows", "hopper-2", "may still read",
  edit(consume, "0x40000040u", "0x40000020u"))
fault("wrong stride between panels of V", "hopper-2", VALUES,
  edit(consume, "smem + ${at.v}, ${v_panels.bytes}", "smem + ${at.v}, ${v_panels.bytes // 2}"))
fault("leading offset of K, which is not read", "hopper-2", SILENT,
  edit(consume, "smem + ${at.k}, 0", "smem + ${at.k}, 1024"))
fault("the first product adds", "hopper-2", VALUES, edit(consume, "* 2), i != 0);", "* 2), 1);"))

-- ---- softmax and masks ----

fault("missing mask of the last block", "hopper-2", VALUES,
  edit(fast, "if ((n + 1) * (i64)${block_n} > x.full) {", "if (0) {"))
fault("causal mask off by one", "hopper-2-causal", VALUES,
  edit(consume, "(i64)row + 1 + seqlen_k", "(i64)row + 2 + seqlen_k"))
fault("missing rescale, exact", "hopper-2", VALUES,
  edit(exact, "o[i] *= factor[i / 2 % 2]", "o[i] *= 1.0f"))
fault("missing rescale, diagonal", "hopper-2-causal", VALUES,
  edit(fast, "o[i] *= factor[i / 2 % 2]", "o[i] *= 1.0f"))
fault("o not zeroed between tiles", "hopper-2", VALUES,
  edit(fast, "    for (int i = 0; i < ${dv16 // 2}; i++) o[i] = 0.0f;\n", "    ;\n"))
fault("one block too few", "hopper-2", VALUES,
  edit(produce, "(end + ${block_n - 1}) / ${block_n}", "end / ${block_n}"))
fault("producer sends one block too many", "hopper-2", "deadlock",
  edit(produce, "for (int n = x.blocks - 2; n >= 0; n--) {",
    "for (int n = x.blocks - 1; n >= 0; n--) {"))
fault("order: a tile of the tail comes twice", "hopper-2-causal", "no bulk_wait, or no release",
  edit(produce, "skip = i == 0 ? 0 : 1 + i;", "skip = 1 + i;"))
fault("order: a unit is forgotten", "hopper-2-causal", "were not written",
  edit(produce, "w->whole / 2 * grid, a,", "w->whole / 2 * grid + 1, a,"))
fault("causal limit one block short", "hopper-2-causal", VALUES,
  edit(produce, "i64 last = (i64)x.first + ${block_m};", "i64 last = (i64)x.first + 1;"))
fault("consumer runs one block more than the producer", "hopper-2", "deadlock",
  edit(produce, "info + 12, x.blocks);", "info + 12, x.blocks ? x.blocks + 1 : 0);"))
fault("wrong key head", "hopper-2", VALUES,
  edit(produce, "x.head / me->a->group", "x.head % me->a->num_heads_k"))

-- ---- places, staging, registers ----

local STORED = "    bulk_wait(0); /* what was stored must not overtake what replaces it */\n"

fault("Q released before the scores are done", "hopper-1", "may still read",
  edit(fast, "      wgmma_wait(1);\n",
    "      if (n == 0) leave_q(me, x.slot);\n      wgmma_wait(1);\n", 2),
  edit(fast, "      if (n == 0) leave_q(me, x.slot);\n//@ end\n      exponentials",
    "//@ end\n      exponentials"))
fault("missing proxy fence before the store", "hopper-2", "has no fence.proxy.async",
  edit(consume, "  fence_async();\n", ""))
fault("proxy fence before what it is to fence", "hopper-2", "has no fence.proxy.async",
  edit(consume, "  fence_async();\n", ""),
  edit(consume, "  const int row = me->warp_row + (me->lane & 15)",
    "  fence_async();\n  const int row = me->warp_row + (me->lane & 15)"))
fault("missing sync_warp before the store", "hopper-2", "is not ordered after",
  edit(consume, "  fence_async();\n  sync_warp();\n", "  fence_async();\n"))
fault("proxy fence by lane 0 alone", "hopper-2", "has no fence.proxy.async",
  edit(consume, "  fence_async();\n", "  if (me->lane == 0) fence_async();\n"))
fault("place returned before the store has read it", "hopper-2", "may still read",
  edit(store, "        bulk_wait_read(0);\n", ""))
fault("no wait for the last store", "hopper-2", "bulk_wait_read is missing",
  edit(store, "        bulk_wait_read(0);\n", ""),
  edit(store, STORED, ""))
fault("a store overtakes the one that replaces it", "hopper-2", "is not ordered after",
  edit(store, STORED, ""))
fault("store not committed", "hopper-2", "bulk stores that are not committed",
  edit(store, "        bulk_commit();\n", ""))
fault("output stored before it is there", "hopper-2", "is not ordered after",
  edit(store, "      bar_wait(o_full(smem, ring.slot, group), ring.parity);\n", ""))
fault("one warp is enough for the storer", "hopper-2", "the wait can hang",
  edit(hopper, "bar_init(o_full(smem, i, w), 4);", "bar_init(o_full(smem, i, w), 1);"))
fault("tile facts written before their place is free", "hopper-2", "may still read",
  edit(produce, "  for (int w = 0; w < ${consumers}; w++)\n    bar_wait(q_empty",
    "  sts_i32(me->smem + ${at.info} + 16 * slot, x.first);\n"
    .. "  for (int w = 0; w < ${consumers}; w++)\n    bar_wait(q_empty"))
fault("one place for tile facts", "hopper-2", "may still read",
  edit(produce, "${at.info} + 16 * slot", "${at.info} + 0 * slot"),
  edit(consume, "${at.info} + 16 * x.slot", "${at.info} + 0 * x.slot"),
  edit(store, "${at.info} + 16 * ring.slot", "${at.info} + 0 * ring.slot"))
fault("one place for tile facts, three warpgroups", "hopper-2-three", "may still read",
  edit(produce, "${at.info} + 16 * slot", "${at.info} + 0 * slot"),
  edit(consume, "${at.info} + 16 * x.slot", "${at.info} + 0 * x.slot"),
  edit(store, "${at.info} + 16 * ring.slot", "${at.info} + 0 * ring.slot"))
fault("TMA writes one stage too far", "hopper-2", "that nothing has written",
  only("v", "  const u32 to = me->smem + ${at[t.name]} + ring->slot * ${t.panels.total};",
    "  const u32 to = me->smem + ${at[t.name]} + (ring->slot + 1) * ${t.panels.total};"))
fault("setmaxnreg over the pool", "hopper-2", "deadlock",
  edit(hopper, "reg_inc(${consumer_registers})", "reg_inc(240)"))
fault("swizzle of stmatrix missing", "hopper-2", VALUES,
  edit(consume, "((2 * k % 8 + half) ^ (row & 7)) << 4", "(2 * k % 8 + half) << 4"))


-- ---- global memory: the values are right, the same words are written twice ----

local APART = "nothing orders blocks that do not talk"
local BY_LANES = "if (!a->lse || (me->lane & 3) != 0) return;"

fault("two blocks compute the same tiles", "hopper-2", APART,
  edit(produce, "  const i64 t = (i64)w->step++ * num_blocks() + block_index();",
    "  const i64 first = (i64)w->step++ * num_blocks();\n"
    .. "  const i64 t = (first + block_index()) % a->tiles;"),
  edit(produce, "return t < a->tiles;", "return first < a->tiles;"))
fault("four lanes store one lse", "hopper-2", "is not ordered after",
  edit(consume, BY_LANES, "if (!a->lse) return;"))

faults.num_hopper = #faults

-- ---- ampere ----

local WAIT = "    cp_async_wait(${num_stages - 2});\n"
local AHEAD = "    cp_async_commit();\n    scores(s, warp_q, at_k + (u32)slot"

fault("ring: copies not waited for", "ampere-2-causal", "is not ordered after",
  edit(ampere, WAIT, ""))
fault("ring: one group too many left", "ampere-3", "is not ordered after",
  edit(ampere, WAIT, "    cp_async_wait(${num_stages - 1});\n"))
fault("ring: copies not committed", "ampere-3", "is not ordered after",
  edit(ampere, AHEAD, "    scores(s, warp_q, at_k + (u32)slot"))
fault("ring: no barrier behind the wait", "ampere-2-causal", "is not ordered after",
  edit(ampere, WAIT .. "    sync_threads();\n", WAIT))
fault("ring: barrier before the wait", "ampere-2-causal", "is not ordered after",
  edit(ampere, WAIT .. "    sync_threads();\n", "    sync_threads();\n" .. WAIT))
fault("ring: copies into the slot in use", "ampere-2-causal", "is not ordered after",
  edit(ampere, "const int free_slot = slot == 0 ? ${num_stages - 1} : slot - 1,",
    "const int free_slot = slot,"))
fault("ring: values of the wrong stage", "ampere-3", "is not ordered after",
  edit(ampere, "accumulate(o, s, at_v + (u32)slot * ${v_bytes});",
    "accumulate(o, s, at_v + (u32)(slot == 0 ? 1 : 0) * ${v_bytes});"))
fault("one slot: values not waited for", "ampere-1", "is not ordered after",
  edit(ampere, "    cp_async_wait(0);\n    sync_threads();\n    if (n > 0) copy_k",
    "    sync_threads();\n    if (n > 0) copy_k"))
fault("one slot: no barrier before K is overwritten", "ampere-1", "may still read",
  edit(ampere, "    cp_async_wait(0);\n    sync_threads();\n    if (n > 0) copy_k",
    "    cp_async_wait(0);\n    if (n > 0) copy_k"))
fault("one slot: no barrier before V is overwritten", "ampere-1", "is not ordered after",
  edit(ampere, "    cp_async_wait(0);\n    sync_threads();\n    copy_v",
    "    cp_async_wait(0);\n    copy_v"))
fault("no barrier before o takes the place of v", "ampere-1-causal", "may still read",
  edit(ampere, "  sync_threads();\n  /* Again", "  /* Again"))
fault("no barrier between rows and their store", "ampere-1", "is not ordered after",
  edit(ampere, "&a, shift);\n  sync_threads();\n", "&a, shift);\n"))
fault("swizzle missing in the copies", "ampere-1", VALUES,
  edit(ampere, '(u32)(chunk ^ ${t.layout.swizzle_text("row")}) * 16;', "(u32)chunk * 16;"))
fault("rows past the end are read", "ampere-1", "of an allocation of",
  edit(ampere, "row < end - first;", "row < end + 7 - first;"))
fault("ldmatrix: rows of q", "ampere-1", VALUES,
  edit(ampere, "q_row = lane & 15", "q_row = (lane & 7) + (lane >> 4) * 8"))
fault("ldmatrix: rows of k", "ampere-1", VALUES,
  edit(ampere, "(lane & 7) + (lane >> 4) * 8, k_chunk", "lane & 15, k_chunk"))
fault("ldmatrix: v not transposed", "ampere-1", VALUES,
  edit(ampere, "ldmatrix_x4_trans(b", "ldmatrix_x4(b"))
fault("ampere: four lanes store one lse", "ampere-1", "is not ordered after",
  edit(ampere, "if (lse && (lane & 3) == 0 && first", "if (lse && first"))
fault("ampere: causal mask off by one", "ampere-2-causal", VALUES,
  edit(ampere, "row + 1 + a->seqlen_k", "row + 2 + a->seqlen_k"))
fault("ampere: end mask off by one", "ampere-1", VALUES,
  edit(ampere, "mask_scores(s + t * ${block_n // 2}, a->seqlen_k - column, a->seqlen_k - column);",
    "mask_scores(s + t * ${block_n // 2}, a->seqlen_k + 1 - column, a->seqlen_k + 1 - column);"))
fault("ampere: missing rescale", "ampere-1", VALUES,
  edit(ampere, "*= factor[i / 2 % 2];", "*= 1.0f;"))

return faults

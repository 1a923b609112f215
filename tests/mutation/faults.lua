-- The planted faults: each a mistake that somebody could make, as exact edits of the templates, the
-- kernel it is planted in, and a part of what the emulator must say of it. SILENT faults are none
-- by the rules of the ISA, and nothing may be said.
--
-- Invariant: the text that an edit replaces occurs once in its file; `nth` names one of several.
-- Called by faults_backward.lua, which adds those of the backward pass.
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
fault("hopper: outputs are not looked at", "hopper-2", VALUES,
  edit(fast, "(good && probe == 0.0f)", "(good)"))
fault("hopper: sums are not looked at", "hopper-2-causal", VALUES,
  edit(fast, "l > 0.0f && l < 1e30f && ", ""))
fault("hopper: references are not looked at", "hopper-2-fp16", VALUES,
  edit(fast, " && fabsf(st->bias[r]) < 4096.0f", ""))
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

local warp = "forward/ampere_warp.tmpl.cu"

-- A change of the loop whose blocks have a reference, or of the one before it alone.
local function in_loop(which, old, new)
  return edit(ampere, old, ("\n//@ if %s then\n%s\n//@ else\n%s\n//@ end\n"):format(
    which == "steady" and "steady" or "not steady", new, old))
end

local WAIT = "      cp_async_wait(${ahead - 1});\n"
local BARRIER = "      sync_threads();\n"
local FEED_LAST = "      feed_v(&f, at_v + free_slot, n >= ${ahead} ? ${block_n} : 0);\n"
local COMMIT = "      cp_async_commit();\n"

fault("ring: copies not waited for", "ampere-2-causal", "is not ordered after",
  edit(ampere, WAIT, ""))
fault("ring: copies not waited for in steady blocks", "ampere-3", "is not ordered after",
  in_loop("steady", WAIT, ""))
fault("ring: copies not waited for before", "ampere-held-2", "is not ordered after",
  in_loop("careful", WAIT, ""))
fault("ring: one group too many left", "ampere-3", "is not ordered after",
  edit(ampere, WAIT, "      cp_async_wait(${ahead});\n"))
fault("ring: copies not committed", "ampere-3", "is not ordered after",
  edit(ampere, FEED_LAST .. COMMIT, FEED_LAST))
fault("ring: no barrier behind the wait", "ampere-2-causal", "is not ordered after",
  edit(ampere, WAIT .. BARRIER, WAIT))
fault("ring: no barrier in steady blocks", "ampere-held-3", "may still read",
  in_loop("steady", WAIT .. BARRIER, WAIT))
fault("ring: barrier before the wait", "ampere-2-causal", "is not ordered after",
  edit(ampere, WAIT .. BARRIER, BARRIER .. WAIT))
fault("ring: copies into the slot in use", "ampere-2-causal", "is not ordered after",
  edit(ampere, "(u32)(slot == 0 ? ${ahead} : slot - 1) * ${stage_bytes}",
    "(u32)slot * ${stage_bytes}"))
fault("ring: values of the wrong stage", "ampere-3", "is not ordered after",
  edit(ampere, '"v_lane + (u32)slot * %d"', '"v_lane + (u32)(slot == 0 ? 1 : 0) * %d"'))
fault("ring: keys of the wrong stage", "ampere-held-3", "is not ordered after",
  edit(ampere, '"k_lane + (u32)slot * %d"', '"k_lane + (u32)(slot == 0 ? 1 : 0) * %d"'))
fault("ring: the slot stays", "ampere-pair-2", VALUES,
  edit(ampere, "      slot = slot == ${ahead} ? 0 : slot + 1;\n", ""))
fault("ring: a block too many", "ampere-held-3", "of an allocation of",
  edit(ampere, FEED_LAST, (FEED_LAST:gsub("n >= ", "n >= -1 + "))))
fault("one slot: keys not waited for", "ampere-1", "is not ordered after",
  edit(ampere, "      cp_async_wait(0);\n      sync_threads();\n      feed_v(",
    "      sync_threads();\n      feed_v("))
fault("one slot: values not waited for", "ampere-1", "is not ordered after",
  edit(ampere, "      cp_async_wait(0);\n      sync_threads();\n      feed_k(",
    "      sync_threads();\n      feed_k("))
fault("one slot: no barrier before K is overwritten", "ampere-1", "may still read",
  edit(ampere, "      cp_async_wait(0);\n      sync_threads();\n      feed_k(",
    "      cp_async_wait(0);\n      feed_k("))
fault("one slot: no barrier before V is overwritten", "ampere-1", "is not ordered after",
  edit(ampere, "      cp_async_wait(0);\n      sync_threads();\n      feed_v(",
    "      cp_async_wait(0);\n      feed_v("))
fault("one slot: values past the end are read", "ampere-1", "of an allocation of",
  edit(ampere, '"n == blocks - 1 ? rest : " .. block_n', "block_n"))

local LOADED = "      cp_async_wait(${ahead});\n      sync_threads();\n      load_q("

fault("held: queries not waited for", "ampere-held-2", "is not ordered after",
  edit(ampere, LOADED, "      sync_threads();\n      load_q("))
fault("held: no barrier before queries are loaded", "ampere-held-2", "is not ordered after",
  edit(ampere, LOADED, "      cp_async_wait(${ahead});\n      load_q("))
fault("held: copies over queries that are not loaded yet", "ampere-held-3", "is not ordered after",
  edit(ampere, "    for (int i = 0; i < ${ahead}; i++) {\n      const int rows",
    "    for (int i = 0; i <= ${ahead}; i++) {\n      const int rows"))
fault("held: queries are loaded behind the barrier that frees their slot", "ampere-held-2",
  "is not ordered after",
  edit(ampere, LOADED, "      load_q(held_q, q_lane);\n" .. LOADED),
  edit(ampere, LOADED .. "held_q, q_lane);\n", ""))
fault("held: queries are loaded again in the exact pass", "ampere-held-2", VALUES,
  edit(ampere, "    if (!again) {", "    if (1) {"))
fault("held: operands in another order", "ampere-held-3", VALUES,
  edit(warp, "ldmatrix_x4(a + 4 * (t + ${m_tiles} * kk),",
    "ldmatrix_x4(a + 4 * (t * ${d16 // 16} + kk),"))
fault("held: a slice of keys twice", "ampere-held-3", VALUES,
  edit(ampere, "${slot_k} + ${i * slice * qk_rows.pitch});", "${slot_k} + 0);"))
fault("held: a slice of values twice", "ampere-held-3", VALUES,
  edit(ampere, "steady_slice(o, s, st, c, ${slot_v} + ${i * slice * v_rows.pitch});",
    "steady_slice(o, s, st, c, ${slot_v} + 0);"))

local SHARED = "      share(smem + ${at.p}, s);\n//@ if ahead > 0 then\n      sync_pair();\n"
local PAIR = "named_sync(1 + thread_index() / 64, 64);"

fault("pair: p not waited for", "ampere-pair-2", "that nothing has written",
  edit(ampere, SHARED, SHARED:gsub("      sync_pair%(%);\n", "")))
fault("pair: p not waited for in steady blocks", "ampere-pair-2", "is not ordered after",
  in_loop("steady", SHARED .. "//@ end", SHARED:gsub("      sync_pair%(%);\n", "") .. "//@ end"))
fault("pair: p shared behind the barrier", "ampere-pair-2", "that nothing has written",
  edit(ampere, SHARED,
    "      sync_pair();\n      share(smem + ${at.p}, s);\n//@ if ahead > 0 then\n"))
fault("pair: no barrier between maxima", "ampere-pair-1", "that nothing has written",
  edit(warp, "  sync_pair();\n", '//@ if join == "sum" then\n  sync_pair();\n//@ end\n'))
fault("pair: no barrier between sums", "ampere-pair-2", "is not ordered after",
  edit(warp, "  sync_pair();\n", '//@ if join == "maximum" then\n  sync_pair();\n//@ end\n'))
fault("pair: all pairs meet at one barrier", "ampere-pair-2", "that nothing has written",
  edit(warp, PAIR, "named_sync(1, 64);"))
fault("pair: a barrier of one warp", "ampere-pair-2", "that nothing has written",
  edit(warp, PAIR, "named_sync(1 + thread_index() / 64, 32);"))
fault("pair: a barrier of three warps", "ampere-pair-1", "deadlock",
  edit(warp, PAIR, "named_sync(1 + thread_index() / 64, 96);"))
fault("pair: another pair's maximum", "ampere-pair-1", "that nothing has written",
  edit(warp, "(half() ? ${-4 * rows} : ${4 * rows})", "(half() ? ${4 * rows} : ${-4 * rows})"))
fault("pair: each its own maximum", "ampere-pair-1", VALUES,
  edit(warp, "  pair_maximum(top, exchange);\n", ""))
fault("pair: each its own sum", "ampere-pair-2", VALUES,
  edit(warp, "  pair_sum(l, exchange);\n", ""))
fault("pair: p in the other half", "ampere-pair-2", VALUES,
  edit(warp, "half() * ${slice // 8} + i / 2", "(1 - half()) * ${slice // 8} + i / 2"))
fault("pair: p in one half", "ampere-pair-2", "is not ordered after",
  edit(warp, "half() * ${slice // 8} + i / 2", "i / 2"))
fault("pair: keys of one half", "ampere-pair-1", VALUES,
  edit(warp, '("half() * %d + row"):format(slice)', '"row"'))
fault("pair: mask of the first half for both", "ampere-pair-1", VALUES,
  edit(ampere, 'paired and "half() * " .. slice or i * slice', "i * slice"))
fault("pair: columns of the first warp for both", "ampere-pair-1", VALUES,
  edit(warp, "chunk = 2 * half() + (lane >> 4);", "chunk = lane >> 4;"))
fault("pair: columns stored one behind the other", "ampere-pair-2", VALUES,
  edit(warp, "j / 2 * 4 + half() * 2 + j % 2", 'half() * " .. 2 * o_groups .. " + j'))
fault("pair: rows of one warp each", "ampere-pair-1", "that nothing has written",
  edit(warp, "thread_index() / 64 * ${rows}", "thread_index() / 32 * ${rows}"))
fault("pair: both warps store one lse", "ampere-pair-2", "is not ordered after",
  edit(warp, '${paired and " && half() == 0" or ""}', ""))

-- ---- ampere: two passes ----

fault("the fast pass's faults are not told", "ampere-1", VALUES,
  edit(ampere, "    if (!exact && !holds(", "    if (0 && !holds("))
fault("the fast pass's faults are not told, fp16", "ampere-pair-2", VALUES,
  edit(ampere, "    if (!exact && !holds(", "    if (0 && !holds("))
fault("the flag is not cleared", "ampere-held-3", "that nothing has written",
  edit(ampere, "  if (thread_index() == 0) sts_flag(smem + ${at.failed}, 0);\n", ""))
fault("each warp goes by its own word", "ampere-3", "is not ordered after",
  edit(ampere, "    if (exact || !lds_flag(smem + ${at.failed})) break;",
    "    if (exact || holds(o, st)) break;"))
fault("a lane's word for its warp's", "ampere-2-causal", VALUES,
  edit(warp, "return !any_sync(!(good && probe == 0.0f));", "return good && probe == 0.0f;"))
fault("outputs are not looked at", "ampere-1", VALUES,
  edit(warp, "(good && probe == 0.0f)", "(good)"))
fault("outputs are not looked at, fp16", "ampere-held-2", VALUES,
  edit(warp, "(good && probe == 0.0f)", "(good)"))
fault("sums are not looked at", "ampere-2-causal", VALUES,
  edit(warp, "l > 0.0f && l < 1e30f && ", ""))
fault("references are not looked at", "ampere-pair-2", VALUES,
  edit(warp, " && fabsf(bias) < 4096.0f", ""))
fault("references are not looked at, bf16", "ampere-1", VALUES,
  edit(warp, " && fabsf(bias) < 4096.0f", ""))
fault("one slot: keys go on where the fast pass ended", "ampere-1", "lie in no device memory",
  edit(ampere, "(math.max(ahead, 1) + 1) * block_n", "(ahead + 1) * block_n"))
fault("keys go on where the fast pass ended", "ampere-held-2", "lie in no device memory",
  edit(ampere, "    f.k += ${(math.max(ahead, 1) + 1) * block_n} * f.k_row;", "    ;"))
fault("values go on where the fast pass ended", "ampere-pair-1", "of an allocation of",
  edit(ampere, "    f.v += ${(ahead + 1) * block_n} * f.v_row;\n", ""))
fault("the exact pass keeps the fast one's shift", "ampere-3", VALUES,
  edit(ampere, "exact ? ${shift} : ${-lead}.0f", "${-lead}.0f"))
fault("the exact pass makes biases of its maxima", "ampere-1", VALUES,
  edit(ampere, "    if (!exact) {\n#pragma unroll\n      for (int i = 0; i < ${2 * m_tiles}",
    "    if (1) {\n#pragma unroll\n      for (int i = 0; i < ${2 * m_tiles}"))
fault("the exact pass does not stay careful", "ampere-held-3", VALUES,
  edit(ampere, "if (!(exact || n == blocks - 1", "if (!(n == blocks - 1"))
fault("the bias has the wrong sign", "ampere-1", VALUES,
  edit(ampere, "${lead}.0f - st[i / 2].m[i % 2] * c", "${lead}.0f + st[i / 2].m[i % 2] * c"))
fault("the bias has no lead", "ampere-1-causal", VALUES,
  edit(ampere, "${lead}.0f - st[i / 2].m[i % 2] * c", "0.0f - st[i / 2].m[i % 2] * c"))
fault("steady one block early", "ampere-2-causal", VALUES,
  edit(ampere, '"(n + 1) * (i64)%d >= "', '"n * (i64)%d >= "'))
fault("steady one block early, fp16", "ampere-1-causal", VALUES,
  edit(ampere, '"(n + 2) * (i64)%d > "', '"(n + 1) * (i64)%d > "'))
fault("steady sums of one row for both", "ampere-held-2", VALUES,
  edit(warp, "st[t].l[1] += (x[2] + x[3]) + (x[6] + x[7]);",
    "st[t].l[1] += (x[0] + x[1]) + (x[4] + x[5]);"))
fault("steady rows have one bias", "ampere-held-3", VALUES,
  edit(warp, "st[t].m[i / 2 % 2]", "st[t].m[0]"))
fault("the lse of the fast pass has the wrong sign", "ampere-pair-1", VALUES,
  edit(warp, "(lg2(l) - st[t].m[r]) * 0.693147181f", "(lg2(l) + st[t].m[r]) * 0.693147181f"))
fault("ampere: missing rescale", "ampere-1", VALUES,
  edit(warp, "*= factor[i / 2 % 2];", "*= 1.0f;"))
fault("ampere: missing rescale in the fast pass", "ampere-held-2", VALUES,
  edit(warp, "o[t * ${o_step} + i] *= factor[i / 2 % 2];",
    "o[t * ${o_step} + i] *= shift == ${-lead}.0f ? 1.0f : factor[i / 2 % 2];"))

-- ---- ampere: rows, columns, masks ----

fault("no wait before o takes the place of k and v", "ampere-3", "is not ordered after",
  edit(ampere, "    cp_async_wait(0);\n    sync_threads();\n    if (exact ||",
    "    sync_threads();\n    if (exact ||"))
fault("no barrier before o takes the place of k and v", "ampere-held-2", "may still read",
  edit(ampere, "    cp_async_wait(0);\n    sync_threads();\n    if (exact ||",
    "    cp_async_wait(0);\n    if (exact ||"))
fault("no barrier between rows and their store", "ampere-1", "may still read",
  edit(ampere, "&a, exact, ${shift});\n  sync_threads();\n", "&a, exact, ${shift});\n"))
fault("swizzle missing in the copies", "ampere-1", VALUES,
  edit(ampere, '(u32)(chunk ^ ${t.layout.swizzle_text("row")}) * 16;', "(u32)chunk * 16;"))
fault("swizzle missing in ldmatrix's steps", "ampere-1", VALUES,
  edit(warp, 'return ("((%s) ^ %s) + (32 * %s - %s)"):format(at, low, i, low)',
    'return ("(%s) + 32 * %s"):format(at, i)'))
fault("swizzle missing in p", "ampere-pair-2", VALUES,
  edit(warp, '(u32)(chunk ^ ${p_rows.swizzle_text("row")}) * 16', "(u32)chunk * 16"))
fault("rows past the end are read", "ampere-1", "lie in no device memory",
  edit(ampere, "const int bytes = row < rows$", "const int bytes = row < rows + 7$"))
fault("columns past the end are read", "ampere-1", "of an allocation of",
  edit(ampere, '" && chunk < " .. t.dim // 8', '" && chunk < " .. t.dim // 8 + 1'))
fault("rows past the end are stored", "ampere-held-2", "of an allocation of",
  edit(warp, " || row >= end - first) break;", ") break;"))
fault("keys step by too few rows", "ampere-held-3", VALUES,
  edit(ampere, "  f->k -= ${block_n} * f->k_row;", "  f->k -= ${block_n - 1} * f->k_row;"))
fault("ldmatrix: rows of q and v", "ampere-1", VALUES,
  edit(warp, "const int row = lane & 15, chunk = lane >> 4;",
    "const int row = (lane & 7) + (lane >> 4) * 8, chunk = lane >> 3 & 1;"))
fault("ldmatrix: rows of k", "ampere-1", VALUES,
  edit(warp, "const int row = (lane & 7) + (lane >> 4) * 8, chunk = lane >> 3 & 1;",
    "const int row = lane & 15, chunk = lane >> 4;"))
fault("ldmatrix: v not transposed", "ampere-1", VALUES,
  edit(warp, "ldmatrix_x4_trans(b", "ldmatrix_x4(b"))
fault("ampere: four lanes store one lse", "ampere-1", "is not ordered after",
  edit(warp, "const int mine = (lane & 3) == 0$", "const int mine = 1$"))
fault("ampere: causal mask off by one", "ampere-2-causal", VALUES,
  edit(warp, "row + 1 + a->seqlen_k", "row + 2 + a->seqlen_k"))
fault("ampere: end mask off by one", "ampere-1", VALUES,
  edit(warp, "mask_scores(s + t * ${s_step}, a->seqlen_k - column, a->seqlen_k - column);",
    "mask_scores(s + t * ${s_step}, a->seqlen_k + 1 - column, a->seqlen_k + 1 - column);"))
fault("ampere: missing mask of the last block", "ampere-held-3", VALUES,
  edit(ampere, "if ((n + 1) * (i64)${block_n} > see.full)", "if (0)"))
fault("ampere: causal end one row short", "ampere-held-2", VALUES,
  edit(ampere, "end = last + diagonal;", "end = last - 1 + diagonal;"))
fault("ampere: wrong key head", "ampere-1", VALUES,
  edit(ampere, "x.head / a.group", "x.head % a.group"))

faults.VALUES, faults.fault, faults.edit = VALUES, fault, edit
return faults

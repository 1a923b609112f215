//@ include("common/args.tmpl.cu")

/* FlashAttention forward for mma.sync: a block of ${threads} threads computes ${block_m} query rows
 * of one head. Keys and values pass through shared memory in blocks of ${block_n}, from the last
 * visible one to the first; scores${q_held and ", queries" or ""} and the output stay in registers.
 *
//@ if wide_exponent then
 * A row's reference m is the maximum of the blocks up to the first of which every row of the block
 * has seen a key, and p = 2^((s - m) c) from then on, however large later scores are: bf16 and fp32
 * share the exponent range, p may exceed 1 by far, and the common factor leaves with 1 / l.
//@ else
 * A row's reference m is the maximum of the blocks up to the first that every row of the block sees
 * whole, and p = 2^((s - m) c + ${lead}) from then on. fp16 ends at 2^16 and at 2^-24: scores may
 * rise by ${16 - lead} powers of two, and what lies less than ${24 + lead} below the reference
 * counts. The common factor leaves with 1 / l.
//@ end
 * So steady blocks need no maximum, no rescaling and no wait before the exponentials. What this
 * cannot hold (holds() says) is computed again by the exact pass, with the running maximum. */
//@ include("common/softmax.tmpl.cu")

/* ---- global to shared memory ---- */

//@ for _, t in ipairs(copies) do
/* This thread's first chunk of ${t.name}, from a block's first row on: bytes */
DEV i64 line_${t.name}(i64 row_bytes) {
  return thread_index() / ${t.wide} * row_bytes + 16 * (thread_index() % ${t.wide});
}
/* Starts the copy of ${t.rows} rows of ${t.name}. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
//@ if t.padded then
 * So do columns ${t.dim} to ${t.layout.cols - 1}.
//@ end
 */
DEV void copy_${t.name}(u32 to, const char *line, i64 row_bytes, int rows) {
  const int row0 = thread_index() / ${t.wide}, chunk0 = thread_index() % ${t.wide};
#pragma unroll
  for (int i = 0; i < ${t.passes}; i++) {
    const int row = row0 + ${t.step} * i;
    const u32 line_to = to + (u32)row * ${t.layout.pitch};
//@ if t.ragged_rows then
    if (row >= ${t.rows}) break;
//@ end
#pragma unroll
    for (int c = 0; c < ${t.layout.chunks}; c += ${t.wide}) {
      const int chunk = c + chunk0;
//@ if t.ragged_chunks then
      if (chunk >= ${t.layout.chunks}) break;
//@ end
      const int bytes = row < rows${t.padded and " && chunk < " .. t.dim // 8 or ""} ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ ${t.layout.swizzle_text("row")}) * 16;
      cp_async_16(at, line + ${t.step} * i * row_bytes + 16 * c, bytes);
    }
  }
}
//@ end

/* Keys and values on their way: this thread's first chunks of the blocks that are copied next. */
typedef struct {
  const char *k, *v;
  i64 k_row, v_row; /* bytes */
} Feed;

/* Starts the copy of the next block's keys, or values, and steps towards the first block. */
DEV void feed_k(Feed *f, u32 to, int rows) {
  copy_k(to, f->k, f->k_row, rows);
  f->k -= ${block_n} * f->k_row;
}
DEV void feed_v(Feed *f, u32 to, int rows) {
  copy_v(to, f->v, f->v_row, rows);
  f->v -= ${block_n} * f->v_row;
}

/* ---- tiles ---- */

//@ if causal then
/* Tiles: m block fastest and descending, so that the longest rows start first; then head, then
 * batch. */
//@ else
/* Tiles: m block fastest, then head, then batch. */
//@ end
typedef struct {
  i64 batch, head_index; /* head_index: batch * num_heads + head */
  int head, first;       /* first query row */
} Place;
DEV Place place_of(i64 tile, const ForwardArgs *a) {
  Place x;
  x.head_index = tile / a->m_blocks;
  x.batch = x.head_index / a->num_heads;
  x.head = (int)(x.head_index - x.batch * a->num_heads);
//@ if causal then
  x.first = (a->m_blocks - 1 - (int)(tile - x.head_index * a->m_blocks)) * ${block_m};
//@ else
  x.first = (int)(tile - x.head_index * a->m_blocks) * ${block_m};
//@ end
  return x;
}

/* ---- keys a row sees ---- */

//@ if causal then
/* Row i sees keys up to i + diagonal. Keys below full are seen by every row of the block that
 * begins at row first, keys at and past end by none. */
//@ else
/* Every row sees every key. */
//@ end
typedef struct {
  int full, end;
} Sight;
DEV Sight sight_of(int first, const ForwardArgs *a) {
  Sight x;
//@ if causal then
  const i64 diagonal = (i64)a->seqlen_k - a->seqlen_q;
  const i64 last = first + ${block_m} < a->seqlen_q ? first + ${block_m} : a->seqlen_q;
  const i64 full = first + 1 + diagonal, end = last + diagonal;
  x.full = full < a->seqlen_k ? (int)full : a->seqlen_k;
  x.end = end < 0 ? 0 : end < a->seqlen_k ? (int)end : a->seqlen_k;
//@ else
  x.full = x.end = a->seqlen_k;
//@ end
  return x;
}

//@ include("forward/ampere_warp.tmpl.cu")

/* ---- the kernel ---- */

//@ local ahead = num_stages - 1 -- blocks on their way while one is used
//@ local slot_k = num_stages == 1 and "k_lane" or ("k_lane + (u32)slot * %d"):format(stage_bytes)
//@ local slot_v = num_stages == 1 and "v_lane" or ("v_lane + (u32)slot * %d"):format(stage_bytes)
//@ local queries = q_held and "held_q" or "q_lane"
//@ local slices = paired and 1 or block_n // slice
KERNEL void kiln_forward(PARAM ForwardArgs a) {
  if (block_index() >= a.tiles) return;
  const Place x = place_of(block_index(), &a);
  const Sight see = sight_of(x.first, &a);
  const int blocks = (see.end + ${block_n - 1}) / ${block_n}; /* of keys */
  const int rest = a.seqlen_k - (blocks - 1) * ${block_n};  /* keys from the last of them on */
  const u32 smem = shared_base(), at_k = smem + ${at.kv}, at_v = at_k + ${k_bytes};
  const u32 q_lane = smem + ${at.q} + lane_q(), k_lane = at_k + lane_k(), v_lane = at_v + lane_v();
  const float c = a.scale_log2;

  const i64 q_row = 2 * a.q_stride.row;
  const char *q = (const char *)a.q + line_q(q_row) + x.first * q_row +
                  2 * (x.batch * a.q_stride.batch + x.head * a.q_stride.head);
  copy_q(smem + ${at.q}, q, q_row, blocks > 0 ? a.seqlen_q - x.first : 0);
  cp_async_commit();
  if (thread_index() == 0) sts_flag(smem + ${at.failed}, 0);

  const int key_head = x.head / a.group;
  Feed f;
  f.k_row = 2 * a.k_stride.row;
  f.v_row = 2 * a.v_stride.row;
  f.k = (const char *)a.k + line_k(f.k_row) +
        2 * (x.batch * a.k_stride.batch + key_head * a.k_stride.head);
  f.v = (const char *)a.v + line_v(f.v_row) +
        2 * (x.batch * a.v_stride.batch + key_head * a.v_stride.head);

  float o[${m_tiles * o_step}], s[${m_tiles * s_step}];
  RowState st[${m_tiles}];
//@ if q_held then
  u32 held_q[${d16 // 4 * m_tiles}];
//@ end

  /* The fast pass, then the exact one if that does not hold. Rows that see no key are exact. */
  int exact = see.full <= 0${q_held and ", again = 0" or ""};
#pragma unroll 1
  for (;; exact = ${q_held and "again = " or ""}1) {
    const float shift = exact ? ${shift} : ${-lead}.0f;
    f.k += (blocks - 1) * ${block_n} * f.k_row;
    f.v += (blocks - 1) * ${block_n} * f.v_row;
//@ if ahead == 0 then
    /* One slot: values arrive while scores are computed, the next keys while values are used. */
    feed_k(&f, at_k, blocks > 0 ? rest : 0);
    cp_async_commit();
//@ else
    /* A ring of ${num_stages} slots: block n - ${ahead} is on its way while n is used. */
#pragma unroll
    for (int i = 0; i < ${ahead}; i++) {
      const int rows = blocks <= i ? 0 : i == 0 ? rest : ${block_n};
      feed_k(&f, at_k + i * ${stage_bytes}, rows);
      feed_v(&f, at_v + i * ${stage_bytes}, rows);
      cp_async_commit();
    }
    int slot = 0;
//@ end
#pragma unroll
    for (int i = 0; i < ${m_tiles * o_step}; i++) o[i] = 0.0f;
#pragma unroll
    for (int t = 0; t < ${m_tiles}; t++) state_clear(&st[t]);
//@ if q_held then
    if (!again) {
      cp_async_wait(${ahead});
      sync_threads();
      load_q(held_q, q_lane);
    }
//@ end

    int n = blocks - 1;
//@ for _, steady in ipairs({ false, true }) do
//@ if steady then

    /* The biases take the place of the maxima. */
    if (!exact) {
#pragma unroll
      for (int i = 0; i < ${2 * m_tiles}; i++)
        st[i / 2].m[i % 2] = ${lead}.0f - st[i / 2].m[i % 2] * c;
    }
#pragma unroll 1
    for (; n >= 0; n--) {
//@ else
//@ local known = wide_exponent and "(n + 1) * (i64)%d >= " or "(n + 2) * (i64)%d > "
    /* Until every row has its reference; to the end in the exact pass. */
#pragma unroll 1
    for (; n >= 0; n--) {
      if (!(exact || n == blocks - 1 || ${known:format(block_n)}see.full)) break;
//@ end
//@ if ahead == 0 then
      cp_async_wait(0);
      sync_threads();
      feed_v(&f, at_v, ${steady and block_n or "n == blocks - 1 ? rest : " .. block_n});
      cp_async_commit();
//@ else
      cp_async_wait(${ahead - 1});
      sync_threads();
      const u32 free_slot = (u32)(slot == 0 ? ${ahead} : slot - 1) * ${stage_bytes};
      feed_k(&f, at_k + free_slot, n >= ${ahead} ? ${block_n} : 0);
      feed_v(&f, at_v + free_slot, n >= ${ahead} ? ${block_n} : 0);
      cp_async_commit();
//@ end
//@ for i = 0, slices - 1 do
      scores(s, ${queries}, ${slot_k} + ${i * slice * qk_rows.pitch});
//@ if not steady then
      if ((n + 1) * (i64)${block_n} > see.full)
        mask_slice(s, n * ${block_n} + ${paired and "half() * " .. slice or i * slice}, &a);
//@ end
//@ if paired then
//@ if steady then
#pragma unroll
      for (int kk = 0; kk < ${slice // 16}; kk++) steady_weights(s, st, c, kk);
//@ else
      careful_weights(o, s, st, c, shift, smem + ${at.exchange});
//@ end
      share(smem + ${at.p}, s);
//@ if ahead > 0 then
      sync_pair();
//@ end
//@ end
//@ if ahead == 0 then
      cp_async_wait(0);
      sync_threads();
      feed_k(&f, at_k, n > 0 ? ${block_n} : 0);
      cp_async_commit();
//@ end
//@ if paired then
      accumulate_block(o, smem + ${at.p} + lane_p(), ${slot_v});
//@ elseif steady then
      steady_slice(o, s, st, c, ${slot_v} + ${i * slice * v_rows.pitch});
//@ else
      careful_slice(o, s, st, c, shift, ${slot_v} + ${i * slice * v_rows.pitch});
//@ end
//@ end
//@ if ahead > 0 then
      slot = slot == ${ahead} ? 0 : slot + 1;
//@ end
    }
//@ end

    finish_sums(st${paired and ", smem + " .. at.exchange or ""});
    if (!exact && !holds(o, st) && (thread_index() & 31) == 0) sts_flag(smem + ${at.failed}, 1);
    /* Everyone must have finished with q, k and v, and no copy may still be on its way. */
    cp_async_wait(0);
    sync_threads();
    if (exact || !lds_flag(smem + ${at.failed})) break;
    f.k += ${(math.max(ahead, 1) + 1) * block_n} * f.k_row; /* back to the first block */
    f.v += ${(ahead + 1) * block_n} * f.v_row;
  }

  /* o takes the place of k and v. Again: kept alive, the place would cost registers in the loop. */
  const Place y = place_of(block_index_again(), &a);
  float *lse = a.lse ? a.lse + y.head_index * a.seqlen_q : 0;
  finish_rows(o, st, smem + ${at.kv}, lse, y.first, &a, exact, ${shift});
  sync_threads();
  char *out = (char *)a.o + 2 * (y.batch * a.o_stride.batch + y.head * a.o_stride.head);
  store_rows(smem + ${at.kv}, out, 2 * a.o_stride.row, y.first, a.seqlen_q);
}

/* ---- consumers: a warpgroup each ---- */

typedef struct {
  u32 smem, matrix;        /* matrix: lower word of the descriptor of shared memory's first byte */
//@ if pair then
  u32 own_columns;         /* the same, but of K from the thread block's columns of dQ on */
//@ end
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

//@ local function by_row(k) return k // 4 * (tile // 16) + k % 4 * 2 end
/* ---- products; all are started only ---- */

/* s (queries x keys) = Q K^T */
DEV void issue_scores(const Consumer *me, float *s, int slot) {
  const u32 q = me->matrix + slot * ${q_panels.total // 16};
  wgmma_fence();
//@ for k = 0, d16 // 16 - 1 do
  wgmma_${k == 0 and "set" or "add"}_ss_n64_${dtype}(s, q, ${at.q // 16 + by_row(k)},
           me->matrix, ${at.k // 16 + by_row(k)});
//@ end
  wgmma_commit();
}
/* t (queries x keys) = dO V^T */
DEV void issue_gradients(const Consumer *me, float *t, int place) {
  const u32 dout = me->matrix + place * ${v_panels.total // 16};
  wgmma_fence();
//@ for k = 0, dv16 // 16 - 1 do
  wgmma_${k == 0 and "set" or "add"}_ss_n64_${dtype}(t, dout, ${at["do"] // 16 + by_row(k)},
           me->matrix, ${at.v // 16 + by_row(k)});
//@ end
  wgmma_commit();
}
/* dV (keys x columns) += P^T dO */
DEV void issue_dv(const Consumer *me, float *dv, int place) {
  const u32 dout = me->matrix + place * ${v_panels.total // 16};
  wgmma_fence();
//@ for k = 0, 3 do
  wgmma_add_ss_n${dv}_${dtype}_tab(dv,
           me->matrix, ${at.p // 16 + 128 * k}, dout, ${at["do"] // 16 + 128 * k});
//@ end
  wgmma_commit();
}
/* dK (keys x columns) += dS^T Q; dS and Q have the same place in their rings */
DEV void issue_dk(const Consumer *me, float *dk, int slot) {
  const u32 ds = me->matrix + slot * ${ds_bytes // 16};
  const u32 q = me->matrix + slot * ${q_panels.total // 16};
  wgmma_fence();
//@ for k = 0, 3 do
  wgmma_add_ss_n${dim}_${dtype}_tab(dk, ds, ${at.ds // 16 + 128 * k}, q, ${at.q // 16 + 128 * k});
//@ end
  wgmma_commit();
}
//@ for group = 1, 2 do
//@ for i, piece in ipairs(dq[group]) do
//@ if pair then
/* dQ (queries x ${piece.n} columns) = dS K over the keys of both thread blocks */
//@ else
/* dQ (queries x columns ${piece.from} to ${piece.from + piece.n - 1}) = dS K */
//@ end
DEV void issue_dq${i}_${group}(const Consumer *me, float *dq, int slot) {
//@ local mma = ("ss_n%d_%s_t"):format(piece.n, dtype)
  const u32 ds = me->matrix + slot * ${ds_bytes // 16};
  const u32 k = me->${pair and "own_columns" or "matrix"};
  wgmma_fence();
//@ for k = 0, 3 do
  wgmma_${k == 0 and "set" or "add"}_${mma}(dq, ds, ${at.ds // 16 + 2 * k},
           k, ${at.k // 16 + piece.step + 128 * k});
//@ end
//@ for k = 0, pair and 3 or -1 do
  wgmma_add_${mma}(dq, ds, ${(at.ds + tile) // 16 + 2 * k},
           me->matrix, ${at.peer_k // 16 + piece.step + 128 * k});
//@ end
  wgmma_commit();
}
//@ end
//@ end

/* ---- between the products ---- */

DEV void arrive(const Consumer *me, u32 bar) {
  if (me->lane == 0) bar_arrive(bar);
}
//@ if pair then
/* Arrives at the barriers of both thread blocks. */
DEV void arrive_both(const Consumer *me, u32 bar) {
  if (me->lane < 2) bar_arrive_peer(bar, me->lane);
}
//@ end
/* Puts `hidden` at keys past the end${causal and " and past the diagonal" or ""}. */
DEV void mask_block(const Consumer *me, float *s, float hidden, Tile x, int m,
                    const BackwardArgs *a) {
  const int column = x.first + 2 * (me->lane & 3), end = a->seqlen_k - column;
//@ if causal then
  const i64 see = (i64)m * ${block} + me->row + 1 + a->seqlen_k - a->seqlen_q - column;
  const int limit0 = see < end ? (int)see : end, limit1 = see + 8 < end ? (int)see + 8 : end;
//@ else
  const int limit0 = end, limit1 = end;
  (void)m;
//@ end
#pragma unroll
  for (int j = 0; j < 8; j++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s[4 * j + i] = 8 * j + i < limit0 ? s[4 * j + i] : hidden;
      s[4 * j + 2 + i] = 8 * j + i < limit1 ? s[4 * j + 2 + i] : hidden;
    }
  }
}
/* p = 2^(s c + bias), rounded to ${dtype} */
DEV void exponentials(u32 *p, const float *s, const float *bias, float c) {
#pragma unroll
  for (int i = 0; i < 16; i++)
    p[i] = ${pack}(ex2(fmaf(s[2 * i], c, bias[i % 2])), ex2(fmaf(s[2 * i + 1], c, bias[i % 2])));
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
//@ if wide_exponent then
      const float low = as_float(p[i] << 16), high = as_float(p[i] & 0xffff0000u);
//@ else
      const float low = ${unpack}(p[i] & 0xffff), high = ${unpack}(p[i] >> 16);
//@ end
      p[i] = ${pack}(low * y[0], high * y[1]);
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
  me->sums += blocks * ${sums // 4};
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
        w[i] = ${pack}(y[0] * scale, y[1] * scale);
      }
      quad_transpose(w, lane);
      if (4 * j < (r ? chunks1 : chunks0)) stg_u32x4(to + r * further + 64 * j, w);
    }
  }
}
//@ for _, t in ipairs { { name = "dk", dim = dim, scale = "a->softmax_scale" },
//@                      { name = "dv", dim = dv, scale = "1.0f" } } do
DEV void store_${t.name}(const Consumer *me, const float *${t.name}, Tile x,
              const BackwardArgs *a) {
  const int quad = me->lane & 3, row = x.first + me->row, chunks = ${t.dim // 8} - quad;
  char *to = (char *)a->${t.name} + 2 * (x.batch * a->${t.name}_stride.batch +
                                row * a->${t.name}_stride.row +
                                x.head_k * a->${t.name}_stride.head + 8 * quad);
  store_part(${t.name}, ${t.dim // 8}, ${t.scale}, to, 16 * a->${t.name}_stride.row,
             row < a->seqlen_k ? chunks : 0, row + 8 < a->seqlen_k ? chunks : 0, me->lane);
}
//@ end

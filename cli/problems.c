/* The table of problems; problems.h says what a row means. Ids that begin with F are cases that
 * users of attention kernels have reported. */
#include "problems.h"

#define SIZES(b, sq, sk, h, hk) \
  .batch = (b), .seqlen_q = (sq), .seqlen_k = (sk), .num_heads = (h), .num_heads_k = (hk)

const kiln__problem kiln__problems[] = {
    /* ---- sizes ---- */
    {"size-1", "one query, one key", SIZES(1, 1, 1, 2, 2), .flags = KILN__EXACT | KILN__QUICK},
    {"size-63", "one less than a block", SIZES(2, 63, 63, 2, 1)},
    {"size-65", "one more than a block", SIZES(1, 65, 65, 3, 3), .flags = KILN__QUICK},
    {"F7", "113 queries and keys", SIZES(2, 113, 113, 4, 2), .flags = KILN__EVERY | KILN__QUICK},
    {"size-127", "one less than two blocks", SIZES(1, 127, 127, 2, 2)},
    {"size-129", "one more than two blocks", SIZES(1, 129, 129, 2, 1)},
    {"size-300", "several blocks and a rest", SIZES(1, 300, 300, 2, 1), .flags = KILN__QUICK},
    {"size-1000", "a thousand queries and keys", SIZES(1, 1000, 1000, 1, 1)},
    {"size-17x300", "fewer queries than keys", SIZES(1, 17, 300, 4, 2), .flags = KILN__QUICK},
    {"size-300x65", "more queries than keys", SIZES(1, 300, 65, 2, 2), .flags = KILN__QUICK},
    {"size-1x1000", "one query of a thousand keys", SIZES(3, 1, 1000, 8, 4)},
    {"size-129x1", "many queries of one key", SIZES(1, 129, 1, 2, 1), .flags = KILN__EXACT},
    {"batch-5", "five sequences", SIZES(5, 100, 90, 2, 2)},
    /* ---- the order of causal tiles: heads in pairs, and what is left over ---- */
    {"order-a", "7 heads of 3 blocks", SIZES(1, 300, 20, 7, 7), .mask = KILN__CAUSAL_ONLY,
     .flags = KILN__QUICK | KILN__WHOLE},
    {"order-b", "7 heads of 5 blocks", SIZES(1, 600, 20, 7, 1), .mask = KILN__CAUSAL_ONLY,
     .flags = KILN__WHOLE},
    {"order-c", "91 heads of 7 blocks", SIZES(1, 800, 20, 91, 13), .mask = KILN__CAUSAL_ONLY,
     .flags = KILN__GPU_ALONE},
    {"order-d", "94 heads of 9 blocks", SIZES(2, 1100, 1150, 47, 47), .mask = KILN__CAUSAL_ONLY,
     .flags = KILN__GPU_ALONE},
    /* ---- heads ---- */
    {"gqa-2", "2 query heads a key head", SIZES(1, 88, 88, 8, 4)},
    {"gqa-3", "3 query heads a key head", SIZES(1, 65, 129, 6, 2)},
    {"gqa-4", "12 query heads on 3", SIZES(1, 70, 90, 12, 3), .head_dim = 256,
     .flags = KILN__WHOLE},
    {"gqa-8", "8 query heads a key head", SIZES(1, 66, 66, 8, 1), .flags = KILN__QUICK},
    {"F8a", "71 query heads on one key head, one query", SIZES(1, 1, 88, 71, 1)},
    {"F8b", "71 query heads on one key head", SIZES(1, 88, 88, 71, 1), .head_dim = 128},
    {"F8c", "24 query heads on 8", SIZES(1, 5, 88, 24, 8), .head_dim = 128},
    {"F8d", "40 query heads on 8", SIZES(1, 88, 88, 40, 8), .head_dim = 128},
    {"F8e", "24 query heads on 4", SIZES(1, 1, 88, 24, 4), .head_dim = 128},
    {"F8f", "28 query heads on 4", SIZES(1, 5, 88, 28, 4), .head_dim = 128},
    {"F8g", "64 query heads on 4", SIZES(1, 88, 88, 64, 4), .head_dim = 128},
    {"F8h", "21 query heads on 7", SIZES(1, 88, 88, 21, 7), .head_dim = 128},
    {"F8i", "10 query heads on 4 are refused", SIZES(1, 8, 8, 10, 4), .flags = KILN__REFUSED},
    /* ---- k and v shorter than their buffers ---- */
    {"F1a", "32 keys of 128, NaN behind them", SIZES(4, 1, 32, 8, 8), .tail = 96},
    {"F1b", "64 keys of 128, infinity behind them", SIZES(4, 1, 64, 8, 8), .tail = 64,
     .flags = KILN__INFINITE},
    {"F1c", "96 keys of 128, NaN behind them", SIZES(4, 1, 96, 8, 8), .tail = 32,
     .flags = KILN__QUICK},
    {"F1d", "48 keys of 128, infinity behind them", SIZES(4, 1, 48, 8, 8), .tail = 80,
     .flags = KILN__INFINITE},
    {"F1e", "1 key, NaN behind it", SIZES(2, 33, 1, 2, 2), .tail = 127, .flags = KILN__EXACT},
    {"F1f", "63 keys, NaN behind them", SIZES(2, 33, 63, 2, 2), .tail = 65},
    {"F1g", "65 keys, infinity behind them", SIZES(2, 33, 65, 2, 2), .tail = 63,
     .flags = KILN__INFINITE},
    {"F1h", "127 keys, NaN behind them", SIZES(2, 33, 127, 2, 2), .tail = 65},
    {"F1i", "129 keys, infinity behind them", SIZES(2, 33, 129, 2, 2), .tail = 63,
     .flags = KILN__INFINITE},
    /* ---- rows that see no key; sizes of zero ---- */
    {"F2a", "twice as many queries as keys", SIZES(1, 2048, 1024, 4, 4), .head_dim = 64,
     .mask = KILN__CAUSAL_ONLY},
    {"F2b", "130 queries, 2 keys", SIZES(1, 130, 2, 2, 1), .mask = KILN__CAUSAL_ONLY,
     .flags = KILN__QUICK},
    {"F2c", "129 queries, 128 keys", SIZES(1, 129, 128, 2, 2), .mask = KILN__CAUSAL_ONLY},
    {"F3a", "no key", SIZES(2, 70, 0, 2, 2), .flags = KILN__EXACT | KILN__QUICK},
    {"F3b", "no query", SIZES(2, 0, 70, 2, 2), .flags = KILN__QUICK},
    {"F3c", "no sequence", SIZES(0, 70, 70, 2, 2)},
    {"F3d", "no query and no key", SIZES(2, 0, 0, 2, 2)},
    /* ---- sizes that overflow a grid axis or 32 bits ---- */
    {"F4a", "65536 sequences", SIZES(65536, 4, 4, 8, 8), .head_dim = 64, .dtype = KILN__FP16_ONLY,
     .flags = KILN__GPU_ALONE},
    {"F4b", "71280 heads", SIZES(1, 3, 3, 71280, 71280), .head_dim = 128, .dtype = KILN__FP16_ONLY,
     .flags = KILN__GPU_ALONE},
    {"F4c", "4194241 queries", SIZES(1, 4194241, 64, 1, 1), .head_dim = 16,
     .dtype = KILN__FP16_ONLY, .flags = KILN__GPU_ALONE},
    /* ---- strides and addresses ---- */
    {"F5a", "k is every second row of its buffer", SIZES(1, 65, 128, 2, 2),
     .layout = KILN__SECOND_ROW_K},
    {"F5b", "v is every second row of its buffer", SIZES(1, 65, 128, 2, 2),
     .layout = KILN__SECOND_ROW_V, .flags = KILN__INFINITE},
    {"F5c", "q, k and v are slices of one buffer", SIZES(2, 113, 113, 3, 3),
     .layout = KILN__QKV_SLICES, .flags = KILN__QUICK},
    {"F5d", "k and v are slices of one buffer", SIZES(2, 65, 113, 4, 2), .layout = KILN__KV_SLICES},
    {"F5e", "o is a slice of a larger buffer", SIZES(2, 113, 65, 3, 3), .layout = KILN__O_SLICE,
     .flags = KILN__QUICK},
    {"F5f", "heads before rows", SIZES(2, 113, 113, 3, 3), .layout = KILN__HEADS_FIRST},
    {"F5g", "k and v are one head for all", SIZES(2, 65, 113, 4, 4), .layout = KILN__ONE_HEAD},
    {"F5h", "k and v are one sequence for all", SIZES(3, 65, 113, 2, 2), .layout = KILN__ONE_BATCH},
    {"F6a", "k 2 bytes off its alignment", SIZES(1, 65, 65, 2, 2), .layout = KILN__K_PLUS_2,
     .flags = KILN__MAY_REFUSE},
    {"F6b", "k 8 bytes off its alignment", SIZES(1, 65, 65, 2, 2), .layout = KILN__K_PLUS_8,
     .flags = KILN__MAY_REFUSE},
    {"F6c", "rows of k 4 elements longer", SIZES(1, 65, 65, 1, 1), .layout = KILN__K_ROW_PLUS_4,
     .flags = KILN__MAY_REFUSE},
    /* ---- numbers ---- */
    {"F9a", "one key of 133120: its row of v", SIZES(1, 1, 1, 1, 1), .data = KILN__ALL_SAME,
     .dtype = KILN__BF16_ONLY, .flags = KILN__EXACT},
    {"F9b", "one key of 128 ten times larger: its row of v", SIZES(1, 16, 128, 1, 1),
     .data = KILN__HOT_KEY, .dtype = KILN__BF16_ONLY, .flags = KILN__EXACT},
    {"F10a", "65536 equal scores of 0, v = 4", SIZES(1, 16, 65536, 1, 1), .data = KILN__ZERO_SCORES,
     .head_dim = 128, .dtype = KILN__FP16_ONLY, .flags = KILN__EXACT},
    {"F10b", "65536 equal large scores: the mean of v", SIZES(1, 16, 65536, 1, 1),
     .data = KILN__EVEN_SCORES, .head_dim = 128, .dtype = KILN__FP16_ONLY},
    {"F11a", "8 channels 50 times larger", SIZES(2, 128, 128, 16, 2), .data = KILN__OUTLIERS,
     .head_dim = 256},
    {"F11b", "8 channels 50 times larger", SIZES(1, 100, 200, 2, 1), .data = KILN__OUTLIERS},
    {"F12a", "scores rise by hundreds, v is huge", SIZES(1, 65, 300, 2, 1),
     .data = KILN__SCORES_RISE, .flags = KILN__QUICK},
    {"F12b", "scores fall by hundreds, v is huge", SIZES(1, 65, 300, 2, 1),
     .data = KILN__SCORES_FALL},
    {"F12c", "scores of both signs up to 1e5", SIZES(1, 65, 300, 2, 1), .data = KILN__SCORES_1E5},
    {"F12d", "one key of score 1e11", SIZES(1, 33, 1, 2, 1), .data = KILN__SCORES_1E11,
     .dtype = KILN__BF16_ONLY, .flags = KILN__EXACT},
    {"F12e", "two keys of score 1e11", SIZES(1, 33, 2, 2, 1), .data = KILN__SCORES_1E11,
     .dtype = KILN__BF16_ONLY},
    {"F12f", "v is huge, scores are not", SIZES(1, 65, 300, 2, 1), .data = KILN__V_LARGE},
    {"F12h", "one key 14.7 nats above 299 others, its v = 0", SIZES(1, 65, 300, 2, 1),
     .data = KILN__ONE_PEAK, .dtype = KILN__FP16_ONLY, .flags = KILN__QUICK},
    {"F12g", "v near the largest value", SIZES(1, 65, 300, 2, 1), .data = KILN__V_NEAR_MAXIMUM},
    {"scale-0", "softmax_scale 0: the mean of v", SIZES(1, 65, 129, 2, 1), .softmax_scale = 0.0f,
     .flags = KILN__SCALE_GIVEN},
    {"scale-0.3", "softmax_scale 0.3", SIZES(1, 65, 129, 2, 1), .softmax_scale = 0.3f,
     .flags = KILN__SCALE_GIVEN},
    {"no-lse", "lse is not wanted", SIZES(1, 113, 113, 2, 1), .flags = KILN__NO_LSE},
    {"nan-query", "a NaN in one query stays in its row", SIZES(1, 65, 113, 2, 1),
     .data = KILN__NAN_QUERY},
};

const int kiln__num_problems = sizeof kiln__problems / sizeof kiln__problems[0];

static bool layout_fits(const kiln__problem *p, const kiln_attn_spec *spec) {
  if (p->layout == KILN__QKV_SLICES || p->layout == KILN__KV_SLICES)
    return spec->head_dim == spec->head_dim_v;
  return true;
}

/* What a backward pass cannot do: run without lse, know weights better than 2^-24 of an lse of 1e5,
 * hold a dS = p (dP - delta) beyond the type, keep a NaN out of the keys of its tile. Products of 4
 * million rows would keep the reference busy for minutes. */
static bool pass_fits(const kiln__problem *p, const kiln_attn_spec *spec) {
  if (spec->pass == KILN_PASS_FORWARD) return true;
  return !(p->flags & KILN__NO_LSE) && p->seqlen_q < 1 << 20 &&
         (p->data == KILN__NORMAL || p->data == KILN__OUTLIERS);
}

bool kiln__problem_fits(const kiln__problem *p, const kiln_attn_spec *spec, bool on_gpu) {
  return (p->head_dim == 0 || p->head_dim == spec->head_dim) &&
         (p->dtype == 0 || p->dtype == (int)spec->dtype + 1) &&
         (p->mask == 0 || p->mask == (int)spec->mask + 1) && layout_fits(p, spec) &&
         pass_fits(p, spec) && (on_gpu || !(p->flags & KILN__GPU_ALONE));
}

static int32_t shorter(int32_t length, int32_t divisor) {
  return length == 0 ? 0 : length < divisor ? 1 : length / divisor;
}

/* At most 160 rows, two of batch and eight heads, three where none share keys, but for what is
 * small enough as a whole. */
kiln__problem kiln__problem_shrink(const kiln__problem *problem) {
  kiln__problem p = *problem;
  if (p.flags & KILN__WHOLE) return p;
  int32_t longest = p.seqlen_q > p.seqlen_k ? p.seqlen_q : p.seqlen_k;
  int32_t divisor = longest / 160 + 1;
  p.seqlen_q = shorter(p.seqlen_q, divisor);
  p.seqlen_k = shorter(p.seqlen_k, divisor);
  if (p.batch > 2) p.batch = 2;
  if (p.num_heads == p.num_heads_k && p.num_heads > 3) p.num_heads = p.num_heads_k = 3;
  if (p.num_heads_k > 0 && p.num_heads > 8 && p.num_heads % p.num_heads_k == 0) {
    int32_t ratio = p.num_heads / p.num_heads_k;
    p.num_heads_k = 1;
    p.num_heads = ratio > 8 ? 7 : ratio;
  }
  return p;
}

/* The problems that verify sets every kernel: sizes, strides and data, one row each.
 *
 * Invariant: a row says everything about its problem but the numbers of its random data, which
 * follow from the row, the kernel and a seed. Sizes that are asked of no GPU are scaled down for
 * the emulator and keep their ratios and their oddness.
 *
 * Called by verify.c; inputs.c makes the data. */
#ifndef KILN_CLI_PROBLEMS_H
#define KILN_CLI_PROBLEMS_H

#include <kiln/kiln.h>

#include <stdbool.h>
#include <stdint.h>

/* Where the tensors lie. PACKED unless said otherwise; gaps hold the row's filler. */
typedef enum kiln__layout {
  KILN__PACKED,       /* (batch, seqlen, heads, dim) each on its own      */
  KILN__QKV_SLICES,   /* q, k and v out of one (batch, seqlen, 3, heads, dim) */
  KILN__KV_SLICES,    /* k and v out of one (batch, seqlen, 2, heads, dim) */
  KILN__SECOND_ROW_K, /* k is every second row of its buffer              */
  KILN__SECOND_ROW_V,
  KILN__HEADS_FIRST, /* all four are (batch, heads, seqlen, dim)         */
  KILN__ONE_HEAD,    /* k and v: head stride 0                           */
  KILN__ONE_BATCH,   /* k and v: batch stride 0                          */
  KILN__O_SLICE,     /* o is a slice of (batch, seqlen, 2, heads, dim)   */
  KILN__K_PLUS_2,    /* k's address is 2 bytes off its alignment         */
  KILN__K_PLUS_8,
  KILN__K_ROW_PLUS_4 /* k's row stride is 4 elements longer               */
} kiln__layout;

typedef enum kiln__data {
  KILN__NORMAL,      /* normal; q and k biased so that scores lie below 0      */
  KILN__OUTLIERS,    /* normal, 8 channels times 50                            */
  KILN__ALL_SAME,    /* q = k = v = 133120                                     */
  KILN__HOT_KEY,     /* the same, and one key ten times larger; v normal       */
  KILN__ZERO_SCORES, /* q = k = 0, v = 4                                       */
  KILN__EVEN_SCORES, /* q = k = 24, v normal                                   */
  KILN__SCORES_RISE, /* by hundreds from key to key; v = +- the dtype's large  */
  KILN__SCORES_FALL,
  KILN__SCORES_1E5, /* of both signs */
  KILN__SCORES_1E11,
  KILN__V_LARGE,        /* normal scores, v normal times the dtype's large value  */
  KILN__ONE_PEAK,       /* the last key but four outweighs the rest; its v is 0       */
  KILN__V_NEAR_MAXIMUM, /* v constant, 0.88 of the largest finite value           */
  KILN__NAN_QUERY       /* normal, and query row 1 holds a NaN                    */
} kiln__data;

enum {
  KILN__EVERY = 1,       /* set to every kernel, however many there are            */
  KILN__EXACT = 2,       /* the result is the reference, rounded to the dtype once */
  KILN__NO_LSE = 4,      /* lse is NULL                                            */
  KILN__GPU_ALONE = 8,   /* its size is its point                                  */
  KILN__REFUSED = 16,    /* INVALID_ARGUMENT, and o is not touched                 */
  KILN__MAY_REFUSE = 32, /* right, or MISALIGNED                                   */
  KILN__INFINITE = 64,   /* gaps and tails hold infinity and not NaN               */
  KILN__QUICK = 128,     /* part of --quick                                        */
  KILN__SCALE_GIVEN = 256,
  KILN__WHOLE = 512 /* not scaled down for the emulator                        */
};

typedef struct kiln__problem {
  const char *id, *sentence;
  int32_t batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  int32_t tail; /* rows of k and v past seqlen_k */
  kiln__layout layout;
  kiln__data data;
  unsigned flags;
  float softmax_scale; /* with SCALE_GIVEN */
  /* Only for kernels of: */
  int32_t head_dim; /* 0 = any     */
  int dtype;        /* KILN__ANY_DTYPE, or a kiln_dtype + 1 */
  int mask;         /* 0 = any, or a kiln_mask + 1          */
} kiln__problem;

enum {
  KILN__FP16_ONLY = KILN_DTYPE_FP16 + 1,
  KILN__BF16_ONLY = KILN_DTYPE_BF16 + 1,
  KILN__CAUSAL_ONLY = KILN_MASK_CAUSAL + 1
};

extern const kiln__problem kiln__problems[];
extern const int kiln__num_problems;

/* Whether this kernel can be set this problem at all. */
bool kiln__problem_fits(const kiln__problem *problem, const kiln_attn_spec *spec, bool on_gpu);

/* The same problem in a size for the emulator. */
kiln__problem kiln__problem_shrink(const kiln__problem *problem);

#endif

/* kiln.h: the whole public interface of Kiln, plain C, no CUDA header; packs are in pack.h, which
 * this file includes.
 *
 * Kiln generates, compiles and launches attention kernels. Three tiers, from the shortest to the
 * most explicit:
 *
 *   kiln_attn_forward(), kiln_attn_backward()
 *                                            one call
 *   kiln_plan_create() -> kiln_plan_run()    choose once, run often: nothing on the launch path
 *   kiln_source_generate() -> kiln_binary_compile() -> kiln_kernel_load() -> kiln_kernel_launch()
 *                                            step by step
 *
 * Conventions. A function returns a status; results come last and are NULL or 0 after a failure.
 * Handles are created and destroyed in pairs; destroy accepts NULL. Structs that a caller fills
 * begin with their size and are born from their _INIT macro. So do info structs, of which as much
 * is filled as the size that the caller set has room for. Enums and fields are only ever appended.
 * A context may be used from many threads at once. */
#ifndef KILN_KILN_H
#define KILN_KILN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef KILN_API
#if defined(__GNUC__)
#define KILN_API __attribute__((visibility("default")))
#else
#define KILN_API
#endif
#endif

#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 1
#define KILN_VERSION_PATCH 0
#define KILN_VERSION       "0.1.0"

struct CUstream_st; /* CUstream and cudaStream_t, without a CUDA header */

/* ---- status ---- */

/* Append only: a number is never reused. The program's exit codes are these numbers. */
/* clang-format off */
#define KILN_STATUS_MAP(X)                                                                   \
  X(OK,                   0, "success")                                                      \
  X(INVALID_ARGUMENT,     1, "an argument or a field is out of its range")                   \
  X(UNSUPPORTED,          2, "no kernel exists for this request")                            \
  X(OUT_OF_MEMORY,        3, "host or device memory is exhausted")                           \
  X(TEMPLATE_FAILED,      4, "a template or its Lua code raised an error")                   \
  X(NO_COMPILER,          5, "no usable compiler was found")                                 \
  X(COMPILE_FAILED,       6, "the compiler rejected the generated source")                   \
  X(NO_DRIVER,            7, "no usable CUDA driver was found")                              \
  X(NO_DEVICE,            8, "no such device")                                               \
  X(DRIVER_FAILED,        9, "the CUDA driver returned an error")                            \
  X(MISMATCH,            10, "the kernel was made for another device or version")            \
  X(MISALIGNED,          11, "an address or a stride is not aligned as the kernel needs it") \
  X(WORKSPACE_TOO_SMALL, 12, "the workspace is smaller than the kernel needs")               \
  X(MISSING_KERNEL,      13, "the kernel is not at hand and compiling is switched off")      \
  X(CAPTURE_ACTIVE,      14, "a stream capture is active and this call would disturb it")    \
  X(CHECK_FAILED,        15, "a result lies outside its tolerance")                          \
  X(CORRUPT,             16, "a file is damaged")                                            \
  X(BAD_SIGNATURE,       17, "a signature does not verify")                                  \
  X(IO_FAILED,           18, "a file cannot be read or written")                             \
  X(TIMEOUT,             19, "the time limit has passed")                                    \
  X(FORKED,              20, "the context was created before a fork")                        \
  X(INTERNAL,            21, "an internal invariant does not hold")
/* clang-format on */

/* clang-format off */
typedef enum kiln_status {
#define KILN_STATUS_ENUM(name, number, text) KILN_##name = number,
  KILN_STATUS_MAP(KILN_STATUS_ENUM)
#undef KILN_STATUS_ENUM
  KILN_STATUS_FORCE_INT = 0x7fffffff
} kiln_status;
/* clang-format on */

/* "COMPILE_FAILED", or "UNKNOWN" for what is no status; and the sentence of the list above. */
KILN_API const char *kiln_status_name(kiln_status status);
KILN_API const char *kiln_status_text(kiln_status status);
KILN_API const char *kiln_version(void);

/* ---- what is computed: fixed when a kernel is generated ---- */

typedef enum kiln_pass {
  KILN_PASS_FORWARD = 0,
  KILN_PASS_BACKWARD = 1,
  KILN_PASS_FORCE_INT = 0x7fffffff
} kiln_pass;

typedef enum kiln_dtype {
  KILN_DTYPE_FP16 = 0,
  KILN_DTYPE_BF16 = 1,
  KILN_DTYPE_E4M3 = 2,
  KILN_DTYPE_FP32 = 3, /* of outputs and statistics; no kernel multiplies in it */
  KILN_DTYPE_FORCE_INT = 0x7fffffff
} kiln_dtype;

typedef enum kiln_mask {
  KILN_MASK_NONE = 0,
  KILN_MASK_CAUSAL = 1, /* bottom right: query i sees key j when j <= i + seqlen_k - seqlen_q */
  KILN_MASK_FORCE_INT = 0x7fffffff
} kiln_mask;

typedef enum kiln_algorithm {
  KILN_ALGORITHM_FLASH = 0,    /* tiled, online softmax: traffic linear in the sequence length */
  KILN_ALGORITHM_STANDARD = 1, /* scores and probabilities in global memory: the yardstick */
  KILN_ALGORITHM_FORCE_INT = 0x7fffffff
} kiln_algorithm;

typedef struct kiln_attn_spec {
  size_t size; /* sizeof(kiln_attn_spec), set by the initialiser */
  /* "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a" or "sm_120"; "" = the device's best */
  char arch[16];
  kiln_pass pass;
  kiln_algorithm algorithm;
  kiln_dtype dtype;   /* of q, k, v and o: FP16 or BF16 */
  int32_t head_dim;   /* columns of q and k: a multiple of 8 up to 256 */
  int32_t head_dim_v; /* columns of v and o; 0 = head_dim */
  kiln_mask mask;
  int32_t deterministic; /* 1: a backward pass whose dq has the same bits in every run, too. The
                            forward pass, dk and dv have them always: 0 there */
} kiln_attn_spec;

/* clang-format off */
#define KILN_ATTN_SPEC_INIT                                                                       \
  { sizeof(kiln_attn_spec), "", KILN_PASS_FORWARD, KILN_ALGORITHM_FLASH, KILN_DTYPE_BF16, 128, 0, \
    KILN_MASK_NONE, 0 }
/* clang-format on */

/* ---- how fast: may never change the answer beyond rounding; 0 = Kiln's choice ---- */

typedef struct kiln_tile {
  size_t size;
  int32_t block_m;    /* query rows of a tile; of the backward pass, of a block */
  int32_t block_n;    /* key rows of a block; of the backward pass, of a tile */
  int32_t num_stages; /* depth of the ring of blocks: keys and values, or queries and dout */
  int32_t num_warps;  /* warps of a block, producers included */
} kiln_tile;

/* clang-format off */
#define KILN_TILE_INIT { sizeof(kiln_tile), 0, 0, 0, 0 }
/* clang-format on */

/* ---- the run: never compiled in ---- */

/* In elements. 0 is legal for k and v (broadcast); the inner stride is 1. */
typedef struct kiln_stride {
  int64_t batch, row, head;
} kiln_stride;

#define KILN_SCALE_DEFAULT (-1.0f) /* 1 / sqrt(head_dim) */

/* Addresses are device memory; tensors but lse are of the spec's dtype. num_heads is a whole
 * multiple of num_heads_k. The forward pass writes o and lse; the backward pass reads them as the
 * forward pass wrote them, reads dout, which is the gradient of o ("do" in C's keywords), and
 * writes dq, dk and dv. Results overlap neither each other, nor an input, nor the workspace: that
 * is not checked. Forward passes look at nothing behind workspace_bytes. */
typedef struct kiln_attn_args {
  size_t size;
  const void *q; /* (batch, seqlen_q, num_heads, head_dim) */
  const void *k; /* (batch, seqlen_k, num_heads_k, head_dim) */
  const void *v; /* (batch, seqlen_k, num_heads_k, head_dim_v) */
  void *o;       /* (batch, seqlen_q, num_heads, head_dim_v) */
  float *lse;    /* (batch, num_heads, seqlen_q) natural logarithm; NULL = not wanted, forward */
  int32_t batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  kiln_stride q_stride, k_stride, v_stride, o_stride;
  float softmax_scale; /* multiplies q.k; 0 is legal; KILN_SCALE_DEFAULT unless set */
  void *workspace;     /* 256-byte aligned; NULL when none is needed */
  size_t workspace_bytes;
  const void *dout; /* (batch, seqlen_q, num_heads, head_dim_v) */
  void *dq;         /* (batch, seqlen_q, num_heads, head_dim) */
  void *dk;         /* (batch, seqlen_k, num_heads_k, head_dim) */
  void *dv;         /* (batch, seqlen_k, num_heads_k, head_dim_v) */
  kiln_stride do_stride, dq_stride, dk_stride, dv_stride;
} kiln_attn_args;

/* clang-format off */
#define KILN_ATTN_ARGS_INIT                                                            \
  { sizeof(kiln_attn_args), NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, { 0, 0, 0 },  \
    { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, KILN_SCALE_DEFAULT, NULL, 0,                \
    NULL, NULL, NULL, NULL, { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } }
/* clang-format on */

/* Fills all strides for packed (batch, seqlen, heads, dim) tensors of the args' sizes. Args of an
 * older header have no gradients, and their size says so. */
KILN_API void kiln_attn_args_pack(kiln_attn_args *args, const kiln_attn_spec *spec);

/* ---- context ---- */

typedef struct kiln_context kiln_context;

#define KILN_DEVICE_NONE (-1) /* generate, and compile where NVRTC is; nothing is launched */
#define KILN_DEVICE_EMU  (-2) /* the emulator */

typedef enum kiln_log_level {
  KILN_LOG_ERROR = 0,
  KILN_LOG_WARNING = 1,
  KILN_LOG_INFO = 2,
  KILN_LOG_DEBUG = 3
} kiln_log_level;
typedef void kiln_log_fn(void *user, kiln_log_level level, const char *sentence);

typedef struct kiln_context_options {
  size_t size;
  /* NULL = KILN_CACHE_DIR, then XDG_CACHE_HOME/kiln, then ~/.cache/kiln; "" = no disk cache */
  const char *cache_dir;
  const char *template_dir; /* NULL = KILN_TEMPLATE_DIR, then the templates inside the library */
  kiln_log_fn *log;         /* NULL = warnings and errors go to stderr, more with KILN_LOG */
  void *log_user;
  char *error; /* receives the sentence when the context cannot be created; may be NULL */
  size_t error_size;
  int64_t emu_seed;         /* emulator: < 0 = no randomness */
  const char *emu_schedule; /* emulator: "late" (default), "eager" or "random" */
  uint64_t emu_starve;      /* emulator: bit mask of warps that run only when nothing else can */
  int32_t jit_off;          /* not 0: nothing is compiled, whatever KILN_JIT says */
  int32_t cache_read_only;  /* not 0: the cache is read, nothing is published */
  int32_t no_line_info;     /* not 0: kernels are compiled without line tables, so they are
                               smaller, and profilers show no source of them */
} kiln_context_options;

/* clang-format off */
#define KILN_CONTEXT_OPTIONS_INIT \
  { sizeof(kiln_context_options), NULL, NULL, NULL, NULL, NULL, 0, -1, NULL, 0, 0, 0, 0 }
/* clang-format on */

/* device: a CUDA ordinal, KILN_DEVICE_NONE or KILN_DEVICE_EMU. options may be NULL. Environment
 * variables are read here, once. Errors: NO_DRIVER, NO_DEVICE, OUT_OF_MEMORY, INVALID_ARGUMENT. */
KILN_API kiln_status kiln_context_create(int device, const kiln_context_options *options,
                                         kiln_context **ctx);

/* Handles made from the context must have been destroyed before. */
KILN_API void kiln_context_destroy(kiln_context *ctx);

/* The calling thread's last failure on ctx, one sentence or a compiler's message with template
 * lines; "" at first. Valid until the thread's next call on ctx. */
KILN_API const char *kiln_last_error(const kiln_context *ctx);

typedef struct kiln_device_info {
  size_t size;
  char name[128];
  int32_t compute_major, compute_minor;
  int32_t num_sms;
  int64_t shared_bytes_block; /* opt-in limit of one block */
  int64_t shared_bytes_sm;
  int64_t l2_bytes;
  int64_t memory_bytes;
  char arch[16]; /* the best arch string this device runs: "sm_90a" */
} kiln_device_info;

KILN_API kiln_status kiln_context_device(kiln_context *ctx, kiln_device_info *info);
KILN_API int kiln_device_count(void); /* CUDA devices; 0 without a driver */

/* What was found on this machine, as one JSON object (driver, NVRTC, paths, permissions,
 * packs, environment). *json belongs to the context and is valid until the next call. */
KILN_API kiln_status kiln_context_report(kiln_context *ctx, const char **json);

/* ---- spec and tile by name: what the command line and bindings use ---- */

/* Sets one field of a spec or a tile from its text, by its schema: ("head_dim", "96"),
 * ("mask", "causal"). Errors: INVALID_ARGUMENT, naming the field, the value and what is legal. */
KILN_API kiln_status kiln_attn_spec_set(kiln_context *ctx, kiln_attn_spec *spec, const char *field,
                                        const char *text);
KILN_API kiln_status kiln_tile_set(kiln_context *ctx, kiln_tile *tile, const char *field,
                                   const char *text);

/* Every spec and tile field, with type, default, legal values and sentence, and every arch, as one
 * JSON object. *json belongs to the context and lives as long as it. */
KILN_API kiln_status kiln_schema(kiln_context *ctx, const char **json);

/* Fills a spec's "" arch and 0 head_dim_v and a tile's zeros; refuses what no kernel can be
 * generated for. tile may be NULL. Errors: INVALID_ARGUMENT, UNSUPPORTED. */
KILN_API kiln_status kiln_attn_spec_resolve(kiln_context *ctx, kiln_attn_spec *spec,
                                            kiln_tile *tile);

/* ---- tiles: what tuning chooses from ---- */

/* Every tile that is legal for a spec, in a fixed order, none of them rendered or compiled. *count
 * is how many there are; the first `room` of them are stored (tiles may be NULL where room is 0).
 * Errors: INVALID_ARGUMENT, UNSUPPORTED. */
KILN_API kiln_status kiln_tile_list(kiln_context *ctx, const kiln_attn_spec *spec, kiln_tile *tiles,
                                    int32_t room, int32_t *count);

/* One launch by the cost model (docs/tuning.md), microseconds. The parts do not add up: the first
 * five are what each would take if it were all, the next three are shares of the whole. */
typedef struct kiln_prediction {
  size_t size;
  double time_us;
  double tensor_us;  /* products                                             */
  double softmax_us; /* exponentials and the arithmetic around them          */
  double shared_us;  /* reads of shared memory                               */
  double l2_us;      /* keys and values, again for every block of queries    */
  double memory_us;  /* every tensor once from or to device memory           */
  double tile_us;    /* what is paid once a tile: first loads, the store     */
  double masked_us;  /* scores that are computed and thrown away             */
  double tail_us;    /* multiprocessors without work at the end              */
  double launch_us;
  int32_t resident; /* blocks that a multiprocessor holds, by the model      */
  /* What a roofline is drawn of. The roofs are nominal: no kernel reaches them. */
  double memory_bytes;  /* every tensor once, what memory_us is the time of  */
  double memory_gbs;    /* 10^9 bytes a second                               */
  double tensor_tflops; /* of the products' instruction                      */
} kiln_prediction;

/* tile: as for kiln_attn_spec_resolve; shape: its sizes are read; num_sms: 0 = of the context's
 * GPU, or of a usual device of the arch where it has none. prediction->size is set by the caller.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED. */
KILN_API kiln_status kiln_tile_predict(kiln_context *ctx, const kiln_attn_spec *spec,
                                       const kiln_tile *tile, const kiln_attn_args *shape,
                                       int32_t num_sms, kiln_prediction *prediction);

/* ---- tuning ---- */

/* Told after every candidate: how many are known, and how many there may be in the end. */
typedef void kiln_tune_progress_fn(void *user, int32_t known, int32_t most);

typedef struct kiln_tune_options {
  size_t size;
  const char *strategy; /* "estimate", "hillclimb" or "exhaustive"; NULL = hillclimb */
  double budget_s;      /* seconds; 0 = no limit */
  /* Journal that is read first and appended to; NULL = the first of KILN_RECORDS, else tuning.jsonl
   * in the cache directory, and none in a simulation */
  const char *records;
  const char *simulate;            /* a journal whose times stand for a GPU; NULL = the context's */
  kiln_tune_progress_fn *progress; /* NULL = nobody is told */
  void *progress_user;
} kiln_tune_options;

/* clang-format off */
#define KILN_TUNE_OPTIONS_INIT { sizeof(kiln_tune_options), NULL, 0, NULL, NULL, NULL, NULL }
/* clang-format on */

typedef struct kiln_tune_result {
  size_t size;
  kiln_tile tile, default_tile;
  double time_us, default_us; /* medians of a launch; 0 = not measured (estimate) */
  double predicted_us;        /* of tile */
  int32_t legal;              /* tiles of the search space */
  int32_t known, failed;      /* of them: with an outcome, and without a time */
  int32_t measured;           /* compiled now; a finalist counts twice */
  int64_t samples;            /* taken now */
  int32_t complete;           /* 0 = the budget ended it */
  int32_t from_records;       /* 1 = a finished tuning was in the records, nothing was measured */
  /* The choice as in a journal (docs/tuning.md), one JSON object, with every tile of the space:
   * those without an outcome are there too, and each has its predicted_us. The context's until its
   * next call. */
  const char *record;
} kiln_tune_result;

/* Chooses a tile for a spec and a shape (its sizes are read) by measuring (docs/tuning.md). It is
 * never slower than the default tile, as far as was measured. What is compiled and timed for it
 * runs in a process of its own, kiln-measure, which the context keeps for the next tuning; calls on
 * one context take turns. options NULL = their defaults; result->size is set by the caller. Errors:
 * INVALID_ARGUMENT, UNSUPPORTED (also: kiln-measure is not installed), CHECK_FAILED (the default
 * could not be timed), TIMEOUT (the budget was too small for it), IO_FAILED, NO_DEVICE, and what
 * kept kiln-measure from measuring: OUT_OF_MEMORY, NO_COMPILER, MISSING_KERNEL. */
KILN_API kiln_status kiln_tune(kiln_context *ctx, const kiln_attn_spec *spec,
                               const kiln_attn_args *shape, const kiln_tune_options *options,
                               kiln_tune_result *result);

/* verb: "show" and "check" with one file, "export" with none, "import" with one, "merge" with two
 * or more. out: where export and merge write; export may have none. The user's own records are
 * those that kiln_tune appends to. *json is one object, owned by the context until the next call,
 * and is given with every status but INVALID_ARGUMENT. Errors: CHECK_FAILED (check: lines are
 * damaged, or there is none), MISMATCH (check: some are of another environment; import: nothing was
 * used), IO_FAILED. */
KILN_API kiln_status kiln_records_command(kiln_context *ctx, const char *verb,
                                          const char *const *files, int32_t num_files,
                                          const char *out, const char **json);

/* ---- step by step ---- */

typedef struct kiln_source kiln_source; /* generated text */
typedef struct kiln_binary kiln_binary; /* compiled kernel and its record */
typedef struct kiln_kernel kiln_kernel; /* loaded; launches are thread-safe */

#define KILN_GENERATE_PLAIN    1u /* leave #line out: for reading */
#define KILN_GENERATE_LAUNCHER 2u /* not the kernel: a C11 file that launches its cubin */

/* flags: 0 or one of the above. A launcher is no source that can be compiled here; its id is that
 * of the kernel's text. Errors: INVALID_ARGUMENT, UNSUPPORTED (no kernel for this spec; a launcher
 * for the emulator), TEMPLATE_FAILED. */
KILN_API kiln_status kiln_source_generate(kiln_context *ctx, const kiln_attn_spec *spec,
                                          const kiln_tile *tile, unsigned flags,
                                          kiln_source **source);

/* The text (length may be NULL), the SHA-256 of the text below its header in hex, and the launch
 * record as JSON (docs/record.md); they live as long as the source. */
KILN_API const char *kiln_source_text(const kiln_source *source, size_t *length);
KILN_API const char *kiln_source_id(const kiln_source *source);
KILN_API const char *kiln_source_record(const kiln_source *source);
KILN_API void kiln_source_destroy(kiln_source *source);

typedef struct kiln_binary_info {
  size_t size;
  const char *kernel_id; /* SHA-256, hex: docs/identities.md */
  const char *record;    /* launch record with resources and notes, JSON */
  int32_t registers;     /* per thread, the largest of the entries */
  int32_t spill_bytes;   /* stores + loads, summed over the entries */
  int64_t shared_bytes;  /* static + dynamic, the largest of the entries */
  double compile_ms;     /* 0 when it came from the cache */
  int32_t from_cache;
  const char *notes; /* the compiler's remarks, one a line; "" when there are none */
} kiln_binary_info;

/* Looks into the cache first, publishes into it afterwards.
 * Errors: NO_COMPILER, COMPILE_FAILED, MISSING_KERNEL. */
KILN_API kiln_status kiln_binary_compile(kiln_context *ctx, const kiln_source *source,
                                         kiln_binary **binary);
KILN_API void kiln_binary_get_info(const kiln_binary *binary, kiln_binary_info *info);

/* The image is a cubin (CUDA) or an ELF shared object (emulator). PTX: NULL where there is none. */
KILN_API const void *kiln_binary_image(const kiln_binary *binary, size_t *size);
KILN_API const char *kiln_binary_ptx(const kiln_binary *binary, size_t *length);
KILN_API void kiln_binary_destroy(kiln_binary *binary);

KILN_API kiln_status kiln_kernel_load(kiln_context *ctx, const kiln_binary *binary,
                                      kiln_kernel **kernel);
KILN_API kiln_status kiln_kernel_workspace(const kiln_kernel *kernel, const kiln_attn_args *args,
                                           size_t *bytes);
KILN_API kiln_status kiln_kernel_launch(kiln_kernel *kernel, const kiln_attn_args *args,
                                        struct CUstream_st *stream);
KILN_API void kiln_kernel_destroy(kiln_kernel *kernel);

/* ---- plans ---- */

typedef struct kiln_plan kiln_plan;

/* The ladder: how a plan came to its tile. The first step that holds is taken, and the plan's why
 * and ladder name it. EXPLICIT: the caller gave a field of the tile. The next three are tuning
 * records: of this problem on this device; of sizes within a factor of about two; of another device
 * of the same kind. DEFAULT: the default tile of the arch, or of the pack that holds the kernel.
 * MODEL: the cost model's choice, where it was asked for. */
typedef enum kiln_plan_step {
  KILN_STEP_EXPLICIT = 0,
  KILN_STEP_EXACT = 1,
  KILN_STEP_NEAR_SHAPE = 2,
  KILN_STEP_NEAR_DEVICE = 3,
  KILN_STEP_DEFAULT = 4,
  KILN_STEP_MODEL = 5,
  KILN_STEP_FORCE_INT = 0x7fffffff
} kiln_plan_step;

typedef enum kiln_plan_mode {
  KILN_PLAN_AS_CONFIGURED = 0, /* KILN_TUNE: cached unless it says off or measure */
  KILN_PLAN_ESTIMATE = 1,      /* the cost model chooses; records are not asked */
  KILN_PLAN_CACHED_ONLY = 2,   /* records, and nothing is measured */
  KILN_PLAN_MEASURE = 3,       /* where there is no exact record, tune first */
  KILN_PLAN_MODE_FORCE_INT = 0x7fffffff
} kiln_plan_mode;

typedef struct kiln_plan_options {
  size_t size;
  kiln_plan_mode mode;
  /* The last step that may be taken: below it the plan is refused (UNSUPPORTED). A tile that the
   * caller gave is always taken. */
  kiln_plan_step lowest_step;
  double deadline_s; /* of measuring; 0 = 30 seconds */
} kiln_plan_options;

/* clang-format off */
#define KILN_PLAN_OPTIONS_INIT \
  { sizeof(kiln_plan_options), KILN_PLAN_AS_CONFIGURED, KILN_STEP_MODEL, 0 }
/* clang-format on */

typedef struct kiln_plan_info {
  size_t size;
  kiln_attn_spec spec; /* resolved */
  kiln_tile tile;
  const char *kernel_id;
  const char *source_id;
  const char *record;     /* launch record, JSON */
  const char *why;        /* the ladder step and its reason, one sentence */
  size_t workspace_bytes; /* for the shape the plan was made for */
  int32_t from_cache;
  const char *pack; /* path of the pack that holds the kernel, "" for one in memory; NULL = none */
  kiln_plan_step step;
  const char *ladder; /* JSON: the steps and what refused them, the record that was taken */
} kiln_plan_info;

/* Chooses, compiles and loads for a spec and a shape (args: sizes and strides are read, addresses
 * may be NULL). tile NULL or zeros = Kiln's choice; what is given is never overridden. The kernel
 * is looked for in the packs that were added, those of KILN_PACK_PATH, the cache, and compiled
 * last. Errors besides those of the steps: MISSING_KERNEL; CORRUPT, BAD_SIGNATURE, IO_FAILED for a
 * pack of KILN_PACK_PATH, which is never passed over. */
KILN_API kiln_status kiln_plan_create(kiln_context *ctx, const kiln_attn_spec *spec,
                                      const kiln_tile *tile, const kiln_attn_args *shape,
                                      kiln_plan **plan);
/* The same by other rules than KILN_TUNE's; options NULL = KILN_PLAN_OPTIONS_INIT. KILN_TUNE=off
 * forbids records and measuring whatever the options say. Measuring runs in a process of its own;
 * where it fails, the ladder goes on and why says so. */
KILN_API kiln_status kiln_plan_create_with(kiln_context *ctx, const kiln_attn_spec *spec,
                                           const kiln_tile *tile, const kiln_attn_args *shape,
                                           const kiln_plan_options *options, kiln_plan **plan);
/* A plan of a kernel that was compiled already, whatever packs and cache hold. */
KILN_API kiln_status kiln_plan_load(kiln_context *ctx, const kiln_binary *binary, kiln_plan **plan);
KILN_API void kiln_plan_get_info(const kiln_plan *plan, kiln_plan_info *info);
KILN_API kiln_status kiln_plan_workspace(const kiln_plan *plan, const kiln_attn_args *args,
                                         size_t *bytes);

/* Enqueues on stream. Any sizes the spec allows, not only the plan's. No allocation, lock, file
 * access, compile or synchronisation; thread-safe; may be captured into a graph. Errors:
 * INVALID_ARGUMENT, MISALIGNED, WORKSPACE_TOO_SMALL, DRIVER_FAILED, FORKED; nothing was launched
 * then. */
KILN_API kiln_status kiln_plan_run(kiln_plan *plan, const kiln_attn_args *args,
                                   struct CUstream_st *stream);
KILN_API void kiln_plan_destroy(kiln_plan *plan);

/* ---- one call ---- */

/* Plan (kept in the context for the next call of the same spec and like sizes: of the same bucket,
 * docs/tuning.md) and run. Only the first call of a spec compiles (unless KILN_TUNE=measure): other
 * buckets take the kernel that the ladder chooses where it is at hand, in a pack or in the cache,
 * else one that the spec has already; kiln_prewarm compiles for all. Inside a stream capture
 * nothing is compiled or loaded: a plan that was made for other sizes of the spec serves there, and
 * without one it is CAPTURE_ACTIVE. */
KILN_API kiln_status kiln_attn_forward(kiln_context *ctx, const kiln_attn_spec *spec,
                                       const kiln_attn_args *args, struct CUstream_st *stream);

/* The gradients dq, dk and dv in the same way, from q, k, v, dout and what a forward pass gave: o
 * and lse. The spec's pass is taken as backward, whatever it says. Errors: as kiln_attn_forward. */
KILN_API kiln_status kiln_attn_backward(kiln_context *ctx, const kiln_attn_spec *spec,
                                        const kiln_attn_args *args, struct CUstream_st *stream);

/* Makes the plans that kiln_attn_forward and, where a spec's pass says so, kiln_attn_backward will
 * need for `count` specs, each with its shape (sizes and strides are read; elements of both arrays
 * lie as far apart as the size of the first says): afterwards no call with one of them compiles,
 * loads or reads a file. All are tried; the first failure is what is
 * returned, and its sentence says how many there were. */
KILN_API kiln_status kiln_prewarm(kiln_context *ctx, const kiln_attn_spec *specs,
                                  const kiln_attn_args *shapes, int32_t count);

/* ---- device memory, the same on a GPU and on the emulator: for tools and tests ---- */

/* The address is a multiple of 256. */
KILN_API kiln_status kiln_memory_alloc(kiln_context *ctx, size_t bytes, void **address);
KILN_API kiln_status kiln_memory_free(kiln_context *ctx, void *address);
KILN_API kiln_status kiln_memory_upload(kiln_context *ctx, void *to, const void *from,
                                        size_t bytes);
KILN_API kiln_status kiln_memory_download(kiln_context *ctx, void *to, const void *from,
                                          size_t bytes);

/* Waits for the default stream and reports its fault. */
KILN_API kiln_status kiln_context_synchronize(kiln_context *ctx);

/* Mean microseconds of `count` launches of a plan, by device events around them, after `warmup`
 * launches. */
KILN_API kiln_status kiln_plan_time(kiln_plan *plan, const kiln_attn_args *args, int warmup,
                                    int count, double *time_us);

/* One sample of a plan's time as a model meets it, with nothing of its tensors left in L2: mean
 * microseconds of a launch, by device events on the default stream around `turns` rounds of one
 * launch with each of the `num_sets` sets, in order. Sets of tensors that are together three times
 * as large as L2 push each other out of it; they may share one workspace. Nothing is launched
 * before the first event, so a caller warms up by samples that it throws away; launches shorter
 * than the host's own work on them (a few microseconds) measure the host. Errors: as kiln_plan_run;
 * INVALID_ARGUMENT for a number below 1; UNSUPPORTED on the emulator, which has no time. */
KILN_API kiln_status kiln_plan_sample(kiln_plan *plan, const kiln_attn_args *const *sets,
                                      int num_sets, int turns, double *time_us);

/* Runs the cluster of one block of a plan's grid, and gives what happened in it as one JSON object:
 * loads, waits, products, softmax and stores by a model clock (docs/trace.md). It is a model of
 * the pipeline and no measurement. For plans of the emulator, of flash attention's forward pass; o
 * holds that cluster's part. *json belongs to the context until the next call. Errors: as
 * kiln_plan_run, and UNSUPPORTED. */
KILN_API kiln_status kiln_plan_trace(kiln_plan *plan, const kiln_attn_args *args, int64_t block,
                                     const char **json);

/* ---- cache ---- */

/* verb: "ls", "verify", "gc", "clear"; the result is one JSON object, owned by the context until
 * the next call. */
KILN_API kiln_status kiln_cache_command(kiln_context *ctx, const char *verb, const char **json);
/* Says which identity field of two cached kernels differs first. */
KILN_API kiln_status kiln_cache_why(kiln_context *ctx, const char *id_a, const char *id_b,
                                    const char **json);

#ifdef __cplusplus
}
#endif

#include <kiln/pack.h>

#endif

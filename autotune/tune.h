/* Tuning one problem: journal, strategy, race, choice, record. kiln__tune and kiln__records_command
 * are what the runtime's table of services holds (generator/services.c). */
#ifndef KILN_AUTOTUNE_TUNE_H
#define KILN_AUTOTUNE_TUNE_H

#include "autotune/line.h"
#include "autotune/measure.h"
#include "autotune/strategy.h"

typedef struct kiln__tuning {
  kiln_context *ctx;
  kiln_attn_spec spec; /* resolved */
  kiln_attn_args shape;
  const kiln__strategy *strategy;
  double budget_s;     /* 0 = none */
  const char *records; /* journal that is read and appended to; NULL = none */
  kiln__environment environment;
  kiln__measurer measurer;
  /* Which tiles may be tried; NULL = all that are legal. */
  int (*wanted)(void *user, const kiln_tile *tile);
  void *user;
  char **record;                   /* receives kiln_tune_result's, malloc'd; NULL = not wanted */
  kiln_tune_progress_fn *progress; /* may be NULL */
  void *progress_user;
} kiln__tuning;

/* Errors: CHECK_FAILED where the default tile cannot be timed, IO_FAILED, OUT_OF_MEMORY. */
kiln_status kiln__tuning_run(const kiln__tuning *tuning, kiln_tune_result *result, char *error,
                             size_t error_size);

/* What a context keeps from one tuning to the next: the process that measures (child.h). A device
 * below 0 is none that can be measured on. open gives NULL without memory. */
void *kiln__tuner_open(int device, const char *template_dir, const char *cache_dir, int jit_off);
void kiln__tuner_close(void *tuner);

/* kiln_tune of the public header, with the context's records file filled in. tuner: NULL for what
 * measures nothing. *record: malloc'd,
 * NULL after a failure; record may be NULL. */
kiln_status kiln__tune(void *tuner, kiln_context *ctx, const kiln_attn_spec *spec,
                       const kiln_attn_args *shape, const kiln_tune_options *options,
                       kiln_tune_result *result, char **record, char *error, size_t error_size);

/* kiln_records_command of the public header; own: the user's records file. *json: malloc'd. */
kiln_status kiln__records_command(kiln_context *ctx, const char *verb, const char *const *files,
                                  int32_t num_files, const char *own, const char *out, char **json,
                                  char *error, size_t error_size);

/* Where this context would measure; "" and 0 for what is not known: without a GPU, most of it. The
 * source id is that of a resolved spec; spec may be NULL: then it is not known. */
kiln_status kiln__environment_of(kiln_context *ctx, const kiln_attn_spec *spec,
                                 kiln__environment *environment);

/* The id of the text that the spec's default tile renders to; "none" where it cannot be rendered
 * here. A record holds as long as this text stays what it was when it was measured. */
void kiln__environment_take_source(kiln_context *ctx, const kiln_attn_spec *spec,
                                   kiln__environment *environment);

#endif

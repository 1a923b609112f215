/* See run_record.h. */
#include "runtime/run_record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/context.h"
#include "runtime/record.h"

#define LINE_SIZE 512

struct kiln__run_problem {
  kiln__run_problem *next;
  char line[LINE_SIZE];
};

/* Members by the names of the flags (docs/tuning.md); of a forward pass what they are by default is
 * left out. */
static int write_line(const kiln_attn_spec *spec, const kiln_attn_args *shape, char *line) {
  char pass[64] = "";
  if (spec->pass != KILN_PASS_FORWARD)
    snprintf(pass, sizeof pass, "\"pass\":\"%s\",\"deterministic\":%d,",
             kiln__pass_words[spec->pass], (int)spec->deterministic);
  return snprintf(line, LINE_SIZE,
                  "{\"arch\":\"%s\",%s\"algorithm\":\"%s\",\"dtype\":\"%s\",\"head_dim\":%d,"
                  "\"head_dim_v\":%d,\"mask\":\"%s\",\"batch\":%d,\"seqlen_q\":%d,"
                  "\"seqlen_k\":%d,\"num_heads\":%d,\"num_heads_k\":%d}\n",
                  spec->arch, pass, kiln__algorithm_words[spec->algorithm],
                  kiln__dtype_words[spec->dtype], (int)spec->head_dim, (int)spec->head_dim_v,
                  kiln__mask_words[spec->mask], (int)shape->batch, (int)shape->seqlen_q,
                  (int)shape->seqlen_k, (int)shape->num_heads, (int)shape->num_heads_k);
}

static int append(const char *path, const char *line, int length) {
  int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
  if (file < 0) return -1;
  const int whole = write(file, line, (size_t)length) == length;
  return close(file) == 0 && whole ? 0 : -1;
}

/* Under the lock. */
static int is_new(kiln__run_record *p, const char *line) {
  for (const kiln__run_problem *x = p->written; x; x = x->next)
    if (strcmp(x->line, line) == 0) return 0;
  kiln__run_problem *added = malloc(sizeof *added);
  if (!added) return 0;
  memcpy(added->line, line, LINE_SIZE);
  added->next = p->written;
  p->written = added;
  return 1;
}

void kiln__run_record_add(kiln_context *ctx, const kiln_attn_spec *spec,
                          const kiln_attn_args *shape) {
  const char *path = kiln__env_get(&ctx->env, KILN__ENV_KILN_RECORD);
  char line[LINE_SIZE];
  if (!path || !shape || shape->seqlen_q <= 0) return;
  const int length = write_line(spec, shape, line);
  kiln__run_record *record = &ctx->run_record;
  pthread_mutex_lock(&record->lock);
  if (is_new(record, line) && append(path, line, length) != 0 && !record->warned) {
    record->warned = 1;
    kiln__log_print(&ctx->log, KILN_LOG_WARNING, "KILN_RECORD: %s cannot be written (%s)", path,
                    strerror(errno));
  }
  pthread_mutex_unlock(&record->lock);
}

void kiln__run_record_close(kiln__run_record *record) {
  while (record->written) {
    kiln__run_problem *next = record->written->next;
    free(record->written);
    record->written = next;
  }
}

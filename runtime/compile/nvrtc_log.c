/* Reading NVRTC's log, line by line: see nvrtc_log.h. The forms are those of NVRTC 12.0 to 13.x. */
#include "runtime/compile/nvrtc_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_SIZE 1024 /* bytes: a longer line is cut */

typedef struct log_state {
  kiln__compiled *out;
  kiln__text *notes;
  kiln__entry_resources *compiling; /* the entry that "Used N registers" is about */
  kiln__entry_resources
      *properties; /* the entry that the stack line is about; NULL for a function */
} log_state;

static kiln__entry_resources *find_entry(kiln__compiled *out, const char *name, size_t length) {
  for (int i = 0; i < out->num_entries; i++)
    if (strlen(out->entries[i].name) == length && memcmp(out->entries[i].name, name, length) == 0)
      return &out->entries[i];
  return NULL;
}

static kiln__entry_resources *add_entry(kiln__compiled *out, const char *name, size_t length) {
  kiln__entry_resources *entry = find_entry(out, name, length);
  if (entry || out->num_entries == KILN__MAX_ENTRIES || length >= sizeof entry->name) return entry;
  entry = &out->entries[out->num_entries++];
  memset(entry, 0, sizeof *entry);
  memcpy(entry->name, name, length);
  return entry;
}

/* "Compiling entry function 'NAME' for 'sm_90a'" */
static int read_compiling(log_state *state, const char *line) {
  const char *at = strstr(line, "Compiling entry function '");
  if (!at) return 0;
  at += strlen("Compiling entry function '");
  state->compiling = add_entry(state->out, at, strcspn(at, "'"));
  return 1;
}

/* "Function properties for NAME" */
static int read_properties(log_state *state, const char *line) {
  const char *at = strstr(line, "Function properties for ");
  if (!at) return 0;
  at += strlen("Function properties for ");
  state->properties = find_entry(state->out, at, strcspn(at, " \t"));
  return 1;
}

/* "    1032 bytes stack frame, 1680 bytes spill stores, 1848 bytes spill loads" */
static int read_spills(log_state *state, const char *line) {
  int stores, loads;
  const char *at = strstr(line, "bytes stack frame, ");
  if (!at) return 0;
  if (state->properties &&
      sscanf(at, "bytes stack frame, %d bytes spill stores, %d", &stores, &loads) == 2) {
    state->properties->spill_bytes = stores + loads;
    if (stores + loads > 0)
      kiln__text_printf(state->notes, "%s spills registers: %d bytes of stores, %d of loads\n",
                        state->properties->name, stores, loads);
  }
  return 1;
}

/* "Used 32 registers, used 1 barriers, 400 bytes smem, 368 bytes cmem[0]" */
static int read_used(log_state *state, const char *line) {
  const char *at = strstr(line, "Used ");
  if (!at || !strstr(at, " registers")) return 0;
  if (!state->compiling) return 1;
  state->compiling->registers = (int32_t)strtol(at + strlen("Used "), NULL, 10);
  const char *smem = strstr(at, " bytes smem");
  while (smem && smem > at && smem[-1] >= '0' && smem[-1] <= '9') smem--;
  if (smem) state->compiling->static_bytes = strtol(smem, NULL, 10);
  return 1;
}

/* A warning of the front end, or a numbered remark or warning of the assembler. */
static int is_note(const char *line) {
  if (strstr(line, "): warning ")) return 1;
  if (strncmp(line, "ptxas", 5) != 0) return 0;
  return strstr(line, ": (C") || strstr(line, "warning :") || strstr(line, "warning:");
}

static void read_line(log_state *state, const char *line) {
  if (read_compiling(state, line) || read_properties(state, line) || read_spills(state, line) ||
      read_used(state, line))
    return;
  if (!is_note(line)) return;
  /* The assembler's prefix says nothing that its number does not. */
  const char *code = strncmp(line, "ptxas", 5) == 0 ? strstr(line, "(C") : NULL;
  kiln__text_printf(state->notes, "%s\n", code ? code : line);
}

static const char *take_line(const char *at, char line[LINE_SIZE]) {
  size_t length = strcspn(at, "\n");
  size_t kept = length < LINE_SIZE ? length : LINE_SIZE - 1;
  memcpy(line, at, kept);
  line[kept] = '\0';
  return at + length + (at[length] == '\n');
}

void kiln__nvrtc_log_parse(const char *log, kiln__compiled *out, kiln__text *notes) {
  log_state state = {out, notes, NULL, NULL};
  char line[LINE_SIZE];
  for (const char *at = log; at[0];) {
    at = take_line(at, line);
    read_line(&state, line);
  }
}

void kiln__nvrtc_log_errors(const char *log, kiln__text *error) {
  char line[LINE_SIZE];
  for (const char *at = log; at[0];) {
    at = take_line(at, line);
    int is_statistic = strncmp(line, "ptxas info", 10) == 0 || strncmp(line, "ptxas  ", 7) == 0;
    if (is_statistic || strncmp(line, "Remark:", 7) == 0 || !line[0]) continue;
    kiln__text_printf(error, "%s%s", error->length ? "\n" : "", line);
  }
}

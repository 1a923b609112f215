/* The command line: verbs and flags as rows of tables, from which parsing, --help and refusals
 * follow.
 *
 * Invariant: after kiln__args_parse every option is one that the verb knows, given once, with a
 * value where it takes one; nothing else on the line was ignored. Flags of the spec and the tile
 * are not written here: they come from the library's schema (schema.h).
 *
 * Called by main.c; the verbs read their options through kiln__args_*. */
#ifndef KILN_CLI_ARGS_H
#define KILN_CLI_ARGS_H

#include "schema.h"

#include <kiln/kiln.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct kiln__flag {
  const char *name;  /* "--device"; the end of a list is NULL */
  const char *value; /* what its value is called in the help; NULL = a switch */
  const char *help;
} kiln__flag;

/* Groups of flags that verbs share. */
enum {
  KILN__TAKES_SELECTION = 1, /* spec and tile fields, from the schema; comma lists are legal */
  KILN__TAKES_CHOICE = 2,    /* the same but for head dims, which the tensors say; one value each */
  KILN__TAKES_DEVICE = 4,    /* --device, for launching */
  KILN__TAKES_TARGET = 32,   /* --device, for kernels that are only made or looked at */
  KILN__TAKES_EMULATOR = 8,  /* --emu-* */
  KILN__TAKES_SHAPE = 16,    /* --batch and so on */
  KILN__OPEN_TO_ALL = 64,    /* fields that are not given: as selection.h says for OPEN_IS_ALL, */
  KILN__OPEN_TO_GRID = 128   /* and for OPEN_IS_GRID */
};

typedef struct kiln__args kiln__args;

typedef struct kiln__verb {
  const char *name;
  const char *usage;    /* what follows the name: "SELECTION [-o FILE]" */
  const char *sentence; /* what it does */
  const kiln__flag *flags;
  unsigned groups;
  int min_words, max_words; /* arguments that are not flags */
  kiln_status (*run)(const kiln__args *args);
} kiln__verb;

typedef struct kiln__option {
  const char *name;  /* of the flag's row, or of the schema's */
  const char *value; /* NULL for a switch */
} kiln__option;

struct kiln__args {
  const kiln__verb *verb;
  const kiln__schema *schema;
  kiln__option *options;
  int num_options;
  const char **words;
  int num_words;
  bool help;
};

/* argv: what follows the verb. The strings are borrowed. */
kiln_status kiln__args_parse(const kiln__verb *verb, const kiln__schema *schema, int argc,
                             char **argv, kiln__args *args);
void kiln__args_destroy(kiln__args *args);

/* "kiln VERB", its sentence and every flag it takes, on stdout. */
void kiln__args_help(const kiln__verb *verb, const kiln__schema *schema);

bool kiln__args_has(const kiln__args *args, const char *name);
const char *kiln__args_get(const kiln__args *args, const char *name); /* NULL = not given */

/* Leave *value alone where the flag was not given. */
kiln_status kiln__args_integer(const kiln__args *args, const char *name, int64_t least,
                               int64_t most, int64_t *value);
kiln_status kiln__args_real(const kiln__args *args, const char *name, double *value);

/* UNSUPPORTED and a sentence for a flag or a verb that is planned and not built; OK otherwise. */
kiln_status kiln__refuse_planned(const char *word);

/* The candidate that is spelt most like `word`, or NULL where none is near. A NULL row ends
 * nothing: `count` rows are looked at. */
const char *kiln__nearest(const char *word, const char *const *candidates, int count);

/* The flags of a group, ended by a NULL name. */
const kiln__flag *kiln__group_flags(unsigned group);

#endif

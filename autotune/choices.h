/* The finished tunings of a spec that plans choose from, read once: those that the library ships,
 * then the files that it is given, of which a later one, and a later line, goes before an earlier.
 *
 * Invariant: finding a choice measures nothing, opens nothing and changes nothing; whatever is not
 * used is named with its reason. Used by generator/services.c for the runtime's plans. */
#ifndef KILN_AUTOTUNE_CHOICES_H
#define KILN_AUTOTUNE_CHOICES_H

#include "autotune/line.h"

typedef struct kiln__choice {
  kiln__line line;   /* of the kind CHOICE */
  const char *place; /* the file, or "shipped" */
  int64_t number;    /* of the line in it */
} kiln__choice;

typedef struct kiln__choices {
  kiln_attn_spec spec; /* resolved; of every row */
  kiln__choice *rows;  /* in the order of reading */
  int count, room;
  char **places; /* the names that rows point to */
  int num_places;
  int damaged; /* lines that could not be read */
} kiln__choices;

/* What was found for a problem. */
typedef struct kiln__chosen {
  kiln_plan_step step; /* EXACT, NEAR_SHAPE, NEAR_DEVICE; DEFAULT where nothing holds */
  kiln_tile tile;      /* zeros at DEFAULT */
  char *why;           /* malloc'd: one sentence */
  char *ladder;        /* malloc'd: JSON, docs/tuning.md */
} kiln__chosen;

/* Where plans are made, as far as choices are compared with it. */
typedef struct kiln__place {
  const kiln_attn_args *shape;    /* its sizes */
  const kiln_device_info *device; /* of a GPU */
  /* The id of the text of the spec's default tile; asked at most once, and only where there is a
   * tuning of the spec. 0, or -1 where it cannot be told. */
  int (*source_id)(void *user, char id[65]);
  void *user;
} kiln__place;

/* Nothing is read yet. */
void kiln__choices_init(kiln__choices *choices, const kiln_attn_spec *spec);
/* A file that is not there holds nothing. What cannot be read is left out, and `warning` (which
 * starts as "") says so. OUT_OF_MEMORY leaves the choices as they were. */
kiln_status kiln__choices_add_file(kiln__choices *choices, const char *path, char *warning,
                                   size_t warning_size);
kiln_status kiln__choices_add_shipped(kiln__choices *choices, const char *bytes, size_t length);
void kiln__choices_free(kiln__choices *choices);

/* The first step of the ladder that holds. OUT_OF_MEMORY; found is zeros then. */
kiln_status kiln__choices_find(const kiln__choices *choices, const kiln__place *place,
                               kiln__chosen *found);

#endif

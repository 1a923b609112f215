/* Parsing, help and refusals of the command line; args.h states what holds after parsing. */
#include "args.h"

#include "out.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES_MAX = 128, WORD_MAX = 64, HELP_COLUMN = 30 };

/* ---- what is planned and not built ---- */

typedef struct planned {
  const char *word, *reason;
} planned;

static const planned planned_words[] = {
    {"--window-left", "no kernel has a sliding window yet; leave it out"},
    {"--window-right", "no kernel has a sliding window yet; leave it out"},
    {"--softcap", "no kernel has a soft cap yet; leave it out"},
    {"--cu-seqlens-q",
     "no kernel takes sequences of different lengths yet; pad them, one per batch"},
    {"--cu-seqlens-k",
     "no kernel takes sequences of different lengths yet; pad them, one per batch"},
    {"--seqused-k", "no kernel takes a length per batch yet; --seqlen-k N sets one for all"},
    {"--page-table", "no kernel reads paged keys yet; copy the pages into one tensor"},
    {"--page-size", "no kernel reads paged keys yet; copy the pages into one tensor"},
    {"--num-splits", "no kernel splits the keys yet; leave it out"},
    {"--shapes", "no file of shapes is read yet; --seqlen-q, --batch and --num-heads give them"},
    {"--against", "the comparison is not built yet; --algorithm flash,standard times both"},
};

kiln_status kiln__refuse_planned(const char *word) {
  for (size_t i = 0; i < sizeof planned_words / sizeof planned_words[0]; i++)
    if (strcmp(planned_words[i].word, word) == 0)
      return kiln__fail(KILN_UNSUPPORTED, "%s: %s", word, planned_words[i].reason);
  return KILN_OK;
}

/* ---- the nearest name ---- */

static int least_of(int a, int b, int c) {
  int least = a < b ? a : b;
  return least < c ? least : c;
}

/* Insertions, deletions and replacements that turn one word into the other. */
static int distance(const char *a, const char *b) {
  int previous[WORD_MAX + 1], current[WORD_MAX + 1];
  int length_a = (int)strnlen(a, WORD_MAX), length_b = (int)strnlen(b, WORD_MAX);
  for (int j = 0; j <= length_b; j++) previous[j] = j;
  for (int i = 1; i <= length_a; i++) {
    current[0] = i;
    for (int j = 1; j <= length_b; j++)
      current[j] =
          least_of(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1]));
    memcpy(previous, current, sizeof previous);
  }
  return previous[length_b];
}

const char *kiln__nearest(const char *word, const char *const *candidates, int count) {
  const char *best = NULL;
  int best_distance = (int)strlen(word) / 3 + 1; /* farther than that is another word */
  for (int i = 0; i < count; i++) {
    int d = candidates[i] ? distance(word, candidates[i]) : best_distance + 1;
    if (d > best_distance || (best && d == best_distance)) continue;
    best = candidates[i];
    best_distance = d;
  }
  return best;
}

/* ---- the flags of a verb ---- */

static const kiln__flag device_flags[] = {
    {"--device", "DEVICE", "emu, cuda:N or none; default: the first GPU, else emu"},
    {0},
};

static const kiln__flag target_flags[] = {
    {"--device", "DEVICE", "emu, cuda:N or none; default: the first GPU unless --arch is given"},
    {0},
};

static const kiln__flag emulator_flags[] = {
    {"--emu-seed", "N", "emulator: seed of its randomness; default: none"},
    {"--emu-schedule", "ORDER", "emulator: late (default), eager or random"},
    {"--emu-starve", "MASK", "emulator: bit mask of warps that run only when nothing else can"},
    {0},
};

static const kiln__flag shape_flags[] = {
    {"--batch", "N", "sequences; default 1"},
    {"--seqlen-q", "N", "queries of each; default 4096"},
    {"--seqlen-k", "N", "keys of each; default: as many as queries"},
    {"--num-heads", "N", "query heads; default 16"},
    {"--num-heads-k", "N", "key heads; default: as many as query heads"},
    {0},
};

static const kiln__flag help_flags[] = {
    {"--help", NULL, "print this and stop"},
    {0},
};

static const kiln__flag no_flags[] = {{0}};

const kiln__flag *kiln__group_flags(unsigned group) {
  switch (group) {
  case KILN__TAKES_DEVICE: return device_flags;
  case KILN__TAKES_TARGET: return target_flags;
  case KILN__TAKES_EMULATOR: return emulator_flags;
  case KILN__TAKES_SHAPE: return shape_flags;
  default: return no_flags;
  }
}

static const unsigned flag_groups[] = {KILN__TAKES_DEVICE, KILN__TAKES_TARGET, KILN__TAKES_EMULATOR,
                                       KILN__TAKES_SHAPE};

enum { NUM_FLAG_GROUPS = 4 };

static const kiln__flag *find_in(const kiln__flag *flags, const char *name) {
  for (; flags && flags->name; flags++)
    if (strcmp(flags->name, name) == 0) return flags;
  return NULL;
}

static const kiln__flag *find_flag(const kiln__verb *verb, const char *name) {
  const kiln__flag *found = find_in(verb->flags, name);
  for (int g = 0; !found && g < NUM_FLAG_GROUPS; g++)
    if (verb->groups & flag_groups[g]) found = find_in(kiln__group_flags(flag_groups[g]), name);
  return found;
}

/* run reads the head dims from its tensors. */
static bool takes_field(const kiln__verb *verb, const kiln__field *field) {
  if (verb->groups & KILN__TAKES_SELECTION) return true;
  return verb->groups & KILN__TAKES_CHOICE && strncmp(field->name, "head_dim", 8) != 0;
}

/* ---- parsing ---- */

static int collect(const kiln__flag *flags, const char **names, int count) {
  for (; flags && flags->name && count < CANDIDATES_MAX; flags++) names[count++] = flags->name;
  return count;
}

static int collect_fields(const kiln__verb *verb, const kiln__schema *schema, const char **names,
                          int count) {
  for (int i = 0; i < schema->num_fields; i++) {
    const kiln__field *field = &schema->fields[i];
    if (!takes_field(verb, field)) continue;
    if (count < CANDIDATES_MAX) names[count++] = field->flag;
    for (int c = 0; c < field->num_choices && count < CANDIDATES_MAX; c++)
      names[count++] = field->choices[c].flag;
  }
  return count;
}

static kiln_status refuse_unknown(const kiln__verb *verb, const kiln__schema *schema,
                                  const char *name) {
  const char *names[CANDIDATES_MAX];
  kiln_status status = kiln__refuse_planned(name);
  if (status != KILN_OK) return status;
  int count = collect(verb->flags, names, 0);
  for (int g = 0; g < NUM_FLAG_GROUPS; g++)
    if (verb->groups & flag_groups[g])
      count = collect(kiln__group_flags(flag_groups[g]), names, count);
  count = collect_fields(verb, schema, names, count);
  count = collect(help_flags, names, count);
  const char *near = kiln__nearest(name, names, count);
  if (near)
    return kiln__fail(KILN_INVALID_ARGUMENT, "%s has no flag %s; did you mean %s?", verb->name,
                      name, near);
  return kiln__fail(KILN_INVALID_ARGUMENT, "%s has no flag %s; kiln %s --help lists them",
                    verb->name, name, verb->name);
}

/* The row name of a token and whether it takes a value; NULL where the verb has no such flag.
 * For a switch that stands for a field's value, *implied is that value and the name is the
 * field's flag. */
static const char *resolve_flag(const kiln__verb *verb, const kiln__schema *schema,
                                const char *token, bool *takes_value, const char **implied) {
  const kiln__choice *choice = NULL;
  const kiln__flag *flag = find_flag(verb, token);
  *implied = NULL;
  if (flag) {
    *takes_value = flag->value != NULL;
    return flag->name;
  }
  const kiln__field *field = kiln__schema_find_flag(schema, token, &choice);
  if (!field || !takes_field(verb, field)) return NULL;
  *takes_value = !choice;
  *implied = choice ? choice->value : NULL;
  return field->flag;
}

static kiln_status add_option(kiln__args *args, const char *name, const char *value) {
  if (kiln__args_has(args, name))
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "%s is given twice; give it once (several values: A,B,C)", name);
  args->options[args->num_options++] = (kiln__option){name, value};
  return KILN_OK;
}

/* `*i` is moved to the value where the flag's value is the next word. */
static kiln_status parse_flag(kiln__args *args, int argc, char **argv, int *i) {
  char token[WORD_MAX];
  const char *equals = strncmp(argv[*i], "--", 2) == 0 ? strchr(argv[*i], '=') : NULL;
  const char *value = NULL;
  bool takes_value = false;
  snprintf(token, sizeof token, "%.*s", equals ? (int)(equals - argv[*i]) : WORD_MAX, argv[*i]);
  if (strcmp(token, "--help") == 0 || strcmp(token, "-h") == 0) {
    args->help = true;
    return KILN_OK;
  }
  const char *name = resolve_flag(args->verb, args->schema, token, &takes_value, &value);
  if (!name) return refuse_unknown(args->verb, args->schema, token);
  if (!takes_value) {
    if (equals)
      return kiln__fail(KILN_INVALID_ARGUMENT, "%s takes no value; write it alone", token);
    return add_option(args, name, value);
  }
  if (equals) return add_option(args, name, equals + 1);
  if (*i + 1 >= argc)
    return kiln__fail(KILN_INVALID_ARGUMENT, "%s needs a value; kiln %s --help says which", token,
                      args->verb->name);
  return add_option(args, name, argv[++*i]);
}

static kiln_status check_words(const kiln__args *args) {
  const kiln__verb *verb = args->verb;
  if (args->help) return KILN_OK;
  if (args->num_words > verb->max_words)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "%s does not know what to do with '%s'; usage: kiln %s %s", verb->name,
                      args->words[verb->max_words], verb->name, verb->usage);
  if (args->num_words < verb->min_words)
    return kiln__fail(KILN_INVALID_ARGUMENT, "%s needs more; usage: kiln %s %s", verb->name,
                      verb->name, verb->usage);
  return KILN_OK;
}

kiln_status kiln__args_parse(const kiln__verb *verb, const kiln__schema *schema, int argc,
                             char **argv, kiln__args *args) {
  bool flags_end = false;
  *args = (kiln__args){.verb = verb, .schema = schema};
  args->options = calloc((size_t)argc + 1, sizeof *args->options);
  args->words = calloc((size_t)argc + 1, sizeof *args->words);
  if (!args->options || !args->words) {
    kiln__args_destroy(args);
    return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
  }
  kiln_status status = KILN_OK;
  for (int i = 0; i < argc && status == KILN_OK; i++) {
    if (!flags_end && strcmp(argv[i], "--") == 0)
      flags_end = true;
    else if (!flags_end && argv[i][0] == '-' && argv[i][1] != '\0')
      status = parse_flag(args, argc, argv, &i);
    else
      args->words[args->num_words++] = argv[i];
  }
  if (status == KILN_OK) status = check_words(args);
  if (status != KILN_OK) kiln__args_destroy(args);
  return status;
}

void kiln__args_destroy(kiln__args *args) {
  free(args->options);
  free(args->words);
  *args = (kiln__args){0};
}

/* ---- reading ---- */

static const kiln__option *find_option(const kiln__args *args, const char *name) {
  for (int i = 0; i < args->num_options; i++)
    if (strcmp(args->options[i].name, name) == 0) return &args->options[i];
  return NULL;
}

bool kiln__args_has(const kiln__args *args, const char *name) {
  return find_option(args, name) != NULL;
}

const char *kiln__args_get(const kiln__args *args, const char *name) {
  const kiln__option *option = find_option(args, name);
  return option ? option->value : NULL;
}

kiln_status kiln__args_integer(const kiln__args *args, const char *name, int64_t least,
                               int64_t most, int64_t *value) {
  const char *text = kiln__args_get(args, name);
  char *end = NULL;
  if (!text) return KILN_OK;
  errno = 0;
  long long number = strtoll(text, &end, 0);
  if (end == text || *end || errno || number < least || number > most)
    return kiln__fail(KILN_INVALID_ARGUMENT, "%s '%s' is not a whole number from %lld to %lld",
                      name, text, (long long)least, (long long)most);
  *value = number;
  return KILN_OK;
}

kiln_status kiln__args_real(const kiln__args *args, const char *name, double *value) {
  const char *text = kiln__args_get(args, name);
  char *end = NULL;
  if (!text) return KILN_OK;
  double number = strtod(text, &end);
  if (end == text || *end || !isfinite(number))
    return kiln__fail(KILN_INVALID_ARGUMENT, "%s '%s' is not a finite number", name, text);
  *value = number;
  return KILN_OK;
}

/* ---- help ---- */

static void print_flag(const char *name, const char *value, const char *help) {
  char left[80];
  snprintf(left, sizeof left, "%s%s%s", name, value ? " " : "", value ? value : "");
  printf("  %-*s%s%s\n", HELP_COLUMN, left, strlen(left) < HELP_COLUMN ? "" : " ", help);
}

static void print_flags(const kiln__flag *flags) {
  for (; flags && flags->name; flags++) print_flag(flags->name, flags->value, flags->help);
}

/* What a field stands for that is not given: fill_axis of selection.c, and run's choose_dtype. */
static const char *left_out(const kiln__verb *verb, const kiln__field *field) {
  const bool all = verb->groups & KILN__OPEN_TO_ALL, grid = verb->groups & KILN__OPEN_TO_GRID;
  const bool is_arch = strcmp(field->name, "arch") == 0;
  const bool is_pass = strcmp(field->name, "pass") == 0;
  if (verb->groups & KILN__TAKES_CHOICE && is_pass) return "forward, with --do backward";
  if (verb->groups & KILN__TAKES_CHOICE && strcmp(field->name, "dtype") == 0)
    return "that of the tensors, or bf16";
  if (all && is_arch && verb->groups & KILN__TAKES_DEVICE) return "all that the device runs";
  if (grid && strcmp(field->name, "head_dim") == 0) return "64,128,256";
  if (is_pass || field->takes_zero || (!all && !grid)) return field->default_value;
  if (grid && (is_arch || strcmp(field->name, "algorithm") == 0)) return field->default_value;
  return "all";
}

static void print_values(const kiln__verb *verb, const kiln__field *field) {
  const char *open = left_out(verb, field);
  printf("  %-*s", HELP_COLUMN, "");
  if (field->num_values <= 8) {
    for (int i = 0; i < field->num_values; i++)
      printf("%s%s", i ? ", " : "legal: ", field->values[i]);
  } else {
    printf("legal: %s, %s ... %s", field->values[0], field->values[1],
           field->values[field->num_values - 1]);
  }
  if (open[0]) printf("; default %s", open);
  putchar('\n');
}

static void print_fields(const kiln__verb *verb, const kiln__schema *schema, bool tile) {
  char choices[160];
  for (int i = 0; i < schema->num_fields; i++) {
    const kiln__field *field = &schema->fields[i];
    if (field->is_tile != tile || !takes_field(verb, field)) continue;
    const kiln__choice *choice;
    kiln__schema_find_flag(schema, field->flag, &choice);
    if (choice) { /* a switch */
      print_flag(field->flag, NULL, field->sentence);
    } else {
      print_flag(field->flag, verb->groups & KILN__TAKES_SELECTION ? "LIST" : "VALUE",
                 field->sentence);
      print_values(verb, field);
    }
    for (int c = 0; c < field->num_choices; c++) {
      if (&field->choices[c] == choice) continue;
      snprintf(choices, sizeof choices,
               choice ? "the opposite, and the default" : "the same as %s %s", field->flag,
               field->choices[c].value);
      print_flag(field->choices[c].flag, NULL, choices);
    }
  }
}

void kiln__args_help(const kiln__verb *verb, const kiln__schema *schema) {
  printf("usage: kiln %s%s%s\n\n%s\n", verb->name, verb->usage[0] ? " " : "", verb->usage,
         verb->sentence);
  printf("\nFlags:\n");
  print_flags(verb->flags);
  for (int g = 0; g < NUM_FLAG_GROUPS; g++)
    if (verb->groups & flag_groups[g]) print_flags(kiln__group_flags(flag_groups[g]));
  print_flags(help_flags);
  if (!(verb->groups & (KILN__TAKES_SELECTION | KILN__TAKES_CHOICE))) return;
  printf("\nWhat is computed%s:\n",
         verb->groups & KILN__TAKES_SELECTION ? " (a list is a value or A,B,C)" : "");
  print_fields(verb, schema, false);
  printf("\nHow (default: Kiln's choice):\n");
  print_fields(verb, schema, true);
}

/* The kiln program: finds the verb, hands it its arguments, ends with its status.
 *
 * Invariant: the exit code is the number of a kiln_status, and 0 only where everything that was
 * asked for was done and all of it reached stdout. */
#include "out.h"
#include "verbs.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static const kiln__verb *const verbs[] = {
    &kiln__verb_generate, &kiln__verb_compile, &kiln__verb_run,     &kiln__verb_verify,
    &kiln__verb_explain,  &kiln__verb_trace,   &kiln__verb_bench,   &kiln__verb_cache,
    &kiln__verb_pack,     &kiln__verb_tune,    &kiln__verb_records, &kiln__verb_doctor,
};

enum { NUM_VERBS = sizeof verbs / sizeof verbs[0] };

static void print_help(void) {
  printf("usage: kiln VERB [ARGUMENTS]\n\nKiln generates, compiles and runs attention kernels.\n\n"
         "Verbs:\n");
  for (int i = 0; i < NUM_VERBS; i++) printf("  %-10s%s\n", verbs[i]->name, verbs[i]->sentence);
  printf("\nkiln help VERB lists a verb's flags; kiln --version prints the version.\n"
         "Exit codes: 0, or the number of a status:\n");
  for (int s = 1; strcmp(kiln_status_name((kiln_status)s), "UNKNOWN") != 0; s++)
    printf("  %-3d %-20s %s\n", s, kiln_status_name((kiln_status)s),
           kiln_status_text((kiln_status)s));
}

static kiln_status refuse_verb(const char *word) {
  const char *names[NUM_VERBS];
  kiln_status status = kiln__refuse_planned(word);
  if (status != KILN_OK) return status;
  for (int i = 0; i < NUM_VERBS; i++) names[i] = verbs[i]->name;
  const char *near = kiln__nearest(word, names, NUM_VERBS);
  if (near)
    return kiln__fail(KILN_INVALID_ARGUMENT, "there is no verb %s; did you mean %s?", word, near);
  return kiln__fail(KILN_INVALID_ARGUMENT, "there is no verb %s; kiln --help lists them", word);
}

static const kiln__verb *find_verb(const char *name) {
  for (int i = 0; i < NUM_VERBS; i++)
    if (strcmp(verbs[i]->name, name) == 0) return verbs[i];
  return NULL;
}

static kiln_status run_verb(const kiln__verb *verb, int argc, char **argv) {
  kiln__schema schema;
  kiln__args args;
  kiln_status status = kiln__schema_load(&schema);
  if (status != KILN_OK) return status;
  status = kiln__args_parse(verb, &schema, argc, argv, &args);
  if (status == KILN_OK) {
    if (args.help)
      kiln__args_help(verb, &schema);
    else
      status = verb->run(&args);
    kiln__args_destroy(&args);
  }
  kiln__schema_destroy(&schema);
  return status;
}

/* Of a verb, or of the program. */
static kiln_status help_on(const char *word) {
  char flag[] = "--help", *words[] = {flag};
  const kiln__verb *verb = word ? find_verb(word) : NULL;
  if (verb) return run_verb(verb, 1, words);
  if (word) return refuse_verb(word);
  print_help();
  return KILN_OK;
}

static kiln_status dispatch(int argc, char **argv) {
  if (argc < 2) return kiln__fail(KILN_INVALID_ARGUMENT, "give a verb; kiln --help lists them");
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
    return help_on(argc > 2 ? argv[2] : NULL);
  if (strcmp(argv[1], "--version") == 0) {
    printf("kiln %s\n", kiln_version());
    return KILN_OK;
  }
  const kiln__verb *verb = find_verb(argv[1]);
  return verb ? run_verb(verb, argc - 2, argv + 2) : refuse_verb(argv[1]);
}

/* A closed pipe is an error like any other, reported below, not a signal that ends the program. */
int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN);
  kiln_status status = dispatch(argc, argv);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    if (errno != EPIPE) kiln__note("stdout cannot be written (%s)", strerror(errno));
    if (status == KILN_OK) status = KILN_IO_FAILED;
  }
  return (int)status;
}

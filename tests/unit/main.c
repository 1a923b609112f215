/* Runs every suite of suites.h and ends with check's own summary line. CK_RUN_SUITE=name runs one,
 * CK_FORK=no keeps a debugger in the process. The exit code is 1 where a check failed. */
#include "suites.h"

#include <stdlib.h>

int main(void) {
  SRunner *runner = srunner_create(NULL);
#define X(name) srunner_add_suite(runner, suite_##name());
  KILN_TEST_SUITES(X)
#undef X
  srunner_run_all(runner, CK_ENV);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

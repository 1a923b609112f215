/* A temporary folder for tests that need files. It is removed by fixture_destroy; a test that fails
 * before that leaves it behind for a look.
 *
 * Called by the test files of this folder. */
#ifndef KILN_TESTS_FIXTURE_H
#define KILN_TESTS_FIXTURE_H

#include <stddef.h>

typedef struct fixture {
  char folder[256];
  char path[320]; /* the last path that fixture_path or fixture_write made */
} fixture;

void fixture_create(fixture *f);
void fixture_destroy(fixture *f);                       /* plain files inside go too */
const char *fixture_path(fixture *f, const char *name); /* folder/name; valid until the next */
const char *fixture_write(fixture *f, const char *name, const void *bytes, size_t count);
size_t fixture_read(const char *path, void *buffer, size_t size); /* bytes read */
int fixture_count(const fixture *f);                              /* files in the folder */

#endif

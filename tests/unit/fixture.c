/* Temporary folders for tests; fixture.h says how they are used. */
#include "fixture.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void fixture_create(fixture *f) {
  const char *root = getenv("TMPDIR");
  snprintf(f->folder, sizeof f->folder, "%s/kiln-test-XXXXXX", root ? root : "/tmp");
  ck_assert_ptr_nonnull(mkdtemp(f->folder));
}

/* Counts the entries of the folder, and removes them on request. */
static int walk(const fixture *f, int remove_files) {
  int count = 0;
  DIR *folder = opendir(f->folder);
  ck_assert_ptr_nonnull(folder);
  for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    count++;
    if (remove_files) ck_assert_int_eq(unlinkat(dirfd(folder), entry->d_name, 0), 0);
  }
  closedir(folder);
  return count;
}

void fixture_destroy(fixture *f) {
  walk(f, 1);
  ck_assert_int_eq(rmdir(f->folder), 0);
}

int fixture_count(const fixture *f) { return walk(f, 0); }

const char *fixture_path(fixture *f, const char *name) {
  snprintf(f->path, sizeof f->path, "%s/%s", f->folder, name);
  return f->path;
}

const char *fixture_write(fixture *f, const char *name, const void *bytes, size_t count) {
  FILE *file = fopen(fixture_path(f, name), "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(bytes, 1, count, file), count);
  ck_assert_int_eq(fclose(file), 0);
  return f->path;
}

size_t fixture_read(const char *path, void *buffer, size_t size) {
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  size_t count = fread(buffer, 1, size, file);
  fclose(file);
  return count;
}

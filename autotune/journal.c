/* See journal.h. */
#include "autotune/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static kiln_status fail(char *error, size_t size, const char *path, const char *what) {
  snprintf(error, size, "%s: %s (%s)", path, what, strerror(errno));
  return KILN_IO_FAILED;
}

/* A plain file: anything else could block or never end. */
static kiln_status open_plain(const char *path, int flags, int *fd, char *error, size_t size) {
  struct stat status;
  *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0600);
  if (*fd < 0) return fail(error, size, path, "cannot be opened");
  if (fstat(*fd, &status) == 0 && S_ISREG(status.st_mode)) return KILN_OK;
  close(*fd);
  *fd = -1;
  snprintf(error, size, "%s: is no plain file; name a file of tuning records", path);
  return KILN_IO_FAILED;
}

/* ---- reading ---- */

typedef struct scanner {
  FILE *file;
  char *bytes; /* room for KILN__LINE_LIMIT + 1 */
  size_t length;
  int is_long;              /* the line went on past the limit */
  const char *const *words; /* of the lines that are wanted; NULL = all */
} scanner;

/* The next whole line; 0 at the end of the file, also before a torn one. */
static int next_line(scanner *s) {
  s->length = 0;
  s->is_long = 0;
  for (int c = getc_unlocked(s->file); c != EOF; c = getc_unlocked(s->file)) {
    if (c == '\n') return 1;
    if (s->length < KILN__LINE_LIMIT)
      s->bytes[s->length++] = (char)c;
    else
      s->is_long = 1;
  }
  return 0;
}

/* Whether a line may hold the words: told without parsing it, where no escape can hide one. */
static int may_be_wanted(const scanner *s) {
  if (!s->words || memchr(s->bytes, '\\', s->length)) return 1;
  for (const char *const *word = s->words; *word; word++)
    if (!memmem(s->bytes, s->length, *word, strlen(*word))) return 0;
  return 1;
}

static kiln_status visit_line(const scanner *s, int64_t number, kiln__journal_visit *visit,
                              void *user) {
  char why[256] = "the line is longer than 1 MiB";
  kiln__line line;
  if (s->length == 0 && !s->is_long) return KILN_OK; /* what append ends a torn line with */
  if (!may_be_wanted(s)) return KILN_OK;
  if (s->is_long || kiln__line_parse(s->bytes, s->length, &line, why, sizeof why))
    return visit(user, number, NULL, why);
  kiln_status status = visit(user, number, &line, NULL);
  kiln__line_free(&line);
  return status;
}

static kiln_status visit_lines(scanner *s, kiln__journal_visit *visit, void *user) {
  kiln_status status = KILN_OK;
  for (int64_t number = 1; status == KILN_OK && next_line(s); number++)
    status = visit_line(s, number, visit, user);
  return status;
}

kiln_status kiln__journal_read_memory(const char *bytes, size_t length, const char *const *words,
                                      kiln__journal_visit *visit, void *user) {
  if (length == 0) return KILN_OK;
  scanner s = {.file = fmemopen((void *)bytes, length, "r"),
               .bytes = malloc(KILN__LINE_LIMIT + 1),
               .words = words};
  kiln_status status = s.file && s.bytes ? visit_lines(&s, visit, user) : KILN_OUT_OF_MEMORY;
  if (s.file) fclose(s.file);
  free(s.bytes);
  return status;
}

static kiln_status read_file(const char *path, const char *const *words, kiln__journal_visit *visit,
                             void *user, char *error, size_t error_size) {
  int fd = -1;
  scanner s = {.words = words};
  kiln_status status = open_plain(path, O_RDONLY, &fd, error, error_size);
  if (status != KILN_OK) return status;
  s.file = fdopen(fd, "r");
  s.bytes = malloc(KILN__LINE_LIMIT + 1);
  if (!s.file || !s.bytes) {
    snprintf(error, error_size, "no memory is left to read %s", path);
    status = KILN_OUT_OF_MEMORY;
  }
  if (status == KILN_OK) status = visit_lines(&s, visit, user);
  if (status == KILN_OK && ferror(s.file)) status = fail(error, error_size, path, "cannot be read");
  free(s.bytes);
  if (s.file)
    fclose(s.file);
  else
    close(fd);
  return status;
}

static int is_missing(const char *path) { return access(path, F_OK) != 0 && errno == ENOENT; }

kiln_status kiln__journal_read(const char *path, int may_be_missing, kiln__journal_visit *visit,
                               void *user, char *error, size_t error_size) {
  if (may_be_missing && is_missing(path)) return KILN_OK;
  return read_file(path, NULL, visit, user, error, error_size);
}

kiln_status kiln__journal_read_words(const char *path, const char *const *words,
                                     kiln__journal_visit *visit, void *user, char *error,
                                     size_t error_size) {
  if (is_missing(path)) return KILN_OK;
  return read_file(path, words, visit, user, error, error_size);
}

/* ---- writing ---- */

/* Whether the file ends in the middle of a line. */
static int is_torn(int fd) {
  char last = '\n';
  const off_t end = lseek(fd, 0, SEEK_END);
  return end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n';
}

static kiln_status write_whole(int fd, const char *bytes, size_t length, const char *path,
                               char *error, size_t error_size) {
  const ssize_t written = write(fd, bytes, length);
  if (written == (ssize_t)length) return KILN_OK;
  if (written >= 0) errno = ENOSPC;
  return fail(error, error_size, path, "cannot be written; make room, or name another file");
}

kiln_status kiln__journal_append_text(const char *path, const char *text, char *error,
                                      size_t error_size) {
  int fd = -1;
  const size_t length = strlen(text);
  char *whole = malloc(length + 3);
  if (!whole) {
    snprintf(error, error_size, "no memory is left for a tuning record");
    return KILN_OUT_OF_MEMORY;
  }
  kiln_status status = open_plain(path, O_RDWR | O_APPEND | O_CREAT, &fd, error, error_size);
  if (status == KILN_OK) {
    const size_t before = is_torn(fd) ? 1 : 0;
    whole[0] = '\n';
    memcpy(whole + before, text, length + 1);
    whole[before + length] = '\n';
    status = write_whole(fd, whole, before + length + 1, path, error, error_size);
    if (close(fd) != 0 && status == KILN_OK) status = fail(error, error_size, path, "was not kept");
  }
  free(whole);
  return status;
}

kiln_status kiln__journal_append(const char *path, const kiln__line *line, char *error,
                                 size_t error_size) {
  char *text = kiln__line_text(line);
  if (!text) {
    snprintf(error, error_size, "no memory is left for a tuning record");
    return KILN_OUT_OF_MEMORY;
  }
  kiln_status status = kiln__journal_append_text(path, text, error, error_size);
  free(text);
  return status;
}

kiln_status kiln__journal_replace(const char *path, char *const *lines, int count, char *error,
                                  size_t error_size) {
  char draft[4096];
  if ((size_t)snprintf(draft, sizeof draft, "%s.draft", path) >= sizeof draft) {
    errno = ENAMETOOLONG;
    return fail(error, error_size, path, "cannot be written");
  }
  struct stat info;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
    errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL; /* the rename would replace a device */
    return fail(error, error_size, path, "cannot be written; choose another place");
  }
  FILE *file = fopen(draft, "we");
  if (!file) return fail(error, error_size, path, "cannot be written; choose another place");
  for (int i = 0; i < count; i++) fprintf(file, "%s\n", lines[i]);
  const int bad = fflush(file) != 0 || ferror(file) || fsync(fileno(file)) != 0;
  if (fclose(file) == 0 && !bad && rename(draft, path) == 0) return KILN_OK;
  kiln_status status = fail(error, error_size, path, "cannot be written; choose another place");
  unlink(draft);
  return status;
}

/* ---- the lock ---- */

int kiln__journal_lock(const char *path, int wait_ms) {
  char name[4096];
  const int pause_ms = 20;
  const struct timespec pause = {.tv_nsec = pause_ms * 1000 * 1000};
  if ((size_t)snprintf(name, sizeof name, "%s.lock", path) >= sizeof name) return -1;
  const int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += pause_ms) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || waited >= wait_ms) {
      close(fd);
      return -1;
    }
    nanosleep(&pause, NULL);
  }
  return fd;
}

void kiln__journal_unlock(int lock) {
  if (lock >= 0) close(lock);
}

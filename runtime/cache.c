/* The cache's directory, its lock, and loading. cache.h says what is kept. */
#include "runtime/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/digest.h"
#include "runtime/identity.h"

#define LOAD_ATTEMPTS 5
#define DEFAULT_LIMIT (INT64_C(1) << 30)
#define FILE_LIMIT    ((size_t)256 << 20) /* bytes of one file: larger is damage */

void kiln__cache_warn(kiln__cache *cache, const char *format, ...) {
  if (atomic_flag_test_and_set(&cache->warned)) return;
  char sentence[768];
  kiln__text text;
  va_list arguments;
  kiln__text_init_fixed(&text, sentence, sizeof sentence);
  va_start(arguments, format);
  kiln__text_vprintf(&text, format, arguments);
  va_end(arguments);
  kiln__log_print(cache->log, KILN_LOG_WARNING, "%s", sentence);
}

/* ---- where it is ---- */

/* "500M" and the like; the default for what is no size. */
static int64_t parse_limit(const char *text, const kiln__log *log) {
  if (!text) return DEFAULT_LIMIT;
  char *end = NULL;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  int shift = *end == 'K' || *end == 'k'   ? 10
              : *end == 'M' || *end == 'm' ? 20
              : *end == 'G' || *end == 'g' ? 30
                                           : 0;
  int bad = end == text || errno || number < 0 || (shift ? end[1] : end[0]) != '\0' ||
            number > (INT64_MAX >> shift);
  if (!bad) return (int64_t)number << shift;
  kiln__log_print(log, KILN_LOG_WARNING,
                  "KILN_CACHE_MAX is \"%s\", which is no size such as 500M or 2G: 1G is used",
                  text);
  return DEFAULT_LIMIT;
}

/* parent/name, absolute; NULL without memory or for no path. */
static char *join(const char *parent, const char *name) {
  kiln__text path;
  kiln__text_init(&path, PATH_MAX);
  if (parent[0] != '/') {
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) return NULL;
    kiln__text_printf(&path, "%s/", here);
  }
  kiln__text_string(&path, parent);
  if (name[0]) kiln__text_printf(&path, "/%s", name);
  if (!path.truncated && path.data) return path.data;
  kiln__text_free(&path);
  return NULL;
}

static int is_directory(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* A home that does not exist is not created. */
static char *choose_dir(const char *option, const kiln__env *env, char **reason) {
  const char *wanted = option ? option : env->values[KILN__ENV_KILN_CACHE_DIR];
  const char *xdg = kiln__env_get(env, KILN__ENV_XDG_CACHE_HOME);
  const char *home = kiln__env_get(env, KILN__ENV_HOME);
  if (wanted) return wanted[0] ? join(wanted, "") : NULL;
  if (xdg && xdg[0] == '/') return join(xdg, "kiln");
  if (home && home[0] == '/' && is_directory(home)) return join(home, ".cache/kiln");
  *reason =
      strdup("neither KILN_CACHE_DIR nor XDG_CACHE_HOME nor HOME names a directory, so compiled "
             "kernels are not kept: set KILN_CACHE_DIR");
  return NULL;
}

int kiln__cache_open(kiln__cache *cache, const char *option, const kiln__env *env,
                     const kiln__log *log) {
  memset(cache, 0, sizeof *cache);
  cache->log = log;
  atomic_flag_clear(&cache->warned);
  cache->limit = parse_limit(kiln__env_get(env, KILN__ENV_KILN_CACHE_MAX), log);
  cache->dir = choose_dir(option, env, &cache->reason);
  return 0;
}

void kiln__cache_close(kiln__cache *cache) {
  free(cache->dir);
  free(cache->reason);
  memset(cache, 0, sizeof *cache);
}

void kiln__cache_item_free(kiln__cache_item *item) {
  free(item->image);
  free(item->ptx);
  free(item->record);
  memset(item, 0, sizeof *item);
}

/* mkdir -p with private directories; an existing one is left as it is. */
static int make_dirs(const char *path) {
  char part[PATH_MAX];
  size_t length = strlen(path);
  if (length >= sizeof part) return -1;
  memcpy(part, path, length + 1);
  for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    if (mkdir(part, 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES) return -1;
    *slash = '/';
  }
  return mkdir(part, 0700) == 0 || errno == EEXIST ? 0 : -1;
}

static int open_private_dir(int parent, const char *name) {
  struct stat status;
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (fstat(fd, &status) == 0 && kiln__cache_is_private(&status)) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

int kiln__cache_open_dir(kiln__cache *cache, const char *name, int create) {
  if (!cache->dir) {
    errno = ENOENT;
    return -1;
  }
  if (create && make_dirs(cache->dir) != 0) return -1;
  int dir = open_private_dir(AT_FDCWD, cache->dir);
  if (dir < 0) return -1;
  if (create && mkdirat(dir, name, 0700) != 0 && errno != EEXIST) {
    close(dir);
    return -1;
  }
  int fd = open_private_dir(dir, name);
  int code = errno;
  close(dir);
  errno = code;
  return fd;
}

static void warn_dir(kiln__cache *cache, const char *verb) {
  if (errno == EPERM)
    kiln__cache_warn(cache,
                     "the kernel cache %s is not used, because other users can write it: "
                     "chmod 700 it, or set KILN_CACHE_DIR to a directory of your own",
                     cache->dir);
  else
    kiln__cache_warn(cache,
                     "the kernel cache %s cannot be %s (%s), so kernels are compiled again: "
                     "set KILN_CACHE_DIR to a directory that can be written",
                     cache->dir, verb, strerror(errno));
}

int kiln__cache_kernels_fd(kiln__cache *cache, int create) {
  int fd = kiln__cache_open_dir(cache, "kernels", create);
  if (fd >= 0 || !cache->dir) return fd;
  if (create || errno != ENOENT) warn_dir(cache, create ? "written" : "read");
  return -1;
}

/* ---- the lock ---- */

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Locks of open file descriptions, so that threads of one process exclude each other too. */
int kiln__cache_lock(kiln__cache *cache, const char *id, int wait_ms) {
  int dir = cache->dir && !cache->read_only ? kiln__cache_open_dir(cache, "locks", 1) : -1;
  if (dir < 0) return -1;
  int fd = openat(dir, id, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  close(dir);
  if (fd < 0) return -1;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
  int64_t end = now_ms() + wait_ms;
  while (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || now_ms() >= end) {
      close(fd);
      return -1;
    }
    nanosleep(&pause, NULL);
  }
  return fd;
}

void kiln__cache_unlock(int lock) {
  if (lock >= 0) close(lock);
}

/* ---- loading ---- */

int kiln__cache_id_valid(const char *id) {
  return strspn(id, "0123456789abcdef") == KILN__ID_SIZE - 1 && id[KILN__ID_SIZE - 1] == '\0';
}

/* meta.json holds in "blake2b" the digest of the rest of it, in compact form. */
static const char *read_meta(int dir, const char *id, json_t **meta) {
  const char *why;
  size_t size;
  char digest[KILN__ID_SIZE] = "", wanted[KILN__ID_SIZE] = "";
  char *bytes = kiln__cache_read_file(dir, "meta.json", FILE_LIMIT, &size, &why);
  if (!bytes) return "its meta.json is missing or no plain file of this user";
  json_t *object = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, NULL);
  const char *sum = json_string_value(json_object_get(object, "blake2b"));
  free(bytes);
  if (sum) snprintf(wanted, sizeof wanted, "%s", sum);
  json_object_del(object, "blake2b");
  char *rest = sum ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  if (rest) kiln__digest_bytes(rest, strlen(rest), digest);
  free(rest);
  if (digest[0] && strcmp(wanted, digest) == 0 &&
      kiln__identity_digest(json_object_get(object, "identity"), digest) == 0) {
    *meta = object;
    return strcmp(digest, id) == 0 ? NULL : "it holds another kernel than its name says";
  }
  json_decref(object);
  return "its meta.json is damaged";
}

static void *read_checked(int dir, const json_t *meta, const char *name, size_t *size) {
  const char *why;
  char digest[KILN__ID_SIZE];
  const json_t *row = json_object_get(json_object_get(meta, "files"), name);
  const char *wanted = json_string_value(json_object_get(row, "blake2b"));
  char *bytes = wanted ? kiln__cache_read_file(dir, name, FILE_LIMIT, size, &why) : NULL;
  if (!bytes) return NULL;
  kiln__digest_bytes(bytes, *size, digest);
  if ((json_int_t)*size == json_integer_value(json_object_get(row, "bytes")) &&
      strcmp(wanted, digest) == 0)
    return bytes;
  free(bytes);
  return NULL;
}

static const char *read_item(int dir, const json_t *meta, int want_ptx, kiln__cache_item *item) {
  size_t record_size;
  item->image = read_checked(dir, meta, "image.bin", &item->image_size);
  if (!item->image) return "its image.bin is damaged or missing";
  item->record = read_checked(dir, meta, "record.json", &record_size);
  if (!item->record) return "its record.json is damaged or missing";
  if (!want_ptx || !json_object_get(json_object_get(meta, "files"), "kernel.ptx")) return NULL;
  item->ptx = read_checked(dir, meta, "kernel.ptx", &item->ptx_length);
  return item->ptx ? NULL : "its kernel.ptx is damaged or missing";
}

const char *kiln__cache_check(int kernels_fd, const char *id, int want_ptx, kiln__cache_item *item,
                              json_t **meta_out) {
  kiln__cache_item local = {0};
  json_t *meta = NULL;
  struct stat status;
  int dir = openat(kernels_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0) return "it is no directory";
  const char *why = fstat(dir, &status) == 0 && kiln__cache_is_private(&status)
                        ? read_meta(dir, id, &meta)
                        : "other users can write it";
  if (!why) why = read_item(dir, meta, want_ptx, &local);
  if (!why)
    futimens(dir, NULL); /* its time is when it was used last; a read-only cache keeps none */
  close(dir);
  if (!why && item) *item = local;
  if (why || !item) kiln__cache_item_free(&local);
  if (!why && meta_out) *meta_out = meta;
  if (why || !meta_out) json_decref(meta);
  return why;
}

/* A bad entry is moved out of the way, so that the next store finds its name free. */
static void set_aside(kiln__cache *cache, int kernels, const char *id, const char *why) {
  char name[64];
  kiln__cache_private_name("bad", name);
  int moved = renameat(kernels, id, kernels, name) == 0;
  if (!moved && errno == ENOENT) return; /* another process was faster */
  kiln__cache_warn(cache, "the cached kernel %.12s was set aside (%s) and is compiled again", id,
                   why);
}

/* An entry that another process evicts while it is read looks damaged; so it is read again, and
 * only what stays bad is set aside. */
int kiln__cache_load(kiln__cache *cache, const char *id, int want_ptx, kiln__cache_item *item) {
  struct stat status;
  const char *why = NULL;
  int hit = 0;
  memset(item, 0, sizeof *item);
  if (cache->reason) kiln__cache_warn(cache, "%s", cache->reason);
  int kernels = cache->dir ? kiln__cache_kernels_fd(cache, 0) : -1;
  if (kernels < 0) return 0;
  for (int attempt = 0; attempt < LOAD_ATTEMPTS && !hit; attempt++) {
    if (fstatat(kernels, id, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) warn_dir(cache, "read");
      goto done;
    }
    why = kiln__cache_check(kernels, id, want_ptx, item, NULL);
    hit = !why;
  }
  if (!hit) set_aside(cache, kernels, id, why);
done:
  close(kernels);
  return hit;
}

/* The disk cache of compiled kernels.
 *
 * DIR/kernels/ID/ holds image.bin, kernel.ptx, record.json and meta.json. A directory under an ID
 * is always complete: a writer fills a private directory beside it and renames it. A reader checks
 * the length and the digest of every file on every load and the identity inside against the ID;
 * what does not agree is renamed to .bad-… and is a miss. Any failure to read or write is a miss
 * with one warning per context, never an error. Nothing depends on the lock: it only spares a
 * second compile. Used by binary.c, compiler.c
 * and cache_command.c. */
#ifndef KILN_RUNTIME_CACHE_H
#define KILN_RUNTIME_CACHE_H

#include <stdatomic.h>
#include <stdint.h>

#include <jansson.h>

#include "runtime/env.h"
#include "runtime/log.h"
#include "runtime/services.h"

typedef struct kiln__cache {
  char *dir;     /* absolute; NULL = no cache */
  int64_t limit; /* bytes */
  int read_only; /* nothing is stored or noted; locks are not taken */
  char *reason;  /* why there is no cache, one sentence; NULL = there is one, or none is wanted */
  const kiln__log *log;
  atomic_flag warned;
  void (*on_step)(int step); /* tests only: called before every step of a store; else NULL */
} kiln__cache;

/* A cached kernel; the pointers are malloc'd and belong to the caller. */
typedef struct kiln__cache_item {
  void *image;
  size_t image_size;
  char *ptx; /* NULL where there is none; terminated */
  size_t ptx_length;
  char *record; /* JSON, terminated */
} kiln__cache_item;

/* option: kiln_context_options.cache_dir. 0, or -1 without memory. */
int kiln__cache_open(kiln__cache *cache, const char *option, const kiln__env *env,
                     const kiln__log *log);
void kiln__cache_close(kiln__cache *cache);
void kiln__cache_item_free(kiln__cache_item *item);

/* 1 and the item, or 0: a miss. The PTX, more than half of the bytes, is read only where it is
 * wanted: a launch needs none. */
int kiln__cache_load(kiln__cache *cache, const char *id, int want_ptx, kiln__cache_item *item);
void kiln__cache_store(kiln__cache *cache, const char *id, const json_t *identity,
                       const kiln__cache_item *item);

/* Waits until no other process or thread compiles `id`, at most wait_ms. A handle for unlock; -1 =
 * no lock (then the caller goes on without). */
int kiln__cache_lock(kiln__cache *cache, const char *id, int wait_ms);
void kiln__cache_unlock(int lock);

/* Removes least recently used kernels until the cache holds at most `limit` bytes, keeping the
 * kernel named `keep` (may be NULL), and what a killed writer left. Counts what it removed. */
typedef struct kiln__cache_removed {
  int64_t kernels, bytes, leftovers;
} kiln__cache_removed;
int kiln__cache_gc(kiln__cache *cache, int64_t limit, int64_t max_age, const char *keep,
                   kiln__cache_removed *removed);

#define KILN__CACHE_LEFTOVER_AGE \
  3600 /* seconds: a private directory that old has no living writer */

/* The kernels in the cache, least recently used first. */
typedef struct kiln__cache_kernel {
  char id[KILN__ID_SIZE];
  int64_t bytes;
  int64_t used; /* nanoseconds since 1970 */
} kiln__cache_kernel;
/* malloc'd list; on the way, leftovers older than max_age seconds are removed and counted. 0, or
 * -1. */
int kiln__cache_list(int kernels_fd, int64_t max_age, kiln__cache_kernel **list, size_t *count,
                     int64_t *leftovers);

/* One warning per context, whatever happens. */
void kiln__cache_warn(kiln__cache *cache, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* cache_note.c: small texts that only spare work; a note may be gone or wrong at any time. The text
 * is malloc'd; NULL = none. */
char *kiln__cache_read_note(kiln__cache *cache, const char *name);
void kiln__cache_write_note(kiln__cache *cache, const char *name, const char *text);
void kiln__cache_clear_notes(kiln__cache *cache);

/* ---- shared by the cache's own files ---- */

/* DIR/name; -1 and errno. */
int kiln__cache_open_dir(kiln__cache *cache, const char *name, int create);

int kiln__cache_kernels_fd(kiln__cache *cache, int create); /* DIR/kernels; -1 and errno */
int kiln__cache_id_valid(const char *id);                   /* 64 hex digits */
/* Reads and checks the whole entry; item may be NULL. NULL = fine and *meta is set (when meta is
 * not NULL), else what is wrong. */
const char *kiln__cache_check(int kernels_fd, const char *id, int want_ptx, kiln__cache_item *item,
                              json_t **meta);
/* Removes a directory of plain files, by name. */
void kiln__cache_remove_dir(int kernels_fd, const char *name);
/* A name that no other writer uses: ".new-<pid>-<random>". */
void kiln__cache_private_name(const char *prefix, char name[64]);

/* File by file: a plain file of ours that nobody else can write, read whole. NULL and *why. */
void *kiln__cache_read_file(int dir_fd, const char *name, size_t limit, size_t *size,
                            const char **why);
int kiln__cache_write_file(int dir_fd, const char *name, const void *bytes, size_t size);
/* Whether a directory or a file is writable by users other than this one and root. */
struct stat;
int kiln__cache_is_private(const struct stat *status);

#endif

/* Notes: small files of the cache directory that only spare work. One that is missing, unreadable,
 * damaged or not of this user is none, without a word; nobody has to believe what one says. */
#include "runtime/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOTES      "notes"
#define NOTE_LIMIT ((size_t)16 << 10) /* bytes */

char *kiln__cache_read_note(kiln__cache *cache, const char *name) {
  const char *why;
  size_t size;
  int dir = kiln__cache_open_dir(cache, NOTES, 0);
  if (dir < 0) return NULL;
  char *text = kiln__cache_read_file(dir, name, NOTE_LIMIT, &size, &why);
  close(dir);
  return text;
}

/* By a file of its own and a rename: a reader sees the old note or the new one. */
void kiln__cache_write_note(kiln__cache *cache, const char *name, const char *text) {
  char fresh[64];
  int dir = cache->read_only ? -1 : kiln__cache_open_dir(cache, NOTES, 1);
  if (dir < 0) return;
  kiln__cache_private_name("new", fresh);
  if (kiln__cache_write_file(dir, fresh, text, strlen(text)) != 0 ||
      renameat(dir, fresh, dir, name) != 0)
    unlinkat(dir, fresh, 0);
  close(dir);
}

void kiln__cache_clear_notes(kiln__cache *cache) {
  int dir = kiln__cache_open_dir(cache, ".", 0);
  if (dir < 0) return;
  kiln__cache_remove_dir(dir, NOTES);
  close(dir);
}

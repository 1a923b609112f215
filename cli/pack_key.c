/* Keys of packs from files: raw bytes, or hex with blanks behind. */
#include "pack.h"

#include "out.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

enum { FILE_MAX = 256 };

/* Hex of exactly 32 or 64 bytes. 0, or -1. */
static int from_hex(const char *text, size_t length, unsigned char *key, size_t *size) {
  const char *end = NULL;
  while (length > 0 && strchr(" \t\r\n", text[length - 1])) length--;
  if (sodium_hex2bin(key, KILN__KEY_MAX, text, length, NULL, size, &end) != 0) return -1;
  return end == text + length && (*size == 32 || *size == 64) ? 0 : -1;
}

kiln_status kiln__key_read(const char *path, unsigned char key[KILN__KEY_MAX], size_t *size) {
  char text[FILE_MAX];
  FILE *file = fopen(path, "rb");
  if (!file)
    return kiln__fail(KILN_IO_FAILED, "the key %s cannot be opened (%s)", path, strerror(errno));
  size_t length = fread(text, 1, sizeof text, file);
  const int failed = ferror(file);
  fclose(file);
  kiln_status status = KILN_OK;
  if (failed) {
    status = kiln__fail(KILN_IO_FAILED, "the key %s cannot be read", path);
  } else if (from_hex(text, length, key, size) != 0) {
    *size = length;
    if (length == 32 || length == 64)
      memcpy(key, text, length);
    else
      status = kiln__fail(KILN_INVALID_ARGUMENT,
                          "%s is no key: it must hold 32 or 64 bytes, raw or in hex", path);
  }
  sodium_memzero(text, sizeof text);
  return status;
}

kiln_status kiln__public_key_read(const char *text, unsigned char key[32]) {
  unsigned char bytes[KILN__KEY_MAX];
  size_t size = 0;
  if (strlen(text) == 64 && from_hex(text, 64, bytes, &size) == 0 && size == 32) {
    memcpy(key, bytes, 32);
    return KILN_OK;
  }
  kiln_status status = kiln__key_read(text, bytes, &size);
  if (status != KILN_OK) return status;
  if (size != 32)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "%s holds %zu bytes and a public key has 32; kiln pack sign prints it", text,
                      size);
  memcpy(key, bytes, 32);
  return KILN_OK;
}

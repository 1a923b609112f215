/* Text that grows up to a limit: see text.h for the rule that it keeps. */
#include "runtime/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kiln__text_init(kiln__text *text, size_t limit) {
  memset(text, 0, sizeof *text);
  text->limit = limit;
}

void kiln__text_init_fixed(kiln__text *text, char *buffer, size_t size) {
  kiln__text_init(text, size);
  text->data = buffer;
  text->capacity = size;
  text->fixed = 1;
  buffer[0] = '\0';
}

void kiln__text_free(kiln__text *text) {
  if (!text->fixed) free(text->data);
  memset(text, 0, sizeof *text);
}

void kiln__text_clear(kiln__text *text) {
  text->length = 0;
  text->truncated = 0;
  if (text->data) text->data[0] = '\0';
}

/* Room for `more` bytes and the terminator; how many of them fit. */
static size_t reserve(kiln__text *text, size_t more) {
  size_t room = text->limit - text->length > 0 ? text->limit - text->length - 1 : 0;
  if (more > room) more = room;
  size_t needed = text->length + more + 1;
  if (needed <= text->capacity || text->fixed) return more;
  size_t capacity = text->capacity ? text->capacity : 128;
  while (capacity < needed) capacity *= 2;
  char *data = realloc(text->data, capacity);
  if (!data) return text->capacity > text->length ? text->capacity - text->length - 1 : 0;
  text->data = data;
  text->capacity = capacity;
  return more;
}

void kiln__text_append(kiln__text *text, const char *bytes, size_t length) {
  size_t fits = reserve(text, length);
  if (fits < length) text->truncated = 1;
  if (!text->data) return;
  memcpy(text->data + text->length, bytes, fits);
  text->length += fits;
  text->data[text->length] = '\0';
}

void kiln__text_string(kiln__text *text, const char *string) {
  kiln__text_append(text, string, strlen(string));
}

void kiln__text_vprintf(kiln__text *text, const char *format, va_list arguments) {
  va_list measured;
  va_copy(measured, arguments);
  /* clang-tidy 14 loses a va_list that was handed down through a call. */
  int length = vsnprintf(NULL, 0, format, measured); /* NOLINT(clang-analyzer-valist.*) */
  va_end(measured);
  size_t fits = length > 0 ? reserve(text, (size_t)length) : 0;
  if (length < 0 || fits < (size_t)length) text->truncated = 1;
  if (text->data && length > 0) {
    vsnprintf(text->data + text->length, fits + 1, format, arguments);
    text->length += fits;
  }
}

void kiln__text_printf(kiln__text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  kiln__text_vprintf(text, format, arguments);
  va_end(arguments);
}

const char *kiln__text_get(const kiln__text *text) { return text->data ? text->data : ""; }

char *kiln__text_take(kiln__text *text) {
  if (text->fixed || !text->data) return strdup(kiln__text_get(text));
  char *data = text->data;
  size_t limit = text->limit;
  kiln__text_init(text, limit);
  return data;
}

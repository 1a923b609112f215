/* Text that grows up to a limit, for messages and reports. The text is always terminated; what does
 * not fit is cut off and remembered in `truncated`, so that a caller never checks a single append.
 * Over a fixed buffer it never allocates: the launch path uses that. Used all over the runtime. */
#ifndef KILN_RUNTIME_TEXT_H
#define KILN_RUNTIME_TEXT_H

#include <stdarg.h>
#include <stddef.h>

typedef struct kiln__text {
  char *data;      /* terminated; NULL while an owned text is empty */
  size_t length;   /* without the terminator */
  size_t capacity; /* bytes at data */
  size_t limit;    /* length never exceeds limit - 1 */
  int fixed;       /* data belongs to the caller and is never grown */
  int truncated;   /* something did not fit, or memory ran out */
} kiln__text;

void kiln__text_init(kiln__text *text, size_t limit);
void kiln__text_init_fixed(kiln__text *text, char *buffer, size_t size); /* size >= 1 */
void kiln__text_free(kiln__text *text);
void kiln__text_clear(kiln__text *text);
void kiln__text_append(kiln__text *text, const char *bytes, size_t length);
void kiln__text_string(kiln__text *text, const char *string);
void kiln__text_printf(kiln__text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void kiln__text_vprintf(kiln__text *text, const char *format, va_list arguments);
const char *kiln__text_get(const kiln__text *text); /* never NULL */
char *kiln__text_take(kiln__text *text);            /* the caller frees it; NULL without memory */

#endif

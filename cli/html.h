/* What the pages have in common: their frame, their style, and text that stays text.
 *
 * Invariant: a page is whole in itself. It names no other file and no host, is well-formed as XML
 * too, and is light or dark as its reader asks. Text from outside goes through kiln__html_text.
 *
 * Called by page.c and the report's files. */
#ifndef KILN_CLI_HTML_H
#define KILN_CLI_HTML_H

#include <stdio.h>

/* From the first byte into the style sheet, with the common rules: the caller may write more. */
void kiln__html_begin(FILE *to, const char *title);
void kiln__html_body(FILE *to); /* from the style sheet into <body> */

/* The script, which may not hold "]]>", and the end. */
void kiln__html_end(FILE *to, const char *script);

/* Escaped for an element or a quoted attribute; bytes that are no UTF-8, and characters that XML
 * does not have, become U+FFFD. NULL is "". */
void kiln__html_text(FILE *to, const char *text);

#endif

/* A journal: a file of tuning records, one JSON object a line, only ever appended to.
 *
 * Invariant: a record is written by one write(); a line without its newline, which a killed writer
 * left, is none. Lines that cannot be read cost themselves alone. Used by tune.c and records.c. */
#ifndef KILN_AUTOTUNE_JOURNAL_H
#define KILN_AUTOTUNE_JOURNAL_H

#include "autotune/line.h"

/* One line of a file. line is NULL where `why` says what is wrong with it. text: without its
 * newline, valid during the call. A status that is not OK ends the reading. */
typedef kiln_status kiln__journal_visit(void *user, int64_t number, kiln__line *line,
                                        const char *why);

/* Calls visit with every line. A file that is not there is IO_FAILED unless may_be_missing. Errors:
 * IO_FAILED and a sentence, or what visit gave. */
kiln_status kiln__journal_read(const char *path, int may_be_missing, kiln__journal_visit *visit,
                               void *user, char *error, size_t error_size);

/* The same for the lines that hold every one of the words (ended by NULL); a file that is not there
 * holds none. Others are left out unread, whatever is wrong with them. */
kiln_status kiln__journal_read_words(const char *path, const char *const *words,
                                     kiln__journal_visit *visit, void *user, char *error,
                                     size_t error_size);

/* The same for the lines of a text. OUT_OF_MEMORY, or what visit gave. */
kiln_status kiln__journal_read_memory(const char *bytes, size_t length, const char *const *words,
                                      kiln__journal_visit *visit, void *user);

/* Appends one record with a newline; a torn line before it is ended first. IO_FAILED. */
kiln_status kiln__journal_append(const char *path, const kiln__line *line, char *error,
                                 size_t error_size);

/* The same for a record that is text already. */
kiln_status kiln__journal_append_text(const char *path, const char *text, char *error,
                                      size_t error_size);

/* While a tuning runs, others that would append to the same file wait: then the first measures and
 * they read. Waits for wait_ms at most; a lock is only to spare work, so -1 = none is held and the
 * caller goes on. The lock is PATH.lock, which stays. */
int kiln__journal_lock(const char *path, int wait_ms);
void kiln__journal_unlock(int lock);

/* Many records at once, by lines that are already text (each without its newline), in place of what
 * the file held: written beside it and renamed. */
kiln_status kiln__journal_replace(const char *path, char *const *lines, int count, char *error,
                                  size_t error_size);

#endif

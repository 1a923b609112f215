/* Jobs in many threads whose results are taken in order: kernels compile while earlier ones run.
 *
 * Invariant: every job runs exactly once, and no job more than WINDOW places ahead of the one that
 * is waited for, so that memory stays bounded. A machine that gives no thread still does all the
 * work, in the waiting thread.
 *
 * Called by compile, pack, verify and bench. */
#ifndef KILN_CLI_POOL_H
#define KILN_CLI_POOL_H

#include <kiln/kiln.h>

#include <stdint.h>

typedef void kiln__job(void *user, int64_t index);

typedef struct kiln__pool kiln__pool;

/* How many threads `count` jobs get: KILN_JOBS, else one a core. */
int kiln__pool_threads(int64_t count);

/* Jobs 0 .. count-1. NULL without memory. */
kiln__pool *kiln__pool_create(int64_t count, kiln__job *job, void *user);

/* Returns when job `index` is done. Called with 0, 1, 2, ... in order. */
void kiln__pool_wait(kiln__pool *pool, int64_t index);

/* Jobs that have not begun never will; those that have are waited for. *begun (may be NULL): how
 * many did. Accepts NULL. */
void kiln__pool_destroy(kiln__pool *pool, int64_t *begun);

#endif

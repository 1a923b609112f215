/* A pool of threads over an ordered list of jobs; pool.h states the order. */
#include "pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS_MAX = 64, WINDOW = 128 };

struct kiln__pool {
  kiln__job *job;
  void *user;
  int64_t count, next, wanted; /* next: the first job that has not begun */
  bool *done;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  pthread_t threads[THREADS_MAX];
  int num_threads;
};

/* Called with the mutex held; it is open while the job runs. */
static void run_next(kiln__pool *pool) {
  int64_t index = pool->next++;
  pthread_mutex_unlock(&pool->mutex);
  pool->job(pool->user, index);
  pthread_mutex_lock(&pool->mutex);
  pool->done[index] = true;
  pthread_cond_broadcast(&pool->changed);
}

static void *work(void *argument) {
  kiln__pool *pool = argument;
  pthread_mutex_lock(&pool->mutex);
  while (pool->next < pool->count) {
    if (pool->next > pool->wanted + WINDOW)
      pthread_cond_wait(&pool->changed, &pool->mutex);
    else
      run_next(pool);
  }
  pthread_mutex_unlock(&pool->mutex);
  return NULL;
}

int kiln__pool_threads(int64_t count) {
  const char *text = getenv("KILN_JOBS");
  long threads = text ? strtol(text, NULL, 10) : 0;
  if (threads < 1) threads = sysconf(_SC_NPROCESSORS_ONLN);
  if (threads < 1) threads = 1;
  if (threads > THREADS_MAX) threads = THREADS_MAX;
  return threads < count ? (int)threads : (int)count;
}

kiln__pool *kiln__pool_create(int64_t count, kiln__job *job, void *user) {
  kiln__pool *pool = calloc(1, sizeof *pool);
  bool *done = calloc((size_t)count + 1, sizeof *done);
  if (!pool || !done) {
    free(pool);
    free(done);
    return NULL;
  }
  pool->job = job;
  pool->user = user;
  pool->count = count;
  pool->done = done;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->changed, NULL);
  int wanted = kiln__pool_threads(count);
  while (pool->num_threads < wanted &&
         pthread_create(&pool->threads[pool->num_threads], NULL, work, pool) == 0)
    pool->num_threads++;
  return pool;
}

void kiln__pool_wait(kiln__pool *pool, int64_t index) {
  pthread_mutex_lock(&pool->mutex);
  pool->wanted = index;
  pthread_cond_broadcast(&pool->changed);
  while (!pool->done[index]) {
    if (pool->next <= index)
      run_next(pool);
    else
      pthread_cond_wait(&pool->changed, &pool->mutex);
  }
  pthread_mutex_unlock(&pool->mutex);
}

void kiln__pool_destroy(kiln__pool *pool, int64_t *begun) {
  if (begun) *begun = 0;
  if (!pool) return;
  pthread_mutex_lock(&pool->mutex);
  if (begun) *begun = pool->next;
  pool->count = pool->next;
  pthread_cond_broadcast(&pool->changed);
  pthread_mutex_unlock(&pool->mutex);
  for (int i = 0; i < pool->num_threads; i++) pthread_join(pool->threads[i], NULL);
  pthread_cond_destroy(&pool->changed);
  pthread_mutex_destroy(&pool->mutex);
  free(pool->done);
  free(pool);
}

/* See process.h. */
#include "autotune/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REAP_MS 5000 /* a process that the kernel does not let go is left to init */

/* ---- the place ---- */

/* Of the library or program that holds this function; malloc'd. */
static char *own_object(int *is_program) {
  Dl_info info;
  void *extra = NULL;
  char *(*self)(void) = kiln__process_place;
  void *address;
  memcpy(&address, &self, sizeof address);
  const int found = dladdr1(address, &info, &extra, RTLD_DL_LINKMAP);
  const struct link_map *map = extra;
  *is_program = !found || !map || !map->l_name[0];
  return realpath(*is_program ? "/proc/self/exe" : map->l_name, NULL);
}

/* KILN_MEASURE_FROM_LIB and _BIN are the installed program's path relative to the library and to
 * kiln; a build tree has the third layout, whatever is configured. */
char *kiln__process_place(void) {
  int is_program = 0;
  char *object = own_object(&is_program), *place = NULL;
  static const char *const installed[] = {KILN_MEASURE_FROM_LIB, KILN_MEASURE_FROM_BIN};
  const char *const relative[] = {installed[is_program], "../libexec/kiln/kiln-measure"};
  char *slash = object ? strrchr(object, '/') : NULL;
  if (slash) slash[1] = '\0';
  for (int i = 0; slash && i < 2; i++) {
    free(place);
    if (asprintf(&place, "%s%s", object, relative[i]) < 0) place = NULL;
    if (place && access(place, X_OK) == 0) break;
  }
  free(object);
  return place;
}

/* ---- starting ---- */

/* The host's signal mask and ignored signals are its own affair. */
static int set_signals(posix_spawnattr_t *attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  return posix_spawnattr_setsigmask(attributes, &none) ||
         posix_spawnattr_setsigdefault(attributes, &all) ||
         posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/* Gives an errno. */
static int spawn(const char *program, int fd, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  char *arguments[] = {(char *)(uintptr_t)program, NULL};
  int code = posix_spawn_file_actions_init(&actions);
  if (code != 0) return code;
  code = posix_spawnattr_init(&attributes);
  if (code == 0) {
    code = set_signals(&attributes);
    if (code == 0) code = posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
    if (code == 0) code = posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO);
    if (code == 0) code = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    if (code == 0) code = posix_spawn(pid, program, &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return code;
}

static kiln_status refuse_start(const char *program, int code, char *error, size_t size) {
  snprintf(error, size,
           "%s, which compiles and times kernels in a process of its own, cannot be started (%s): "
           "install the whole of Kiln",
           program, strerror(code));
  return code == ENOMEM ? KILN_OUT_OF_MEMORY : KILN_UNSUPPORTED;
}

kiln_status kiln__process_start(kiln__process *p, const char *program, char *error,
                                size_t error_size) {
  int ends[2];
  *p = (kiln__process){.fd = -1};
  if (access(program, X_OK) != 0) return refuse_start(program, errno, error, error_size);
  char *bytes = malloc(KILN__ANSWER_LIMIT);
  if (!bytes) return refuse_start(program, ENOMEM, error, error_size);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    free(bytes);
    return refuse_start(program, errno, error, error_size);
  }
  const int code = spawn(program, ends[1], &p->pid);
  close(ends[1]);
  if (code != 0) {
    close(ends[0]);
    free(bytes);
    *p = (kiln__process){.fd = -1};
    return refuse_start(program, code, error, error_size);
  }
  p->fd = ends[0];
  p->bytes = bytes;
  return KILN_OK;
}

/* ---- asking ---- */

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A question is far smaller than a socket's buffer: it is taken whole, or the process is not well.
 */
static int send_line(const kiln__process *p, const json_t *question) {
  char *text = json_dumps(question, JSON_COMPACT);
  const size_t length = text ? strlen(text) : 0;
  if (!text) return -1;
  text[length] = '\n'; /* in the place of the terminator */
  const ssize_t sent = send(p->fd, text, length + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  free(text);
  return sent == (ssize_t)length + 1 ? 0 : -1;
}

/* What has arrived, up to a line's end. 1 = a whole line, 0 = more is to come, -1 = the end. */
static int take_bytes(kiln__process *p) {
  const size_t room = KILN__ANSWER_LIMIT - p->length;
  if (room == 0) return 1; /* a line that long is none, and will not be read as one */
  const ssize_t got = recv(p->fd, p->bytes + p->length, room, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (got <= 0) return -1;
  p->length += (size_t)got;
  return p->bytes[p->length - 1] == '\n';
}

/* 0 = there is a whole line, 1 = too late, -1 = the end. */
static int wait_line(kiln__process *p, int limit_ms) {
  const int64_t end = now_ms() + limit_ms;
  p->length = 0;
  for (;;) {
    struct pollfd wanted = {.fd = p->fd, .events = POLLIN};
    const int64_t left = end - now_ms();
    if (left <= 0) return 1;
    if (poll(&wanted, 1, (int)left) <= 0) continue; /* late, or a signal of the host */
    const int taken = take_bytes(p);
    if (taken != 0) return taken < 0 ? -1 : 0;
  }
}

/* The process has closed its end: how it ended, where it is still ours to ask. */
static void describe_end(kiln__process *p, char *why, size_t size) {
  int status = 0;
  const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
  snprintf(why, size, "the measuring program ended");
  for (int i = 0; i < 100; i++) {
    const pid_t reaped = waitpid(p->pid, &status, WNOHANG);
    if (reaped == 0) {
      nanosleep(&pause, NULL);
      continue;
    }
    if (reaped == p->pid && WIFSIGNALED(status))
      snprintf(why, size, "the measuring program ended by signal %d", WTERMSIG(status));
    if (reaped == p->pid || errno == ECHILD) p->pid = 0; /* or the host has reaped it */
    return;
  }
}

json_t *kiln__process_ask(kiln__process *p, const json_t *question, int limit_ms, char *why,
                          size_t why_size) {
  const int got = send_line(p, question) == 0 ? wait_line(p, limit_ms) : -1;
  json_t *answer = got == 0 ? json_loadb(p->bytes, p->length, JSON_REJECT_DUPLICATES, NULL) : NULL;
  if (json_is_object(answer)) return answer;
  json_decref(answer);
  if (got < 0)
    describe_end(p, why, why_size);
  else if (got > 0)
    snprintf(why, why_size, "no answer within %d s", limit_ms / 1000);
  else
    snprintf(why, why_size, "the measuring program's answer cannot be read");
  return NULL;
}

/* ---- ending ---- */

static void reap(pid_t pid) {
  const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
  const int64_t end = now_ms() + REAP_MS;
  /* Gone already: the host's own wait was faster, or this is a fork of the host, to which it is no
   * child. */
  if (waitpid(pid, NULL, WNOHANG) != 0) return;
  kill(pid, SIGKILL);
  while (waitpid(pid, NULL, WNOHANG) == 0 && now_ms() < end) nanosleep(&pause, NULL);
}

void kiln__process_end(kiln__process *p) {
  if (!p->bytes) return;
  close(p->fd);
  if (p->pid) reap(p->pid);
  free(p->bytes);
  *p = (kiln__process){.fd = -1};
}

/* Looking for NVRTC: see nvrtc_find.h. Nothing is loaded here. */
#include "runtime/compile/nvrtc_find.h"

#include <dirent.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct search {
  int (*visit)(void *user, const kiln__nvrtc_place *place);
  void *user;
} search;

/* The library of the highest version in a directory: "libnvrtc.so.13" before "libnvrtc.so". */
static int find_library(const char *directory, char file[PATH_MAX]) {
  DIR *stream = opendir(directory);
  char best[NAME_MAX + 1] = "";
  if (!stream) return 0;
  for (struct dirent *row = readdir(stream); row; row = readdir(stream)) {
    if (strncmp(row->d_name, "libnvrtc.so", strlen("libnvrtc.so")) != 0) continue;
    if (!best[0] || strverscmp(row->d_name, best) > 0)
      snprintf(best, sizeof best, "%s", row->d_name);
  }
  closedir(stream);
  return best[0] && snprintf(file, PATH_MAX, "%s/%s", directory, best) < PATH_MAX;
}

static int look_in(const search *s, const char *origin, const char *directory) {
  char file[PATH_MAX];
  kiln__nvrtc_place place = {origin, directory, NULL};
  if (find_library(directory, file)) place.file = file;
  return s->visit(s->user, &place);
}

/* The library folders of a toolkit; one place is reported when all of them are empty. */
static int look_in_toolkit(const search *s, const char *origin, const char *root) {
  static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                        "targets/sbsa-linux/lib"};
  char directory[PATH_MAX], file[PATH_MAX];
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
    if (snprintf(directory, sizeof directory, "%s/%s", root, folders[i]) >= PATH_MAX) continue;
    if (find_library(directory, file)) return look_in(s, origin, directory);
  }
  return look_in(s, origin, root);
}

static int look_in_matches(const search *s, const char *origin, const char *pattern, int toolkit) {
  glob_t found;
  int stop = 0;
  if (glob(pattern, 0, NULL, &found) != 0) return 0;
  for (size_t i = found.gl_pathc; i > 0 && !stop; i--) { /* sorted: the newest name is last */
    const char *path = found.gl_pathv[i - 1];
    stop = toolkit ? look_in_toolkit(s, origin, path) : look_in(s, origin, path);
  }
  globfree(&found);
  return stop;
}

static int look_by_loader(const search *s) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    kiln__nvrtc_place place = {"loader", names[i], names[i]};
    int stop = s->visit(s->user, &place);
    if (stop) return stop;
  }
  return 0;
}

/* Wheels named nvidia-cuda-nvrtc: one folder per CUDA version, in every Python environment at hand.
 * */
static int look_in_wheels(const search *s, const char *root) {
  static const char *const folders[] = {
      "lib/python3*/site-packages/nvidia/cu[0-9]*/lib",
      "lib/python3*/site-packages/nvidia/cuda_nvrtc/lib",
      "lib/python3*/dist-packages/nvidia/cu[0-9]*/lib",
      "lib/python3*/dist-packages/nvidia/cuda_nvrtc/lib",
      "lib/python3/dist-packages/nvidia/cu[0-9]*/lib",
      "lib/python3/dist-packages/nvidia/cuda_nvrtc/lib",
  };
  char pattern[PATH_MAX];
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
    if (snprintf(pattern, sizeof pattern, "%s/%s", root, folders[i]) >= PATH_MAX) continue;
    int stop = look_in_matches(s, "wheel", pattern, 0);
    if (stop) return stop;
  }
  return 0;
}

static int look_in_environments(const search *s, const kiln__env *env) {
  const char *venv = kiln__env_get(env, KILN__ENV_VIRTUAL_ENV);
  const char *home = kiln__env_get(env, KILN__ENV_HOME);
  char local[PATH_MAX];
  int stop = venv ? look_in_wheels(s, venv) : 0;
  if (!stop && home && snprintf(local, sizeof local, "%s/.local", home) < PATH_MAX)
    stop = look_in_wheels(s, local);
  if (!stop) stop = look_in_wheels(s, "/usr/local");
  return stop ? stop : look_in_wheels(s, "/usr");
}

static int look_where_told(const search *s, const char *path) {
  struct stat status;
  if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
    return look_in_toolkit(s, "KILN_NVRTC", path);
  kiln__nvrtc_place place = {"KILN_NVRTC", path, path};
  return s->visit(s->user, &place);
}

int kiln__nvrtc_search(const kiln__env *env,
                       int (*visit)(void *user, const kiln__nvrtc_place *place), void *user) {
  const search s = {visit, user};
  const char *told = kiln__env_get(env, KILN__ENV_KILN_NVRTC);
  const char *home = kiln__env_get(env, KILN__ENV_CUDA_HOME);
  const char *path = kiln__env_get(env, KILN__ENV_CUDA_PATH);
  if (told) return look_where_told(&s, told);
  int stop = home ? look_in_toolkit(&s, "CUDA_HOME", home) : 0;
  if (!stop && path) stop = look_in_toolkit(&s, "CUDA_PATH", path);
  if (!stop) stop = look_in_toolkit(&s, "toolkit", "/usr/local/cuda");
  if (!stop) stop = look_in_matches(&s, "toolkit", "/usr/local/cuda-*", 1);
  if (!stop) stop = look_by_loader(&s);
  return stop ? stop : look_in_environments(&s, env);
}

int kiln__nvrtc_has_builtins(const char *file) {
  const char *slash = strrchr(file, '/');
  char directory[PATH_MAX];
  if (!slash || (size_t)(slash - file) >= sizeof directory) return 0;
  memcpy(directory, file, (size_t)(slash - file));
  directory[slash - file] = '\0';
  DIR *stream = opendir(directory);
  int found = 0;
  if (!stream) return 0;
  for (struct dirent *row = readdir(stream); row && !found; row = readdir(stream))
    found = strncmp(row->d_name, "libnvrtc-builtins.so", strlen("libnvrtc-builtins.so")) == 0;
  closedir(stream);
  return found;
}

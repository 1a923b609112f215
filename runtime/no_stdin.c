/* Debian's libjansson.a is not made for shared libraries: its json_loadf, which Kiln never calls,
 * compares a stream with `stdin` in a way that only a program can link. The build leads that one
 * reference here (--wrap=stdin in cmake/KilnTargets.cmake). */

extern void *const __wrap_stdin;
void *const __wrap_stdin = (void *)0;

/* The three standard streams under names of our own, for the copy of Debian's Lua archive that is
 * linked into libkiln (KilnLibraries.cmake renames Lua's references to these).
 * The archive is compiled for programs, not for shared objects: it reads `stdout` by a distance
 * that only a program can fix, and ld refuses that inside a .so. These pointers are hidden, so the
 * distance is known. They are constant: glibc's stream objects never move. */
#include <stdio.h>

extern FILE _IO_2_1_stdin_, _IO_2_1_stdout_, _IO_2_1_stderr_;
extern FILE *const kiln__lua_stdin, *const kiln__lua_stdout, *const kiln__lua_stderr;

FILE *const kiln__lua_stdin = &_IO_2_1_stdin_;
FILE *const kiln__lua_stdout = &_IO_2_1_stdout_;
FILE *const kiln__lua_stderr = &_IO_2_1_stderr_;

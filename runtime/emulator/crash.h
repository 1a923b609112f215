/* SIGSEGV and SIGBUS of emulated kernel text become a report. Used by launch.c. */
#ifndef KILN_EMULATOR_CRASH_H
#define KILN_EMULATOR_CRASH_H

typedef struct emu_crash_stack {
  void *memory; /* the signal stack of this host thread */
  void *before; /* the one it had: a stack_t */
} emu_crash_stack;

/* Bracket a host thread's emulation; they nest and may run in many threads at once. 0, or -1. */
int kiln__crash_begin(emu_crash_stack *stack);
void kiln__crash_end(emu_crash_stack *stack);

#endif

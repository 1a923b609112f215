/* SIGSEGV and SIGBUS of emulated kernel text become a report: see crash.h.
 *
 * Signal handlers belong to the process, so this file keeps the only process-wide state of the
 * emulator: how many host threads emulate, and the handlers that were there before. A signal of any
 * other thread goes to those. In an emulating thread the handler writes the report and lets the
 * thread go on in kiln__fiber_resume, which leaves the broken fiber for the host's own stack. */
#include "runtime/emulator/crash.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "runtime/emulator/machine.h"

#define SIGNAL_STACK_BYTES (64u << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;
static struct sigaction before_segv, before_bus;

static const struct sigaction *before_of(int signal_number) {
  return signal_number == SIGBUS ? &before_bus : &before_segv;
}

/* The signal again, with the handler that was there before. */
static void pass_on(int number, siginfo_t *info, void *context) {
  const struct sigaction *before = before_of(number);
  if (before->sa_flags & SA_SIGINFO)
    before->sa_sigaction(number, info, context);
  else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
    before->sa_handler(number);
  else
    sigaction(number, before, NULL); /* the instruction faults again, and ends the process */
}

static void describe(emu_machine *machine, const emu_thread *thread, const void *address) {
  if (!thread) {
    snprintf(machine->message, EMU_MESSAGE_BYTES,
             "an asynchronous copy touched address %p, which is not mapped", address);
    return;
  }
  const char *at = address;
  const int overflow = at >= thread->stack && at < thread->stack + EMU_STACK_BYTES;
  snprintf(machine->message, EMU_MESSAGE_BYTES,
           "block %lld warp %u lane %u: %s %p; the last instruction before was %s",
           thread->block->index, thread->warp, thread->lane,
           overflow ? "the emulated thread's stack overflowed at"
                    : "plain access to unmapped address",
           address, thread->site);
}

static void handler(int number, siginfo_t *info, void *context) {
  emu_machine *machine = kiln__emu_current.machine;
  if (!machine) {
    pass_on(number, info, context);
    return;
  }
  describe(machine, kiln__emu_current.thread, info->si_addr);
#if defined(__x86_64__)
  ucontext_t *interrupted = context;
  interrupted->uc_mcontext.gregs[REG_RDI] = (greg_t)machine->home;
  interrupted->uc_mcontext.gregs[REG_RIP] = (greg_t)kiln__fiber_resume;
#endif
}

static int install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGSEGV, &action, &before_segv) != 0) return -1;
  if (sigaction(SIGBUS, &action, &before_bus) == 0) return 0;
  sigaction(SIGSEGV, &before_segv, NULL);
  return -1;
}

int kiln__crash_begin(emu_crash_stack *stack) {
  stack->memory = malloc(SIGNAL_STACK_BYTES);
  stack->before = malloc(sizeof(stack_t));
  stack_t mine = {.ss_sp = stack->memory, .ss_size = SIGNAL_STACK_BYTES};
  if (!stack->memory || !stack->before || sigaltstack(&mine, stack->before) != 0) {
    free(stack->memory);
    free(stack->before);
    return -1;
  }
  pthread_mutex_lock(&lock);
  const int failed = users == 0 ? install() : 0;
  if (!failed) users++;
  pthread_mutex_unlock(&lock);
  if (!failed) return 0;
  sigaltstack(stack->before, NULL);
  free(stack->memory);
  free(stack->before);
  return -1;
}

void kiln__crash_end(emu_crash_stack *stack) {
  pthread_mutex_lock(&lock);
  if (--users == 0) {
    sigaction(SIGSEGV, &before_segv, NULL);
    sigaction(SIGBUS, &before_bus, NULL);
  }
  pthread_mutex_unlock(&lock);
  sigaltstack(stack->before, NULL);
  free(stack->memory);
  free(stack->before);
}

/* setmaxnreg: the block's pool of registers, and wgmma's register barriers.
 *
 * A block begins with every thread at its entry count and nothing free; dec gives back, inc waits
 * until there is enough. Counts are for each thread; all threads of a warpgroup make the same step.
 * */
#include "runtime/emulator/machine.h"

static void check(const emu_thread *thread, int count, int grows, const char *site) {
  if (count < 24 || count > 256 || count % 8)
    kiln__emu_fault("%s: a multiple of 8 from 24 to 256 is legal", site);
  if (grows ? count < thread->registers : count > thread->registers)
    kiln__emu_fault("%s: the thread has %d registers", site, thread->registers);
}

static void take(emu_thread *thread, int count) {
  thread->block->free_registers -= count - thread->registers;
  thread->registers = count;
}

void kiln__emu_reg_dec(int count, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  check(thread, count, 0, site);
  take(thread, count);
  for (u32 i = 0; i < thread->machine->num_threads; i++)
    if (thread->block->threads[i].wait.kind == EMU_WAIT_REGISTERS)
      kiln__scheduler_wake(&thread->block->threads[i]);
}

void kiln__emu_reg_inc(int count, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  check(thread, count, 1, site);
  while (count - thread->registers > thread->block->free_registers)
    kiln__scheduler_block(thread, (emu_wait){EMU_WAIT_REGISTERS, thread->block, count, 0, site});
  take(thread, count);
}

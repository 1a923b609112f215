/* Shared memory of another block of the cluster: it is there until that block ends, so that each
 * access to it must be over, and known to be, in some thread of that block before it ends.
 *
 * The end of a block is checked when its last thread ends, against what all of them know; an access
 * to a block that has ended is a fault at once. */
#include "runtime/emulator/machine.h"

#include <string.h>

void kiln__peer_touch(emu_thread *thread, emu_block *block, emu_mark mark, const char *site) {
  emu_machine *machine = thread->machine;
  if (block == thread->block) return;
  if (!block->alive)
    kiln__emu_fault("%s: block %lld, whose shared memory this needs, has ended", site,
                    block->index);
  if (!machine->checking) return;
  if (!block->touched)
    block->touched = kiln__machine_take(machine, machine->clocks.count * sizeof *block->touched);
  block->touched[mark.component] = (emu_touch){site, mark.value};
}

/* Accesses by others that no thread of the block knows to be over. */
static void check_touched(emu_block *block) {
  emu_machine *machine = block->machine;
  char name[128];
  for (u32 i = 0; i < machine->clocks.count; i++) {
    if (block->touched[i].value <= block->exit_sum.clock[i]) continue;
    kiln__emu_fault("block %lld may have ended before %s by %s is over: a cluster_sync is missing",
                    block->index, block->touched[i].site,
                    kiln__emu_component_name(machine, i, name, sizeof name));
  }
}

void kiln__peer_exit(emu_thread *thread) {
  emu_block *block = thread->block;
  if (!thread->machine->checking || thread->machine->num_blocks == 1) return;
  kiln__clocks_release(thread, &block->exit_sum);
  if (block->alive == 1 && block->touched) check_touched(block);
}

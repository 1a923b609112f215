/* The function table that every emulated kernel gets. Read-only; handed over by module.c. */
#include "runtime/emulator/api.h"

const kiln_emu_api kiln__emu_table = {
#define X(ret, name, params) .name = kiln__emu_##name,
    KILN_EMU_API(X)
#undef X
};

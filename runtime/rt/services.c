/* The empty table of services: libkiln_rt loads and launches what was made elsewhere. */
#include "runtime/services.h"

#include <string.h>

void kiln__services_fill(kiln__services *services) { memset(services, 0, sizeof *services); }

/* Names and sentences of the statuses, from the one list in the public header. */
#include <kiln/kiln.h>

const char *kiln_status_name(kiln_status status) {
  switch (status) {
#define NAME_CASE(name, number, text) \
  case KILN_##name: return #name;
    KILN_STATUS_MAP(NAME_CASE)
#undef NAME_CASE
  default: return "UNKNOWN";
  }
}

const char *kiln_status_text(kiln_status status) {
  switch (status) {
#define TEXT_CASE(name, number, text) \
  case KILN_##name: return text;
    KILN_STATUS_MAP(TEXT_CASE)
#undef TEXT_CASE
  default: return "this number is no status of this version";
  }
}

const char *kiln_version(void) { return KILN_VERSION; }

/* The identity of a compiled kernel: see identity.h and docs/identities.md. */
#include "runtime/identity.h"

#include <sodium.h>
#include <string.h>

#define IDENTITY_FORMAT "1"

/* ORDER: the digest runs over the fields in this order, and `why` names the first that differs. */
static const char *const field_names[] = {"format", "kiln",     "source_id", "options",
                                          "arch",   "compiler", "layout"};
#define NUM_FIELDS (sizeof field_names / sizeof field_names[0])

json_t *kiln__identity_make(const char *source_id, const char *arch, const char *layout,
                            const kiln__compiler_identity *compiler) {
  json_t *options = json_array();
  for (int i = 0; i < compiler->num_options; i++)
    json_array_append_new(options, json_string(compiler->options[i]));
  json_t *identity = json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s}", "format", IDENTITY_FORMAT,
                               "kiln", KILN_VERSION, "source_id", source_id, "options", options,
                               "arch", arch, "compiler", compiler->version, "layout", layout);
  if (identity && json_array_size(options) == (size_t)compiler->num_options) return identity;
  json_decref(identity);
  return NULL;
}

static void add_length(crypto_hash_sha256_state *state, size_t length) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
  crypto_hash_sha256_update(state, bytes, sizeof bytes);
}

static int add_string(crypto_hash_sha256_state *state, const json_t *value) {
  if (!json_is_string(value)) return -1;
  add_length(state, json_string_length(value));
  crypto_hash_sha256_update(state, (const unsigned char *)json_string_value(value),
                            json_string_length(value));
  return 0;
}

/* A list counts its elements first. */
static int add_field(crypto_hash_sha256_state *state, const json_t *value) {
  if (!json_is_array(value)) return add_string(state, value);
  add_length(state, json_array_size(value));
  for (size_t i = 0; i < json_array_size(value); i++)
    if (add_string(state, json_array_get(value, i)) != 0) return -1;
  return 0;
}

int kiln__identity_digest(const json_t *identity, char id[KILN__ID_SIZE]) {
  crypto_hash_sha256_state state;
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_init(&state);
  for (size_t i = 0; i < NUM_FIELDS; i++)
    if (add_field(&state, json_object_get(identity, field_names[i])) != 0) return -1;
  crypto_hash_sha256_final(&state, digest);
  sodium_bin2hex(id, KILN__ID_SIZE, digest, sizeof digest);
  return 0;
}

const char *kiln__identity_difference(const json_t *a, const json_t *b) {
  for (size_t i = 0; i < NUM_FIELDS; i++)
    if (!json_equal(json_object_get(a, field_names[i]), json_object_get(b, field_names[i])))
      return field_names[i];
  return NULL;
}

/* Naming a kernel, and the command that makes it: see missing.h. Specs may come from a caller, so
 * numbers that are no enum's are named too. */
#include "runtime/missing.h"

#include <stddef.h>

#include "runtime/record.h"

static const char *find_word(const char *const *words, int number) {
  for (int i = 0; words[i]; i++)
    if (i == number) return words[i];
  return NULL;
}

static const char *word_of(const char *const *words, int number) {
  const char *word = find_word(words, number);
  return word ? word : "unknown";
}

int kiln__spec_has_words(const kiln_attn_spec *spec) {
  return find_word(kiln__pass_words, (int)spec->pass) &&
         find_word(kiln__algorithm_words, (int)spec->algorithm) &&
         find_word(kiln__dtype_words, (int)spec->dtype) &&
         find_word(kiln__mask_words, (int)spec->mask) &&
         (spec->deterministic == 0 || spec->deterministic == 1);
}

/* ORDER: of the fields in kiln_tile */
static void tile_words(kiln__text *text, const kiln_tile *tile, int as_flags) {
  static const char *const fields[] = {"block_m", "block_n", "num_stages", "num_warps"};
  static const char *const flags[] = {"--block-m", "--block-n", "--num-stages", "--num-warps"};
  const int32_t values[] = {tile->block_m, tile->block_n, tile->num_stages, tile->num_warps};
  for (int i = 0; i < 4; i++)
    if (values[i])
      kiln__text_printf(text, " %s%s%d", as_flags ? flags[i] : fields[i], as_flags ? " " : "=",
                        (int)values[i]);
}

void kiln__spec_words(kiln__text *text, const kiln_attn_spec *spec, const kiln_tile *tile) {
  kiln__text_printf(text, "%s %s %d", spec->arch, word_of(kiln__dtype_words, (int)spec->dtype),
                    (int)spec->head_dim);
  if (spec->head_dim_v != spec->head_dim) kiln__text_printf(text, "/%d", (int)spec->head_dim_v);
  kiln__text_printf(text, " %s", word_of(kiln__mask_words, (int)spec->mask));
  if (spec->pass != KILN_PASS_FORWARD)
    kiln__text_printf(text, " %s", word_of(kiln__pass_words, (int)spec->pass));
  if (spec->algorithm != KILN_ALGORITHM_FLASH)
    kiln__text_printf(text, " %s", word_of(kiln__algorithm_words, (int)spec->algorithm));
  if (spec->deterministic) kiln__text_string(text, " deterministic");
  tile_words(text, tile, 0);
}

/* Every field of the spec: what `pack build` is not told stands for all legal values. */
static void command(kiln__text *text, const kiln_attn_spec *spec, const kiln_tile *tile) {
  kiln__text_printf(text,
                    "`kiln pack build --arch %s --pass %s --algorithm %s --dtype %s --head-dim %d "
                    "--head-dim-v %d --mask %s",
                    spec->arch, word_of(kiln__pass_words, (int)spec->pass),
                    word_of(kiln__algorithm_words, (int)spec->algorithm),
                    word_of(kiln__dtype_words, (int)spec->dtype), (int)spec->head_dim,
                    (int)spec->head_dim_v, word_of(kiln__mask_words, (int)spec->mask));
  if (spec->deterministic) kiln__text_string(text, " --deterministic");
  tile_words(text, tile, 1);
  kiln__text_string(text, "`");
}

void kiln__missing_kernel(kiln__text *error, const kiln_attn_spec *spec, const kiln_tile *tile,
                          kiln__missing_reason reason) {
  kiln__text_string(error, "there is no kernel for ");
  kiln__spec_words(error, spec, tile);
  if (reason == KILN__MISSING_ON_EMULATOR) {
    kiln__text_string(error, " in the cache and KILN_JIT is off: run once with KILN_JIT=on");
    return;
  }
  kiln__text_string(error,
                    reason == KILN__MISSING_JIT_OFF
                        ? " in a pack or in the cache, and KILN_JIT or the context's options "
                          "switch compiling off: add it by "
                        : " in a pack, and this library compiles none: add it by ");
  command(error, spec, tile);
  kiln__text_string(error, " and name the file in KILN_PACK_PATH");
}

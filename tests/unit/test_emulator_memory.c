/* What launches of the emulator leave to the next: chunks of arenas and stacks of fibers. */
#include "suites.h"

#include <string.h>

#include "runtime/emulator/arena.h"
#include "runtime/emulator/fiber.h"

static int is_zero(const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (bytes[i]) return 0;
  return 1;
}

/* Whether a launch that takes so many bytes meets zeros; it leaves other numbers behind. */
static int takes_zeros(emu_chunk_pool *pool, size_t bytes) {
  emu_arena arena = {.pool = pool};
  char *taken = kiln__arena_take(&arena, bytes);
  ck_assert_ptr_nonnull(taken);
  const int good = is_zero(taken, bytes);
  memset(taken, 0xa5, bytes);
  kiln__arena_free(&arena);
  return good;
}

START_TEST(a_chunk_of_an_earlier_launch_is_zeroed) {
  static const size_t sizes[] = {16, 256 << 10, (256 << 10) + 16, 3 << 20};
  emu_chunk_pool pool;
  kiln__chunk_pool_create(&pool);
  for (int again = 0; again < 2; again++) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      ck_assert(takes_zeros(&pool, sizes[i]));
      ck_assert(takes_zeros(&pool, sizes[i]));
    }
    ck_assert_uint_eq(pool.bytes, (256u << 10) + (512u << 10) + (4u << 20));
  }
  kiln__chunk_pool_destroy(&pool);
}
END_TEST

/* More than a pool keeps is given back to the system. */
START_TEST(a_pool_of_chunks_has_a_bound) {
  emu_chunk_pool pool;
  emu_arena arena = {.pool = &pool};
  kiln__chunk_pool_create(&pool);
  for (int i = 0; i < 3; i++) ck_assert_ptr_nonnull(kiln__arena_take(&arena, 200u << 20));
  kiln__arena_free(&arena);
  ck_assert_uint_eq(pool.bytes, 512u << 20);
  kiln__chunk_pool_destroy(&pool);
}
END_TEST

START_TEST(the_smallest_stacks_that_will_do_are_taken) {
  static const size_t counts[] = {130, 33, 65};
  emu_stack_pool pool;
  emu_stacks sets[3], taken;
  kiln__stack_pool_create(&pool);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(kiln__stack_pool_take(&pool, counts[i], &sets[i]), 0);
  for (int i = 0; i < 3; i++) kiln__stack_pool_give(&pool, &sets[i]);
  ck_assert_uint_eq(pool.num_stacks, 130 + 33 + 65);
  ck_assert_int_eq(kiln__stack_pool_take(&pool, 40, &taken), 0);
  ck_assert_uint_eq(taken.count, 65);
  ck_assert_uint_eq(pool.num_stacks, 130 + 33);
  kiln__stack_pool_give(&pool, &taken);
  kiln__stack_pool_destroy(&pool);
}
END_TEST

/* The oldest make room. */
START_TEST(a_pool_of_stacks_has_a_bound) {
  emu_stack_pool pool;
  emu_stacks sets[3];
  kiln__stack_pool_create(&pool);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(kiln__stack_pool_take(&pool, i == 0 ? 5000 : 4000, &sets[i]), 0);
  for (int i = 0; i < 3; i++) kiln__stack_pool_give(&pool, &sets[i]);
  ck_assert_uint_eq(pool.num_kept, 2);
  ck_assert_uint_eq(pool.num_stacks, 8000);
  kiln__stack_pool_destroy(&pool);
}
END_TEST

Suite *suite_emulator_memory(void) {
  Suite *suite = suite_create("emulator_memory");
  TCase *tests = tcase_create("memory");
  tcase_add_test(tests, a_chunk_of_an_earlier_launch_is_zeroed);
  tcase_add_test(tests, a_pool_of_chunks_has_a_bound);
  tcase_add_test(tests, the_smallest_stacks_that_will_do_are_taken);
  tcase_add_test(tests, a_pool_of_stacks_has_a_bound);
  suite_add_tcase(suite, tests);
  return suite;
}

/* The numbers that the tutorial shows for the running softmax and for the score table. */
#include "suites.h"
#include "textbook.h"

#include <math.h>

static const double first[4] = {1, 0.5, 2, 1.5};
static const double second[4] = {3, 0.2, 1, 2.5};

START_TEST(two_blocks_of_four_scores) {
  kiln__running_softmax state = kiln__softmax_start();
  kiln__softmax_add(&state, first, 4);
  ck_assert(state.maximum == 2);
  ck_assert_double_eq_tol(state.sum, 2.198, 5e-4);
  kiln__softmax_add(&state, second, 4);
  ck_assert(state.maximum == 3);
  ck_assert_double_eq_tol(state.sum, 2.611, 5e-4);
}
END_TEST

/* The order of the blocks changes the steps and not the end. */
START_TEST(larger_block_first) {
  kiln__running_softmax state = kiln__softmax_start();
  kiln__softmax_add(&state, second, 4);
  kiln__softmax_add(&state, first, 4);
  ck_assert(state.maximum == 3);
  ck_assert_double_eq_tol(state.sum, 2.611, 5e-4);
}
END_TEST

START_TEST(masked_block_changes_nothing) {
  const double masked[2] = {-INFINITY, -INFINITY};
  kiln__running_softmax state = kiln__softmax_start();
  kiln__softmax_add(&state, masked, 2);
  ck_assert(isinf(state.maximum) && state.sum == 0);
  kiln__softmax_add(&state, first, 4);
  double sum = state.sum;
  kiln__softmax_add(&state, masked, 2);
  ck_assert(state.maximum == 2 && state.sum == sum);
}
END_TEST

START_TEST(score_table_of_one_head) {
  ck_assert_uint_eq(kiln__score_table_bytes(4096, 4096, 2), 33554432);
  ck_assert_double_eq_tol((double)kiln__score_table_bytes(4096, 4096, 2) / 1e6, 33.6, 0.05);
  ck_assert_double_eq_tol((double)kiln__score_table_bytes(8192, 8192, 2) / 1e6, 134, 0.5);
  ck_assert_uint_eq(kiln__score_table_bytes(UINT64_C(1) << 20, UINT64_C(1) << 20, 2), UINT64_C(1)
                                                                                          << 41);
}
END_TEST

Suite *suite_textbook(void) {
  Suite *suite = suite_create("textbook");
  TCase *cases = tcase_create("figures");
  tcase_add_test(cases, two_blocks_of_four_scores);
  tcase_add_test(cases, larger_block_first);
  tcase_add_test(cases, masked_block_changes_nothing);
  tcase_add_test(cases, score_table_of_one_head);
  suite_add_tcase(suite, cases);
  return suite;
}

/* What the samples of a race say, told in one pace. */
#include "suites.h"

#include "autotune/samples.h"

/* One that spreads does not make the default spread, whichever race they are in. */
START_TEST(a_noisy_neighbour_costs_itself_alone) {
  kiln__samples a = {.count = 0}, b = {.count = 0};
  kiln__samples *const both[] = {&a, &b};
  for (int i = 0; i < KILN__SAMPLES_MOST; i++) {
    kiln__samples_add(&a, 1000000 + 1000 * (i % 3));
    kiln__samples_add(&b, 1000000 + 150000 * (i * 7 % 5 - 2));
  }
  kiln__samples_even_out(both, 2);
  ck_assert_int_le(a.found.mad_ns, 2000);
  ck_assert_int_ge(a.found.lower_ns, a.found.median_ns - 2000);
  ck_assert_int_le(a.found.upper_ns, a.found.median_ns + 2000);
  ck_assert_int_ge(b.found.mad_ns, 100000);
  ck_assert_int_ge(b.found.upper_ns - b.found.lower_ns, 200000);
}
END_TEST

/* What all have in common goes, however long each ran; what is a candidate's own stays. */
START_TEST(a_common_pace_is_divided_out) {
  static const int64_t own[] = {0, 1000, -1000, 2000, -2000, 0, 500, -500, 0};
  kiln__samples all[5];
  kiln__samples *of[5];
  for (int i = 0; i < 5; i++) {
    all[i] = (kiln__samples){.count = 0};
    of[i] = &all[i];
    for (int round = 0; round < (i == 0 ? 9 : 5); round++) {
      const int64_t swing = round < 3 ? 100 : 110; /* per cent */
      kiln__samples_add(&all[i], (1000000 + 20000 * i + own[(round + 2 * i) % 9]) * swing / 100);
    }
  }
  kiln__samples_even_out(of, 5);
  for (int i = 1; i < 5; i++) {
    const double ratio = (double)all[i].found.median_ns / (double)all[0].found.median_ns;
    ck_assert_double_eq_tol(ratio, 1 + 0.02 * i, 0.004);
    ck_assert_int_le(all[i].found.mad_ns, 3000);
  }
}
END_TEST

/* Times that no kernel takes: a measurer may say anything. */
START_TEST(times_out_of_range_overflow_nothing) {
  kiln__samples a = {.count = 0}, b = {.count = 0};
  kiln__samples *const both[] = {&a, &b};
  for (int i = 0; i < 5; i++) {
    kiln__samples_add(&a, i == 2 ? 1 : 9000000000000000);
    kiln__samples_add(&b, i == 3 ? 9000000000000000 : 1);
  }
  kiln__samples_even_out(both, 2);
  ck_assert_int_ge(a.found.median_ns, 0);
  ck_assert_int_ge(b.found.mad_ns, 0);
}
END_TEST

Suite *suite_samples(void) {
  Suite *suite = suite_create("samples");
  TCase *tests = tcase_create("samples");
  tcase_add_test(tests, a_noisy_neighbour_costs_itself_alone);
  tcase_add_test(tests, a_common_pace_is_divided_out);
  tcase_add_test(tests, times_out_of_range_overflow_nothing);
  suite_add_tcase(suite, tests);
  return suite;
}

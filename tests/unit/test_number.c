/* fp16, bf16 and e4m3: every code, every midpoint between two codes, and what lies past the end. */
#include "number.h"
#include "suites.h"

#include <math.h>
#include <string.h>

/* The three formats seen alike, from their published definitions and not from number.c. */
typedef struct format {
  uint32_t (*encode)(double value);
  float (*decode)(uint32_t code);
  int exponent_bits, mantissa_bits;
  uint32_t largest;  /* the code of the largest finite value */
  uint32_t overflow; /* what rounds past it becomes: infinity, or e4m3's NaN */
  double largest_value;
} format;

static uint32_t encode_fp16(double value) { return kiln__fp16_encode(value); }
static uint32_t encode_bf16(double value) { return kiln__bf16_encode(value); }
static uint32_t encode_e4m3(double value) { return kiln__e4m3_encode(value); }
static float decode_fp16(uint32_t code) { return kiln__fp16_decode((uint16_t)code); }
static float decode_bf16(uint32_t code) { return kiln__bf16_decode((uint16_t)code); }
static float decode_e4m3(uint32_t code) { return kiln__e4m3_decode((uint8_t)code); }

static const format formats[] = {
    {encode_fp16, decode_fp16, 5, 10, 0x7bff, 0x7c00, 65504.0},
    {encode_bf16, decode_bf16, 8, 7, 0x7f7f, 0x7f80, 0x1.fep127},
    {encode_e4m3, decode_e4m3, 4, 3, 0x7e, 0x7f, 448.0},
};

enum { NUM_FORMATS = 3 };

static uint32_t sign_bit(const format *f) { return 1u << (f->exponent_bits + f->mantissa_bits); }

/* The definition: (1 + m/2^M) * 2^(e - bias), or m/2^M * 2^(1 - bias) where e is 0. */
static double value_of(const format *f, uint32_t code) {
  int mantissa = (int)(code & ((1u << f->mantissa_bits) - 1));
  int field = (int)(code >> f->mantissa_bits);
  int bias = (1 << (f->exponent_bits - 1)) - 1;
  if (field == 0) return ldexp(mantissa, 1 - bias - f->mantissa_bits);
  return ldexp(mantissa + (1 << f->mantissa_bits), field - bias - f->mantissa_bits);
}

START_TEST(finite_codes_round_trip) {
  const format *f = &formats[_i];
  ck_assert(value_of(f, f->largest) == f->largest_value);
  for (uint32_t code = 0; code <= f->largest; code++) {
    ck_assert(f->decode(code) == value_of(f, code));
    ck_assert(f->decode(code | sign_bit(f)) == -value_of(f, code));
    ck_assert(!signbit(f->decode(code)) && signbit(f->decode(code | sign_bit(f))));
    ck_assert_uint_eq(f->encode(f->decode(code)), code);
    ck_assert_uint_eq(f->encode(f->decode(code | sign_bit(f))), code | sign_bit(f));
  }
}
END_TEST

START_TEST(codes_past_the_largest) {
  const format *f = &formats[_i];
  for (uint32_t code = f->largest + 1; code < sign_bit(f); code++) {
    uint32_t negative = code | sign_bit(f);
    if (code == f->overflow && code != 0x7f) {
      ck_assert(isinf(f->decode(code)) && f->decode(code) > 0);
      ck_assert(isinf(f->decode(negative)) && f->decode(negative) < 0);
      ck_assert_uint_eq(f->encode(INFINITY), code);
      ck_assert_uint_eq(f->encode(-INFINITY), negative);
      continue;
    }
    ck_assert(isnan(f->decode(code)) && isnan(f->decode(negative)));
    ck_assert(isnan(f->decode(f->encode(f->decode(code)))));
    ck_assert(isnan(f->decode(f->encode(f->decode(negative)))));
    ck_assert_uint_eq(f->encode(f->decode(code)) & sign_bit(f), 0);
    ck_assert_uint_eq(f->encode(f->decode(negative)) & sign_bit(f), sign_bit(f));
  }
}
END_TEST

/* The middle of two neighbours goes to the even code, and the doubles next to it to their side.
 * Half of these doubles would round wrongly by way of float. */
START_TEST(midpoints_round_to_even) {
  const format *f = &formats[_i];
  for (uint32_t code = 0; code < f->largest; code++) {
    double middle = (value_of(f, code) + value_of(f, code + 1)) / 2;
    uint32_t even = code & 1 ? code + 1 : code;
    ck_assert_uint_eq(f->encode(middle), even);
    ck_assert_uint_eq(f->encode(-middle), even | sign_bit(f));
    ck_assert_uint_eq(f->encode(nextafter(middle, 0)), code);
    ck_assert_uint_eq(f->encode(nextafter(middle, INFINITY)), code + 1);
    ck_assert_uint_eq(f->encode(nextafter(-middle, -INFINITY)), (code + 1) | sign_bit(f));
  }
}
END_TEST

/* e4m3's largest code is even and its neighbour would be 480: 464 still rounds down. */
START_TEST(overflow_begins_at_half_a_step) {
  const format *f = &formats[_i];
  double step = value_of(f, f->largest) - value_of(f, f->largest - 1);
  double edge = f->largest_value + step / 2;
  ck_assert_uint_eq(f->encode(nextafter(edge, 0)), f->largest);
  ck_assert_uint_eq(f->encode(edge), f->largest & 1 ? f->overflow : f->largest);
  ck_assert_uint_eq(f->encode(nextafter(edge, INFINITY)), f->overflow);
  for (int i = 1; i < 2 << f->mantissa_bits; i++)
    ck_assert_uint_eq(f->encode(f->largest_value + i * step), f->overflow);
  ck_assert_uint_eq(f->encode(-1e300), f->overflow | sign_bit(f));
  ck_assert_uint_eq(f->encode(INFINITY), f->overflow);
}
END_TEST

START_TEST(tiny_doubles_become_signed_zero) {
  const format *f = &formats[_i];
  ck_assert_uint_eq(f->encode(0x1p-1074), 0);
  ck_assert_uint_eq(f->encode(-0x1p-1074), sign_bit(f));
  ck_assert_uint_eq(f->encode(0x1p-1022), 0);
  ck_assert_uint_eq(f->encode(-0.0), sign_bit(f));
}
END_TEST

/* A NaN whose payload lies in the bits that are cut off must not come out as infinity. */
START_TEST(nan_with_a_low_payload) {
  const format *f = &formats[_i];
  const uint64_t bits = UINT64_C(0xfff0000000000001);
  double value;
  memcpy(&value, &bits, sizeof value);
  ck_assert(isnan(f->decode(f->encode(value))));
  ck_assert_uint_eq(f->encode(value) & sign_bit(f), sign_bit(f));
}
END_TEST

START_TEST(known_values) {
  ck_assert_uint_eq(kiln__fp16_encode(1.0), 0x3c00);
  ck_assert_uint_eq(kiln__fp16_encode(1.0 / 3), 0x3555);
  ck_assert_uint_eq(kiln__bf16_encode(1.0), 0x3f80);
  ck_assert_uint_eq(kiln__bf16_encode(3.14159265358979), 0x4049);
  ck_assert_uint_eq(kiln__e4m3_encode(1.0), 0x38);
  ck_assert_uint_eq(kiln__e4m3_encode(0x1p-9), 0x01);
  ck_assert_uint_eq(kiln__e4m3_encode(-448.0), 0xfe);
}
END_TEST

Suite *suite_number(void) {
  Suite *suite = suite_create("number");
  TCase *cases = tcase_create("formats");
  tcase_set_timeout(cases, 60);
  tcase_add_loop_test(cases, finite_codes_round_trip, 0, NUM_FORMATS);
  tcase_add_loop_test(cases, codes_past_the_largest, 0, NUM_FORMATS);
  tcase_add_loop_test(cases, midpoints_round_to_even, 0, NUM_FORMATS);
  tcase_add_loop_test(cases, overflow_begins_at_half_a_step, 0, NUM_FORMATS);
  tcase_add_loop_test(cases, tiny_doubles_become_signed_zero, 0, NUM_FORMATS);
  tcase_add_loop_test(cases, nan_with_a_low_payload, 0, NUM_FORMATS);
  tcase_add_test(cases, known_values);
  suite_add_tcase(suite, cases);
  return suite;
}

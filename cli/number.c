/* Conversions between narrow floating-point codes and wider numbers; number.h states the rules.
 *
 * One rounding routine serves all three formats: integer arithmetic on the bits of a double, which
 * depends on neither the rounding mode nor the compiler's float flags. */
#include "number.h"

#include <stdbool.h>
#include <string.h>

typedef struct number_format {
  int exponent_bits, mantissa_bits;
  bool has_infinity; /* false: the exponent of all ones holds numbers, but for the last code */
  float smallest;    /* the least subnormal: one unit of mantissa at exponent field 0 */
} number_format;

static const number_format format_fp16 = {5, 10, true, 0x1p-24f};
static const number_format format_bf16 = {8, 7, true, 0x1p-133f};
static const number_format format_e4m3 = {4, 3, false, 0x1p-9f};

static uint64_t bits_of_double(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* significand / 2^shift, to nearest, ties to even. significand < 2^53, so from 54 on it is 0. */
static uint64_t shift_to_even(uint64_t significand, int shift) {
  if (shift >= 54) return 0;
  uint64_t quotient = significand >> shift;
  uint64_t rest = significand & ((UINT64_C(1) << shift) - 1);
  uint64_t half = UINT64_C(1) << (shift - 1);
  return quotient + (rest > half || (rest == half && (quotient & 1)));
}

/* The code without its sign. A carry out of the mantissa walks into the exponent field by itself:
 * the codes of one sign are ordered as their values are. */
static uint32_t encode_magnitude(uint64_t bits, const number_format *format) {
  const uint32_t all_ones = (1u << (format->exponent_bits + format->mantissa_bits)) - 1;
  const uint32_t mantissa_mask = (1u << format->mantissa_bits) - 1;
  const uint32_t infinity = all_ones & ~mantissa_mask;
  const uint32_t overflow = format->has_infinity ? infinity : all_ones;

  int field = (int)(bits >> 52 & 0x7ff);
  uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
  if (field == 0x7ff && fraction != 0) {
    uint32_t payload = (uint32_t)(fraction >> (52 - format->mantissa_bits));
    uint32_t quiet = 1u << (format->mantissa_bits - 1);
    return format->has_infinity ? infinity | quiet | payload : all_ones;
  }
  if (field == 0x7ff) return overflow;

  /* Field 0 needs no case of its own: such doubles lie so far below that the shift leaves 0. */
  int exponent = field - 1023;
  int least_exponent = 2 - (1 << (format->exponent_bits - 1));
  int below = exponent < least_exponent ? least_exponent - exponent : 0;
  uint64_t code = shift_to_even(fraction | UINT64_C(1) << 52, 52 - format->mantissa_bits + below);
  if (below == 0) code += (uint64_t)(exponent - least_exponent) << format->mantissa_bits;
  return code < overflow ? (uint32_t)code : overflow;
}

static uint32_t encode(double value, const number_format *format) {
  uint64_t bits = bits_of_double(value);
  uint32_t sign = (uint32_t)(bits >> 63) << (format->exponent_bits + format->mantissa_bits);
  return sign | encode_magnitude(bits & ~(UINT64_C(1) << 63), format);
}

static float decode(uint32_t code, const number_format *format) {
  const uint32_t field_ones = (1u << format->exponent_bits) - 1;
  const uint32_t mantissa_mask = (1u << format->mantissa_bits) - 1;
  uint32_t field = code >> format->mantissa_bits & field_ones;
  uint32_t mantissa = code & mantissa_mask;
  uint32_t sign = code >> (format->exponent_bits + format->mantissa_bits) & 1;

  if (field == 0) {
    float magnitude = (float)mantissa * format->smallest;
    return sign ? -magnitude : magnitude;
  }
  uint32_t bias = (1u << (format->exponent_bits - 1)) - 1;
  uint32_t float_field = field - bias + 127;
  if (field == field_ones && (format->has_infinity || mantissa == mantissa_mask)) float_field = 255;
  return float_of_bits(sign << 31 | float_field << 23 | mantissa << (23 - format->mantissa_bits));
}

uint16_t kiln__fp16_encode(double value) { return (uint16_t)encode(value, &format_fp16); }
uint16_t kiln__bf16_encode(double value) { return (uint16_t)encode(value, &format_bf16); }
uint8_t kiln__e4m3_encode(double value) { return (uint8_t)encode(value, &format_e4m3); }

float kiln__fp16_decode(uint16_t code) { return decode(code, &format_fp16); }
float kiln__bf16_decode(uint16_t code) { return decode(code, &format_bf16); }
float kiln__e4m3_decode(uint8_t code) { return decode(code, &format_e4m3); }

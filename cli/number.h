/* Narrow floating-point codes on the host: fp16, bf16 and fp8 e4m3 to and from wider numbers.
 *
 * Invariant: decoding is exact for every code, subnormals included; encoding rounds once, to
 * nearest even, straight from a double, so that f64 data never rounds twice by way of float (every
 * float is a double, so float callers lose nothing). A NaN stays a NaN and keeps its sign.
 *
 * e4m3 has no infinity: what rounds past 448, infinities included, becomes NaN. Saturating would
 * let data that was never scaled for fp8 pass for data that was.
 *
 * Called by tensor.c and by the verbs that make or compare device data. */
#ifndef KILN_CLI_NUMBER_H
#define KILN_CLI_NUMBER_H

#include <stdint.h>

uint16_t kiln__fp16_encode(double value);
uint16_t kiln__bf16_encode(double value);
uint8_t kiln__e4m3_encode(double value);

float kiln__fp16_decode(uint16_t code);
float kiln__bf16_decode(uint16_t code);
float kiln__e4m3_decode(uint8_t code);

#endif

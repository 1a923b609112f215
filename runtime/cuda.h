/* The GPU through the CUDA driver, as a device: runtime/cuda*.c. */
#ifndef KILN_RUNTIME_CUDA_H
#define KILN_RUNTIME_CUDA_H

#include "runtime/device.h"

extern const kiln__device_ops kiln__cuda_ops;

/* Appends one JSON object: driver version, minimum version, devices. Never fails. */
void kiln__cuda_report(kiln__text *json);

/* The arch string that a device of this compute capability runs best: "sm_90a" for 9.0; "" for one
 * that no kernel is made for. */
const char *kiln__arch_best(int major, int minor);

#endif

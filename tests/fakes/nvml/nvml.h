/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FAKES_NVML_NVML_H
#define TESTS_FAKES_NVML_NVML_H

/* From here on, a dlopen of NVML in this process finds the double. */
void nvml_stand_in(void);

#endif

/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FAKES_NVML_NVML_H
#define TESTS_FAKES_NVML_NVML_H

/* From here on, who asks for NVML in this process gets the stand-in. */
void nvml_stand_in(void);

#endif

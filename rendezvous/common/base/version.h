/* SPDX-License-Identifier: MIT */
#pragma once

/* The version that the programs report. The protocol has its own version (proto.h). */
#define CRUN_VERSION "1.0.0"

/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_COMMON_BASE_VERSION_H
#define RENDEZVOUS_COMMON_BASE_VERSION_H

/* The version that the programs report. The protocol has its own version (proto.h). */
#define CRUN_VERSION "1.0.0"

#endif

/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_BASE_VERSION_H
#define RENDEZVOUS_BASE_VERSION_H

/* What the programs say they are. The protocol has a version of its own (proto.h). */
#define CRUN_VERSION "0.1.0"

#endif

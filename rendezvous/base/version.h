/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_BASE_VERSION_H
#define RENDEZVOUS_BASE_VERSION_H

/* The version that the programs report. The protocol has its own version (proto.h). */
#define CRUN_VERSION "0.1.0"

/* The line of --version: the name it was called by, the version, and what it is. */
#define VERSION_LINE(what) "%s " CRUN_VERSION " (" what ")\n"

#endif

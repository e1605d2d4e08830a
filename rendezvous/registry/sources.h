/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_REGISTRY_SOURCES_H
#define RENDEZVOUS_REGISTRY_SOURCES_H

#include <stdint.h>

/*
 * Where jobs, nodes and events come from, so that one source cannot use all places. A
 * source is a host's address, or its network of 64 bits for IPv6, as a small number:
 * two hosts may share one, and its limits, so that memory stays bounded.
 */
#define SOURCES_MAX 4096
#define SOURCE_NONE 0 /* this process, which has no limits */

/* 1 to SOURCES_MAX, or SOURCE_NONE for the address "". */
uint32_t source_of(const char *address);

#endif

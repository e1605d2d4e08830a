/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/*
 * Where jobs, nodes and events come from, so that one source cannot use all places. A
 * source is a user of this machine, or the address of another host, for IPv6 its
 * network of 64 bits. It becomes a small number: two sources may share one, and its
 * limits, so that memory stays bounded.
 */
#define SOURCES_MAX 4096
#define SOURCE_NONE 0 /* this process, which has no limits */

/* 1 to SOURCES_MAX, or SOURCE_NONE for the address "". uid: of the user of this
 * machine, or PEER_UID_UNKNOWN. */
uint32_t source_of(const char *address, uid_t uid);

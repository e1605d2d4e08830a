/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The macros in a program's arguments: $local_rank, ${local_rank}, ${rank},
 * ${world_size}, ${local_world_size}, ${node_rank}, ${nnodes}, ${master_addr},
 * ${master_port}, ${free_port} and ${free_port:NAME}. A "$" before one of them protects
 * it, and is dropped. Pure.
 */

/* Config's argv with its macros replaced, for one worker: NULL-ended, in one allocation
 * that the caller frees. */
const char **macros_replace(const struct config *config, const struct msg_start *start,
                            uint32_t local_rank);

/* Fills in config->free_ports: the names of the ports in these arguments. */
int macros_find_ports(const char *const *arguments, struct config *config,
                      struct err *e) MUST_CHECK;

/* The port of a name in the text of START, "NAME=PORT NAME=PORT"; "": that without a
 * name. 0: it has none. */
uint32_t macros_port(const char *ports, const char *name);

/* The first macro of config's argv whose port START lacks, "${free_port:NAME}"; NULL:
 * it has all. */
const char *macros_lacking_port(const struct config *config,
                                const struct msg_start *start, char *buf, size_t size);

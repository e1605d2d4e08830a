/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_PREFIX_H
#define AGENT_LOGS_LOG_PREFIX_H

#include <stdint.h>

/*
 * What stands before each line of a worker: "[<role><local rank>]:", or what the
 * template says, in which ${role_name}, ${rank}, ${local_rank} and ${hostname}, with or
 * without braces, are replaced and $$ is a dollar. The caller frees.
 */
char *log_prefix_make(const char *template, const char *role, uint32_t rank,
                      uint32_t local_rank);

#endif

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * The prefix of each line of a worker: "[<role><local rank>]:", or the template with
 * ${role_name}, ${rank}, ${local_rank} and ${hostname} replaced (braces are optional),
 * and $$ by a dollar. The caller frees it. The console puts it before each line.
 */
char *log_prefix_make(const char *template, const char *role, uint32_t rank,
                      uint32_t local_rank);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/* The pattern of --progress-pattern: a POSIX extended regular expression in which \d is
 * a digit. Its first group is the number of a step. */
int step_pattern_compile(regex_t *regex, const char *pattern, struct err *e) MUST_CHECK;

/* False if the line does not match, or the group is no number. */
bool step_pattern_match(const regex_t *regex, const char *line, uint64_t *step);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include "rendezvous/common/base/err.h"

/* The checks that cJSON lacks. It takes control bytes for spaces, 01 and 1. for
 * numbers, \u0000 for the end of a text, any bytes for UTF-8, and descends a thousand
 * levels. This check comes before cJSON, allocates nothing, and covers single bytes,
 * strings and numbers; the structure is left to cJSON. */
int json_check(const char *text, size_t size, unsigned depth_max,
               struct err *e) MUST_CHECK;

/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_PROTOCOL_JSON_STRICT_H
#define RENDEZVOUS_PROTOCOL_JSON_STRICT_H

#include <stddef.h>

#include "rendezvous/base/err.h"

/*
 * What cJSON does not look at. It takes control bytes for spaces, 01 and 1. for
 * numbers, \u0000 for the end of a text, any bytes for UTF-8, and descends a thousand
 * levels. This goes over the text before cJSON does, without allocating anything, and
 * looks at single bytes, strings and numbers; how they stand together is cJSON's part.
 */
int json_check(const char *text, size_t size, unsigned depth_max,
               struct err *e) MUST_CHECK;

#endif

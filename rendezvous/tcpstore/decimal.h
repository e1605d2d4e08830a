/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/tcpstore/shared_buffer.h"

/* Numbers as the store keeps them: decimal text that any client may read or write. */
#define DECIMAL_SIZE 20 /* length of the longest, "-9223372036854775808" */

/*
 * Parses like C++'s std::stoll: blanks, a sign, digits; the rest is ignored. -1 if
 * there is no digit or the number has more than 64 bits.
 */
int decimal_parse(struct span text, int64_t *number, struct err *e) MUST_CHECK;

/* The text, which lies somewhere in buf. */
struct span decimal_format(int64_t number, uint8_t buf[DECIMAL_SIZE]);

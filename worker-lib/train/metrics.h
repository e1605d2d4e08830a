/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/err.h"

/* --metrics: one line of JSON about each pass, with --metrics-every about some steps,
 * and one about the end. */

/* Appends to the file, which is created; "%s" with "" tests whether it can be written.
 */
int metrics_append(const char *path, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))) MUST_CHECK;

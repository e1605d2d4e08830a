/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/common/base/err.h"

/* A request begins with its own size, this header included, and that of its answer. */
struct echo_head {
    uint32_t request_bytes, reply_bytes;
};

#define ECHO_BYTE 'e' /* all that an answer consists of */

/* Serves on 127.0.0.1 and prints the port on standard output.
 * Returns only with an error. */
int echo_serve(uint16_t port, struct err *e) MUST_CHECK;

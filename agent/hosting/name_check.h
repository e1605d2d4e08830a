/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"

struct resolver;

/*
 * Whether the other nodes can find this one: it hosts the rendezvous under a name that
 * it has taken for its own, although the name server did not say so. It is looked up
 * again until it means this machine; if that takes long, a warning says what it means.
 */
struct name_check {
    struct loop *loop; /* NULL: not begun, or at its end */
    char name[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;
    uint64_t warn_ms;
    struct loop_timer timer;
    struct resolver *resolver;
};

void name_check_begin(struct name_check *c, struct loop *loop, const char *name,
                      uint16_t port);
/* The job has formed, or this process ends. If it has not begun, it must be zeroed. */
void name_check_end(struct name_check *c);

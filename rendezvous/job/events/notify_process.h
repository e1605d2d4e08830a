/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/events/notify.h"

#define NOTIFY_LAST_MS 5000 /* that the end of the program may be delayed */

/* What the program sends. */
struct notify_packet {
    unsigned left_out; /* events before this one that did not fit */
    struct msg_event event;
};

/* The life of the process, until the program closes its end. */
void notify_process_run(const struct notify_config *c, int socket)
    __attribute__((noreturn));

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include "rendezvous/wire/protocol/limits.h"

/*
 * Ports of this host that are held for servers of rank 0's own, others in each epoch:
 * one without a name, and those that the program's arguments name. No other program
 * gets them; a server that sets SO_REUSEADDR does.
 */
struct held_ports {
    int fd[1 + FREE_PORTS_MAX];
    unsigned count;
};

/* Gives up the last epoch's after this one's are found, which so are others. Writes
 * "NAME=PORT" of each, separated by spaces; one that cannot be had is left out. */
void held_ports_renew(struct held_ports *h, const char names[][FREE_PORT_NAME_MAX + 1],
                      char *text, size_t size);
void held_ports_close(struct held_ports *h);

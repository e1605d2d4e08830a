/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

#include "agent/config.h"
#include "rendezvous/client/client.h"

/* The JOIN of a node. */

/* local: the rendezvous in this process, or NULL: the configuration has its address.
 * Draws a new incarnation. */
void join_request_fill(struct client_config *cc, const struct config *config,
                       struct server *local, const char *host, const char *containment);

/* This host's name, with _ for characters that no name may have, as in "(none)". */
void join_request_host_name(char *host, size_t size);

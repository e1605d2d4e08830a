/* SPDX-License-Identifier: MIT */
#ifndef AGENT_JOIN_REQUEST_H
#define AGENT_JOIN_REQUEST_H

#include <stddef.h>

#include "agent/config/config.h"
#include "rendezvous/client.h"

/* How a node presents itself to its rendezvous. */

/* local: the rendezvous is in this process; NULL: it is where the configuration says.
 * A new incarnation is drawn. */
void join_request_fill(struct client_config *cc, const struct config *config,
                       struct server *local, const char *host, const char *containment);

/* This host's name. It may be called anything, also "(none)"; what is no letter of a
 * name is a _. */
void join_request_name_host(char *host, size_t size);

/* Of a crun that the rendezvous does not take. */
int join_request_exit_code(enum refusal why);

#endif

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/config.h"
#include "agent/hosting/rendezvous_host.h"
#include "rendezvous/common/base/loop.h"

struct socket_relays;

/*
 * The host of the rendezvous ends last, after the other nodes have received the result,
 * or, if another node will host it, once those go on. A node that keeps its records
 * ends once the others can do without it. A crun that relays output to tools ends after
 * them, if they do not take too long. This is the agent's last act; it stops the loop
 * at its end.
 */
struct host_linger {
    const struct config *config;
    const struct rendezvous_host *host;
    struct loop *loop;
    struct loop_timer timer;
    uint64_t until_ms, relays_until_ms, keep_until_ms;
    const struct socket_relays *relays;
    bool until_job_ends; /* this node runs no workers, but hosts the rendezvous */
    bool has_left;       /* the job: it does not wait for nodes that are missing */
};

void host_linger_init(struct host_linger *l, struct loop *loop,
                      const struct config *config, const struct rendezvous_host *host);
/* relays: NULL if nothing is waited for there. */
void host_linger_begin(struct host_linger *l, const struct socket_relays *relays);
/* If it was not initialised, it must be zeroed. */
void host_linger_fini(struct host_linger *l);

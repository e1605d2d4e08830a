/* SPDX-License-Identifier: MIT */
#ifndef AGENT_HOST_LINGER_H
#define AGENT_HOST_LINGER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/config/config.h"
#include "agent/rendezvous_host.h"
#include "rendezvous/base/loop.h"

/*
 * The host of the rendezvous goes last: the other nodes are told the result first. The
 * agent's last act; at its end the loop is stopped.
 */
struct host_linger {
    const struct config *config;
    const struct rendezvous_host *hosting;
    struct loop *loop;
    struct loop_timer timer;
    uint64_t until_ms;
    bool serves_on; /* unfit for workers, but the host of the rendezvous */
};

void host_linger_init(struct host_linger *f, struct loop *loop,
                      const struct config *config,
                      const struct rendezvous_host *hosting);
void host_linger_begin(struct host_linger *f);
/* Where it never was initialised it must be zero. */
void host_linger_fini(struct host_linger *f);

#endif

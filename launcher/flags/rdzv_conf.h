/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * --rdzv-conf "KEY=VALUE,...": torchrun's keys and crun's own. Keys that only
 * torchrun's implementation needs are checked and have no effect. Other keys, such as
 * those of etcd, have none either, and are noted. 0 and NULL: not given.
 */
struct rdzv_conf {
    uint64_t join_timeout_ms, last_call_ms, timeout_ms;
    uint64_t lease_ms, outage_grace_ms;
    uint64_t keep_alive_interval_ms;
    long long keep_alive_attempts;
    bool last_call_given; /* it may be 0 */
    int is_host;          /* -1: not given */
    enum job_scale scale;
    uint32_t quarantine;
    uint32_t replicas; /* as in agent/config.h; 0: as many as the job can use */
    char witness[WITNESS_MAX_BYTES + 1]; /* a directory, HOST:PORT, or "" */
    bool alone;
    uint64_t unused_ms;
    char note[256]; /* a warning about keys that are not known, or "" */
};

extern const struct opt rdzv_conf_keys[]; /* one without a name ends it */

void rdzv_conf_init(struct rdzv_conf *c);

/* Sets the fields of c that text names. */
int rdzv_conf_parse(struct rdzv_conf *c, const char *text, struct err *e) MUST_CHECK;

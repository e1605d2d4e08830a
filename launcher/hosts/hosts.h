/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/opt.h"

/*
 * The hosts of a job that is started over ssh, in the order of their node ranks. One
 * parser takes the host files and lists of the launchers in use:
 *
 *   Open MPI, PRRTE      node1 slots=8 max_slots=16      -H a:8,b:8
 *   DeepSpeed, Horovod   node1 slots=8
 *   MPICH, Intel MPI     node1:8
 *   pdsh, Slurm          gpu[01-16,20]:8
 *   PBS                  node1, once for each process
 *   LSF                  node1 8 node2 8
 *   SGE                  node1 8 all.q@node1 UNDEFINED
 *
 * A name may have a user before it (me@node1). An IPv6 address stands in brackets if
 * slots follow it: [fd00::1]:8.
 */
#define HOSTS_SLOTS_MAX 4096

struct host {
    char *name;     /* "user@node1", as ssh takes it: an IPv6 address has no brackets */
    uint32_t slots; /* 0: not said */
};

struct hosts {
    struct host *host;
    size_t count;
};

/* The flags that name hosts. NULL: not given. */
struct hosts_wanted {
    struct opt_texts lists; /* -H, --hosts; "^FILE" is a host file */
    const char *file;       /* --hostfile: a path, "-" is stdin, "auto" looks for one */
};

bool hosts_are_wanted(const struct hosts_wanted *w);

/*
 * Adds the hosts of a text to h. `from` begins each message: after "--hostfile F:"
 * follows the number of the line ("--hostfile F:3: ..."), after "-H" follows none.
 */
int hosts_parse(const char *text, const char *from, struct hosts *h,
                struct err *e) MUST_CHECK;

/* All that the flags name, in order. */
int hosts_read(const struct hosts_wanted *w, struct hosts *h, struct err *e) MUST_CHECK;

/*
 * Decides the workers of each host, which become its slots; 0 stays where
 * --nproc-per-node decides on the host. total: the number of processes of -np, or 0.
 * They fill the slots in order; hosts without slots share them evenly. Hosts that get
 * no process are dropped. per_node: the value of --nproc-per-node, which overrides the
 * slots; 0: not given; HOSTS_PER_NODE_AUTO: a word, as in gpu.
 */
#define HOSTS_PER_NODE_AUTO UINT32_MAX
int hosts_share_workers(struct hosts *h, uint32_t total, uint32_t per_node,
                        struct err *e) MUST_CHECK;

void hosts_clear(struct hosts *h);

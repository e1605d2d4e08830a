/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "launcher/hosts/hosts.h"
#include "rendezvous/common/base/err.h"

/*
 * The launcher of a job on several hosts: starts a far side on each, collects what they
 * say, and is to a user what crun is on one node. All hosts answer first; then their
 * node ranks are decided, in the order of the list, and the job starts.
 */
struct remote_job {
    const struct hosts *hosts;         /* slots 0: workers as the flags say */
    size_t count;                      /* of them, the first ones */
    const struct hosts_wanted *wanted; /* where the list is from */
    bool ignores_slots;                /* of hosts that come later */
    uint32_t min_nodes, max_nodes;     /* max_nodes 0: those that there are */
    char *const *argv;                 /* of this process */
    char *const *environment;          /* the variables that travel */
    const char *folder;
    const char *run_id;   /* NULL: a new one */
    const char *program;  /* NULL: none */
    const char *rsh;      /* NULL: ssh */
    const char *ssh_args; /* in addition; NULL: none */
    bool host_prefix;     /* of each line */
    bool detach;
    uint32_t grace_ms; /* that workers have when a job is ended */
    bool reads_stdin;  /* local rank 0 of node rank 0 does */
};

/* The exit code. */
int remote_run(const struct remote_job *job);

/* What would be started where: --dry-run. */
int remote_print(const struct remote_job *job, FILE *out, struct err *e) MUST_CHECK;

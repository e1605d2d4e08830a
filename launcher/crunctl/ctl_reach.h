/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_CRUNCTL_CTL_REACH_H
#define LAUNCHER_CRUNCTL_CTL_REACH_H

#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/*
 * The way to a job that runs on another machine, or has run there: by ssh, or what its
 * launcher was told to use, with the command that the job's far side has left
 * (far_reach.h).
 */
struct ctl_reach {
    int fd;   /* a stream; -1: none */
    int said; /* a file with what ssh says */
};

enum ctl_reach_answer {
    CTL_REACH_RUNS,    /* r->fd is a connection to its crun */
    CTL_REACH_ENDED,   /* *record is the record of its end, to be freed */
    CTL_REACH_GONE,    /* its crun was killed */
    CTL_REACH_UNKNOWN, /* why is in e */
};

/* Two parts, so that several jobs are asked side by side. NULL for what there is not.
 */
void ctl_reach_start(struct ctl_reach *r, const char *rsh, const char *ssh_args,
                     const char *host, const char *command);
enum ctl_reach_answer ctl_reach_await(struct ctl_reach *r, uint64_t until_ms,
                                      char **record, struct err *e);

#endif

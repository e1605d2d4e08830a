/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_HOSTS_HOST_DISCOVERY_H
#define LAUNCHER_HOSTS_HOST_DISCOVERY_H

#include <sys/types.h>

#include "rendezvous/common/base/err.h"

/*
 * The program of --host-discovery, as in Horovod: a command of the shell that prints a
 * host file.
 */
struct host_discovery {
    pid_t pid; /* 0: it does not run */
    int fd;    /* its standard output */
    char *text;
    size_t size, used;
};

int host_discovery_start(struct host_discovery *d, const char *command,
                         struct err *e) MUST_CHECK;
/* Reads what there is. 1: it has ended, and *text is what it has printed, to be freed;
 * 0: it has not; -1: it has failed. */
int host_discovery_read(struct host_discovery *d, char **text,
                        struct err *e) MUST_CHECK;
/* Ends it if it runs. */
void host_discovery_stop(struct host_discovery *d);

/* All at once; the text is the caller's. */
int host_discovery_run(const char *command, char **text, struct err *e) MUST_CHECK;

#endif

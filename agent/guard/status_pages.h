/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GUARD_STATUS_PAGES_H
#define AGENT_GUARD_STATUS_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct progress_page;

/*
 * The status pages of a guard's workers: memfds of a fixed size that the agent maps and
 * the guard holds, at descriptors that are known beforehand. A worker opens its own as
 * /proc/<guard>/fd/<n>: nothing is inherited, nothing has a name that could be left
 * behind, and all are gone with the guard. Zeroed memory is all pages none.
 */
struct status_pages {
    uint32_t count;
    int first; /* the descriptor of the first one in the guard */
    int *fd;   /* ours, until they are the guard's */
    struct progress_page **page;
};

/* All, or none, where the system has not the means: workers do without, then. */
void status_pages_make(struct status_pages *p, uint32_t count, int first);
void status_pages_fini(struct status_pages *p);

/* In the child that becomes the guard: put them where they are to be, to stay open. Any
 * other descriptor from status_pages_end on is free, and none below it is needed. */
void status_pages_place(const struct status_pages *p);
int status_pages_end(const struct status_pages *p);

/* The guard has them: give up ours. Where its workers could not open them there are
 * none from here on. */
void status_pages_given(struct status_pages *p, pid_t guard);

/* Nobody maps it but us: zeros, and what says that it is a page. */
void status_pages_clear(const struct status_pages *p, uint32_t index);

/* What a worker is to open; "" if there is none. Returns buf. */
char *status_pages_path(const struct status_pages *p, pid_t guard, uint32_t index,
                        char *buf, size_t size);

#endif

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct progress_page;
struct progress_store;

/*
 * The status pages of a guard's workers: memfds of a fixed size that the agent maps and
 * the guard holds, at descriptor numbers that are known in advance. A worker opens its
 * own as /proc/<guard>/fd/<n>: nothing is inherited, no name can be left behind, and
 * all end with the guard. Zeroed memory means no pages.
 */
struct status_pages {
    uint32_t count;
    int first; /* the descriptor of the first one in the guard */
    int *fd;   /* the agent's, until status_pages_hand_over */
    struct progress_page **page;
    struct progress_store *store; /* in each page from its next start on; or NULL */
};

/* Makes all pages or, if the system cannot, none: workers then run without them. */
void status_pages_make(struct status_pages *p, uint32_t count, int first);
void status_pages_fini(struct status_pages *p);

/* In the child that becomes the guard: moves them to their numbers, where they stay
 * open. The guard uses no descriptor from status_pages_end on. */
void status_pages_place(const struct status_pages *p);
int status_pages_end(const struct status_pages *p);

/* The guard has its descriptors: closes the agent's. If workers could not open the
 * pages, there are none from here on. */
void status_pages_hand_over(struct status_pages *p, pid_t guard);

/* What the pages of workers that start from now on say of the store; NULL: nothing. */
void status_pages_set_store(struct status_pages *p, const struct progress_store *store);

/* Resets a page that no worker maps: magic, version, the store, and zeros. */
void status_pages_clear(const struct status_pages *p, uint32_t index);

/* Whether its worker says that it writes a checkpoint. */
bool status_pages_saves(const struct status_pages *p, uint32_t index);

/* Whether SIGTERM only has its worker wait for a checkpoint of all ranks. */
bool status_pages_saves_together(const struct status_pages *p, uint32_t index);

/* The path that a worker opens; "" if there is none. Returns buf. */
char *status_pages_path(const struct status_pages *p, pid_t guard, uint32_t index,
                        char *buf, size_t size);

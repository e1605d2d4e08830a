/* SPDX-License-Identifier: MIT */
#ifndef AGENT_PROGRESS_PAGE_READER_H
#define AGENT_PROGRESS_PAGE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/base/progress_page.h"

/*
 * One worker's status page, as it was read last. A page is written by a program of the
 * user's: nothing in it is believed but that it has changed. Zero-initialise.
 */
struct page_values {
    bool written; /* the worker has written here, ever */
    enum progress_phase phase;
    uint64_t step, steps, samples;
    double loss; /* NaN: none */
    uint32_t saved;
    uint32_t writing; /* as it stood, odd or not */
};

/* Read it again. True if anything has changed since. One that is in the middle of being
 * written keeps what it had. */
bool page_reader_read(struct page_values *p, const struct progress_page *page);

/* "training"; "running" where nothing was said. */
const char *progress_phase_name(enum progress_phase phase);

/* A phase that may take as long as many steps. */
bool progress_phase_is_long(enum progress_phase phase);

#endif

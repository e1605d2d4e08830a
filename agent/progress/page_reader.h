/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/progress_page.h"

/*
 * One worker's status page as last read. The user's program writes it, so only the fact
 * that it has changed is trusted. Zero-initialise.
 */
struct page_values {
    bool written; /* the worker has written to the page */
    bool raised, ends, loss_is_nan;
    bool watched; /* it is --watch that does, not the program */
    enum progress_phase phase;
    uint64_t step, steps, samples;
    uint64_t first_step; /* 0: not told */
    double loss;         /* NaN: none, unless loss_is_nan */
    uint32_t saved, checkpoints;
    uint32_t writing; /* the raw counter, odd or not */
};

/* Reads the page again. True if anything has changed since. A page that is being
 * written keeps its old values. */
bool page_reader_read(struct page_values *p, const struct progress_page *page);

/* "training"; "running" if none was reported. */
const char *progress_phase_name(enum progress_phase phase);

/* Whether the phase may take as long as many steps. */
bool progress_phase_is_long(enum progress_phase phase);

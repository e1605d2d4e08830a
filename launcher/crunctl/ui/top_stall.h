/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/show/views/job_view.h"

/*
 * Whether a job makes no steps for longer than is usual for it, seen from outside: by
 * the steps of several looks, at first the rate that a node tells, and by what its
 * nodes say of their silence. Pure; zero-initialise.
 */
struct top_stall {
    uint64_t epoch, step, moved_ms;
    uint64_t pace_ms; /* the longest time between two looks that saw a step */
    bool has_moved;
};

/* A look at the job. Returns for how long it makes no steps, 0: not suspiciously long.
 */
uint64_t top_stall_note(struct top_stall *s, const struct job_view *job,
                        uint64_t now_ms);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct histogram;
struct job_owner;
struct registry;

/*
 * The jobs of a rendezvous as metrics, in the text format 0.0.4 of Prometheus. The
 * table in metrics_table.c names them. Labels are bounded: hosts, run ids and fixed
 * words; no pid, no text of an error and nothing that a program prints is in them. A
 * job that has ended is shown for METRICS_ENDED_SHOWN_MS, so that its end is seen, and
 * then no more.
 */
struct metrics_view {
    struct registry *registry; /* the sums that must never fall are kept in its jobs */
    const struct job_owner *viewer; /* only jobs that exist for it; NULL: all */
    uint64_t now_ms, wall_ms;
    bool is_daemon; /* a crund: it tells of itself too */
    unsigned connections;
    const struct histogram *commits; /* of METRICS_COMMIT_UNIT_US */
};

#define METRICS_COMMIT_UNIT_US 100

void metrics_write(const struct metrics_view *view, FILE *out);
#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

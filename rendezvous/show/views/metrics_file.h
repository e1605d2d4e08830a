/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/show/views/metrics.h"

struct loop;
struct metrics_file;

/*
 * The metrics in a file for node_exporter's textfile collector, as of every
 * METRICS_FILE_MS and of the end. A reader sees the whole old or the whole new file: it
 * is written beside, and renamed. If that fails there is one warning, until it works
 * again.
 */
struct metrics_file *
metrics_file_start(struct loop *loop, const char *path,
                   void (*view)(void *arg, struct metrics_view *view), void *arg);
/* Writes it once more. NULL is fine. */
void metrics_file_end(struct metrics_file *f);

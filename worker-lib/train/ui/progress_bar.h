/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_UI_PROGRESS_BAR_H
#define WORKER_LIB_TRAIN_UI_PROGRESS_BAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What a person sees of the training, on standard output: lines, and below them, on a
 * terminal, a bar that moves. Elsewhere the bar is a line every ten seconds.
 */
struct progress_bar;

struct progress {
    uint64_t pass, passes;
    double part; /* of the pass */
    double loss, accuracy, samples_per_s, left_s;
};

/* One that shows nothing, for all ranks but the first. */
struct progress_bar *progress_bar_create(bool shown);
void progress_bar_destroy(struct progress_bar *s); /* NULL is fine */

void progress_bar_line(struct progress_bar *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void progress_bar_progress(struct progress_bar *s, const struct progress *p);

/* "1,199,882". Returns text. */
char *progress_bar_number(uint64_t n, char *text, size_t size);
/* "0:04", "1:02:03". Returns text. */
char *progress_bar_time(double seconds, char *text, size_t size);

#endif

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
struct screen;

struct progress {
    uint64_t pass, passes;
    double part; /* of the pass */
    double loss, accuracy, samples_per_s, left_s;
};

/* One that shows nothing, for all ranks but the first. */
struct screen *screen_create(bool shown);
void screen_destroy(struct screen *s); /* NULL is fine */

void screen_line(struct screen *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void screen_progress(struct screen *s, const struct progress *p);

/* "1,199,882". Returns text. */
char *screen_number(uint64_t n, char *text, size_t size);
/* "0:04", "1:02:03". Returns text. */
char *screen_time(double seconds, char *text, size_t size);

#endif

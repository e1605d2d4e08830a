/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_UI_PROGRESS_BAR_H
#define WORKER_LIB_TRAIN_UI_PROGRESS_BAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The training's standard output: lines, and on a terminal a progress bar below them.
 * Without a terminal, the progress is a line every ten seconds.
 */
struct progress_bar;

struct pass_progress {
    uint64_t pass, passes;
    double part; /* of the pass, from 0 to 1 */
    double loss, accuracy, samples_per_s, left_s;
};

/* shown false: prints nothing, for all ranks but rank 0. */
struct progress_bar *progress_bar_create(bool shown);
void progress_bar_destroy(struct progress_bar *s); /* NULL is fine */

void progress_bar_print_line(struct progress_bar *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void progress_bar_update(struct progress_bar *s, const struct pass_progress *p);

/* "1,199,882". Returns text. */
char *format_number(uint64_t n, char *text, size_t size);
/* "0:04", "1:02:03". Returns text. */
char *format_duration(double seconds, char *text, size_t size);

#endif

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The training's standard output: lines, and on a terminal a progress bar below them.
 * Without a terminal, the progress is a line every ten seconds.
 */
struct pass_progress {
    uint64_t pass, passes;
    double part; /* of the pass, from 0 to 1 */
    double loss, accuracy, samples_per_s, left_s;
};

/* Only rank 0 calls it: for the others nothing is printed. */
void progress_bar_open(void);
void progress_bar_close(void);

void progress_bar_print_line(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
void progress_bar_update(const struct pass_progress *p);

/* "1,199,882". Returns text. */
char *format_number(uint64_t n, char *text, size_t size);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "rendezvous/common/base/histogram.h"
#include "rendezvous/show/views/metrics.h"

/*
 * The text of one family of metrics after another. Where there are many samples it is
 * put together without stdio, and written in large pieces.
 */
enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_INFO, METRIC_HISTOGRAM };

struct sample_writer {
    FILE *out;
    char buf[8192]; /* for out */
    size_t used;
    /* of the family */
    const char *name;
    enum metric_type type;
    const char *label;  /* of the words of samples, or NULL */
    const char *labels; /* of the next samples: `run_id="a"`, or "" */
};

void sample_begin_family(struct sample_writer *w, const char *name,
                         enum metric_type type, const char *help);
void sample_end(struct sample_writer *w); /* after all families */

/* word: of the family's label; NULL: none. */
void sample_put(struct sample_writer *w, const char *word, uint64_t value);
void sample_put_ms(struct sample_writer *w, const char *word,
                   uint64_t ms); /* in seconds */
void sample_put_real(struct sample_writer *w, double value);
/* `more` labels with the value 1. */
void sample_put_info(struct sample_writer *w, const char *more);
void sample_put_histogram(struct sample_writer *w, const struct histogram *h,
                          uint64_t unit_us);

/* Appends `name="value"`, escaped, and a comma before it if there is something already.
 * Returns the new length of buf; what does not fit is left out. */
size_t sample_add_label(char *buf, size_t size, const char *name, const char *value);

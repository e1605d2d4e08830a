/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/guard/status_pages.h"
#include "agent/progress/hang.h"

/* The checkpoints of this node's workers: when and for how long they are written, and
 * those that are asked for. Zero-initialise. */
struct checkpoints {
    uint32_t requests; /* of this epoch */
    uint64_t saving_since_ms, longest_ms;
    uint64_t saved_at_ms; /* the newest of any epoch; 0: none was seen */
};

/* What one reading of a page says, after another one. */
void checkpoints_note(struct checkpoints *c, const struct page_values *before,
                      const struct hang_observation *s);
/* The same of all pages. */
void checkpoints_time(struct checkpoints *c, const struct hang_observation *s,
                      uint32_t count);

/* -- checkpoint_request.c ---------------------------------------------------------- */

/* Asks for one on each page. */
void checkpoints_request(struct checkpoints *c, const struct status_pages *pages,
                         uint32_t within_ms);
/* Of the last request. any_page: some worker writes its page. */
bool checkpoints_are_written(const struct checkpoints *c,
                             const struct hang_observation *s, uint32_t count,
                             bool any_page);

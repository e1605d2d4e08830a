/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker-lib/crun/worker.h"

/* The status page that this rank shares with its agent, if it has one. */
struct progress;

struct progress *progress_open(void); /* NULL: there is none, or no memory */
void progress_close(struct progress *p);

/* NULL is fine in all of them. Any thread. */
void progress_write(struct progress *p, crun_phase phase, uint64_t step, uint64_t steps,
                    uint64_t samples, double loss);
bool progress_save_wanted(struct progress *p, uint32_t *within_ms);
void progress_saved(struct progress *p);
/* A checkpoint is being written beside the training, or is no more; several may be. */
void progress_set_saves(struct progress *p, bool saves);
/* Where the page says what operation this rank is in: PROGRESS_WHERE_BYTES, or NULL. */
char *progress_where(struct progress *p);

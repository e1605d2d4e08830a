/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_CHECKPOINT_CHECKPOINT_DIR_H
#define WORKER_LIB_CHECKPOINT_CHECKPOINT_DIR_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/base/err.h"
#include "worker-lib/crun/worker.h"

/*
 * A directory of checkpoints, by the names in it:
 *
 *   generation-7                                   the lives that have claimed it
 *   checkpoint-g7-s001200-1of4.safetensors         generation, step, part of how many
 *   checkpoint-g7-s001200-1of4.safetensors.new     being written
 *
 * A checkpoint is there when all its parts are; each comes by a rename of its own, so
 * nobody waits for anybody. Generations order before steps: what an older life writes
 * late is never newer than what a newer one has written.
 */
struct checkpoint_set {
    uint64_t generation, step;
    unsigned parts; /* it consists of */
    unsigned there; /* of them */
};

#define CHECKPOINT_NAME_MAX 128

/* "checkpoint-g7-s001200-1of4.safetensors"; part counts from 1. Returns buf. */
char *checkpoint_name(const struct checkpoint_set *set, unsigned part, char *buf);
bool checkpoint_parse(const char *name, struct checkpoint_set *set, unsigned *part);

/* Makes the directory, and its parents, where they are missing. */
crun_status checkpoint_dir_claim(const char *dir, uint64_t *generation, struct err *e);
/* Whether a newer life has claimed it; then its words are in e. */
bool checkpoint_dir_is_stale(const char *dir, uint64_t generation, struct err *e);

/* All that are whole, newest first; *sets is to be freed. */
crun_status checkpoint_dir_list(const char *dir, struct checkpoint_set **sets,
                                size_t *count, struct err *e);
/* Remove what is older than the newest `keep` whole ones, and what older generations
 * began to write. */
void checkpoint_dir_prune(const char *dir, uint64_t generation, unsigned keep);

#endif

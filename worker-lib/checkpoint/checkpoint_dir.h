/* SPDX-License-Identifier: MIT */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/id128.h"
#include "worker-lib/crun/worker.h"

/*
 * A directory of checkpoints. Its names are:
 *
 *   generation-7                        claimed by the job's current start
 *   checkpoint-g7.000012-s001200-1of4.safetensors
 *                                       generation, save, step, part, parts
 *   checkpoint-g7.000012-s001200-1of4.safetensors.1f2e3d4c.new
 *                                       being written
 *
 * A checkpoint is complete when all its parts exist. Each part appears by a separate
 * rename (checkpoint_copy.c), so ranks do not wait for each other. Checkpoints are
 * ordered by generation first, then by the number of the save: a late write of an
 * earlier start is never newer than a checkpoint of a later start, and a program that
 * goes back to an earlier step may save it again. Earlier versions did not number the
 * saves, "checkpoint-g7-s001200-1of4.safetensors"; they count as 0, in the order of
 * their steps.
 */
struct checkpoint_set {
    uint64_t generation, save, step;
    unsigned parts;   /* of the complete checkpoint */
    unsigned present; /* parts in the directory */
};

#define CHECKPOINT_NAME_MAX 128
#define CHECKPOINTS_KEPT_DEFAULT 3

/* "checkpoint-g7.000012-s001200-1of4.safetensors"; part counts from 1. Returns buf. */
char *checkpoint_name(const struct checkpoint_set *set, unsigned part, char *buf);
/* "....safetensors.1f2e3d4c.new": what it is written as, a name that no other process
 * can foresee. Returns buf. */
char *checkpoint_new_name(const char *name, char *buf);
bool checkpoint_parse(const char *name, struct checkpoint_set *set, unsigned *part);

/* What one start of a job has claimed. The id is in its file: a number may be claimed
 * in several folders of the same name, on different machines. */
struct checkpoint_claim {
    uint64_t generation;
    char id[ID128_HEX_SIZE];
};

/* Creates the directory and its parents if they are missing. */
crun_status checkpoint_dir_claim(const char *dir, struct checkpoint_claim *claim,
                                 struct err *e);
/* Whether this is the directory in which the claim was made, perhaps by another
 * machine: then its file may appear late. */
bool checkpoint_dir_is_claimed(const char *dir, const struct checkpoint_claim *claim);
/* Whether a newer start of the job has claimed the directory; then *e is set. */
bool checkpoint_dir_is_stale(const char *dir, const struct checkpoint_claim *claim,
                             struct err *e);

/* All checkpoints, complete or not, newest first. The caller frees *sets. */
crun_status checkpoint_dir_list(const char *dir, struct checkpoint_set **sets,
                                size_t *count, struct err *e);
/* Whether it may be loaded. */
bool checkpoint_set_is_complete(const struct checkpoint_set *set);
/* Removes checkpoints older than the newest `keep` complete ones, and unfinished files
 * of older generations. */
void checkpoint_dir_prune(const char *dir, uint64_t generation, unsigned keep);

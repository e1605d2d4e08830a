/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_CHECKPOINT_CHECKPOINT_FILE_H
#define WORKER_LIB_CHECKPOINT_CHECKPOINT_FILE_H

#include "worker-lib/checkpoint/checkpoint_dir.h"
#include "worker-lib/training/train_state.h"
#include "worker-lib/checkpoint/tensors.h"

/*
 * Writing: a copy of one rank's part of the training's state, so that the training can
 * continue while it is written. Reading: a complete checkpoint, written by any number
 * of ranks.
 */
struct checkpoint_facts {
    uint64_t step;
    crun_sampler_state sampler;
    struct optim_scalars optim;
};

struct checkpoint_copy;

/* With `whole` the copy has all parts, else only the parts that no rank has entirely.
 * NULL: no memory. */
struct checkpoint_copy *checkpoint_copy_take(const struct checkpoint_facts *facts,
                                             const crun_extra *extra, size_t extras,
                                             const struct state_part *part,
                                             unsigned parts, bool whole);
void checkpoint_copy_free(struct checkpoint_copy *copy);

/* Whether this rank has only ranges of some part. */
bool checkpoint_is_sharded(const struct state_part *part, unsigned parts);

/* Writes a temporary file, syncs it, renames it, and syncs the directory. */
crun_status checkpoint_copy_write(const struct checkpoint_copy *copy, const char *dir,
                                  const struct checkpoint_set *set, unsigned part,
                                  struct err *e);

struct checkpoint_source;

/* `path` is its first part. CRUN_CORRUPT: a part is damaged; CRUN_NOT_FOUND. */
crun_status checkpoint_source_open(struct checkpoint_source **s, const char *path,
                                   struct err *e);
void checkpoint_source_close(struct checkpoint_source *s); /* NULL is fine */

void checkpoint_source_facts(const struct checkpoint_source *s,
                             struct checkpoint_facts *facts, crun_extra *extra,
                             size_t extras);
/* CRUN_MISMATCH if it is from a training with different parts. */
crun_status checkpoint_source_fits(const struct checkpoint_source *s,
                                   const struct state_part *part, unsigned parts,
                                   struct err *e);
/* Copies elements [begin, begin + count) of a part that fits. */
void checkpoint_source_read(const struct checkpoint_source *s,
                            const struct state_part *part, size_t begin, size_t count,
                            void *out);

#endif

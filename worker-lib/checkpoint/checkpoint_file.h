/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_CHECKPOINT_CHECKPOINT_FILE_H
#define WORKER_LIB_CHECKPOINT_CHECKPOINT_FILE_H

#include "worker-lib/checkpoint/checkpoint_dir.h"
#include "worker-lib/training/train_state.h"
#include "worker-lib/checkpoint/tensors.h"

/*
 * What one rank writes of a checkpoint: a copy of its part of the training's state, so
 * that the training goes on while it is written; and a whole checkpoint, opened to be
 * read by pieces, however many ranks wrote it.
 */
struct checkpoint_facts {
    uint64_t step;
    crun_sampler_state sampler;
    struct optim_scalars optim;
};

struct checkpoint_copy;

/* NULL: no memory. With `whole` everything is in it, else only what is this rank's
 * alone. */
struct checkpoint_copy *checkpoint_copy_take(const struct checkpoint_facts *facts,
                                             const crun_extra *extra, size_t extras,
                                             const struct state_part *part,
                                             unsigned parts, bool whole);
void checkpoint_copy_free(struct checkpoint_copy *copy);

/* Whether some of this is held by other ranks too few to be written by one. */
bool checkpoint_is_sharded(const struct state_part *part, unsigned parts);

/* Temporary file, sync, rename, sync of the directory. */
crun_status checkpoint_copy_write(const struct checkpoint_copy *copy, const char *dir,
                                  const struct checkpoint_set *set, unsigned part,
                                  struct err *e);

struct checkpoint_source;

/* `path` is its first part. CRUN_CORRUPT: it is not to be used; CRUN_NOT_FOUND. */
crun_status checkpoint_source_open(struct checkpoint_source **s, const char *path,
                                   struct err *e);
void checkpoint_source_close(struct checkpoint_source *s); /* NULL is fine */

void checkpoint_source_facts(const struct checkpoint_source *s,
                             struct checkpoint_facts *facts, crun_extra *extra,
                             size_t extras);
/* CRUN_MISMATCH if it is not of a training with these parts. */
crun_status checkpoint_source_fits(const struct checkpoint_source *s,
                                   const struct state_part *part, unsigned parts,
                                   struct err *e);
/* Elements [begin, begin + count) of a part that fits. */
void checkpoint_source_read(const struct checkpoint_source *s,
                            const struct state_part *part, size_t begin, size_t count,
                            void *out);

#endif

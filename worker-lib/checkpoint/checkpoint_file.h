/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/checkpoint/checkpoint_dir.h"
#include "worker-lib/checkpoint/memory_client.h"
#include "worker-lib/checkpoint/tensors.h"
#include "worker-lib/training/train_state.h"

/* The encoding of sections in memory. */
#define CHECKPOINT_KIND "crun-worker 1"
/* A name in a file: of a part, and where a range begins. */
#define CHECKPOINT_ITEM_MAX (STATE_NAME_MAX + 24)

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

/* What a rank copies. */
struct checkpoint_content {
    uint64_t step;
    crun_sampler_state sampler;
    const struct optim_scalars *optim; /* in the memory of ddp_device(); or NULL */
    const crun_extra *extra;
    size_t extras;
    const struct state_part *part;
    unsigned parts;
    bool whole; /* all parts, else only those that no rank has entirely */
    /* Not for a file but for a section in memory, and not copied twice: the optimizer's
     * state, if it is divided, is each rank's own, and all else is shared. */
    enum { FOR_FILE, FOR_SHARED, FOR_OWN } use;
    bool divided; /* FOR_SHARED, FOR_OWN */
};

/* The memory of copies. For copies from a GPU it is pinned, and pinning takes long, so
 * it is kept for the next copy. */
struct checkpoint_memory {
    const struct device_ops *ops; /* NULL: there is none yet */
    void *data;
    size_t size;
    struct device_note *note; /* the optimizer's scalars, which arrive after the data */
};
void checkpoint_memory_free(struct checkpoint_memory *memory);

struct checkpoint_copy;

/* Queues the copy, which needs the memory until it is freed. */
crun_status checkpoint_copy_take(struct checkpoint_copy **copy,
                                 const struct checkpoint_content *content,
                                 const struct state_queues *queues,
                                 struct checkpoint_memory *memory);
void checkpoint_copy_free(struct checkpoint_copy *copy);

/* Whether this rank has only ranges of some part. */
bool checkpoint_is_sharded(const struct state_part *part, unsigned parts);

/* Where a copy is written. */
struct checkpoint_target {
    crun_world *world;
    const char *dir;
    const struct checkpoint_claim *claim; /* a newer one forbids it */
    struct checkpoint_set set;
    unsigned part;
};

/* Waits for the copy, and writes it. The values of a GPU are written only if the world
 * was whole when they had arrived. */
crun_status checkpoint_copy_write(struct checkpoint_copy *copy,
                                  const struct checkpoint_target *to, struct err *e);
/* Writes a temporary file, syncs it, renames it, and syncs the directory. */
crun_status checkpoint_target_write(const struct checkpoint_target *to,
                                    const struct tensors_word *word, unsigned words,
                                    const struct tensors_item *item, unsigned items,
                                    struct err *e);

/* A section in memory: the bytes of a file without its checksum. */
struct checkpoint_section {
    uint8_t *front;
    struct crun_memory_piece *piece;
    size_t pieces;
    uint64_t bytes;
};
/* Waits for the copy, whose data the section needs. `to`: of what it is a part. */
crun_status checkpoint_copy_section(struct checkpoint_copy *copy,
                                    const struct checkpoint_target *to,
                                    struct checkpoint_section *section, struct err *e);
void checkpoint_section_free(struct checkpoint_section *section);

struct checkpoint_source;

/* `path` is its first part. CRUN_CORRUPT: a part is damaged; CRUN_NOT_FOUND. */
crun_status checkpoint_source_open(struct checkpoint_source **s, const char *path,
                                   struct err *e);
/* What `m` restores. The parts' hashes are right. */
crun_status checkpoint_source_recall(struct checkpoint_source **s, crun_memory *m,
                                     struct err *e);
void checkpoint_source_close(struct checkpoint_source *s); /* NULL is fine */

void checkpoint_source_facts(const struct checkpoint_source *s,
                             struct checkpoint_facts *facts);
void checkpoint_source_extras(const struct checkpoint_source *s, crun_extra *extra,
                              size_t extras);
/* CRUN_MISMATCH if it is from a training with different parts. Their order may differ:
 * values belong to names, also those of the optimizer's state. */
crun_status checkpoint_source_fits(struct checkpoint_source *s,
                                   const struct state_part *part, unsigned parts,
                                   struct err *e);
/* Copies elements [begin, begin + count) of a part that fits. */
void checkpoint_source_read(const struct checkpoint_source *s,
                            const struct state_part *part, size_t begin, size_t count,
                            void *out);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/memory_slot.h"

/*
 * A worker's side of checkpoints in memory (memory_slot.h). The functions are exported,
 * as Python's package calls them. One thread at a time.
 *
 * To save: crun_memory_begin, crun_memory_write for each section that is in the slot,
 * crun_memory_commit. Before the next crun_memory_begin the program must know that all
 * ranks have committed this one: the slot that it destroys may hold the step before.
 */
typedef struct crun_memory crun_memory;

struct crun_memory_config {
    const char *path; /* CRUN_MEMORY */
    uint64_t epoch;   /* CRUN_EPOCH */
    uint32_t rank, local_rank, local_world, world;
    const char
        *kind; /* the encoding of the sections; parts of another one are refused */
    /* writes files without the workers: NUL-separated words, two NULs end; NULL: none
     */
    const char *command;
};

/* Bytes to write. data NULL: the section has them already, from a device. */
struct crun_memory_piece {
    const void *data;
    uint64_t bytes;
};

struct crun_memory_save {
    uint64_t step;
    uint64_t own_bytes, shared_bytes; /* shared 0: not in this rank's slot */
    uint64_t files_step;              /* the newest step that is in files; 0: none */
    uint32_t has_shared;              /* the set has a shared section somewhere */
};

/* The bytes of a section that was read. */
struct crun_memory_part {
    const uint8_t *data;
    uint64_t bytes;
    void *map; /* for crun_memory_part_free */
    uint64_t map_bytes;
};

/* The code of an error is that of the agent's answer, enum memory_status, or 0. */
crun_memory *crun_memory_open(const struct crun_memory_config *c, struct err *e);
void crun_memory_close(crun_memory *m);

/* What all ranks restore; world 0: nothing that is in memory. */
const struct memory_set *crun_memory_restores(const crun_memory *m);
/* A section of the set to restore: that of a rank, or the shared one. Its bytes have
 * the hash of the header. It may come from another node, which takes as long as it
 * takes. */
int crun_memory_read(crun_memory *m, uint32_t rank, bool shared,
                     struct crun_memory_part *part, struct err *e);
void crun_memory_part_free(struct crun_memory_part *part);
/* The same of a part in a descriptor, by which an agent hands it out. *h is its
 * header. */
int crun_memory_part_read(int fd, bool shared, struct crun_memory_part *part,
                          struct memory_header *h, struct err *e);
/* The program goes on after this step; 0: it has none from memory. */
void crun_memory_restored(crun_memory *m, uint64_t step);

int crun_memory_begin(crun_memory *m, const struct crun_memory_save *save,
                      struct err *e);
/* Where a section is in the slot that is written, for a device that copies. */
void *crun_memory_section(crun_memory *m, bool shared);
/* Writes a whole section, by several threads. The pieces are as long as
 * crun_memory_begin has got to know, else nothing is written. */
int crun_memory_write(crun_memory *m, bool shared,
                      const struct crun_memory_piece *pieces, size_t count,
                      struct err *e);
void crun_memory_commit(crun_memory *m);
/* All copies of the part committed last that are wanted are safe, and the agent holds
 * no older one. */
bool crun_memory_is_kept(const crun_memory *m);

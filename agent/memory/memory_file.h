/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/memory_part.h"

/*
 * One memfd with the part of a checkpoint, in the layout of memory_slot.h. Another
 * process that writes to it can only make it wrong, which its hashes show.
 */
enum memory_origin {
    MEMORY_OWN,    /* a slot of a local worker, which alone writes to it */
    MEMORY_COPY,   /* of another node's part, for that node */
    MEMORY_FETCHED /* from another node, for a local worker */
};

struct memory_file {
    TAILQ_ENTRY(memory_file) entry;
    enum memory_origin origin;
    uint32_t owner, slot; /* OWN: of that local rank; else the rank */
    int fd;
    uint64_t bytes;              /* its length */
    struct memory_header header; /* when last looked at; set.world 0: not whole */
    uint64_t kept, copied; /* hash of the header with which the worker goes on; with
                            * which the neighbour has it */
    uint64_t sound;        /* with which the bytes had their hashes in this agent */
    unsigned users;        /* transfers: it must stay as it is */
};

/* NULL and an error. */
struct memory_file *memory_file_open(enum memory_origin origin, uint32_t owner,
                                     uint32_t slot, struct err *e) MUST_CHECK;
void memory_file_close(struct memory_file *f);
/* At least so long from here on. */
int memory_file_grow(struct memory_file *f, uint64_t bytes, struct err *e) MUST_CHECK;
/* How much of it takes memory. */
uint64_t memory_file_resident(const struct memory_file *f);

/* Reads the header; false: there is no whole part in it. */
bool memory_file_look(struct memory_file *f);
/* The bytes have the hashes of the header that was last looked at. */
bool memory_file_is_sound(const struct memory_file *f);
/* Its part is no part any more. */
void memory_file_drop(struct memory_file *f);
/* Tells the worker that all copies of this part are safe, unless it writes again. */
void memory_file_set_kept(struct memory_file *f);
/* Tells it whether any of its parts may be overwritten. */
void memory_file_set_held(struct memory_file *f, bool held);

/* Whether it has the own section of that rank of the set, or its shared one. */
bool memory_file_has(const struct memory_file *f, const struct memory_set *set,
                     uint32_t rank, bool shared);
/* The header of a part that has only the own section, or only the shared one; *at:
 * where its bytes are in this file. */
struct memory_header memory_file_section(const struct memory_file *f, bool shared,
                                         uint64_t *at);

/* All of it, less than 2 GiB; -1 and errno. */
int memory_file_read(const struct memory_file *f, uint64_t at, void *data, size_t size);
int memory_file_write(const struct memory_file *f, uint64_t at, const void *data,
                      size_t size);
/* A descriptor with which it can only be read; -1 and errno. */
int memory_file_reader(const struct memory_file *f);

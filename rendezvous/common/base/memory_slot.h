/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

/*
 * Checkpoints in memory: what a worker and its agent share. Each worker has two slots,
 * memfds that the agent holds and that outlive the worker. It writes a checkpoint into
 * one slot while the other one stays whole. The agent's end of the socket that
 * CRUN_MEMORY names (SOCK_SEQPACKET, abstract: "@NAME", where "@" stands for a NUL)
 * hands out the slots and other ranks' parts.
 * Numbers are in the byte order of the machine, at the offsets below.
 */
#define MEMORY_ENV "CRUN_MEMORY"
#define MEMORY_MAGIC 0x6d707263u /* "crpm" */
#define MEMORY_VERSION 1u
#define MEMORY_HEADER_BYTES 4096u
#define MEMORY_ALIGN 4096u
#define MEMORY_SLOTS 2u
#define MEMORY_KIND_BYTES 64u
#define MEMORY_TEXT_BYTES 256u
#define MEMORY_COMMAND_BYTES 1024u
/* The command's exit code where files have this step, or a newer one. */
#define MEMORY_EXIT_IN_FILES 114
/* The words of the command before its folder. */
#define MEMORY_COMMAND_FOLDER 2
/* Where the agent writes an uint32_t in the header of each slot, apart from struct
 * memory_header: while it is not 0, no rank may overwrite what is whole. */
#define MEMORY_HOLD_AT 2048u

/* The checkpoint of one step by all ranks of one epoch. A set of a later epoch is
 * newer, whatever its step. world 0: none. */
struct memory_set {
    uint64_t epoch, step;
    uint32_t world;
    uint32_t pad;
};

enum memory_state { MEMORY_EMPTY, MEMORY_WRITING, MEMORY_WHOLE };

/*
 * The part of one rank has two sections. `own` is of this rank alone. `shared` is equal
 * on all ranks of the set (the model of a data-parallel program): one copy in the whole
 * job is enough, so only the first rank of each node writes it. A set is whole where
 * the own sections of all its ranks and, if it has one, its shared section are. The
 * sections begin at MEMORY_HEADER_BYTES and at the next multiple of MEMORY_ALIGN after
 * own.
 */
struct memory_header {
    uint32_t magic;   /* 0 */
    uint32_t version; /* 4 */
    uint32_t state;   /* 8: enum memory_state; WHOLE is stored last, with release */
    uint32_t rank;    /* 12 */
    struct memory_set set;            /* 16 */
    uint64_t own_bytes, shared_bytes; /* 40, 48: shared 0: not in this slot */
    uint64_t own_hash, shared_hash;   /* 56, 64: memory_hash() of memory_part.h */
    uint32_t has_shared; /* 72: the set has a shared section, here or elsewhere */
    uint32_t pad;
    uint64_t saved_ns;            /* 80: CLOCK_BOOTTIME at the commit */
    uint64_t files_step;          /* 88: the newest step that is in files; 0: none */
    char kind[MEMORY_KIND_BYTES]; /* 96: the encoding, "torch 1", "crun-worker 1" */
    uint64_t header_hash; /* 160: XXH3 of bytes 12 to 159: the header is whole */
    /* written by the agent, not part of the hash */
    uint32_t kept; /* 168: 1: all copies of this part that are wanted are safe */
};

enum memory_ask_kind {
    MEMORY_ASK_HELLO = 1, /* local_rank, epoch, command */
    MEMORY_ASK_RESIZE,    /* slot, bytes: the agent makes it at least so long in all;
                           * slots never shrink */
    MEMORY_ASK_COMMITTED, /* slot: no answer */
    MEMORY_ASK_OPEN,      /* rank, shared: of the restore set; may take a transfer */
    MEMORY_ASK_RESTORED   /* bytes: the step that goes on (0: files or nothing); no
                           * answer */
};

struct memory_ask {
    uint32_t kind;
    uint32_t local_rank, rank, slot;
    uint32_t shared;   /* OPEN: the shared section, of any rank */
    uint32_t can_hold; /* HELLO: 1: it knows MEMORY_HOLD_AT */
    uint64_t epoch; /* CRUN_EPOCH: one that is not the agent's current one is refused */
    uint64_t bytes;
    /* HELLO: writes files without the workers: NUL-separated words, two NULs end; "":
     * the agent cannot write files of this program */
    char command[MEMORY_COMMAND_BYTES];
};

enum memory_status {
    MEMORY_OK,
    MEMORY_REFUSED,   /* another epoch, another user, a bad number: a mistake */
    MEMORY_NO_MEMORY, /* RESIZE: text has the numbers */
    MEMORY_NOT_HERE   /* OPEN: no holder answered: text */
};

struct memory_answer {
    uint32_t status;
    uint32_t slots;  /* HELLO: so many descriptors come along, read and write. OPEN: one
                      * comes along, only to read: a slot with the part */
    uint32_t copies; /* HELLO: 0: no copy is wanted, and the worker itself sets kept */
    uint32_t
        is_sound; /* OPEN: the agent has seen it since a worker could write to it */
    struct memory_set restore;    /* HELLO: what all ranks restore; world 0: files */
    char text[MEMORY_TEXT_BYTES]; /* one sentence for the user */
};

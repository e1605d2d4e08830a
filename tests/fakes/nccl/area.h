/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The memory that the ranks of a communicator share, for hosts and kernels. */
#define RANKS_MAX 16
#define SLOT_BYTES 262144 /* of each rank, for collectives */
#define CELL_BYTES 16384  /* of each pair, for messages */
#define NOTE_BYTES 256
#define PATH_BYTES 96

struct pair {
    _Atomic uint64_t written, taken;
    _Atomic bool connects[2]; /* sender, receiver */
    char cell[CELL_BYTES];
};

struct barrier {
    _Atomic uint64_t phase[RANKS_MAX]; /* how many times a rank has entered it */
    _Atomic uint32_t passed;
};

struct area {
    struct barrier hosts, kernels;
    _Atomic uint32_t news[RANKS_MAX]; /* changes with the rank's pairs */
    char note[RANKS_MAX][NOTE_BYTES];
    struct pair pair[RANKS_MAX][RANKS_MAX];
    char slot[RANKS_MAX][SLOT_BYTES];
};

/* One rank's end of it. */
struct link {
    struct area *area;
    int rank, size;
    uint64_t host_phase, phase, sent[RANKS_MAX], received[RANKS_MAX];
    _Atomic bool aborted;
    struct link *aborter; /* whose abort counts as well, or NULL */
};

/* Waits while a number of 32 bits has this value, up to ns; wakes all that wait for
 * it. */
void word_await(const void *word, uint32_t seen, long ns);
void word_wake(const void *word);

/* A new area. The path is valid until this process closes it. */
bool area_create(char path[PATH_BYTES]);
/* By the process that created it. */
void area_close(const char *path);
bool area_open(struct link *l, const char *path, int rank, int size);
void area_leave(struct link *l);

/* Waits for all ranks. False: it is aborted, or a kernel's device has failed, which
 * alone ends a deaf kernel. */
bool link_host_barrier(struct link *l);
bool link_kernel_barrier(struct link *l, bool deaf);
/* Every rank's note, at most NOTE_BYTES each. */
bool link_gather(struct link *l, const void *mine, size_t bytes, void *all);
/* Both ranks of a pair wait for each other, once; an offer does not wait. */
void link_offer(struct link *l, int peer, bool sends);
bool link_connect(struct link *l, int peer, bool sends);
/* How a rank waits for changes of its pairs: it reads the number, checks the pairs, and
 * waits until the number changes, or for some milliseconds. */
uint32_t link_news(const struct link *l);
void link_await_news(struct link *l, uint32_t seen);
void link_tell(struct link *l, int peer);
bool link_is_aborted(const struct link *l);

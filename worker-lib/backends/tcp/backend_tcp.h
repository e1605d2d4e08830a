/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_BACKENDS_TCP_BACKEND_TCP_H
#define WORKER_LIB_BACKENDS_TCP_BACKEND_TCP_H

#include "worker-lib/engine/backend.h"
#include "worker-lib/engine/wait_chain.h"
#include "worker-lib/backends/tcp/tcp_link.h"

/*
 * The insides of backend_tcp: every rank of the team has a link to every other.
 *
 *   backend_tcp.c         the backend: runs one operation's plan until it is done
 *   tcp_schedule.c    what goes where in an operation
 *   tcp_connect.c    the links come to be
 *   tcp_failure.c     who was waited for, why it has failed, telling the others
 *   tcp_link.c            frames on one connection
 */

/* Bytes that go one way between two ranks, in pieces of a size both know. */
struct tcp_stream {
    uint8_t *base;
    size_t bytes;
    size_t done;    /* sent or received, in whole pieces */
    size_t allowed; /* so far it may go now */
    size_t window;  /* base is a ring of so many bytes; 0: it is not */
};

/* STREAM_INPUT depends on the rank that sends alone, STREAM_RESULT on others too. */
enum { STREAM_INPUT, STREAM_RESULT, STREAM_COUNT };

/* All that one operation does with one other rank. */
struct tcp_lane {
    struct tcp_stream out[STREAM_COUNT], in[STREAM_COUNT];
    bool tells, told;      /* our words to it */
    bool expects, has_met; /* its words to us */
    bool parked;           /* it is ahead of us, and nothing of it is needed now */
    struct tcp_stream *reading;
    size_t reading_bytes;
};

struct tcp;

/*
 * One operation. Data is all: which bytes go where, and how far each may go; `advance`
 * looks at what has come and allows more, `finish` comes at the very end.
 */
struct tcp_plan {
    struct tcp *tcp;
    const struct op *op;
    struct op_header header;
    struct tcp_lane *lane;  /* of each rank of the team, also who takes no part */
    const unsigned *member; /* who takes part: `rank` is our place among `size` */
    unsigned rank, size;
    size_t piece;
    struct wait_chain chain; /* of the wait for others */
    void (*advance)(struct tcp_plan *plan);
    void (*finish)(struct tcp_plan *plan);
    /* of the reducing ones */
    const uint8_t *own;
    uint8_t *result;
    size_t result_bytes, reduced;
};

enum { HELD_BY_NOBODY, HELD_BY_RUN, HELD_FOR_GOOD };

struct tcp {
    struct backend base;
    unsigned rank, size;
    unsigned *world_rank;
    unsigned *everybody; /* 0, 1, 2, ... */
    struct abort_word *aborted;
    struct store_client *store;
    const char *prefix;
    struct tcp_link *link;
    struct tcp_lane *lane;
    struct pollfd *polls;
    const void **inputs; /* of reduce(), one a rank */
    uint8_t *staging;
    size_t staging_bytes;
    uint64_t steps;   /* so many sequence numbers make one call of the user's */
    unsigned spin_us; /* 0: there are more ranks than processors here */
    /* Whose the links are: an operation's, or nobody's between two; once whoever ends
     * everything has taken them, nobody else's. */
    _Atomic int holder;
    int wake; /* eventfd: the abort word was set */
};

/* CRUN_NO_MEMORY only. */
crun_status tcp_plan_make(struct tcp_plan *plan, struct tcp *t, const struct op *op,
                          const unsigned *member, unsigned size, unsigned rank,
                          struct err *e);
bool lane_sends(const struct tcp_lane *l); /* there is more to be sent, now or later */
bool lane_receives(const struct tcp_lane *l); /* more is to come */

/*
 * The operation among some of the team's ranks; op->peer is a place among them. Their
 * sequence numbers may have nothing to do with those of others, as long as no two of
 * the team's operations have the same.
 */
crun_status tcp_run_among(struct backend *b, const struct op *op,
                          const unsigned *member, unsigned size, unsigned rank,
                          struct err *e);

/* Messages count calls: so many sequence numbers of collectives are one. */
void tcp_number_by(struct backend *b, uint64_t steps);

/* Every rank has a link to every other, or the deadline has passed. */
crun_status tcp_meet(struct tcp *t, const struct team *team, uint64_t deadline_ms,
                     struct err *e);

/* Why it has failed, in the words that all ranks shall have. */
crun_status tcp_fail_lost(struct tcp_plan *plan, unsigned peer, struct err *e);
crun_status tcp_fail_mismatch(struct tcp_plan *plan, unsigned peer,
                              const struct op_header *w, struct err *e);
crun_status tcp_fail_timeout(struct tcp_plan *plan, struct err *e);
/* Not yet, but soon: the others shall know already for whom this rank waits. */
void tcp_say_late(struct tcp_plan *plan, uint64_t left_ms);
/* Do all the world's ranks wait here alone? Those that wait for others of their node in
 * another backend say nothing before their time is over. */
bool tcp_is_alone(const struct tcp *t);
crun_status tcp_fail_aborted(struct tcp *t, struct err *e);
/* The others shall know; then the links are closed. */
void tcp_tell(struct tcp *t, const struct abort_notice *n);
/* The same in passing: what is sent at once is enough. Safe in a signal handler. */
void tcp_tell_aborted(struct tcp *t);
void tcp_say_bye(struct tcp *t);

#endif

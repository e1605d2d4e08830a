/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/backends/tcp/tcp_link.h"
#include "worker-lib/engine/backend.h"
#include "worker-lib/engine/timeout_culprit.h"

/*
 * The insides of backend_tcp. Every rank of the team has one TCP connection to every
 * other rank, and all of them are served by the thread that runs an operation: there is
 * no other thread, and between two operations nothing reads the connections.
 *
 * link    One connection. It sends and receives frames and never waits: what it cannot
 *         send or read now it keeps. A link outlives operations.
 *
 * stream  Bytes of a buffer that go one way between two ranks, in pieces of a size that
 *         both ranks know. `done` is how far they have gone, `allowed` how far they may
 *         go: a result is not sent before it is computed, and an input is not received
 *         before there is room for it.
 *
 * lane    All that one operation does with one other rank: up to two streams out and
 *         two in, or messages, one at a time in each direction. Inputs depend on the
 * sending rank alone, results on other ranks too, so results are sent first. Before its
 * data each rank sends the header of its operation; data is read only after the header
 * has been compared.
 *
 * plan    One operation as data: the lanes to all ranks, and what is reduced when. The
 *         plan of an all-reduce, a broadcast, ... differs only in how it is filled in
 *         (tcp_plan.c). `advance` is called when data has arrived: it reduces what
 *         is complete and raises `allowed`. `finish` is called once, at the end.
 *
 * run     The loop that carries out a plan: it moves pieces over all links, round after
 *         round, until every stream of every lane is done. If nothing moves it first
 *         polls in a loop, then sleeps in poll(2), and every 50 ms looks at the abort
 *         word, the deadline and dead links. A run ends with success, or with an error
 *         that it sends to all ranks as the last frame; then the links are closed.
 *
 * For example an all-reduce of 1 MB on 4 ranks gives each rank a slice of 256 KB. A
 * rank sends its input for the three other slices (STREAM_INPUT, out), receives three
 * inputs for its own slice (STREAM_INPUT, in, into a staging ring), reduces piece by
 * piece, and sends each reduced piece to the three others (STREAM_RESULT, out), whose
 * slices it receives in turn (STREAM_RESULT, in). All of this overlaps.
 *
 * While an operation runs, its thread holds the links (`holder`). An abort from another
 * thread or a signal handler takes them if they are free, and else wakes the run.
 *
 *   backend_tcp.c   the backend, and the run
 *   tcp_plan.c  the plans
 *   tcp_connect.c   how the links are made when the backend is opened
 *   tcp_failure.c   errors: which rank is late or lost, and telling the other ranks
 *   tcp_link.c      frames on one connection
 */

/* Bytes that go one way between two ranks, in pieces of a size both know. */
struct tcp_stream {
    uint8_t *base;
    size_t bytes;
    size_t done;    /* sent or received, in whole pieces */
    size_t allowed; /* how far it may go now */
    size_t window;  /* base is a ring of so many bytes; 0: it is not */
};

/* STREAM_INPUT depends on the rank that sends alone, STREAM_RESULT on others too. */
enum { STREAM_INPUT, STREAM_RESULT, STREAM_COUNT };

/* All that one operation does with one other rank. */
struct tcp_lane {
    struct tcp_stream out[STREAM_COUNT], in[STREAM_COUNT];
    bool has_header, header_sent; /* our header, to it */
    bool expects, has_met;        /* its header, to us */
    bool parked; /* it is at a later operation: nothing is read from it now */
    struct tcp_stream *reading;
    size_t reading_bytes;
    /* messages that are not over: the first is under way */
    const struct op *sends, *sends_end, *receives, *receives_end;
};

struct tcp;

/* One operation: which bytes go where, and how far each may go. */
struct tcp_plan {
    struct tcp *tcp;
    const struct op *op;
    struct op_header header;
    struct tcp_lane *lane;  /* to each rank of the team */
    const unsigned *member; /* the ranks that take part: we are at `rank` of `size` */
    unsigned rank, size;
    size_t piece;
    struct timeout_culprit chain; /* of this wait */
    void (*advance)(struct tcp_plan *plan);
    void (*finish)(struct tcp_plan *plan);
    /* of a reduction */
    const uint8_t *own;
    uint8_t *result;
    size_t result_bytes, reduced;
};

enum { HELD_BY_NONE, HELD_BY_RUN, HELD_FOR_GOOD };

struct tcp {
    struct backend base;
    unsigned rank, size;
    unsigned *world_rank;
    unsigned *all_ranks; /* 0, 1, 2, ... */
    struct abort_word *aborted;
    const struct notice_board *board;
    struct tcp_link *link;
    struct tcp_lane *lane;
    struct pollfd *polls;
    const void **inputs; /* of reduce(), one a rank */
    uint8_t *staging;
    size_t staging_bytes;
    uint64_t steps;   /* sequence numbers of one call of the program */
    unsigned spin_us; /* 0: there are more ranks than processors here */
    /* The thread that may use the links: that of an operation, or none between two
     * operations. Once they are held to report a failure, they are not used again. */
    _Atomic int holder;
    int wake; /* eventfd: the abort word was set */
};

/* CRUN_NO_MEMORY only. */
crun_status tcp_plan_make(struct tcp_plan *plan, struct tcp *t, const struct op *op,
                          const unsigned *member, unsigned size, unsigned rank,
                          struct err *e);
bool tcp_lane_sends(const struct tcp_lane *l); /* there is more to send, now or later */
bool tcp_lane_receives(const struct tcp_lane *l); /* more will arrive */
/* Something was sent, or has arrived: begins the next message if this one is over. */
void tcp_lane_sent(struct tcp_lane *l);
void tcp_lane_received(struct tcp_lane *l);
/* The headers of what is under way. */
struct op_header tcp_header_out(const struct tcp_plan *plan, const struct tcp_lane *l);
struct op_header tcp_header_in(const struct tcp_plan *plan, const struct tcp_lane *l);

/*
 * The operation among some of the team's ranks; op->peer is a place among them. Their
 * sequence numbers may have nothing to do with those of others, as long as no two of
 * the team's operations have the same.
 */
crun_status tcp_run_among(struct backend *b, const struct op *op,
                          const unsigned *member, unsigned size, unsigned rank,
                          struct err *e);

/* Messages that another backend exchanges at the same time, in the same thread. */
struct tcp_beside {
    /* Moves what can be moved without waiting. A failure is one of both. */
    crun_status (*step)(void *arg, bool *moved, bool *done, struct err *e);
    void *arg;
};

crun_status tcp_run_beside(struct backend *b, const struct op *op,
                           const struct tcp_beside *beside, struct err *e);

/* `steps` sequence numbers of collectives are one call in messages. */
void tcp_number_by(struct backend *b, uint64_t steps);

/* Every rank has a link to every other, or the deadline has passed. */
crun_status tcp_meet(struct tcp *t, const struct team *team, uint64_t deadline_ms,
                     struct err *e);

/* -- tcp_mismatch.c ---------------------------------------------------------------- */

/* The other rank's call, beside the one that this rank expects of it. */
enum tcp_call { TCP_CALL_SAME, TCP_CALL_LATER, TCP_CALL_OTHER };
enum tcp_call tcp_compare_call(const struct tcp_plan *plan, const struct tcp_lane *lane,
                               const struct op_header *its);
crun_status tcp_fail_mismatch(struct tcp_plan *plan, unsigned peer,
                              const struct op_header *w, struct err *e);

#define TCP_CALL_TEXT_SIZE 120
void tcp_describe_header(const struct tcp *t, const struct op_header *w, unsigned other,
                         char text[TCP_CALL_TEXT_SIZE]);
/* The number of its call in the program. */
unsigned long long tcp_call_of(const struct tcp *t, const struct op_header *w);

/* -- tcp_failure.c ----------------------------------------------------------------- */

/* The reason of the failure, in a text that is valid on all ranks, because it is sent
 * to them. */
crun_status tcp_fail_lost(struct tcp_plan *plan, unsigned peer, struct err *e);
crun_status tcp_fail_timeout(struct tcp_plan *plan, struct err *e);
/* Shortly before the deadline: writes the rank that this one waits for to the store. */
void tcp_say_late(struct tcp_plan *plan, uint64_t left_ms);
/* Whether this is the backend of the whole world. Below a hierarchical backend a rank
 * may also wait for its own node, and writes nothing before the deadline. */
bool tcp_is_alone(const struct tcp *t);
crun_status tcp_fail_aborted(struct tcp *t, struct err *e);
/* Sends the notice to all ranks and closes the links. If a rank does not take it in
 * time, it is in the store before the links are closed. */
void tcp_tell(struct tcp *t, const struct abort_notice *n);
/* The same without waiting: what cannot be sent at once is dropped. Safe in a signal
 * handler. */
void tcp_tell_aborted(struct tcp *t);
void tcp_say_bye(struct tcp *t);

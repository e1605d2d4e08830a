/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/job/membership/limits.h"
#include "rendezvous/job/membership/time_spent.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * The membership of one job: a pure function (state, event, time) -> actions. No I/O,
 * no clock, no allocation: the owner lends the memory, says what time it is, and does
 * what the actions say, the saves first. Its states are explained in message.h.
 */
enum membership_node_state {
    MEMBERSHIP_NODE_FREE,      /* the record is unused */
    MEMBERSHIP_NODE_WAITING,   /* joined, not a member: to be placed, or a spare */
    MEMBERSHIP_NODE_ACTIVE,    /* member of the epoch */
    MEMBERSHIP_NODE_FINISHED,  /* member whose workers have all exited 0 */
    MEMBERSHIP_NODE_STOPPED,   /* member that has reported that nothing lives */
    MEMBERSHIP_NODE_DISMISSED, /* was sent its result or release, has not answered BYE
                                  yet */
    MEMBERSHIP_NODE_STATE_COUNT
};

#define MEMBERSHIP_NONE UINT32_MAX

struct membership_node {
    struct id128 incarnation; /* one life of one agent */
    uint64_t identity;        /* the same for all lives on one host; 0: none */
    enum membership_node_state state;
    uint32_t workers;
    uint32_t succeeded;   /* of them, in the current epoch, as its failures report */
    uint32_t wanted_slot; /* by --node-rank, or MEMBERSHIP_NONE */
    uint32_t slot;        /* held since its first epoch, or MEMBERSHIP_NONE */
    uint32_t group_rank;  /* in the current epoch */
    uint32_t first_rank;
    bool host; /* the rendezvous runs inside this node's agent */
    bool connected;
    bool started;     /* told to start the current epoch */
    bool leaving;     /* will not be in the next epoch */
    bool quarantined; /* placed only where the minimum cannot be met without it */
    bool checkpointed;
    uint64_t heard_at;   /* in the membership's time, as all stamps here */
    uint64_t gone_at;    /* when the connection went, while not connected */
    uint64_t deadline;   /* lost at this time */
    uint64_t joined;     /* number of its join */
    uint32_t prev, next; /* all nodes in the order of joining */
    uint32_t next_in_bucket;
};

/* When the nodes of a host were the root cause of a stop, within the window. */
struct membership_past {
    uint64_t identity;
    bool quarantined; /* for the rest of the job */
    uint32_t count;
    uint64_t at[QUARANTINE_MAX]; /* oldest first */
};

struct membership {
    struct job_config config;
    uint32_t reconnect_grace_ms; /* how long a node may be disconnected */
    struct id128 instance;
    enum job_state state;
    uint64_t state_since;
    uint64_t waited_ms;    /* FORMING: before the owner was restarted */
    uint64_t last_call_at; /* when the first epoch forms with less than all; 0: never */
    uint32_t restarts;     /* spent, job-wide */

    /* the epoch, or the last one */
    uint64_t epoch;
    uint32_t group_size, world_size, leader;
    uint64_t formed_at; /* in the owner's time; 0: not known any more */
    bool store_ready;   /* the node of rank 0 serves the epoch's store */
    bool memory; /* nodes have held checkpoints in memory: those that are away may */

    struct membership_stop { /* the stop under way, or the last one */
        enum job_cause cause;
        uint32_t grace_ms;
        bool restart_spent; /* by this stop */
        bool no_progress;   /* the last restarts brought no new step */
        bool too_young;     /* the epoch failed too early to earn a restart */
        bool ending;        /* the job ends with it: the two below are its result */
        enum job_reason reason;
        int32_t exit_code;
        struct {
            uint32_t node;     /* the node whose failure is the root cause */
            uint64_t identity; /* of its host; 0: none */
            uint64_t at;       /* when it failed, by its own clock */
            uint64_t erred_at; /* the same, in the membership's time */
            uint64_t heard_at; /* when this rendezvous learned of the first failure */
            enum failure_origin origin;
            bool final;
            int32_t exit_code;
        } root;
        uint64_t blame_until;   /* all failures are consequences: their cause is waited
                                 * for while the epoch runs; 0: nothing is */
        uint64_t unknown_until; /* nodes that are not known may have workers until then;
                                 * 0: there are none */
        uint32_t failures;      /* reported while the epoch ran */
        bool young;             /* the epoch, at its first failure */
    } stop;
    struct {
        uint64_t step;     /* the newest that any epoch has reached */
        bool is_new;       /* the epoch has reached it */
        uint32_t restarts; /* in a row, without a new step */
    } progress;
    struct { /* the job ends once its workers have written a checkpoint */
        bool asked;
        int32_t exit_code;
        uint32_t within_ms; /* the longest wait for it */
    } last_checkpoint;
    struct time_spent time; /* in the owner's time */
    bool short_lived;       /* the epoch that was stopped last */
    uint32_t crash_loop;    /* short-lived epochs that failed, in a row */

    struct {
        uint64_t until; /* a checkpoint is waited for until then; 0: none is */
        uint64_t asked_at;
        enum job_cause cause;
    } checkpoint;

    struct {
        uint64_t now;       /* the owner's time at the last step */
        uint64_t ticked_at; /* the same at the last tick */
        uint64_t stalled;   /* without any step: counts for no lease and no grace */
    } clock;

    struct membership_tally { /* kept as nodes change, so that no event counts them */
        uint32_t live;        /* not free */
        uint32_t here, away;  /* waiting to be placed, connected or not, not leaving */
        uint32_t barred_here, barred_away; /* of these, the quarantined */
        uint32_t active, finished;
        uint32_t leaving;   /* leaving, or allowed to leave */
        uint32_t departing; /* of these, members that may have live workers */
        uint32_t disconnected;
    } tally;

    struct membership_node *node; /* lent */
    uint32_t capacity;
    uint32_t used;        /* records ever used are below this */
    uint32_t first, last; /* in the order of joining */
    uint32_t first_free;
    uint64_t joins;
    uint32_t *bucket;        /* lent, capacity entries: nodes by incarnation */
    uint64_t bucket_key[2];  /* of the hash that chooses a bucket */
    uint32_t *slot_node;     /* lent, max_nodes entries: the epoch's member in a slot */
    uint64_t *slot_identity; /* lent, max_nodes entries: the last holder of a slot */
    uint32_t conflict;       /* it has asked for the slot that a join was refused for */
    struct membership_past past[PASTS_MAX];
    uint32_t pasts;
};

/* All nodes, in the order of joining. The loop must not drop them. */
#define MEMBERSHIP_EACH(i, m)                                                          \
    for (uint32_t i = (m)->first; i != MEMBERSHIP_NONE; i = (m)->node[i].next)

enum membership_event_type {
    MEMBERSHIP_EV_JOIN,         /* join */
    MEMBERSHIP_EV_RESUME,       /* node: its connection is back; epoch: it knows */
    MEMBERSHIP_EV_DISCONNECT,   /* node */
    MEMBERSHIP_EV_HEARTBEAT,    /* node */
    MEMBERSHIP_EV_STORE_READY,  /* node, epoch */
    MEMBERSHIP_EV_FAILED,       /* node, epoch, at_ms ... final */
    MEMBERSHIP_EV_FINISHED,     /* node, epoch */
    MEMBERSHIP_EV_STOPPED,      /* node, epoch */
    MEMBERSHIP_EV_CHECKPOINTED, /* node, epoch */
    MEMBERSHIP_EV_BLAMED,       /* node, epoch: it is found to be the root cause */
    MEMBERSHIP_EV_LEAVE,        /* node asks to leave; exit_code if that ends the job */
    MEMBERSHIP_EV_DRAIN, /* node is asked to leave; refused if that would end the job */
    MEMBERSHIP_EV_END, /* exit_code, now, checkpoint; node, or MEMBERSHIP_NONE: ends the
                          job */
    MEMBERSHIP_EV_BYE, /* node */
    MEMBERSHIP_EV_TICK,
    MEMBERSHIP_EV_COUNT
};

struct membership_event {
    enum membership_event_type type;
    uint32_t node;
    struct id128 incarnation; /* of the sender; must be the node's */
    uint64_t epoch;
    uint64_t step; /* HEARTBEAT, STOPPED: the newest of the node's workers, or 0 */
    uint64_t first_step; /* HEARTBEAT, STOPPED: of the epoch; 0: none yet */
    uint32_t first_ms;   /* it was done so long ago */
    uint32_t reached_ms; /* HEARTBEAT: the step of START.past_step was, likewise */
    uint64_t at_ms;
    uint32_t age_ms;    /* at_ms was so long ago */
    uint32_t still_ms;  /* FAILED: it had stood still for so long then */
    uint32_t succeeded; /* FAILED: of the node's workers, up to now */
    bool again;         /* FAILED: was reported before */
    int32_t exit_code;
    enum failure_origin origin;
    bool final;         /* a failure after which no restart is tried */
    bool now;           /* END: without grace; LEAVE: without a checkpoint */
    bool checkpoint;    /* END, and a LEAVE that ends the job: after a checkpoint */
    uint32_t within_ms; /* the longest wait for it; 0: the shutdown grace */
    bool ended_here; /* DISCONNECT: the rendezvous itself has closed the connection */
    bool memory;     /* RESUME, STOPPED: the node holds checkpoints in memory */
    struct {
        uint32_t workers;
        uint32_t wanted_slot; /* or MEMBERSHIP_NONE */
        bool host;
        uint64_t identity;
    } join;
};

enum membership_verdict {
    MEMBERSHIP_OK,
    MEMBERSHIP_IGNORED,      /* means nothing in this state; harmless */
    MEMBERSHIP_STALE,        /* is about another epoch */
    MEMBERSHIP_FENCED,       /* from a node that was evicted or is unknown */
    MEMBERSHIP_REFUSED_DONE, /* join: the job has a result */
    MEMBERSHIP_REFUSED_FULL,
    MEMBERSHIP_REFUSED_SPARES, /* join: all spares of --spares have joined */
    MEMBERSHIP_REFUSED_SLOT_RANGE,
    MEMBERSHIP_REFUSED_SLOT_TAKEN, /* join: membership.conflict has asked for it */
    MEMBERSHIP_REFUSED_MIN,        /* drain: too few nodes would remain */
    MEMBERSHIP_VERDICT_COUNT
};

enum membership_action_type {
    MEMBERSHIP_ACT_SAVE_JOB, /* must be durable before any later action leaves */
    MEMBERSHIP_ACT_SAVE_NODE,
    MEMBERSHIP_ACT_DROP_NODE, /* the record is free; its peer may be connected */
    MEMBERSHIP_ACT_SAVE_PAST, /* node: index of membership.past */
    MEMBERSHIP_ACT_JOINED,    /* tell the node its place */
    MEMBERSHIP_ACT_START,     /* tell the node its ranks, and to start */
    MEMBERSHIP_ACT_STOP,      /* tell the node to stop; membership.stop.grace_ms */
    MEMBERSHIP_ACT_ASK_CHECKPOINT,
    MEMBERSHIP_ACT_DONE,       /* tell the node the result */
    MEMBERSHIP_ACT_RELEASED,   /* tell the node that it has left in good order */
    MEMBERSHIP_ACT_EVICTED,    /* the node is lost; later messages are ignored */
    MEMBERSHIP_ACT_ROOT_CAUSE, /* the failure being reported is the root cause so far */
    MEMBERSHIP_ACT_ROOT_LOST,  /* the root cause is that this node is lost */
    MEMBERSHIP_ACT_ROOT_NAMED, /* the root cause so far is why the epoch stops */
    MEMBERSHIP_ACT_AFTERWARDS, /* the failure being reported is not the root cause */
    MEMBERSHIP_ACT_QUARANTINED, /* the host of the root cause; node if it is present */
    MEMBERSHIP_ACT_LAST_CHECKPOINT, /* the job will end after a checkpoint */
    MEMBERSHIP_ACT_REGRESSED,       /* the node knows a later epoch than was saved */
    MEMBERSHIP_ACT_RESUMED,         /* the workers of an epoch make steps */
    MEMBERSHIP_ACT_ENTERED,         /* the state has changed, from `from` */
    MEMBERSHIP_ACT_COUNT
};

struct membership_action {
    enum membership_action_type type;
    uint32_t node; /* or MEMBERSHIP_NONE */
    enum job_state from;
};

/* The receiver of actions, in order. It must not call back into the membership. */
struct membership_sink {
    void (*act)(void *arg, const struct membership *m,
                const struct membership_action *action);
    void *arg;
};

/* Lent for the membership's life. */
struct membership_memory {
    uint32_t capacity;
    struct membership_node *node; /* capacity */
    uint32_t *bucket;             /* capacity */
    uint64_t bucket_key[2];       /* random */
    uint32_t *slot_node;          /* max_nodes */
    uint64_t *slot_identity;      /* max_nodes */
};

void membership_init(struct membership *m, const struct job_config *config,
                     const struct id128 *instance,
                     const struct membership_memory *memory, uint64_t now);

enum membership_verdict
membership_step(struct membership *m, const struct membership_event *event,
                uint64_t now, const struct membership_sink *sink, uint32_t *node_out)
    __attribute__((nonnull(1, 2, 4)));

/* The latest time for the next tick. */
uint64_t membership_next_tick(const struct membership *m);

/* The live node of that incarnation, or MEMBERSHIP_NONE. */
uint32_t membership_find(const struct membership *m, const struct id128 *incarnation);

/* While FORMING: ms until it ends, and how many nodes wait. */
uint64_t membership_time_left(const struct membership *m, uint64_t now);
uint32_t membership_present(const struct membership *m);
/* DONE: too few nodes came in time, for the first epoch (JOB_REASON_NOT_FORMED) or for
 * a later one (JOB_REASON_LOST). */
bool membership_gave_up(const struct membership *m);
/* The wait before the next epoch of a crash loop, and what is left of it. */
uint32_t membership_backoff_ms(const struct membership *m);
uint64_t membership_backoff_left(const struct membership *m, uint64_t now);

/*
 * After a restart of the owner: membership_init, set the saved fields of the membership
 * and its pasts, then each saved node at its index in order of joining, then
 * membership_restored. Each node has a full lease to come back.
 */
void membership_restore_node(struct membership *m, uint32_t index,
                             const struct membership_node *saved);
void membership_past_put(struct membership *m, const struct membership_past *saved);
void membership_restored(struct membership *m, uint64_t now);
/* Then: the owner did not run for so long. The wait for nodes went on. */
void membership_add_away(struct membership *m, uint64_t ms);
/* The owner could decide nothing for a while: each node has a full lease again. */
void membership_renew_leases(struct membership *m, uint64_t now);
/* For how long it has had its state. */
uint64_t membership_state_age(const struct membership *m, uint64_t now);

/* The legal edges of the state machine; tests check that each is taken. */
struct membership_edge {
    enum job_state from;
    enum membership_event_type event;
    enum job_state to;
};
extern const struct membership_edge membership_edges[];
extern const unsigned membership_edge_count;

/* Asserts what must always hold. */
void membership_sane(const struct membership *m);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/wire/protocol/job_name.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/message_words.h"

/*
 * The messages of the control protocol and their content. Plain structs with bounded
 * texts and no pointers, so that a message can be kept, copied and compared.
 * Message_table.h lists the messages, proto_fields.c how their content looks on the
 * wire, and PROTOCOL.md what it means.
 */
enum msg_type {
#define MESSAGE(number, name, ...) MSG_##name = number,
#include "rendezvous/wire/protocol/message_table.h"
    MSG_TYPE_MAX
};

struct failure {
    enum failure_kind kind;
    uint32_t rank, local_rank;
    uint32_t pid;
    int32_t code;
    bool core_dumped;
    bool out_of_memory;
    bool final;       /* no restart is tried */
    uint64_t at_ms;   /* of its error, if known, else its end: CLOCK_BOOTTIME */
    uint64_t wall_ms; /* of its end, for people */
    uint64_t ran_ms;  /* since its epoch started */
    char host[HOST_NAME_MAX_BYTES + 1];
    char what[ERROR_TEXT_MAX_BYTES + 1];   /* a description, one line */
    char said[FAILURE_TEXT_MAX_BYTES + 1]; /* last lines of standard error */
    char log[ERROR_TEXT_MAX_BYTES + 1];    /* where the log is */
    enum failure_origin origin;
    uint32_t age_ms;                         /* from at_ms to the report */
    char error[FAILURE_ERROR_MAX_BYTES + 1]; /* the line of `said` with the error */
    uint32_t still_ms;       /* a hang: so long before at_ms was its last progress */
    uint32_t succeeded;      /* workers of its node that have exited with 0 */
    uint32_t succeeded_rank; /* the first of them */
    bool again;              /* was reported before: more have since then */
};

struct msg_hello {
    uint32_t version_min, version_max;
    enum peer_kind role; /* its name on the wire */
    char software[32];   /* "crun 1.0.0" */
    bool keepers;        /* it knows the messages about replicas */
    bool flush;          /* it knows FLUSH */
};

/* The settings that must be the same for all nodes of a job. */
struct job_config {
    uint32_t min_nodes, max_nodes, max_restarts;
    uint32_t lease_ms, join_timeout_ms, last_call_ms;
    uint32_t shutdown_grace_ms, failure_grace_ms;
    uint32_t restart_min_uptime_ms; /* a younger epoch's failure ends the job; 0: off */
    uint32_t restart_backoff_ms;    /* the longest wait of a crash loop; 0: none */
    uint32_t quarantine;            /* root causes that put a node last; 0: off */
    bool limit_spares;              /* at most `spares` are kept, and are waited for */
    uint32_t spares;
    bool strict_fence; /* a slot is kept until its node has ended its workers */
    enum job_scale scale;
    char no_restart_on[NO_RESTART_ON_MAX_BYTES + 1]; /* exit codes: "2,126" */
    char program[PROGRAM_MAX_BYTES + 1];             /* for people */
    char arguments_hash[65]; /* of program and arguments; any text */
    bool preflight;          /* the preflight needs all nodes, so all must run it */
    enum store_auth store_auth;
    bool store_tunnel; /* the store is reached through TLS alone, which agents carry */
    /* to whom the job belongs, as its nodes say: see job_identity.h; "": not known */
    char user[USER_MAX_BYTES + 1];
    char uid[UID_MAX_BYTES + 1];
    char batch_job[BATCH_JOB_MAX_BYTES + 1]; /* "Slurm job 26" */
    uint32_t max_no_progress; /* restarts without a new step that end the job; 0: off */
};

#define ROLE_DEFAULT "default"

struct msg_join {
    char run_id[RUN_ID_MAX + 1];
    struct id128 incarnation;
    char host[HOST_NAME_MAX_BYTES + 1];
    char address[ADDRESS_MAX_BYTES + 1]; /* where others reach this node; may be "" */
    uint32_t pid;
    uint32_t workers;
    int32_t node_rank;             /* -1: none asked for */
    char containment[32];          /* for status: "cgroup", "session+warden", ... */
    char role[ROLE_MAX_BYTES + 1]; /* of its workers; "": ROLE_DEFAULT */
    struct job_config config;
    char unfit[ERROR_TEXT_MAX_BYTES +
               1];        /* a fault that the node found in itself; "": none */
    uint32_t memory_port; /* of its memory, for the other agents; 0: none */
};

struct msg_resume {
    char run_id[RUN_ID_MAX + 1];
    struct id128 incarnation;
    uint32_t node;
    uint32_t memory_port;                   /* as in JOIN */
    char memory[MEMORY_HELD_MAX_BYTES + 1]; /* as in STOPPED */
};

/* The GPUs of a node's workers, all of them together. */
struct msg_gpus {
    uint32_t count;               /* 0: none, or not known */
    int32_t percent;              /* of the time in use, on average; -1: not known */
    uint32_t used_mib, total_mib; /* of the fullest one */
    uint32_t celsius;             /* of the hottest one */
    uint32_t watts;               /* together */
    /* percent of each by its number: "0:97 1:-"; as many as fit */
    char each[GPUS_EACH_MAX_BYTES + 1];
};

/* The checkpoints in the memory of a node, while its workers run. */
struct msg_memory {
    uint64_t step;   /* the newest of all its workers; 0: none */
    uint64_t copied; /* the newest that a neighbour has a copy of; 0: none */
    uint64_t
        restored;    /* what the workers of the epoch have begun with; 0: not memory */
    uint64_t bytes;  /* that they take here, with those of other nodes */
    uint32_t age_ms; /* of `step` */
};

struct msg_heartbeat {
    uint64_t step;                  /* slowest local worker, 0: not known */
    char steps_per_s[16], loss[16]; /* as shown; "" : not known */
    char note[64];
    char containment[32]; /* if it has changed since JOIN */
    uint32_t silent_ms;   /* for how long nothing moves on any local rank; 0: it does */
    uint64_t first_step;  /* of the epoch, or STEP_UNPLACED; 0: none yet */
    uint32_t first_ms;    /* so long ago */
    uint32_t reached_ms;  /* so long ago was the step START.past_step */
    struct msg_gpus gpus;
    uint64_t steps; /* of the whole job, 0: not known */
    /* the part of its time that a worker does not wait for others, in thousandths: of
     * the local worker that waits least, and of the one in the middle; 0: not known */
    uint32_t busy, usual_busy;
    uint32_t xid, xids;     /* of the node's GPUs: the last one, and how many */
    uint32_t checkpoint_ms; /* so long ago the newest was written; 0: not known */
    struct msg_memory memory;
};

struct msg_store_ready {
    char address[ADDRESS_MAX_BYTES + 1];
    uint32_t port;
    /* for servers of rank 0's own: "NAME=PORT NAME=PORT", one with the name "" */
    char free_ports[FREE_PORTS_MAX_BYTES + 1];
};

struct msg_stopped {
    uint64_t step;       /* the newest of a local worker, 0: not known */
    uint64_t first_step; /* see msg_heartbeat; the last one may not have told it */
    /* the checkpoints that it holds in memory: see memory_sets.h; "": none */
    char memory[MEMORY_HELD_MAX_BYTES + 1];
};

struct msg_leave {
    char reason[64];
    int32_t exit_code; /* of the job, if it ends with this node */
    bool now;          /* without a checkpoint */
    bool checkpoint;   /* if the job ends, its workers are asked for one first */
};

struct msg_end {
    char reason[64];
    int32_t exit_code;
    bool now;
    bool checkpoint;    /* the workers are asked for one first */
    uint32_t within_ms; /* the longest wait for it; 0: the shutdown grace */
};

/* Answers FLUSH: what the node holds, or what has become of its parts. Without `ask`,
 * the node wants the job's newest set to be written. */
struct msg_flushed {
    uint64_t ask;
    char memory[MEMORY_HELD_MAX_BYTES + 1]; /* as in STOPPED */
    bool failed,
        in_files; /* files have that step, or a newer one: nothing is written */
    char text[ERROR_TEXT_MAX_BYTES + 1]; /* why it failed, or the folder */
};

/* The node keeps a copy of the rendezvous' records, and takes it over if need be. */
struct msg_keeping {
    uint64_t id;   /* as in KEEP */
    uint32_t port; /* where the others reach it; 0: it cannot */
};

/* To a rendezvous that nobody has joined yet but its own node: the job runs already. */
struct msg_elsewhere {
    char run_id[RUN_ID_MAX + 1];
    char endpoints[KEEPERS_MAX_BYTES + 1]; /* of its rendezvous, as in KEEPERS */
    char arguments_hash[65];               /* as in job_config */
};

/* To a witness, about the job of the header: this replica goes on without the other one
 * of its pair, if it is the first that says so. */
struct msg_claim {
    uint64_t pair, self;
};

/* A part of what the library of consensus sends. */
struct msg_replicate {
    bool last;                          /* of a message */
    char text[LOGS_TEXT_MAX_BYTES + 1]; /* in base64 */
};

struct msg_note {
    enum note_kind kind;
    char text[ERROR_TEXT_MAX_BYTES + 1];
};

/* Some ranks of one node that do the same; a node with many groups sends many. */
struct msg_stacks {
    uint64_t ask; /* as in ASK_STACKS */
    bool last;    /* the node sends no more of them */
    enum stacks_kind kind;
    bool waits;                             /* these ranks wait for other ranks */
    char host[HOST_NAME_MAX_BYTES + 1];     /* only in RANK_STACKS */
    char ranks[STACKS_RANKS_MAX_BYTES + 1]; /* "0-3,5"; "": none */
    uint32_t pid;                           /* of the first of them */
    char log[ERROR_TEXT_MAX_BYTES + 1];     /* likewise; "": none */
    char brief[STACKS_BRIEF_MAX_BYTES + 1]; /* "all_reduce (train.py:91, in step)" */
    char threads[STACKS_THREADS_MAX_BYTES + 1]; /* all of it, many lines */
};

/* The newest checkpoint in the memory of the job's nodes shall be in files. */
struct msg_flush_job {
    char run_id[RUN_ID_MAX + 1];
};

struct msg_show_stacks {
    char run_id[RUN_ID_MAX + 1];
    char ranks[STACKS_RANKS_MAX_BYTES + 1]; /* "": all */
};

/*
 * Which output is wanted, of each of the ranks from an offset in its stream. SHOW_LOGS
 * and ASK_LOGS have the same fields.
 */
struct msg_ask_logs {
    uint64_t ask;                /* only in ASK_LOGS */
    char run_id[RUN_ID_MAX + 1]; /* only in SHOW_LOGS */
    uint64_t of_epoch;           /* of the offsets; 0: of the running one */
    enum output_stream stream;
    char ranks[STACKS_RANKS_MAX_BYTES + 1]; /* "0-3,5"; "": see PROTOCOL.md */
    /* for each of them in order, of standard output and error: "120:0 97:13"; those
     * that are left out begin `tail` lines before the end */
    char offsets[LOGS_OFFSETS_MAX_BYTES + 1];
    uint32_t tail;     /* UINT32_MAX: at the beginning */
    uint32_t wait_ms;  /* for output, if there is none yet */
    uint64_t follower; /* only in ASK_LOGS: who asks again and again; 0: nobody */
};

/* A piece of one stream of a rank; a node sends many. */
struct msg_logs {
    uint64_t ask; /* as in ASK_LOGS */
    bool last;    /* the node sends no more of them; it says nothing else */
    enum logs_kind kind;
    char host[HOST_NAME_MAX_BYTES + 1]; /* only in RANK_LOGS */
    uint32_t rank;
    enum output_stream stream;
    uint64_t of_epoch;
    uint64_t offset; /* of the text in the stream: what is before it and was asked for
                      * is not kept */
    uint64_t next;   /* after the text */
    uint64_t size;   /* of the stream up to now */
    bool ended;      /* the rank writes no more in this epoch */
    char where[ERROR_TEXT_MAX_BYTES + 1]; /* PASSED: the file; MISSING, FAILED: why */
    char text[LOGS_TEXT_MAX_BYTES + 1];   /* in base64: any bytes */
};

/*
 * Connections to the store from one host: do they belong to the user of its agent? The
 * node of rank 0 asks the rendezvous (ASK_OWNERS), which asks that host's nodes
 * (FIND_OWNERS). They look the sockets up and answer with the ports of their own user
 * (OWNERS), which the rendezvous passes on (OWNERS_FOUND).
 */
struct msg_ask_owners {
    uint64_t ask;
    char host[ADDRESS_MAX_BYTES + 1];  /* the clients' address, as the store sees it */
    bool rendezvous;                   /* it is also that of the rendezvous */
    char store[ADDRESS_MAX_BYTES + 1]; /* the store's address in these connections */
    uint32_t store_port;
    char ports[OWNERS_PER_ASK * 6]; /* of the clients: "41234 41236" */
};

struct msg_owners {
    uint64_t ask;
    char ports[OWNERS_PER_ASK * 6];
    bool last; /* only in OWNERS_FOUND: no more will be found */
};

/* One page: the jobs in brief (run_id ""), or one job in full with its nodes. */
struct msg_status {
    char run_id[RUN_ID_MAX + 1];
    uint32_t from; /* how many jobs, or nodes of the job, to skip */
};

struct msg_events {
    char run_id[RUN_ID_MAX + 1];
    uint64_t since; /* event numbers greater than this */
    bool follow;
};

/* The past of one job, or one page of the jobs that are over (run_id ""). */
struct msg_show_history {
    char run_id[RUN_ID_MAX + 1];
    uint32_t from; /* where the page begins, as END_OF_LIST says */
};

/* A link to the page of a job, or of all (run_id ""). */
struct msg_ask_page {
    char run_id[RUN_ID_MAX + 1];
};

struct msg_stop_job {
    char run_id[RUN_ID_MAX + 1];
    bool now;
    char user[64]; /* of crunctl, as it says */
};

struct msg_drain {
    char run_id[RUN_ID_MAX + 1];
    char node[HOST_NAME_MAX_BYTES + 1]; /* host name, or slot number */
    char user[USER_MAX_BYTES + 1];      /* as in STOP_JOB */
};

struct msg_welcome {
    uint32_t version;
    char software[32];
    bool durable;
    bool daemon;             /* it is a crund, of many jobs */
    bool witness;            /* likewise, which answers CLAIM */
    bool flush;              /* it knows FLUSH_JOB and FLUSHED */
    struct id128 rendezvous; /* which one it is; zero: not known */
    char confinement[CONFINEMENT_MAX_BYTES + 1];
};

struct msg_refused {
    enum refusal why;
    bool retry; /* the same request may succeed later */
    char text[ERROR_TEXT_MAX_BYTES + 1];
};

struct msg_claimed {
    uint64_t holder; /* the replica that was first */
};

struct msg_joined {
    uint32_t node; /* for RESUME */
    int32_t slot;  /* -1: not placed yet */
    bool spare;
    uint32_t lease_ms;
    char host[HOST_NAME_MAX_BYTES + 1]; /* its name in the job */
};

/* An ACK to crunctl may describe what follows. */
struct msg_ack {
    char text[ERROR_TEXT_MAX_BYTES + 1];
};

/* Answers a heartbeat; while the job forms, it says what is missing. */
struct msg_beat {
    bool waiting;
    uint32_t present, wanted;
    uint64_t left_ms;
    char missing[128]; /* node ranks that no node has asked for: "2, 5" */
    char refused[NOTICE_MAX_BYTES + 1]; /* the last node refused, and why */
};

struct msg_start {
    uint32_t group_rank, group_size;
    uint32_t first_rank, world_size, workers;
    uint32_t role_first_rank, role_world_size; /* within its role; 0 workers: none */
    uint32_t slot;
    uint32_t restarts, max_restarts;
    /* open the store and answer STORE_READY; address and port are unset */
    bool host_store;
    char address[ADDRESS_MAX_BYTES + 1];
    uint32_t port;
    char free_ports[FREE_PORTS_MAX_BYTES + 1]; /* as in msg_store_ready */
    enum job_cause cause;                      /* of this epoch */
    uint64_t past_step; /* the greatest of the epochs before, as far as it is known */
    /* of rank 0's node; "": address, which an agent replaces by that of a tunnel */
    char host[ADDRESS_MAX_BYTES + 1];
    char memory[MEMORY_SET_BYTES + 1]; /* what all ranks restore; "": none of memory */
    /* the agent that keeps copies: "ADDRESS:PORT", the address as in MEMORY_AT; "":
     * none */
    char memory_neighbour[MEMORY_AGENT_BYTES + 1];
};

/*
 * To a node that lacks parts of START.memory: which agents hold some, in one or more
 * messages: "ADDRESS:PORT=0-3+", ranks and sign as in memory_sets.h, separated by
 * spaces. MEMBERS_RENDEZVOUS is the address of the rendezvous' own node.
 */
struct msg_memory_at {
    char holders[MEMORY_HOLDERS_BYTES + 1];
};

/*
 * To the node of rank 0: the addresses that may use the store, separated by spaces, in
 * one or more messages. The word below stands for the node that hosts the rendezvous.
 */
#define MEMBERS_RENDEZVOUS "rendezvous"

struct msg_members {
    char addresses[MEMBERS_PER_PAGE * 46];
};

struct msg_stop {
    uint32_t grace_ms;
    bool last; /* as currently known, the job ends with this stop */
    bool hang; /* after a hang: first send NOTEs with the states of the ranks */
    enum job_cause cause;
    char text[ERROR_TEXT_MAX_BYTES + 1];
};

struct msg_ask_checkpoint {
    uint32_t within_ms;
    enum job_cause cause; /* of the stop that follows: SCALE_UP or DRAIN */
};

struct msg_ask_stacks {
    uint64_t ask;
    char ranks[STACKS_RANKS_MAX_BYTES + 1]; /* only these; "": all */
};

/* First, all nodes shall hold what they have in memory, and report it; then those with
 * parts of the chosen set write them. With neither: nothing is held or written any
 * more. */
struct msg_flush {
    uint64_t ask;
    bool hold;
    char memory[MEMORY_SET_BYTES + 1]; /* the set to write; "": none */
};

/* The node shall keep a copy of the rendezvous' records. */
struct msg_keep {
    uint64_t id;                         /* of its replica */
    uint32_t election_ms;                /* the longest silence of the one that leads */
    char witness[WITNESS_MAX_BYTES + 1]; /* where one of two claims to go on
                                            alone; "": nowhere */
    struct id128 witness_id;             /* of a crund there; else zero */
    bool alone;                          /* it goes on without a proof */
};

/* Where the rendezvous may be: it, and the nodes that could take it over. */
struct msg_keepers {
    char endpoints[KEEPERS_MAX_BYTES + 1]; /* "HOST:PORT,HOST:PORT"; it is the first */
    char hosts[KEEPERS_MAX_BYTES + 1];     /* names, likewise */
    bool safe;                             /* it outlives the loss of one of them */
    bool anew; /* the job runs there, and not here: the node joins that */
    char lost[HOST_NAME_MAX_BYTES + 1]; /* it was there before; "": it has not moved */
    bool silent; /* that node does not answer: no more is known of it */
};

/* One line for the users at every node. */
struct msg_notice {
    char text[NOTICE_MAX_BYTES + 1];
    char kind[24]; /* of the event that it tells; "": unknown */
};

/* Failures that came after the root cause, a line each: HOST RANK WHAT. */
#define AFTERWARDS_LINES_MAX 8
#define AFTERWARDS_MAX_BYTES 1023

/* It would fail again: the exit code of a job that --max-no-progress ends, and of a
 * worker after which no restart follows. */
#define EXIT_CODE_FINAL 78

struct msg_done {
    int32_t exit_code;
    enum job_reason reason;
    char text[ERROR_TEXT_MAX_BYTES + 1];
    uint32_t restarts, max_restarts;
    struct failure failure; /* kind FAILURE_NONE: none */
    char afterwards[AFTERWARDS_MAX_BYTES + 1];
    bool reports; /* of nodes whose output goes to one place, this one tells the user */
    char memory[MEMORY_SET_BYTES + 1]; /* the newest whole one that is held; "": none */
};

/* Where the time of a job went: see membership/time_spent.h */
struct msg_job_time {
    uint64_t productive_ms;
    uint64_t detect_ms, stop_ms, form_ms, start_ms, first_step_ms, rework_ms;
    uint64_t steps_again;
    uint64_t unplaced;
};

struct msg_job_status {
    char run_id[RUN_ID_MAX + 1];
    enum job_state state;
    enum job_cause cause;
    enum job_reason reason;
    char program[PROGRAM_MAX_BYTES + 1];
    struct id128 instance;
    uint64_t epoch;
    uint32_t nodes, spares, workers, min_nodes, max_nodes;
    uint32_t restarts, max_restarts;
    int32_t exit_code;
    uint64_t age_ms;   /* since the job was created */
    uint64_t state_ms; /* in this state */
    char text[ERROR_TEXT_MAX_BYTES + 1];
    char notice[NOTICE_MAX_BYTES + 1];  /* what it waits for now */
    char keepers[NOTICE_MAX_BYTES + 1]; /* as in KEEPERS: hosts, and safe; "": none */
    bool kept_safely;
    struct failure failure;
    struct msg_job_time time, last_restart;
};

struct msg_node_status {
    char run_id[RUN_ID_MAX + 1];
    char host[HOST_NAME_MAX_BYTES + 1];
    char address[ADDRESS_MAX_BYTES + 1];
    uint32_t pid;
    enum node_state state;
    bool connected;
    int32_t slot;       /* -1: none */
    int32_t group_rank; /* -1: none */
    uint32_t first_rank, workers;
    uint64_t heard_ms; /* ago */
    char containment[32];
    struct msg_heartbeat progress;
    uint32_t slowness; /* per cent: 150 takes 1.5 times as long; 0: not known */
};

struct msg_event {
    uint64_t number;
    uint64_t wall_ms;
    char run_id[RUN_ID_MAX + 1];
    uint64_t epoch;
    char kind[24]; /* "joined", "formed", "failed", "lost", ... */
    char host[HOST_NAME_MAX_BYTES + 1];
    char text[ERROR_TEXT_MAX_BYTES + 1];
    uint64_t monotonic_ms; /* by a clock that cannot be set: CLOCK_BOOTTIME */
    struct id128 instance; /* of the job */
    bool of_rank;          /* it is about a rank */
    uint32_t rank;
    char name[JOB_NAME_SIZE]; /* of the job, for people; "": as its run id */
};

/* A piece of the past of a job, a JSON object. */
struct msg_history {
    char text[HISTORY_PIECE_MAX_BYTES + 1];
};

struct msg_page {
    char url[ERROR_TEXT_MAX_BYTES + 1]; /* with the rights of the crunctl that asks */
};

/* For EVENTS: the last number sent. For STATUS and the list of SHOW_HISTORY: where the
 * next page begins, 0: none. */
struct msg_end_of_list {
    uint64_t next;
};

/* One message. The first four fields travel in the frame's header. */
struct msg {
    enum msg_type type;
    uint64_t sequence; /* an ACK and a REFUSED repeat that of the message they answer */
    uint64_t epoch;
    struct id128 instance;
    union {
        struct failure failed;
        struct msg_nothing {
        } nothing;
#define REQUEST(number, name, body, ...) struct msg_##body body;
#define ANSWER(number, name, body, ...) struct msg_##body body;
#define REQUEST_AS(...)
#define ANSWER_AS(...)
#include "rendezvous/wire/protocol/message_table.h"
    };
};

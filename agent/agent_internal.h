/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sysexits.h>

#include "agent/agent.h"
#include "agent/agent_state.h"
#include "agent/deadline.h"
#include "agent/hosting/epoch_store.h"
#include "agent/hosting/host_linger.h"
#include "agent/hosting/rendezvous_host.h"
#include "agent/local_workers.h"
#include "agent/signals.h"
#include "agent/suspension.h"
#include "agent/workers/failure.h"
#include "rendezvous/client/client.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/wire/protocol/job_name.h"
#include "rendezvous/wire/protocol/proto.h"

/*
 * Shared by the files of the agent: agent.c (its parts, from start to end),
 * agent_acts.c (the acts of agent_state.c), agent_workers.c (what happens to the
 * workers), agent_grace.c (the end of an epoch's workers), agent_memory.c (checkpoints
 * in memory), agent_tools.c (what tools of this machine see), agent_orders.c (orders of
 * the rendezvous), agent_outage.c (a rendezvous out of reach), agent_rendezvous.c (one
 * in this process), agent_early_end.c (why this node or the job ends early),
 * agent_signalled_workers.c (workers that end by a signal), agent_leave_unanswered.c (a
 * rendezvous that does not answer then), agent_exit_code.c (how it has ended, and the
 * exit code).
 */
#define EXIT_USAGE 2
#define EXIT_EVICTED EX_TEMPFAIL
#define EXIT_REQUEUE EX_TEMPFAIL

struct event_file;
struct notify;
struct job_messages;
struct local_job;
struct memory_keeper;
struct key_ring;
struct socket_relays;
struct status_line;

struct agent {
    const struct config *config;
    struct loop *loop;
    struct key_ring *keys; /* NULL: none, or nothing leaves this process */
    struct local_workers workers;
    struct memory_keeper *memory;  /* NULL: there can be none */
    struct loop_timer flush_timer; /* --memory-flush */
    uint64_t flushed_step;         /* the newest that a flush was to write */
    bool warned_of_flush;
    char *holders; /* of MEMORY_AT, in that epoch; NULL: none */
    uint64_t holders_epoch;
    uint64_t restored_step; /* with which its workers have begun; 0: files or nothing */
    struct event_file *events;
    struct notify *notify; /* NULL: none */
    struct status_line *status_line;
    struct job_messages *messages;
    struct local_job *local; /* for tools of this machine */
    struct socket_relays *relays;
    char instance[ID128_HEX_SIZE], name[JOB_NAME_SIZE], *log_folder; /* its facts */
    uint64_t last_step;                                              /* at the end */
    struct cJSON *past; /* the same of a job that this crun has hosted; NULL: none */
    struct rendezvous_host rendezvous;
    char keeper[HOST_NAME_MAX_BYTES + 1]; /* the node that hosts it, if others could */
    char *elsewhere; /* where the job runs, if not at its endpoints; NULL: there */
    struct loop_timer leave_timer;
    bool is_of_pair;     /* two nodes keep its records */
    bool is_left_behind; /* the other one has claimed to go on */
    bool has_keepers;    /* others keep its records, or begin to */
    bool has_hosted;     /* the rendezvous is or was in this process */
    struct client *client;
    struct epoch_store store; /* while an epoch runs and this node has rank 0 */

    enum agent_state state;
    struct msg_start start;
    struct msg_stop stop;
    uint64_t epoch;
    struct failure_list failures; /* of this node, in this epoch */
    struct failure_list held;     /* may be the work of a signal that crun gets too */
    struct loop_timer held_timer;
    struct unanswered { /* a request of this node to leave, or to end the job */
        struct loop_timer timer;
        uint64_t asked_ms,
            due_ms;         /* then it leaves without an answer; 0: none is due */
        bool warned, alone; /* a message was printed; it leaves */
        int exit_code;
    } unanswered;
    struct loop_timer last_checkpoint; /* before this node gives the job up */
    uint64_t obeys_until_ms;           /* the time that the last order may take */
    enum agent_event workers_end;      /* handled once all output is shown */

    char host[HOST_NAME_MAX_BYTES + 1]; /* once joined, its name in the job */
    const char *containment;            /* as sent when joining */
    bool has_joined;
    bool warned_of_daemon; /* flags that are for a rendezvous of its own */
    struct signals signals;
    struct suspension suspension;
    struct deadline deadline;
    int signo;             /* the last one from the user or the scheduler */
    uint64_t signalled_ms; /* when SIGTERM or SIGUSR1 came last; 0: never */
    int leave_code;        /* if this node leaves; 0: it does not */
    bool stops_fast;
    bool stop_waits; /* until the stacks of a hang are taken */
    char guard_died_why[ERROR_TEXT_MAX_BYTES + 1];
    struct msg_done result;
    int exit_code;
    struct host_linger linger;
};

/* -- agent_acts.c ------------------------------------------------------------------ */

/* Sends the message to the rendezvous, as one of this epoch. */
void agent_send_report(struct agent *a, struct msg *m);
/* The event's edge in the table of agent_state.c is taken. */
void agent_handle_event(struct agent *a, enum agent_event event);
/* The last act: nothing of the job is alive here. */
void agent_leave(struct agent *a);

/* -- agent_workers.c --------------------------------------------------------------- */

int agent_open_workers(struct agent *a, struct err *e) MUST_CHECK;

/* -- agent_rendezvous.c ------------------------------------------------------------ */

int agent_open_rendezvous(struct agent *a, struct err *e) MUST_CHECK;
/* If this node hosts the rendezvous, it cannot leave before the others. */
void agent_note_host(struct agent *a);
/* The job of this name has gone on without this node, which was started again. */
void agent_join_elsewhere(void *agent, const char *endpoints);
/* The agent cannot go on. */
void agent_on_fatal(void *agent, const char *why);

/* -- agent_grace.c ----------------------------------------------------------------- */

/* Performs a->stop, also when it has become more urgent. */
void agent_act_stop(struct agent *a);
void agent_on_stacks_taken(void *agent);
/* This node leaves, or the job ends: not by an order. */
void agent_act_end(struct agent *a);

/* -- agent_memory.c ---------------------------------------------------------------- */

void agent_open_memory(struct agent *a);
void agent_close_memory(struct agent *a);
/* An order: hold what is in memory, write it to files, or let go of it. */
void agent_on_flush(struct agent *a, const struct msg *m);
/* The epoch's workers are about to start. */
void agent_begin_memory(struct agent *a);
/* Before it: agents that hold what this node lacks. */
void agent_note_holders(struct agent *a, const struct msg *m);
/* For a heartbeat. */
void agent_fill_memory(struct agent *a, struct msg_memory *memory);
/* No worker of the epoch lives: sends STOPPED, with what is left in memory. */
void agent_end_memory(struct agent *a);
/* The job is over here: what is newest in memory goes to files; then agent_leave. */
void agent_flush_memory(struct agent *a);

/* -- agent_tools.c ---------------------------------------------------------------- */

/* From here on, tools of this machine find this crun. */
void agent_open_local(struct agent *a);
/* Before the parts end: what only they know. */
void agent_keep_facts(struct agent *a);
/* Likewise what the rendezvous knows of the job, before it ends. */
void agent_keep_past(struct agent *a);
/* What is known of the job has changed. */
void agent_update_local(struct agent *a);
/* An event of the rendezvous in this process. */
void agent_note_host_event(void *arg, const struct msg_event *event);
bool agent_has_formed(const struct agent *a);
void agent_end_local(struct agent *a, const struct failure_report *report);

/* -- agent_exit_code.c ------------------------------------------------------------- */

/* The job's, if the signal that has come ends it. */
int agent_code_of_signal(const struct agent *a);
/* Of a crun that the rendezvous refuses. */
int agent_code_of_refusal(enum refusal why);
/* "success", "failure", ..., or how it ended without an order: "lost", "not-formed". */
const char *agent_result_name(const struct agent *a);
/* "done", "left", or how it ended without an order. */
const char *agent_end_state(const struct agent *a);
/* Prints how the job has ended, and sets the exit code. */
void agent_take_exit_code(struct agent *a, const struct msg_done *done);
void agent_report_result(struct agent *a, const struct logs_end *end);

/* -- agent_orders.c ---------------------------------------------------------------- */

/* unfit: why this node can run no workers, or "". */
int agent_join_job(struct agent *a, const char *unfit, struct err *e) MUST_CHECK;

/* -- agent_outage.c ---------------------------------------------------------------- */

/* The client's calls. */
void agent_on_outage(void *agent, bool out, const char *why);
void agent_on_last_checkpoint(void *agent);
void agent_on_fence(void *agent, uint64_t until_ms);
void agent_on_abandoned(void *agent, const char *why);

/* -- agent_early_end.c ------------------------------------------------------------- */

/* From here on, signals and the deadline end this node or the job. */
void agent_watch_ends(struct agent *a);

/* -- agent_signalled_workers.c ----------------------------------------------------- */

/* Before the workers can fail. */
void agent_init_signalled(struct agent *a);
void agent_on_group_failed(void *arg, const struct failure *f);
void agent_drop_held_failures(struct agent *a);
void agent_leave_without_workers(struct agent *a);

/* -- agent_leave_unanswered.c ------------------------------------------------------ */

void agent_init_unanswered(struct agent *a);
/* This node has asked for its end, or that of the job. */
void agent_await_answer(struct agent *a, int exit_code);
/* Kills the workers. An answer that was to come has a moment still. */
void agent_hurry_answer(struct agent *a);
/* If it leaves without the rendezvous, and its workers are gone. */
void agent_leave_alone(struct agent *a);

/* SPDX-License-Identifier: MIT */
#pragma once

/* The enums in messages. Most travel as words: proto_words.h has them. */

/* Why a request is refused; each has a name on the wire. */
enum refusal {
    REFUSED_NONE,
    REFUSED_VERSION,   /* no common protocol version */
    REFUSED_MALFORMED, /* not a message, or not allowed now */
    REFUSED_CONFIG,    /* same run id, another configuration */
    REFUSED_RUN_ID,    /* "none" on a standalone daemon */
    REFUSED_SLOT,      /* node rank taken or out of range */
    REFUSED_FULL,      /* too many nodes, jobs or connections */
    REFUSED_NO_SPACE,  /* the daemon's disk is full */
    REFUSED_FENCED,    /* an evicted node, another instance, an older epoch */
    REFUSED_ENDED,     /* the job has a result */
    REFUSED_UNKNOWN,   /* no such job or node */
    REFUSED_MIN,       /* too few nodes would remain */
    REFUSED_BUSY,      /* not now */
    REFUSED_UNFIT,     /* the node has found a fault in itself */
    REFUSED_ACCESS,    /* the key in use does not allow it */
    REFUSED_COUNT
};

enum failure_kind {
    FAILURE_NONE,
    FAILURE_EXIT,   /* code: exit code */
    FAILURE_SIGNAL, /* code: signal */
    FAILURE_EXEC,   /* code: errno; the program could not be started */
    FAILURE_LOST,   /* the node was lost */
    FAILURE_HANG,   /* no progress */
    FAILURE_AGENT,  /* the agent could not do its work */
    FAILURE_KIND_COUNT
};

/*
 * The states of a job's membership:
 *
 * FORMING   Nodes wait to be placed; nothing of the job runs. The last join that is
 *           needed, or a tick, starts an epoch (RUNNING). The join timeout or a user
 *           ends the job (DONE).
 * RUNNING   All members run the same epoch, or are about to. The node of rank 0 gets
 *           START first and opens the store; its STORE_READY starts the others. Once
 *           all members have finished, the job is DONE; all else stops the epoch.
 * STOPPING  All members were ordered to stop. The epoch is over when each of them has
 *           reported that no process of it is alive, or is lost. The cause of the stop,
 *           and whether the job ends with it, are kept apart from the state.
 * DONE      There is a result. Nodes receive it, answer BYE and leave.
 *
 * These and the words below are names on the wire. A peer may send any other word: it
 * is read as UNKNOWN, which is never sent. The numbers of state, cause and reason are
 * in the journal: they never change.
 */
enum job_state {
    JOB_FORMING,
    JOB_RUNNING,
    JOB_STOPPING,
    JOB_DONE,
    JOB_STATE_COUNT,
    JOB_STATE_UNKNOWN = JOB_STATE_COUNT
};

/* Why an epoch was stopped, or why there is one. */
enum job_cause {
    JOB_CAUSE_NONE,
    JOB_CAUSE_FAILURE,  /* a worker failed */
    JOB_CAUSE_LOST,     /* a node was lost */
    JOB_CAUSE_SCALE_UP, /* a new node is taken in */
    JOB_CAUSE_DRAIN,    /* a node leaves in good order */
    JOB_CAUSE_USER,     /* a user or a scheduler ends the job */
    JOB_CAUSE_FIRST,    /* only of START: there was no epoch before */
    JOB_CAUSE_COUNT,
    JOB_CAUSE_UNKNOWN = JOB_CAUSE_COUNT
};

/* Why a job, or a node's part in it, has ended. */
enum job_reason {
    JOB_REASON_NONE,
    JOB_REASON_SUCCESS,
    JOB_REASON_FAILURE,    /* a worker failed and no restart was left */
    JOB_REASON_LOST,       /* a node was lost and cannot be replaced */
    JOB_REASON_NOT_FORMED, /* too few nodes in time */
    JOB_REASON_USER,       /* ended by a user or a scheduler */
    JOB_REASON_RELEASED,   /* only of DONE: this node has left, the job continues */
    JOB_REASON_COUNT,
    JOB_REASON_UNKNOWN = JOB_REASON_COUNT
};

/* When a new node below the maximum is taken in. */
enum job_scale {
    JOB_SCALE_NOW,
    JOB_SCALE_CHECKPOINT,
    JOB_SCALE_NEVER,
    JOB_SCALE_COUNT,
    JOB_SCALE_UNKNOWN = JOB_SCALE_COUNT
};

/* Which connections of other machines the store of rank 0 takes: those of the job's
 * user, or all of a member's address. */
enum store_auth {
    STORE_AUTH_AUTO, /* by user in a job with a key, else by address */
    STORE_AUTH_USER,
    STORE_AUTH_ADDRESS,
    STORE_AUTH_COUNT,
    STORE_AUTH_UNKNOWN = STORE_AUTH_COUNT
};

/* The activity of a node, as crunctl shows it. */
enum node_state {
    NODE_WAITING,
    NODE_STARTING,
    NODE_RUNNING,
    NODE_FINISHED,
    NODE_STOPPING,
    NODE_STOPPED,
    NODE_LEAVING,
    NODE_SPARE,
    NODE_QUARANTINED,
    NODE_DONE,
    NODE_STATE_COUNT,
    NODE_STATE_UNKNOWN = NODE_STATE_COUNT
};

enum peer_kind { PEER_NONE, PEER_AGENT, PEER_CTL, PEER_REPLICA, PEER_KIND_COUNT };

enum note_kind {
    NOTE_RANK,      /* the state of a rank while its epoch hangs */
    NOTE_STRAGGLER, /* the others wait for a rank */
    NOTE_NAN,       /* the loss is not a number any more */
    NOTE_XID,       /* the driver reported an error of a rank's GPU */
    NOTE_ECC,       /* a rank's GPU has bad memory */
    NOTE_GPU,       /* another trouble of a rank's GPU */
    NOTE_PREFLIGHT, /* why this node is about to leave */
    NOTE_LEFTOVER,  /* processes that ran on after their workers were ended */
    NOTE_KIND_COUNT,
    NOTE_KIND_UNKNOWN = NOTE_KIND_COUNT
};

/* Whether a failure has a cause of its own, or reads as if another rank caused it: the
 * likelier cause first. The agent of the worker decides; a peer may send any other
 * word, which counts as OWN. */
enum failure_origin {
    FAILURE_ORIGIN_OWN,
    FAILURE_ORIGIN_LATER, /* a rank that has not ended wrote its error before this one
                           */
    FAILURE_ORIGIN_PEER,  /* such as a connection that another rank has closed */
    FAILURE_ORIGIN_COUNT,
    FAILURE_ORIGIN_UNKNOWN = FAILURE_ORIGIN_COUNT
};

/* What is known about the stacks of some ranks. */
enum stacks_kind {
    STACKS_PYTHON,  /* the stacks of its Python threads */
    STACKS_PAGE,    /* what its status page and /proc show */
    STACKS_SILENT,  /* it does not answer: stopped, frozen, ... */
    STACKS_ENDED,   /* the process has ended */
    STACKS_MISSING, /* only from the rendezvous: the node has not answered */
    STACKS_KIND_COUNT,
    STACKS_KIND_UNKNOWN = STACKS_KIND_COUNT
};

/* Which output of a rank. */
enum output_stream {
    OUTPUT_BOTH,
    OUTPUT_STDOUT,
    OUTPUT_STDERR,
    OUTPUT_STREAM_COUNT,
    OUTPUT_STREAM_UNKNOWN = OUTPUT_STREAM_COUNT
};

/* What is known about the output of a rank. */
enum logs_kind {
    LOGS_TEXT,    /* the text itself */
    LOGS_PASSED,  /* it goes to a file or device without passing through crun */
    LOGS_NOWHERE, /* it is thrown away */
    LOGS_MERGED,  /* standard error, which goes with standard output */
    LOGS_FAILED,  /* its log file cannot be read, or lacks output */
    LOGS_MISSING, /* only from the rendezvous: the node has not answered */
    LOGS_KIND_COUNT,
    LOGS_KIND_UNKNOWN = LOGS_KIND_COUNT
};

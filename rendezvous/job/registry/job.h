/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/common/base/histogram.h"
#include "rendezvous/job/membership/membership.h"
#include "rendezvous/wire/protocol/job_name.h"
#include "rendezvous/wire/protocol/job_owner.h"
#include "rendezvous/wire/protocol/message.h"

struct job_history;
struct memory_sets;
struct registry_peer;

/*
 * One job: its membership, and the data that plays no part in decisions: names,
 * addresses, texts of failures, connections. Data only: the registry steps and shows
 * it, job_records.c keeps it.
 */
struct job_node {
    char host[HOST_NAME_MAX_BYTES + 1];
    char address[ADDRESS_MAX_BYTES + 1]; /* as given in JOIN; may be "" */
    char seen[ADDRESS_MAX_BYTES + 1];    /* the source of its connection */
    char containment[32];
    char role[ROLE_MAX_BYTES + 1];             /* "": ROLE_DEFAULT */
    uint32_t role_first_rank, role_world_size; /* in the epoch: see worker_roles.h */
    uint32_t source;                           /* see sources.h */
    uint32_t pid;
    uint32_t memory_port; /* as in JOIN; not kept in the journal */
    char drained_by[160]; /* "crunctl drain from ...", "": nothing has asked for it */
    struct msg_heartbeat progress;
    uint64_t progress_epoch; /* in which it was told */
    bool same_arguments;     /* as the job's first node; not known after a restart */
    uint64_t wanted_at;      /* when another node asked for its slot; 0: heard from */
    struct registry_peer *peer; /* NULL while it is disconnected */
    uint64_t keeper;            /* its replica was asked for by this id; 0: none was */
};

/* What has made a job form again. */
enum job_restart {
    JOB_RESTART_FAILURE,
    JOB_RESTART_LOST,
    JOB_RESTART_HANG,
    JOB_RESTART_SCALE_UP,
    JOB_RESTART_DRAIN,
    JOB_RESTART_COUNT
};

/* The word of each, as in the histories of epochs. */
extern const char *const job_restart_names[JOB_RESTART_COUNT];

/* From the first JOIN on; for the metrics, which never let a count fall. */
struct job_counts {
    uint64_t epoch; /* the last one whose stop is counted */
    uint32_t restarts[JOB_RESTART_COUNT];
    uint32_t hangs;              /* the one that ends the job too */
    struct histogram recovery;   /* of JOB_RECOVERY_UNIT_US; not kept in the journal */
    uint64_t moved_ms;           /* when a node last told of a new step; 0: none has */
    struct time_spent_sums told; /* the greatest that job_report_time has returned */
};

#define JOB_RECOVERY_UNIT_US 1000000

struct job {
    struct job *next; /* what each JOIN reads of all jobs is together */
    uint64_t done_ms;
    uint32_t source; /* of its first JOIN, see sources.h */
    char run_id[RUN_ID_MAX + 1];
    char name[JOB_NAME_SIZE]; /* for people, see job_name.h */
    struct job_owner owner;
    struct membership membership;
    struct job_counts counts;
    struct job_node **node; /* by the membership's index */
    uint32_t *name_hash;    /* of each node's host, to find it quickly; 0: none */
    uint32_t *seen_hash;    /* likewise of its `seen` */
    char store_address[ADDRESS_MAX_BYTES + 1];
    uint32_t store_port; /* of STORE_READY, as are the next */
    char free_ports[FREE_PORTS_MAX_BYTES + 1];
    struct failure failure; /* the root cause of the last stop */
    char text[ERROR_TEXT_MAX_BYTES +
              1];       /* the root cause or the result, as a sentence */
    char ended_by[256]; /* a person or a scheduler: "stopped by ...", "" until then.
                         * Only for its nodes: it may tell pids and addresses */
    char change[256];   /* the nodes for which a planned stop is made */
    char afterwards[AFTERWARDS_MAX_BYTES + 1]; /* failures that followed: see DONE */
    char refused[NOTICE_MAX_BYTES + 1];        /* the last node refused while forming */
    bool arguments_reported;                   /* a notice said that arguments differ */
    char software[32];                 /* of its first node; "" after a restart */
    char builds[NOTICE_MAX_BYTES + 1]; /* that another's differs; "": none does */
    uint32_t notes;                    /* taken in this epoch */
    uint32_t reporter;      /* the node that says how the job ended; MEMBERSHIP_NONE */
    uint32_t usual_busy;    /* the median of the nodes' HEARTBEAT.usual_busy; 0: none */
    uint64_t usual_busy_at; /* when it was computed */
    uint64_t silence_epoch; /* in which silence was reported */
    uint32_t silent_ms;     /* how long it had lasted */
    uint64_t roles_epoch;   /* for which ranks of roles are set */
    struct memory_sets *memory; /* what its nodes hold; NULL: nothing was reported */
    uint64_t memory_epoch; /* for which the set was chosen; all ones: for the end */
    char memory_set[MEMORY_SET_BYTES + 1]; /* that its workers restore; "": none */
    uint64_t created_wall_ms;              /* kept when the daemon restarts */
    uint64_t stepped_ms, stepped_wall_ms;  /* when its membership was stepped last */
    struct job_history *history;
    uint64_t next_sample_ms; /* of its curve, at the earliest */
    uint64_t archive_ms;     /* it is written to the archive then; UINT64_MAX: it was */
};

struct job *job_create(const char *run_id, const struct job_config *config,
                       const struct id128 *instance, uint64_t now_ms);
void job_destroy(struct job *j); /* NULL is fine */

/* The record of a node that has just joined or is restored. */
struct job_node *job_add_node(struct job *j, uint32_t index);
void job_drop_node(struct job *j, uint32_t index);

/* The address that a node's connection comes from, and the nodes of one such address:
 * the first after `after` (MEMBERSHIP_NONE: of all), or MEMBERSHIP_NONE. */
void job_set_seen(struct job *j, uint32_t index, const char *address);
uint32_t job_next_seen_at(const struct job *j, const char *address, uint32_t after);

/* As it is shown to users. */
enum node_state job_node_state(const struct job *j, uint32_t index);

/* Its state is about to be saved: counts the stop, if it has just ended. */
void job_count_stop(struct job *j);
/*
 * Where its time went, in numbers that never fall. An error may be told late, and then
 * begins in the past: productive time becomes time to detect. So the time since the
 * last step that a node has told of is left out, as long as the job tells of steps; and
 * what was returned once is never less later.
 */
const struct time_spent_sums *job_report_time(struct job *j, uint64_t now_ms);
/* A heartbeat has come: of that node, not taken yet. */
void job_note_step(struct job *j, uint32_t index, const struct msg_heartbeat *progress,
                   uint64_t now_ms);
/* Of an agent that has not heard yet that a new epoch runs, the steps are left out. */
void job_take_progress(struct job *j, uint32_t index, uint64_t epoch,
                       const struct msg_heartbeat *progress);
/* A heartbeat has been taken. */
void job_note_busy(struct job *j, uint64_t now_ms);
/* A new epoch runs. */
void job_forget_steps(struct job *j);
/* How long the node's slowest worker takes for a step, in per cent of what the median
 * worker of the job would take; 0: not known. */
uint32_t job_slowness(const struct job *j, uint32_t index);

/* Name a node after its host: "a100-04", or "a100-04:7" with the node's number if a
 * connected node has that name already. host "": the name is set already, only index
 * it. */
void job_name_node(struct job *j, uint32_t index, const char *host);

/* The name of the first setting that differs, with both values in buf, or NULL.
 * job_settings.c lists the settings. */
const char *job_config_difference(const struct job_config *ours,
                                  const struct job_config *theirs, char *buf,
                                  size_t size);

/* Whether the arguments of a node differ, which is allowed but seldom intended. */
bool job_has_same_arguments(const struct job_config *ours,
                            const struct job_config *theirs);
/* The job can lose a node and continue: it has spares, or fewer nodes are enough. */
bool job_can_spare(const struct job_config *config);

/* False, with the reason in why, if no job can have this configuration. */
bool job_config_is_valid(const struct job_config *c, char *why, size_t size);

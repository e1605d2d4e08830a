/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_REGISTRY_JOB_H
#define RENDEZVOUS_REGISTRY_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/protocol/message.h"
#include "rendezvous/membership/membership.h"

struct registry_peer;

/*
 * One job: its membership, and everything the membership does not decide about: names,
 * addresses, the text of failures, who is connected. Data only; the registry steps and
 * shows it, job_records.c keeps it.
 */
struct job_node {
    char host[HOST_NAME_MAX_BYTES + 1];
    char address[ADDRESS_MAX_BYTES + 1]; /* as the node gave it; may be "" */
    char seen[ADDRESS_MAX_BYTES + 1];    /* where its connection comes from */
    char containment[32];
    char role[ROLE_MAX_BYTES + 1];             /* "": ROLE_DEFAULT */
    uint32_t role_first_rank, role_world_size; /* in the epoch: see roles.h */
    uint32_t pid;
    struct msg_heartbeat progress;
    bool same_arguments; /* as the job's first node; not known after a restart */
    uint64_t wanted_at;  /* its place, by another; 0: not, or it was heard since */
    struct registry_peer *peer; /* NULL while it is away */
};

struct job {
    char run_id[RUN_ID_MAX + 1];
    struct membership membership;
    struct job_node **node; /* by the membership's index */
    uint32_t *name_hash;    /* of each node's host, 0: none; to find one quickly */
    char store_address[ADDRESS_MAX_BYTES + 1];
    uint32_t store_port;
    struct failure failure;              /* the root cause of the last stop */
    char text[ERROR_TEXT_MAX_BYTES + 1]; /* the same, or the result, as one sentence */
    char change[256]; /* who comes or leaves, where that is why it stops */
    char afterwards[AFTERWARDS_MAX_BYTES + 1]; /* failures that followed: see DONE */
    char refused[NOTICE_MAX_BYTES + 1]; /* who was not let in last, while it forms */
    bool told_of_arguments;             /* people were, that they differ */
    uint32_t notes;                     /* that were taken in this epoch */
    uint64_t roles_epoch;               /* for which roles are counted */
    uint64_t created_wall_ms; /* for people, over all lives of the rendezvous */
    uint64_t done_ms;
    struct job *next;
};

struct job *job_create(const char *run_id, const struct job_config *config,
                       const struct id128 *instance, uint64_t now_ms);
void job_destroy(struct job *j); /* NULL is fine */

/* The record of a node that has just joined or is restored. */
struct job_node *job_add_node(struct job *j, uint32_t index);
void job_drop_node(struct job *j, uint32_t index);

/* What people call it is its host name: "a100-04", or "a100-04:7" with the node's
 * number where another that is connected has that name already. "": it has its name. */
void job_name_node(struct job *j, uint32_t index, const char *host);

/* "" if the same, else which setting differs, with both values. Returns buf. */
char *job_config_difference(const struct job_config *ours,
                            const struct job_config *theirs, char *buf, size_t size);

/* They may differ between nodes, but seldom on purpose. */
bool job_has_same_arguments(const struct job_config *ours,
                            const struct job_config *theirs);
/* Fewer nodes than it may have are enough, or more are kept. */
bool job_can_spare(const struct job_config *config);

/* Behind a worker's end that is final: only this flag makes it so. */
#define JOB_FINAL_WORDS " (final by --no-restart-on)"

/* "rank 5 on a100-04 exited with code 85". Returns buf. */
char *job_describe_failure(const struct failure *f, char *buf, size_t size);
/* The same without rank and host: "exit code 85". Returns buf. */
char *job_describe_end(const struct failure *f, char *buf, size_t size);

/* A line about a rank of the epoch that hung: into the failure, while there is room. */
void job_add_rank_note(struct job *j, const char *host, const char *text);

/* What `crun` ends with if this failure ends the job: 1 to 255, whatever it says. */
int job_exit_code(const struct failure *f);

/* False, with the reason, if no job can have this configuration. */
bool job_config_is_valid(const struct job_config *c, char *why, size_t size);

#endif

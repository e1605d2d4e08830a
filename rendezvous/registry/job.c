/* SPDX-License-Identifier: MIT */
#include "rendezvous/registry/job.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/hash.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/protocol/proto.h"

/* Spares that a job can hold beside its members. */
static uint32_t spares_max(const struct job_config *c)
{
    uint32_t most = c->max_nodes < 64 ? 64 : c->max_nodes;

    return c->limit_spares && c->spares > most ? c->spares : most;
}

/*
 * How long a node may be without a connection. Under the strict fence agents end their
 * workers at a part of the lease; its place is given away no sooner.
 */
static uint32_t reconnect_grace_of(const struct job_config *c)
{
    uint32_t grace = c->lease_ms / HEARTBEATS_PER_LEASE;

    if (c->strict_fence)
        return c->lease_ms;
    return grace < RECONNECT_GRACE_MS_MAX ? grace : RECONNECT_GRACE_MS_MAX;
}

static struct membership_config membership_config_of(const struct job_config *c)
{
    return (struct membership_config){
        .min_nodes = c->min_nodes,
        .max_nodes = c->max_nodes,
        .max_restarts = c->max_restarts,
        .limit_spares = c->limit_spares,
        .spares = c->spares,
        .min_uptime_ms = c->restart_min_uptime_ms,
        .backoff_ms = c->restart_backoff_ms,
        .quarantine = c->quarantine,
        .lease_ms = c->lease_ms,
        .reconnect_grace_ms = reconnect_grace_of(c),
        .join_timeout_ms = c->join_timeout_ms,
        .last_call_ms = c->last_call_ms,
        .shutdown_grace_ms = c->shutdown_grace_ms,
        .failure_grace_ms = c->failure_grace_ms,
        .scale = c->scale,
    };
}

struct job *job_create(const char *run_id, const struct job_config *config,
                       const struct id128 *instance, uint64_t now_ms)
{
    struct job *j = xcalloc(1, sizeof(*j));
    struct membership_config rc = membership_config_of(config);
    uint32_t capacity = rc.max_nodes + spares_max(config);
    struct membership_memory memory = {
        .capacity = capacity,
        .node = xcalloc(capacity, sizeof(*memory.node)),
        .bucket = xcalloc(capacity, sizeof(*memory.bucket)),
        .slot_node = xcalloc(rc.max_nodes, sizeof(*memory.slot_node)),
        .slot_identity = xcalloc(rc.max_nodes, sizeof(*memory.slot_identity))
    };

    snprintf(j->run_id, sizeof(j->run_id), "%s", run_id);
    j->config = *config;
    j->node = xcalloc(capacity, sizeof(*j->node));
    j->name_hash = xcalloc(capacity, sizeof(*j->name_hash));
    membership_init(&j->round, &rc, instance, &memory, now_ms);
    return j;
}

void job_destroy(struct job *j)
{
    if (!j)
        return;
    for (uint32_t i = 0; i < j->round.capacity; i++)
        free(j->node[i]);
    free(j->node);
    free(j->name_hash);
    free(j->round.node);
    free(j->round.slot_node);
    free(j->round.bucket);
    free(j->round.slot_identity);
    free(j);
}

struct job_node *job_add_node(struct job *j, uint32_t index)
{
    if (!j->node[index])
        j->node[index] = xcalloc(1, sizeof(struct job_node));
    return j->node[index];
}

void job_drop_node(struct job *j, uint32_t index)
{
    free(j->node[index]);
    j->node[index] = NULL;
    j->name_hash[index] = 0;
}

/* 0 is for none. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = (uint32_t)hash_fnv1a(HASH_FNV1A_BASIS, name, strlen(name));

    return hash ? hash : 1;
}

static bool is_taken(const struct job *j, uint32_t index, const char *name)
{
    uint32_t hash = hash_of(name);

    for (uint32_t i = 0; i < j->round.capacity; i++)
        if (j->name_hash[i] == hash && i != index && j->node[i]->peer &&
            strcmp(j->node[i]->host, name) == 0)
            return true;
    return false;
}

void job_name_node(struct job *j, uint32_t index, const char *host)
{
    enum { NUMBER_LENGTH = sizeof(":4294967295") - 1 };
    struct job_node *n = j->node[index];

    if (*host && is_taken(j, index, host))
        snprintf(n->host, sizeof(n->host), "%.*s:%" PRIu32,
                 HOST_NAME_MAX_BYTES - NUMBER_LENGTH, host, index);
    else if (*host)
        snprintf(n->host, sizeof(n->host), "%s", host);
    j->name_hash[index] = hash_of(n->host);
}

/* The settings of a job: how each is called, and what it may be. */
static const struct setting {
    const char *flag;
    size_t offset;
    uint32_t min, max;
} settings[] = {
    { "the smallest number of nodes", offsetof(struct job_config, min_nodes), 1,
      NODES_MAX },
    { "the largest number of nodes", offsetof(struct job_config, max_nodes), 1,
      NODES_MAX },
    { "--max-restarts", offsetof(struct job_config, max_restarts), 0, RESTARTS_MAX },
    { "the lease (ms)", offsetof(struct job_config, lease_ms), LEASE_MS_MIN,
      LEASE_MS_MAX },
    { "the join timeout (ms)", offsetof(struct job_config, join_timeout_ms), 1,
      UINT32_MAX },
    { "the last call (ms)", offsetof(struct job_config, last_call_ms), 0, UINT32_MAX },
    { "--shutdown-timeout (ms)", offsetof(struct job_config, shutdown_grace_ms), 0,
      UINT32_MAX },
    { "--failure-grace (ms)", offsetof(struct job_config, failure_grace_ms), 0,
      UINT32_MAX },
    { "--restart-min-uptime (ms)", offsetof(struct job_config, restart_min_uptime_ms),
      0, UINT32_MAX },
    { "--restart-backoff (ms)", offsetof(struct job_config, restart_backoff_ms), 0,
      UINT32_MAX },
    { "quarantine", offsetof(struct job_config, quarantine), 0, QUARANTINE_MAX },
    { "--spares", offsetof(struct job_config, spares), 0, NODES_MAX },
};
#define SETTING_COUNT (sizeof(settings) / sizeof(settings[0]))

static uint32_t setting_value(const struct job_config *c, const struct setting *s)
{
    return *(const uint32_t *)(const void *)((const char *)c + s->offset);
}

static const char *or_none(const char *text)
{
    return *text ? text : "not given";
}

static const char *spares_text(const struct job_config *c, char buf[16])
{
    snprintf(buf, 16, c->limit_spares ? "%" PRIu32 : "not given", c->spares);
    return buf;
}

/* "" if the same but for the numbers. */
static void compare_words(const struct job_config *ours,
                          const struct job_config *theirs, char *buf, size_t size)
{
    char a[16], b[16];

    if (ours->scale != theirs->scale)
        snprintf(buf, size, "the scale-up policy is %s in the job and %s here",
                 proto_scale_name(ours->scale), proto_scale_name(theirs->scale));
    else if (ours->strict_fence != theirs->strict_fence)
        snprintf(buf, size, "--fence is %s in the job and %s here",
                 ours->strict_fence ? "strict" : "grace",
                 theirs->strict_fence ? "strict" : "grace");
    else if (ours->preflight != theirs->preflight)
        snprintf(buf, size, "--preflight is %s in the job and %s here",
                 ours->preflight ? "given" : "not given",
                 theirs->preflight ? "given" : "not given");
    else if (ours->limit_spares != theirs->limit_spares)
        snprintf(buf, size, "--spares is %s in the job and %s here",
                 spares_text(ours, a), spares_text(theirs, b));
    else if (strcmp(ours->no_restart_on, theirs->no_restart_on) != 0)
        snprintf(buf, size, "--no-restart-on is %s in the job and %s here",
                 or_none(ours->no_restart_on), or_none(theirs->no_restart_on));
    else if (strcmp(ours->program, theirs->program) != 0 &&
             !job_has_same_arguments(ours, theirs)) /* its name may have been cut */
        snprintf(buf, size, "the program is %s in the job and %s here", ours->program,
                 theirs->program);
}

bool job_can_spare(const struct job_config *config)
{
    return config->min_nodes < config->max_nodes || config->spares > 0;
}

bool job_has_same_arguments(const struct job_config *ours,
                            const struct job_config *theirs)
{
    return strcmp(ours->arguments_hash, theirs->arguments_hash) == 0;
}

char *job_config_difference(const struct job_config *ours,
                            const struct job_config *theirs, char *buf, size_t size)
{
    buf[0] = '\0';
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        uint32_t a = setting_value(ours, &settings[i]);
        uint32_t b = setting_value(theirs, &settings[i]);

        if (a != b) {
            snprintf(buf, size, "%s is %" PRIu32 " in the job and %" PRIu32 " here",
                     settings[i].flag, a, b);
            return buf;
        }
    }
    compare_words(ours, theirs, buf, size);
    return buf;
}

bool job_config_is_valid(const struct job_config *c, char *why, size_t size)
{
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        uint32_t v = setting_value(c, &settings[i]);

        if (v < settings[i].min || v > settings[i].max) {
            snprintf(why, size, "%s is %" PRIu32 ", allowed is %" PRIu32 " to %" PRIu32,
                     settings[i].flag, v, settings[i].min, settings[i].max);
            return false;
        }
    }
    if (c->min_nodes > c->max_nodes) {
        snprintf(why, size,
                 "%" PRIu32 ":%" PRIu32 " nodes: the minimum is above the maximum",
                 c->min_nodes, c->max_nodes);
        return false;
    }
    if (c->scale >= JOB_SCALE_COUNT) {
        snprintf(why, size, "the scale-up policy is not now, checkpoint or never");
        return false;
    }
    return true;
}

int job_exit_code(const struct failure *f)
{
    if (f->kind == FAILURE_EXIT && f->code >= 1 && f->code <= 255)
        return f->code;
    if (f->kind == FAILURE_SIGNAL && f->code >= 1 && f->code <= 127)
        return 128 + f->code;
    return 1;
}

/* "SIGKILL", or "signal 34" where it has no name. */
static void describe_signal(int32_t signo, char *buf, size_t size)
{
    const char *name = sigabbrev_np(signo);

    if (name)
        snprintf(buf, size, "SIG%s", name);
    else
        snprintf(buf, size, "signal %" PRId32, signo);
}

void job_add_rank_note(struct job *j, const char *host, const char *text)
{
    size_t used = strlen(j->failure.said), room = sizeof(j->failure.said) - used;

    if (j->failure.kind == FAILURE_HANG && strlen(host) + strlen(text) + 4 < room)
        snprintf(j->failure.said + used, room, "%s: %s\n", host, text);
}

char *job_describe_end(const struct failure *f, char *buf, size_t size)
{
    char signal[32];

    switch (f->kind) {
    case FAILURE_EXIT:
        snprintf(buf, size, "exit code %" PRId32, f->code);
        break;
    case FAILURE_SIGNAL:
        describe_signal(f->code, signal, sizeof(signal));
        snprintf(buf, size, "killed by %s%s", signal,
                 f->out_of_memory ? ", out of memory" : "");
        break;
    case FAILURE_EXEC:
        snprintf(buf, size, "could not be started");
        break;
    case FAILURE_LOST:
        snprintf(buf, size, "the node was lost");
        break;
    case FAILURE_HANG:
        snprintf(buf, size, "no progress");
        break;
    default:
        snprintf(buf, size, "the agent failed");
    }
    return buf;
}

char *job_describe_failure(const struct failure *f, char *buf, size_t size)
{
    const char *host = *f->host ? f->host : "?";
    const char *final = f->final ? JOB_FINAL_WORDS : "";
    char signal[32];

    switch (f->kind) {
    case FAILURE_EXIT:
        snprintf(buf, size, "rank %" PRIu32 " on %s exited with code %" PRId32 "%s",
                 f->rank, host, f->code, final);
        break;
    case FAILURE_SIGNAL:
        describe_signal(f->code, signal, sizeof(signal));
        snprintf(buf, size, "rank %" PRIu32 " on %s was killed by %s%s%s", f->rank,
                 host, signal, f->out_of_memory ? ", out of memory" : "", final);
        break;
    case FAILURE_EXEC:
        snprintf(buf, size, "rank %" PRIu32 " on %s could not be started: %s", f->rank,
                 host, strerror(f->code));
        break;
    case FAILURE_LOST:
        snprintf(buf, size, "node %s was lost", host);
        break;
    case FAILURE_HANG:
        snprintf(buf, size, "rank %" PRIu32 " on %s hangs: %s", f->rank, host,
                 *f->what ? f->what : "no progress");
        break;
    case FAILURE_AGENT:
        snprintf(buf, size, "the agent on %s failed: %s", host, f->what);
        break;
    default:
        snprintf(buf, size, "no failure");
    }
    return buf;
}

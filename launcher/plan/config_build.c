/* SPDX-License-Identifier: MIT */
/* Completes the agent's struct config from combinations of flags. */
#include "launcher/plan/config_build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "agent/workers/macros.h"
#include "launcher/flags/limits.h"
#include "launcher/flags/rank_lists.h"
#include "launcher/plan/rendezvous_address.h"
#include "launcher/plan/run_identity.h"
#include "launcher/plan/worker_count.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/events/notify.h"
#include "rendezvous/wire/protocol/limits.h"

#define KEEP_ALIVE_INTERVAL_MS 5000
#define KEEP_ALIVE_ATTEMPTS 3

/* The number of entries in a list "a,b,c". */
static uint32_t count_entries(const char *list)
{
    uint32_t n = 1;

    for (; *list; list++)
        n += *list == ',';
    return n;
}

/* If there is a list of GPUs, each worker needs its own entry in it. */
static int check_virtual_local_rank(const struct config *c, const struct machine *m,
                                    struct err *e)
{
    bool hip = m->hip_visible_devices && *m->hip_visible_devices;
    const char *list = hip ? m->hip_visible_devices : m->cuda_visible_devices;

    if (!c->virtual_local_rank || !list || count_entries(list) >= c->workers)
        return 0;
    return err_set(e,
                   "--virtual-local-rank: %" PRIu32 " workers, and %s=%s has GPUs for "
                   "%" PRIu32,
                   c->workers, hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES",
                   list, count_entries(list));
}

static int build_workers(const struct options *o, const struct machine *m,
                         struct config *c, struct err *e)
{
    if (worker_count_find(o, m, &c->workers, e) < 0 ||
        check_virtual_local_rank(c, m, e) < 0)
        return -1;
    if (strlen(c->role) > ROLE_MAX_BYTES)
        return err_set(e, "--role has more than %d characters", ROLE_MAX_BYTES);
    if (o->stdin_mode == STDIN_ALL)
        c->stdin_mode = CONFIG_STDIN_ALL;
    else if (o->stdin_mode == STDIN_FIRST ||
             (o->stdin_mode == STDIN_NOT_GIVEN && c->job.max_nodes == 1))
        c->stdin_mode = CONFIG_STDIN_FIRST;
    else
        c->stdin_mode = CONFIG_STDIN_NONE;
    return 0;
}

/* Nodes of one job may have different numbers of workers. */
static int check_rank_filter(const struct options *o, const struct config *c,
                             struct err *e)
{
    if (c->job.max_nodes > 1 || memchr(c->streams.shown, true, c->workers))
        return 0;
    return err_set(
        e,
        "--local-ranks-filter: \"%s\" has none of the local ranks of %" PRIu32
        " worker%s, 0 to %" PRIu32,
        o->local_ranks_filter, c->workers, text_plural(c->workers), c->workers - 1);
}

static int build_output(const struct options *o, struct config *c, struct err *e)
{
    struct notify_config notify = { .command = c->on_event, .kinds = c->event_kinds };
    struct config_streams *s = &c->streams;

    if (notify_check(&notify, e) < 0)
        return -1;
    s->redirect = xcalloc(c->workers, sizeof(*s->redirect));
    s->tee = xcalloc(c->workers, sizeof(*s->tee));
    s->shown = xcalloc(c->workers, sizeof(*s->shown));
    if (rank_lists_streams(o->redirects, s->redirect, c->workers, e) < 0 ||
        rank_lists_streams(o->tee, s->tee, c->workers, e) < 0 ||
        rank_lists_shown(o->local_ranks_filter, s->shown, c->workers, e) < 0 ||
        check_rank_filter(o, c, e) < 0)
        return -1;
    /* a stream that both flags name is teed, as with torchrun */
    for (uint32_t i = 0; i < c->workers; i++)
        s->redirect[i] &= (uint8_t)~s->tee[i];
    c->stdout_filters = rank_lists_words(o->stdout_filters);
    c->stderr_filters = rank_lists_words(o->stderr_filters);
    if (c->prefix_template && !*c->prefix_template)
        c->prefix_template = NULL;
    return 0;
}

static const char *last_component(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

/*
 * A CRC of the program and its arguments, so that a node with a different command line
 * is detected. It guards against mistakes only: a digest against forgery needs
 * libcrypto, which takes milliseconds to load, in crun and again in its guard. The
 * program's folder is left out, because it may differ between machines.
 */
static void hash_arguments(const struct options *o, const char *const *words,
                           char hex[65])
{
    const Bytef how[] = { o->module, o->no_python, o->run_path, o->launch_compat };
    uLong crc = crc32_z(0, how, sizeof(how));
    const char *word = last_component(words[0]);
    char host[HOST_NAME_MAX_BYTES + 1];
    bool value = false;

    if (gethostname(host, sizeof(host)) < 0)
        *host = '\0';
    host[sizeof(host) - 1] = '\0';
    for (; word; word = *++words)
        value = run_identity_hash_word(&crc, word, value, host);
    snprintf(hex, 65, "%08lx", crc);
}

static uint32_t given_or(uint64_t given_ms, uint64_t default_ms)
{
    return (uint32_t)(given_ms ? given_ms : default_ms);
}

/* The lease, or torchrun's keep-alive interval times the number that may be missed. */
static int find_lease(const struct rdzv_conf *conf, uint32_t *lease_ms, struct err *e)
{
    uint64_t interval = given_or(conf->keep_alive_interval_ms, KEEP_ALIVE_INTERVAL_MS);
    uint64_t attempts = given_or((uint64_t)conf->keep_alive_attempts,
                                 KEEP_ALIVE_ATTEMPTS);
    uint64_t lease = conf->lease_ms;

    if (!lease && (conf->keep_alive_interval_ms || conf->keep_alive_attempts))
        lease = interval * attempts;
    if (!lease)
        lease = LEASE_MS_DEFAULT;
    if (lease < LEASE_MS_MIN || lease > LEASE_MS_MAX)
        return err_set(e,
                       "--rdzv-conf: keep_alive_interval x keep_alive_max_attempt is "
                       "%g s, which is not from %g to %d",
                       (double)lease / 1000, LEASE_MS_MIN / 1000.0,
                       LEASE_MS_MAX / 1000);
    *lease_ms = (uint32_t)lease;
    return 0;
}

static int build_job(const struct options *o, const char *const *words,
                     struct config *c, struct err *e)
{
    const struct rdzv_conf *conf = &o->conf;
    struct job_config *j = &c->job;
    /* torchrun's static rendezvous calls the join timeout "timeout" */
    uint64_t timeout_ms = c->rendezvous == CONFIG_STATIC ? conf->timeout_ms : 0;

    if (o->standalone)
        j->max_nodes = 1;
    j->join_timeout_ms = given_or(conf->join_timeout_ms,
                                  given_or(timeout_ms, JOIN_TIMEOUT_MS_DEFAULT));
    j->last_call_ms = conf->last_call_given ? (uint32_t)conf->last_call_ms
                                            : LAST_CALL_MS_DEFAULT;
    j->quarantine = conf->quarantine;
    j->scale = conf->scale;
    snprintf(j->program, sizeof(j->program), "%s", last_component(words[0]));
    hash_arguments(o, words, j->arguments_hash);
    return find_lease(conf, &j->lease_ms, e);
}

static uint32_t find_replicas(const struct options *o, const struct job_config *j)
{
    if (o->conf.replicas)
        return o->conf.replicas;
    return j->max_nodes + j->spares < 3 ? j->max_nodes + j->spares : 3;
}

int config_build(const struct options *o, const char *const *words,
                 const struct machine *machine, struct config *config, struct err *e)
{
    *config = o->config;
    if (build_workers(o, machine, config, e) < 0 ||
        rendezvous_address_find(o, config, e) < 0 ||
        build_job(o, words, config, e) < 0 || build_output(o, config, e) < 0 ||
        macros_find_ports(words + 1, config, e) < 0)
        return -1;
    snprintf(config->run_id, sizeof(config->run_id), "%s", o->run_id ? o->run_id : "");
    run_identity_fill(config, machine->batch.job);
    /* A time in the past is left over from another job. */
    if (o->time_limit_s > 0) {
        config->deadline_s = machine->now_s + o->time_limit_s;
        config->deadline_from = "--time-limit";
    } else if (o->time_limit_s < 0 && machine->batch.end_time > machine->now_s) {
        config->deadline_s = machine->batch.end_time;
        config->deadline_from = "SLURM_JOB_END_TIME";
    }
    config->keep_env = o->keep_env.text;
    config->under_slurm = machine->batch.is_slurm_step;
    config->replicas = find_replicas(o, &config->job);
    config->witness = *o->conf.witness ? o->conf.witness : NULL;
    config->alone = o->conf.alone;
    config->outage_grace_ms = given_or(
        config->outage_grace_ms,
        given_or(o->conf.outage_grace_ms, OUTAGE_GRACE_MS_DEFAULT));
    return 0;
}

void config_build_release(struct config *c)
{
    free((void *)c->endpoints);
    free(c->streams.redirect);
    free(c->streams.tee);
    free(c->streams.shown);
    free((void *)c->stdout_filters);
    free((void *)c->stderr_filters);
    free((void *)c->argv);
    free((void *)c->bootstrap);
    memset(c, 0, sizeof(*c));
}

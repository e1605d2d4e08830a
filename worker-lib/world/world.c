/* SPDX-License-Identifier: MIT */
#include "worker-lib/world/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/clock.h"
#include "worker-lib/core/status.h"
#include "worker-lib/engine/failure_notice.h"

#define TIMEOUT_S 1800
#define INIT_TIMEOUT_S 300
#define TIMEOUT_S_MAX 1e9

static const struct backend_calls *const backends[] = { &backend_shm, &backend_tcp,
                                                        &backend_nodes, &backend_nccl };
/* Those that a world of one has, too: its memory is the GPU's. */
static const struct backend_calls *const on_gpus[] = { &backend_nccl,
                                                       &backend_cuda_host };

/* -- options ------------------------------------------------------------------------
 */

static bool is_time(double seconds)
{
    return seconds > 0 && seconds <= TIMEOUT_S_MAX;
}

static crun_status read_timeout(double option, double *seconds, struct err *e)
{
    const char *text = getenv("CRUN_TIMEOUT");
    char *end;

    *seconds = option != 0 ? option : TIMEOUT_S;
    if (option == 0 && text && *text) {
        *seconds = strtod(text, &end);
        if (*end || !is_time(*seconds)) {
            err_set(e, "CRUN_TIMEOUT is \"%s\": it must be a number of seconds", text);
            return CRUN_BAD_ENVIRONMENT;
        }
    }
    return CRUN_OK;
}

static crun_status read_options(crun_world *w, const crun_options *o, struct err *e)
{
    double timeout_s = 0,
           init_s = o && o->init_timeout_s != 0 ? o->init_timeout_s : INIT_TIMEOUT_S;
    crun_status s = read_timeout(o ? o->timeout_s : 0, &timeout_s, e);

    if (s != CRUN_OK)
        return s;
    if (!is_time(timeout_s) || !is_time(init_s)) {
        err_set(e, "crun_init: a timeout must be a positive number of seconds");
        return CRUN_BAD_ARGUMENT;
    }
    w->timeout_ms = (uint64_t)ceil(timeout_s * 1000);
    w->init_deadline_ms = clock_ms() + (uint64_t)ceil(init_s * 1000);
    return CRUN_OK;
}

/* -- failure ------------------------------------------------------------------------
 */

static void tell_failure(crun_world *w)
{
    struct abort_notice n = abort_notice(&w->aborted, w->env.rank);

    if (w->store)
        failure_notice_write(w->store, w->prefix, &n);
}

static void failed(void *arg)
{
    crun_world *w = arg;
    const char *directory = getenv("CRUN_FLIGHT_DIR");

    if (atomic_exchange(&w->told, true))
        return;
    if (directory && *directory)
        flight_recorder_dump(w->flight, directory, w->aborted.reason);
    tell_failure(w);
}

/* -- the backend --------------------------------------------------------------------
 */

static crun_status find_backend(crun_world *w, const char *name, const char *device,
                                const struct backend_calls **calls, struct err *e)
{
    bool one_node = w->env.nodes == 1;

    *calls = &backend_nccl;
    if (device && strcmp(name, "auto") == 0) {
        bool all = false;
        crun_status s = world_all_have_gpus(w, device, &all, e);

        if (s != CRUN_OK || all)
            return s;
    }
    for (size_t i = 0; i < sizeof(on_gpus) / sizeof(on_gpus[0]); i++)
        if (strcmp(on_gpus[i]->name, name) == 0) {
            *calls = on_gpus[i];
            return CRUN_OK;
        }
    *calls = &backend_self;
    if (w->env.size == 1)
        return CRUN_OK;
    if (strcmp(name, "auto") == 0)
        name = one_node ? "shm" : w->env.nodes == w->env.size ? "tcp" : "shm+tcp";
    if (strcmp(name, "shm") == 0 && !one_node) {
        err_set(e, "backend \"shm\" is for the ranks of one node, and there are %u",
                w->env.nodes);
        return CRUN_UNSUPPORTED;
    }
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(backends[i]->name, name) == 0) {
            *calls = backends[i];
            return CRUN_OK;
        }
    err_set(e, "backend \"%s\" is not in this build", name);
    return CRUN_UNSUPPORTED;
}

static crun_status check_name(const crun_options *o, const char **name, struct err *e)
{
    static const char *const known[] = { "auto",    "shm",  "tcp",
                                         "shm+tcp", "nccl", "cuda-host" };
    const char *variable = getenv("CRUN_BACKEND");
    bool given = o && o->backend;

    *name = given ? o->backend : variable && *variable ? variable : "auto";
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(*name, known[i]) == 0)
            return CRUN_OK;
    err_set(e,
            "%s \"%s\" is none of auto, shm, tcp, shm+tcp, nccl, "
            "cuda-host",
            given ? "crun_init: backend" : "CRUN_BACKEND:", *name);
    return given ? CRUN_BAD_ARGUMENT : CRUN_BAD_ENVIRONMENT;
}

static crun_status open_backend(crun_world *w, const char *name, const char *device,
                                struct err *e)
{
    const struct backend_calls *calls;
    crun_status s = find_backend(w, name, device, &calls, e);

    if (s != CRUN_OK)
        return s;
    if (w->store)
        store_client_address(w->store, w->address, sizeof(w->address));
    w->team = (struct team){ .rank = w->env.rank,
                             .size = w->env.size,
                             .world_rank = w->world_rank,
                             .node = w->node,
                             .store = w->store,
                             .prefix = w->prefix,
                             .aborted = &w->aborted,
                             .address = w->address,
                             .device = device,
                             .local_rank = w->env.local_rank,
                             .local_size = w->env.local_size,
                             .timeout_ms = w->timeout_ms,
                             .flight = w->flight,
                             .failed = failed,
                             .failed_arg = w };
    return calls->open(&w->backend, &w->team, w->init_deadline_ms, e);
}

/* -- life ---------------------------------------------------------------------------
 */

static crun_status start_engine(crun_world *w, struct err *e)
{
    w->engine = engine_create(&(struct engine_config){ .backend = w->backend,
                                                       .aborted = &w->aborted,
                                                       .flight = w->flight,
                                                       .size = w->env.size,
                                                       .timeout_ms = w->timeout_ms,
                                                       .failed = failed,
                                                       .arg = w });
    if (w->engine)
        return CRUN_OK;
    err_set(e, "no memory");
    return CRUN_NO_MEMORY;
}

static crun_status join(crun_world *w, const char *backend, const char *device,
                        struct err *e)
{
    crun_status s = w->env.size > 1 ? world_meet(w, e) : CRUN_OK;

    if (s == CRUN_OK)
        s = world_map(w, e);
    if (s == CRUN_OK)
        s = open_backend(w, backend, device, e);
    if (s == CRUN_OK)
        s = start_engine(w, e);
    if (s != CRUN_OK && w->store && abort_set_error(&w->aborted, s, e))
        tell_failure(w);
    return s;
}

crun_status world_create(crun_world **world, const struct environment *env,
                         const crun_options *options, struct err *e)
{
    crun_world *w = calloc(1, sizeof(*w));
    const char *backend = NULL;
    crun_status s = CRUN_OK;

    if (w) {
        w->env = *env;
        w->world_rank = calloc(env->size, sizeof(*w->world_rank));
        w->node = calloc(env->size, sizeof(*w->node));
        w->flight = flight_recorder_create(env->rank);
    }
    if (!w || !w->world_rank || !w->node || !w->flight) {
        err_set(e, "no memory");
        s = CRUN_NO_MEMORY;
    }
    for (unsigned r = 0; s == CRUN_OK && r < env->size; r++)
        w->world_rank[r] = r;
    if (s == CRUN_OK)
        s = check_name(options, &backend, e);
    if (s == CRUN_OK)
        s = read_options(w, options, e);
    if (s == CRUN_OK)
        s = join(w, backend, options ? options->device : NULL, e);
    if (s == CRUN_OK)
        *world = w;
    else
        crun_finalize(w);
    return s;
}

/* Ranks that met, or tried to: all of them will count it. */
static bool was_a_meeting(crun_status s)
{
    return s != CRUN_BAD_ARGUMENT && s != CRUN_BAD_ENVIRONMENT;
}

crun_status crun_init(crun_world **world, const crun_options *options)
{
    static _Atomic unsigned worlds; /* of this process so far */
    unsigned before = worlds;
    struct environment env;
    struct err e;
    crun_status s;

    if (!world)
        return fail(CRUN_BAD_ARGUMENT, "crun_init: there is nowhere to put the world");
    *world = NULL;
    s = environment_read(&env, &e);
    if (s == CRUN_OK && before > 0)
        environment_again(&env, before);
    if (s == CRUN_OK)
        s = world_create(world, &env, options, &e);
    if (was_a_meeting(s))
        worlds = before + 1;
    if (s != CRUN_OK)
        return fail_with(s, &e);
    (*world)->progress = progress_open();
    return CRUN_OK;
}

void crun_finalize(crun_world *w)
{
    if (!w)
        return;
    engine_destroy(w->engine);
    if (w->backend)
        w->backend->calls->close(w->backend);
    world_leave(w);
    flight_recorder_destroy(w->flight);
    progress_close(w->progress);
    free(w->world_rank);
    free(w->node);
    free(w);
}

void crun_abort(crun_world *w, const char *reason)
{
    engine_abort(w->engine, CRUN_ABORTED, reason ? reason : "crun_abort", false);
}

void crun_abort_signal(crun_world *w)
{
    engine_abort(w->engine, CRUN_ABORTED, "crun_abort_signal", true);
}

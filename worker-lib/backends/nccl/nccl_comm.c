/* SPDX-License-Identifier: MIT */
/* The communicator, in the communication thread: how ranks meet, split it and leave. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "worker-lib/backends/nccl/backend_nccl.h"

#define WARM_UP_BYTES (4 << 20)
#define ID_PAUSE_MS 20
#define STORE_MS 5000

/* -- meeting ----------------------------------------------------------------------- */

struct id_note {
    uint32_t status;
    int32_t version; /* NCCL's, of rank 0 */
    char host[64];
    struct nccl_id id;
    char why_not[200];
    char interfaces[NCCL_INTERFACES_SIZE];
};

static void keep_interfaces(struct nccl *n, const char *text)
{
    pthread_mutex_lock(&n->lock);
    text_printable(text, n->interfaces, sizeof(n->interfaces));
    pthread_mutex_unlock(&n->lock);
}

/* Rank 0 makes the id. If it cannot, it informs the others, which would wait for it. */
static crun_status tell_id(struct nccl *n, const char *key, struct id_note *note,
                           uint64_t deadline_ms, struct err *e)
{
    crun_status written, s;

    s = NCCL_CALL(n, "ncclGetUniqueId", n->gpu.nccl->get_unique_id(&note->id));
    note->status = s;
    note->version = n->gpu.version;
    nccl_gpu_host(note->host, sizeof(note->host));
    if (s != CRUN_OK)
        snprintf(note->why_not, sizeof(note->why_not), "rank %u: %.180s",
                 n->team.world_rank[0], e->text);
    if (n->team.size == 1)
        return s;
    if (s == CRUN_OK)
        nccl_find_interfaces(&n->team, &note->id, note->interfaces);
    keep_interfaces(n, note->interfaces);
    written = store_client_set(n->team.store, key, note, sizeof(*note), deadline_ms, e);
    if (s != CRUN_OK)
        err_set(e, "%s", note->why_not);
    return s == CRUN_OK ? written : s;
}

static crun_status hear_id(struct nccl *n, const char *key, struct id_note *note,
                           struct err *e)
{
    char why[2 * sizeof(note->why_not)];
    size_t size = sizeof(*note);
    crun_status s;
    int there;

    /* the watch detects a timeout */
    while ((there = store_client_has(n->team.store, key, clock_ms() + STORE_MS)) == 0) {
        if (nccl_is_ending(n))
            return nccl_fail_ended(n, e);
        usleep(ID_PAUSE_MS * 1000);
    }
    if (there < 0 && nccl_is_ending(n))
        return nccl_fail_ended(n, e);
    if (there < 0) {
        err_set(e, "the store is gone");
        return CRUN_PEER_LOST;
    }
    s = store_client_get(n->team.store, key, note, &size, clock_ms() + STORE_MS, e);
    if (s != CRUN_OK && s != CRUN_BAD_ARGUMENT)
        return s;
    if (s != CRUN_OK || size != sizeof(*note)) {
        err_set(e, "the store has no valid NCCL id of rank %u", n->team.world_rank[0]);
        return CRUN_MISMATCH;
    }
    note->host[sizeof(note->host) - 1] = '\0';
    note->interfaces[sizeof(note->interfaces) - 1] = '\0';
    keep_interfaces(n, note->interfaces);
    if (note->status == CRUN_OK)
        return nccl_gpu_check_version(&n->gpu, &n->team, note->version, note->host, e);
    note->why_not[sizeof(note->why_not) - 1] = '\0';
    err_set(e, "%s", text_printable(note->why_not, why, sizeof(why)));
    return note->status < CRUN_STATUS_COUNT ? (crun_status)note->status : CRUN_SYSTEM;
}

static crun_status init_comm(struct nccl *n, const struct nccl_id *id, struct err *e)
{
    bool has_names = n->gpu.version >= NCCL_NAMES_SINCE;
    struct nccl_config config = { .size = has_names
                                              ? sizeof(config)
                                              : offsetof(struct nccl_config, comm_name),
                                  .magic = NCCL_CONFIG_MAGIC,
                                  .version = NCCL_CONFIG_VERSION,
                                  .blocking = n->blocking,
                                  .cga_cluster_size = INT_MIN,
                                  .ctas_min = INT_MIN,
                                  .ctas_max = INT_MIN,
                                  .split_share = INT_MIN,
                                  .traffic_class = INT_MIN,
                                  .comm_name = n->prefix };

    /* NCCL sets the pointer before it waits for other ranks, and the watch needs it to
     * abort a call that blocks */
    return NCCL_CALL(n, "ncclCommInitRankConfig",
                     n->gpu.nccl->init((struct nccl_comm **)(void *)&n->comm,
                                       (int)n->team.size, *id, (int)n->team.rank,
                                       &config));
}

static crun_status open_comm(struct nccl *n, const struct nccl_work *w, struct err *e)
{
    struct id_note note = { 0 };
    char key[440];
    crun_status s = GPU_CALL(n, "cudaSetDevice",
                             n->gpu.cuda->set_device(n->gpu.device));

    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaThreadExchangeStreamCaptureMode",
                     gpu_calls_relax_thread(n->gpu.cuda));
    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaStreamCreate", n->gpu.cuda->stream_create(&n->stream));
    if (s != CRUN_OK || atomic_load(&n->comm)) /* which was split off another one */
        return s;
    snprintf(key, sizeof(key), "%snccl-id", n->team.prefix);
    s = n->team.rank == 0 ? tell_id(n, key, &note, w->op.deadline_ms, e)
                          : hear_id(n, key, &note, e);
    return s == CRUN_OK ? init_comm(n, &note.id, e) : s;
}

/* Since 2.22 NCCL connects the ranks for each of its algorithms in the first operation
 * that uses it, which takes up to a second. Large sums use another algorithm than small
 * sums, and other collectives use one of these two. */
static crun_status warm_up_large(struct nccl *n, struct nccl_work *w, struct err *e)
{
    void *memory = NULL;
    crun_status s = nccl_stage(n, 0, WARM_UP_BYTES, &memory, e);

    if (s == CRUN_OK)
        s = GPU_CALL(n, "cudaMemsetAsync",
                     n->gpu.cuda->zero(memory, WARM_UP_BYTES, n->stream));
    if (s != CRUN_OK)
        return s;
    w->op.count = WARM_UP_BYTES / sizeof(float);
    w->op.in = w->op.out = memory;
    w->host = false;
    s = nccl_run(n, w, e);
    return s == CRUN_OK ? nccl_await(n, w->done, e) : s;
}

/* NCCL's set-up during its first operation is part of meeting, and so are its
 * failures. */
static crun_status warm_up(struct nccl *n, struct nccl_work *w, struct err *e)
{
    float x = 1;
    crun_status s;

    w->op.kind = OP_ALL_REDUCE;
    w->op.type = CRUN_F32;
    w->op.op = CRUN_SUM;
    w->op.count = 1;
    w->op.in = w->op.out = &x;
    w->host = true;
    s = nccl_run(n, w, e);
    if (s == CRUN_OK && x != (float)n->team.size) {
        err_set(e, "NCCL adds wrongly: %u ranks are %g", n->team.size, (double)x);
        return CRUN_SYSTEM;
    }
    return s == CRUN_OK && n->team.size > 1 ? warm_up_large(n, w, e) : s;
}

crun_status nccl_comm_open(struct nccl *n, struct nccl_work *w, struct err *e)
{
    crun_status s = open_comm(n, w, e);

    if (s == CRUN_OK)
        s = warm_up(n, w, e);
    if (s != CRUN_OK && !nccl_is_ending(n) && *n->interfaces)
        err_wrap(e, "%s", n->interfaces);
    return s;
}

/* A communicator of one rank, which needs no other rank to be destroyed. */
static void destroy_own_comm(struct nccl *n, struct nccl_work *w)
{
    if (nccl_enter_comm(n, "ncclCommDestroy"))
        (void)nccl_leave(n, n->gpu.nccl->destroy(w->child));
    w->child = NULL;
}

/*
 * The new communicators inherit the configuration. During their set-up this
 * communicator is in progress, and can be aborted. NCCL writes the new pointer at the
 * end, so it is in the work, which lives as long as this communicator. The color is the
 * first rank of the group, and a rank in no group makes one of its own: with
 * NCCL_SPLIT_NOCOLOR it would crash in NCCL if the split failed.
 */
crun_status nccl_comm_split(struct nccl *n, struct nccl_work *w, struct err *e)
{
    crun_status s = nccl_idle(n, e);

    w->child = NULL;
    if (s == CRUN_OK)
        s = NCCL_CALL(n, "ncclCommSplit",
                      n->gpu.nccl->comm_split(atomic_load(&n->comm), w->color, w->key,
                                              &w->child, NULL));
    if (s == CRUN_OK && !w->child) {
        err_set(e, "ncclCommSplit: success without a communicator");
        return CRUN_SYSTEM;
    }
    if (s == CRUN_OK && w->in_no_group)
        destroy_own_comm(n, w);
    return s;
}

/* -- leaving ----------------------------------------------------------------------- */

/* Finalizes the communicator, together with the other ranks if they still run, and
 * destroys it. */
static crun_status close_comm(struct nccl *n, struct err *e)
{
    struct nccl_comm *comm = atomic_load(&n->comm);
    bool alone = atomic_load(&n->lost) > 0;
    crun_status s = CRUN_OK;

    if (!comm || nccl_is_ending(n))
        return CRUN_OK;
    if (!alone)
        s = NCCL_CALL(n, "ncclCommFinalize", n->gpu.nccl->finalize(comm));
    alone = alone || s != CRUN_OK; /* NCCL does not destroy what has failed */
    if (nccl_is_ending(n) ||
        !nccl_enter_comm(n, alone ? "ncclCommAbort" : "ncclCommDestroy"))
        return s;
    comm = atomic_exchange(&n->comm, NULL); /* the watch may want to abort it */
    (void)(alone ? n->gpu.nccl->abort(comm) : n->gpu.nccl->destroy(comm));
    atomic_store(&n->call, NULL);
    return s;
}

/* Memory is deregistered before its communicator is closed, except after the loss of a
 * rank, for which NCCL might wait. */
crun_status nccl_comm_close(struct nccl *n, struct nccl_work *w, struct err *e)
{
    bool alone = atomic_load(&n->lost) > 0;
    crun_status s = alone ? close_comm(n, e) : CRUN_OK;

    nccl_free_memory(n, w);
    return alone ? s : close_comm(n, e);
}

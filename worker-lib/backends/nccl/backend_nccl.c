/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/nccl/backend_nccl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "worker-lib/engine/failure_notice.h"

static struct nccl *nccl_of(struct backend *b)
{
    return (struct nccl *)(void *)b;
}

static struct nccl_work *work_of(crun_work *work)
{
    return (struct nccl_work *)(void *)work;
}

/* -- operations -------------------------------------------------------------------- */

/* The backend knows memory of crun_alloc; CUDA knows other memory. */
static int find_memory(struct nccl *n, const void *memory, bool *device)
{
    *device = nccl_owns(n, memory);
    return *device ? GPU_OK : n->gpu.cuda->on_device(memory, device);
}

static int find_member_buffers(struct nccl *n, struct nccl_work *w, const struct op *op)
{
    bool in = true, out = true;
    int code = GPU_OK;

    if (op->kind == OP_BARRIER)
        w->host = w->device = true;
    if (op->count == 0 || op->kind == OP_BARRIER)
        return GPU_OK;
    if (op->kind != OP_RECEIVE)
        code = find_memory(n, op->in, &in);
    if (op->kind != OP_SEND && op->out == op->in)
        out = in;
    else if (code == GPU_OK && op->kind != OP_SEND)
        code = find_memory(n, op->out, &out);
    w->host |= !in || !out;
    w->device |= (in && op->kind != OP_RECEIVE) || (out && op->kind != OP_SEND);
    return code;
}

/* Whether the host must wait for its result. */
static crun_status find_buffers(struct nccl *n, struct nccl_work *w, struct err *e)
{
    int code = GPU_OK;

    w->host = w->device = false;
    for (unsigned i = 0; i < op_members(&w->op) && code == GPU_OK; i++) {
        struct op member = op_member(&w->op, i);

        code = find_member_buffers(n, w, &member);
    }
    return code == GPU_OK ? CRUN_OK
                          : gpu_calls_failed(n->gpu.cuda, n->gpu.device,
                                             "cudaPointerGetAttributes", code, e);
}

static void abort_nccl(struct backend *b)
{
    uint64_t one = 1;

    (void)!write(nccl_of(b)->wake, &one, sizeof(one));
}

static crun_status start_nccl(struct backend *b, const struct op *op, crun_work **work,
                              struct err *e)
{
    struct nccl *n = nccl_of(b);
    crun_status s = nccl_work_check_open(n, e);
    struct nccl_work *w = NULL;
    int code;

    if (s != CRUN_OK)
        return s;
    n->gpu.cuda->set_device(n->gpu.device);
    s = gpu_calls_refuse_capture(n->gpu.cuda, n->backend.stream, op_call_name(op), e);
    if (s != CRUN_OK)
        return s;
    s = nccl_work_new(n, TASK_OPERATION,
                      op->timeout_ms ? op->timeout_ms : n->team.timeout_ms, &w, e);
    if (s != CRUN_OK)
        return s;
    w->op = *op;
    op_group_use(w->op.group);
    w->op.timeout_ms = w->timeout_ms;
    w->op.deadline_ms = clock_ms() + w->timeout_ms;
    s = find_buffers(n, w, e);
    code = s == CRUN_OK ? n->gpu.cuda->event_record(w->ready, n->backend.stream)
                        : GPU_OK;
    if (code != GPU_OK)
        s = gpu_calls_failed(n->gpu.cuda, n->gpu.device, "cudaEventRecord", code, e);
    if (s == CRUN_OK) {
        nccl_work_queue(n, w);
        *work = &w->base;
        return s;
    }
    nccl_work_put_back_unused(n, w);
    return s;
}

/* The GPU also ends an operation that another rank has aborted, with wrong values. */
static crun_status check_result(struct nccl *n, struct err *e)
{
    crun_status s = n->team.size > 1
                        ? failure_notice_check(n->team.board, n->team.aborted, e)
                        : CRUN_OK;

    if (s == CRUN_OK)
        return nccl_work_check_open(n, e);
    abort_set_error(n->team.aborted, s, e);
    abort_nccl(&n->backend);
    return s;
}

/* The program's stream waits for the result. During a capture it cannot, so the host
 * waits. */
static crun_status finish_nccl(struct backend *b, crun_work *work, struct err *e)
{
    struct nccl *n = nccl_of(b);
    struct nccl_work *w = work_of(work);
    bool capturing = false;
    crun_status s;
    int code;

    n->gpu.cuda->set_device(n->gpu.device);
    if (!w->host)
        (void)!gpu_calls_ask_capture(n->gpu.cuda, n->backend.stream, &capturing, e);
    s = nccl_work_await(n, w, capturing ? STAGE_OVER : STAGE_LAUNCHED, e);
    if (s == CRUN_OK && (w->host || capturing))
        s = check_result(n, e);
    if (s == CRUN_OK && !w->host && !capturing) {
        code = n->gpu.cuda->stream_wait(n->backend.stream, w->done);
        if (code != GPU_OK)
            s = gpu_calls_failed(n->gpu.cuda, n->gpu.device, "cudaStreamWaitEvent",
                                 code, e);
    }
    nccl_work_put_back(n, w);
    return s;
}

static bool is_done_nccl(struct backend *b, crun_work *work)
{
    struct nccl *n = nccl_of(b);
    struct nccl_work *w = work_of(work);
    bool done, launched, capturing = false;
    struct err e;
    int code;

    pthread_mutex_lock(&n->lock);
    done = n->ended || w->stage == STAGE_OVER;
    launched = w->stage == STAGE_LAUNCHED;
    pthread_mutex_unlock(&n->lock);
    if (done || !launched)
        return done;
    n->gpu.cuda->set_device(n->gpu.device);
    if (gpu_calls_ask_capture(n->gpu.cuda, n->backend.stream, &capturing, &e) !=
            CRUN_OK ||
        capturing)
        return false; /* a query might end the capture */
    code = n->gpu.cuda->event_query(w->done);
    if (code == GPU_OK || code == GPU_NOT_READY)
        return code == GPU_OK;
    abort_set_error(n->team.aborted,
                    gpu_calls_failed(n->gpu.cuda, n->gpu.device, NULL, code, &e), &e);
    abort_nccl(b);
    return true;
}

static crun_status run_nccl(struct backend *b, const struct op *op, struct err *e)
{
    crun_work *work = NULL;
    crun_status s = start_nccl(b, op, &work, e);

    return s == CRUN_OK ? finish_nccl(b, work, e) : s;
}

/* -- memory ------------------------------------------------------------------------ */

static crun_status alloc_nccl(struct backend *b, size_t bytes, uint64_t deadline_ms,
                              void **memory, struct err *e)
{
    struct nccl *n = nccl_of(b);
    uint64_t now = clock_ms();

    *memory = NULL;
    return nccl_work_perform(n, TASK_ALLOC, deadline_ms > now ? deadline_ms - now : 1,
                             bytes, memory, e);
}

static bool free_nccl(struct backend *b, void *memory)
{
    struct nccl *n = nccl_of(b);
    bool ours = nccl_has_area(n, memory);
    struct err e;

    if (ours)
        (void)!nccl_work_perform(n, TASK_FREE, n->team.timeout_ms, 0, &memory, &e);
    return ours;
}

/* -- life -------------------------------------------------------------------------- */

static void destroy_nccl(struct nccl *n)
{
    struct nccl_work *next;

    bool unused = !n->line || nccl_line_leave(n->line, n);

    n->gpu.cuda->set_device(n->gpu.device);
    nccl_close_peers(n);
    if (n->wake >= 0)
        close(n->wake);
    for (struct nccl_work *w = n->all; w; w = next) {
        next = w->next_of_all;
        if (unused)
            nccl_work_free(n, w);
    }
    if (n->stream)
        n->gpu.cuda->stream_destroy(n->stream);
    pthread_cond_destroy(&n->changed);
    pthread_cond_destroy(&n->queue_changed);
    sem_destroy(&n->abort_asked);
    pthread_mutex_destroy(&n->lock);
    op_counter_fini(&n->counter);
    free(n->prefix);
    free(n);
}

/* If a thread returns from a hanging call later, it finds that the world has ended, and
 * touches nothing else. */
static void outlive_world(struct nccl *n)
{
    abort_set(&n->last_word, CRUN_ABORTED, "NCCL hangs");
    pthread_mutex_lock(&n->lock);
    n->team.flight = NULL;
    n->team.store = NULL;
    pthread_mutex_unlock(&n->lock);
    atomic_store(&n->outlives, true);
}

/* After the watch, which asks it to abort. */
static void end_aborter(struct nccl *n)
{
    bool hangs;

    pthread_mutex_lock(&n->lock);
    hangs = n->abort_begun && !n->abort_over;
    pthread_mutex_unlock(&n->lock);
    if (hangs) {
        pthread_detach(n->aborter);
        return;
    }
    sem_post(&n->abort_asked);
    pthread_join(n->aborter, NULL);
}

/* If a call hangs, all memory that it may access is kept. */
static void close_nccl(struct backend *b)
{
    struct nccl *n = nccl_of(b);
    struct err e;
    bool gone, stuck, busy;

    pthread_mutex_lock(&n->lock);
    busy = n->unfinished > 0;
    pthread_mutex_unlock(&n->lock);
    if (busy &&
        abort_set(n->team.aborted, CRUN_ABORTED, "crun_finalize with work under way"))
        abort_nccl(b);
    (void)!nccl_work_perform(n, TASK_CLOSE, nccl_leave_ms(n), 0, NULL, &e);
    pthread_mutex_lock(&n->lock);
    while (!n->gone && !n->stuck)
        pthread_cond_wait(&n->changed, &n->lock);
    gone = n->gone;
    stuck = n->stuck;
    pthread_mutex_unlock(&n->lock);
    atomic_store(&n->stopping, true);
    abort_nccl(b);
    pthread_join(n->watch, NULL);
    end_aborter(n);
    if (gone)
        pthread_join(n->thread, NULL);
    else
        pthread_detach(n->thread);
    if (gone && !stuck && n->team.is_group && !abort_get(n->team.aborted))
        nccl_forget_pid(n);
    if (gone && !stuck)
        destroy_nccl(n);
    else
        outlive_world(n);
}

static bool start_threads(struct nccl *n)
{
    bool aborter = thread_start(&n->aborter, nccl_abort_comm, n) == 0;
    bool watch = aborter && thread_start(&n->watch, nccl_watch, n) == 0;
    bool thread = watch && thread_start(&n->thread, nccl_communicate, n) == 0;

    if (watch && !thread) {
        atomic_store(&n->stopping, true);
        abort_nccl(&n->backend);
        pthread_join(n->watch, NULL);
    }
    if (aborter && !thread)
        end_aborter(n);
    return thread;
}

static bool is_switched_on(const char *variable)
{
    const char *text = getenv(variable);

    return text && *text && *text != '0';
}

/* NCCL's own variable has precedence in NCCL, so it has precedence here. */
static bool reads_blocking(void)
{
    const char *own = getenv("NCCL_COMM_BLOCKING");

    if (own && (strcmp(own, "0") == 0 || strcmp(own, "1") == 0))
        return *own == '1';
    return is_switched_on("CRUN_NCCL_BLOCKING");
}

static crun_status create_nccl(struct nccl **out, const struct team *team,
                               const struct nccl_gpu *gpu, struct err *e)
{
    struct nccl *n = calloc(1, sizeof(*n));

    if (!n) {
        err_set(e, "no memory");
        return CRUN_NO_MEMORY;
    }
    n->backend.calls = &backend_nccl;
    n->backend.has_device = true;
    n->backend.device = gpu->device;
    n->team = *team;
    n->gpu = *gpu;
    n->check = is_switched_on("CRUN_CHECK");
    n->blocking = reads_blocking();
    n->prefix = strdup(team->prefix);
    n->team.prefix = n->prefix;
    if (n->team.timeout_ms == 0)
        n->team.timeout_ms = 60000;
    pthread_mutex_init(&n->lock, NULL);
    sem_init(&n->abort_asked, 0, 0);
    thread_cond_init(&n->changed);
    thread_cond_init(&n->queue_changed);
    n->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    n->line = nccl_line_join(gpu->device);
    *out = n;
    if (op_counter_init(&n->counter, team->size) && n->wake >= 0 && n->prefix &&
        n->line)
        return CRUN_OK;
    err_set(e, "no memory or descriptor for NCCL");
    return CRUN_NO_MEMORY;
}

static uint64_t time_left(uint64_t deadline_ms)
{
    uint64_t now = clock_ms();

    return deadline_ms > now ? deadline_ms - now : 1;
}

static crun_status meet_team(struct nccl *n, uint64_t deadline_ms, struct err *e)
{
    crun_status s = nccl_work_check_open(n, e);

    if (s == CRUN_OK)
        s = nccl_tell_pid(n, deadline_ms, e);
    if (s == CRUN_OK)
        return nccl_work_perform(n, TASK_OPEN, time_left(deadline_ms), 0, NULL, e);
    abort_set_error(n->team.aborted, s, e);
    abort_nccl(&n->backend);
    return s;
}

/* `comm`: a communicator that was split off another one, which is aborted if the team
 * does not open; NULL: the ranks meet. */
static crun_status open_team(struct backend **b, const struct team *team,
                             const struct nccl_gpu *gpu, struct nccl_comm *comm,
                             uint64_t deadline_ms, struct err *e)
{
    struct nccl *n = NULL;
    crun_status s;

    gpu->cuda->set_device(gpu->device);
    s = create_nccl(&n, team, gpu, e);
    if (s == CRUN_OK)
        atomic_store(&n->comm, comm);
    if (s == CRUN_OK && (!nccl_list_peers(n) || !start_threads(n))) {
        err_set(e, "no thread or memory for NCCL");
        s = CRUN_SYSTEM;
    }
    if (s != CRUN_OK) {
        if (comm)
            (void)gpu->nccl->abort(comm);
        if (n)
            destroy_nccl(n);
        return s;
    }
    s = meet_team(n, deadline_ms, e);
    if (s == CRUN_OK)
        *b = &n->backend;
    else
        close_nccl(&n->backend);
    return s;
}

static crun_status open_nccl(struct backend **b, const struct team *team,
                             uint64_t deadline_ms, struct err *e)
{
    struct nccl_gpu gpu;
    char host[64];
    uint64_t call_deadline_ms = clock_ms() + nccl_call_ms(team->timeout_ms);
    crun_status s = nccl_gpu_find(
        &gpu, team->device, team->local_rank, team->local_size,
        call_deadline_ms < deadline_ms ? call_deadline_ms : deadline_ms, e);

    if (s == CRUN_OK)
        s = nccl_gpu_open(&gpu, e);
    if (s == CRUN_OK)
        s = nccl_gpu_claim(&gpu, team, deadline_ms, e);
    if (s != CRUN_OK) {
        err_wrap(e, "backend \"nccl\" on %s", nccl_gpu_host(host, sizeof(host)));
        return s;
    }
    return open_team(b, team, &gpu, NULL, deadline_ms, e);
}

/* NCCL leaves it in the work also if the split fails or is aborted, but not while a
 * call of NCCL hangs. */
static struct nccl_comm *split_child(struct nccl *n, const struct nccl_work *w)
{
    struct nccl_comm *child;

    pthread_mutex_lock(&n->lock);
    child = w->stage == STAGE_OVER && !n->stuck ? w->child : NULL;
    pthread_mutex_unlock(&n->lock);
    return child;
}

/* A team of a world that has ended does not open. */
static void abort_child(const struct nccl *n, struct nccl_comm *child,
                        const struct team *team, uint64_t deadline_ms)
{
    struct backend *none;
    struct err ignored;

    if (child && team && abort_get(n->team.aborted))
        (void)!open_team(&none, team, &n->gpu, child, deadline_ms, &ignored);
}

static crun_status split_nccl(struct backend *b, struct backend **group, int color,
                              const struct team *team, uint64_t deadline_ms,
                              struct err *e)
{
    struct nccl *n = nccl_of(b);
    struct nccl_work *w = NULL;
    struct nccl_comm *comm;
    crun_status s = nccl_work_check_open(n, e);

    if (s == CRUN_OK)
        s = nccl_work_new(n, TASK_SPLIT, time_left(deadline_ms), &w, e);
    if (s != CRUN_OK)
        return s;
    w->op.deadline_ms = deadline_ms;
    w->op.timeout_ms = w->timeout_ms;
    w->in_no_group = color < 0;
    w->color = (int)(color < 0 ? n->team.world_rank[n->team.rank]
                               : team->world_rank[0]);
    w->key = color < 0 ? 0 : (int)team->rank;
    nccl_work_queue(n, w);
    s = nccl_work_await(n, w, STAGE_OVER, e);
    comm = split_child(n, w);
    nccl_work_put_back(n, w);
    if (s != CRUN_OK)
        abort_child(n, comm, team, deadline_ms);
    if (s != CRUN_OK || color < 0)
        return s;
    s = open_team(group, team, &n->gpu, comm, deadline_ms, e);
    if (s == CRUN_OK)
        (*group)->stream = b->stream;
    return s;
}

const struct backend_calls backend_nccl = {
    .name = "nccl",
    .open = open_nccl,
    .run = run_nccl,
    .abort = abort_nccl,
    .alloc = alloc_nccl,
    .free = free_nccl,
    .close = close_nccl,
    .start = start_nccl,
    .finish = finish_nccl,
    .is_done = is_done_nccl,
    .split = split_nccl,
};

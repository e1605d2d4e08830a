/* SPDX-License-Identifier: MIT */
/* Groups of calls, and the thread that does the work of calls in progress. */
#include "tests/fakes/nccl/group.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The work of a communicator that does not block begins when its caller has seen that
 * it is in progress, or after this time: an event recorded too early is before the
 * kernel. */
#define LOOK_NS 1000000
#define COMMS_MAX 64

struct group_job {
    struct task *tasks;
    struct nccl_comm *comm[COMMS_MAX];
    unsigned comms;
    int result;
    pthread_t thread;
    _Atomic bool joined;
    _Atomic unsigned refs;
};

static _Thread_local struct {
    unsigned depth, tasks;
    int error;
    bool has_comm, blocking;
    struct task *first, *last;
} group;

void group_begin(void)
{
    group.depth++;
}

int group_note_error(int result)
{
    if (group.depth > 0 && result != NCCL_OK && result != NCCL_IN_PROGRESS)
        group.error = result;
    return result;
}

int group_add(struct task *t)
{
    bool blocking = t->comm->blocking;

    if (group.has_comm && group.blocking != blocking) {
        standin_warn(
            "Blocking and nonblocking communicators are not allowed in the same group");
        free(t);
        return NCCL_BAD_ARGUMENT;
    }
    group.has_comm = true;
    group.blocking = blocking;
    t->next = NULL;
    if (group.last)
        group.last->next = t;
    else
        group.first = t;
    group.last = t;
    if (t->stage == STAGE_OPERATION)
        ((struct operation *)(void *)t)->order = group.tasks++;
    return NCCL_OK;
}

/* -- the work ---------------------------------------------------------------------- */

static void *run_task(void *arg)
{
    struct task *t = arg;

    cudaSetDevice(t->comm->device);
    t->result = t->run(t);
    return NULL;
}

/* Each waits for other ranks, so several run at the same time. */
static int run_setups(struct task *tasks)
{
    unsigned setups = 0;
    int result = NCCL_OK;

    for (struct task *t = tasks; t; t = t->next)
        setups += t->stage == STAGE_SETUP;
    for (struct task *t = tasks; t; t = t->next) {
        if (t->stage != STAGE_SETUP)
            continue;
        t->threaded = setups > 1 && pthread_create(&t->thread, NULL, run_task, t) == 0;
        if (!t->threaded)
            run_task(t);
    }
    for (struct task *t = tasks; t; t = t->next) {
        if (t->threaded)
            pthread_join(t->thread, NULL);
        if (t->stage == STAGE_SETUP && t->result != NCCL_OK && result == NCCL_OK)
            result = t->result;
    }
    return result;
}

/* The calls here do not disturb a capture by the caller. */
static int run_tasks(struct group_job *j)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    int result;

    cudaThreadExchangeStreamCaptureMode(&mode);
    result = run_setups(j->tasks);

    for (struct task *t = j->tasks; t && result == NCCL_OK; t = t->next)
        if (t->stage == STAGE_REGISTER) {
            run_task(t);
            result = t->result;
        }
    for (unsigned i = 0; i < j->comms && result == NCCL_OK; i++) {
        cudaSetDevice(j->comm[i]->device);
        result = plan_connect(j->comm[i], j->tasks);
    }
    for (unsigned i = 0; i < j->comms && result == NCCL_OK; i++) {
        cudaSetDevice(j->comm[i]->device);
        result = plan_launch(j->comm[i], &j->tasks);
    }
    cudaThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static void free_tasks(struct task *tasks)
{
    struct task *next;

    for (struct task *t = tasks; t; t = next) {
        next = t->next;
        free(t);
    }
}

static void *run_in_progress(void *arg)
{
    struct group_job *j = arg;

    if (!atomic_load(&j->comm[0]->looks))
        word_await(&j->comm[0]->looks, 0, LOOK_NS);
    j->result = run_tasks(j);
    for (unsigned i = 0; i < j->comms; i++)
        comm_set_state(j->comm[i], j->result);
    return NULL;
}

static bool job_has_comm(const struct group_job *j, const struct nccl_comm *c)
{
    for (unsigned i = 0; i < j->comms; i++)
        if (j->comm[i] == c)
            return true;
    return false;
}

/* The thread's tasks, with each of their communicators once. */
static struct group_job *take_tasks(void)
{
    struct group_job *j = calloc(1, sizeof(*j));

    if (!j)
        abort();
    j->tasks = group.first;
    for (struct task *t = j->tasks; t; t = t->next)
        if (!job_has_comm(j, t->comm)) {
            if (j->comms == COMMS_MAX)
                standin_refuse("a group has more than %d communicators", COMMS_MAX);
            j->comm[j->comms++] = t->comm;
        }
    return j;
}

static int start_in_progress(struct group_job *j)
{
    atomic_store(&j->refs, j->comms);
    for (unsigned i = 0; i < j->comms; i++) {
        atomic_store(&j->comm[i]->looks, 0);
        comm_set_state(j->comm[i], NCCL_IN_PROGRESS);
        j->comm[i]->job = j;
    }
    if (pthread_create(&j->thread, NULL, run_in_progress, j) != 0)
        abort();
    return NCCL_IN_PROGRESS;
}

static int run_blocking(struct group_job *j)
{
    int device = 0;

    cudaGetDevice(&device);
    for (unsigned i = 0; i < j->comms; i++)
        atomic_fetch_add(&j->comm[i]->inside, 1);
    j->result = run_tasks(j);
    for (unsigned i = 0; i < j->comms; i++)
        atomic_fetch_sub(&j->comm[i]->inside, 1);
    cudaSetDevice(device);
    return j->result;
}

static void drop_job(struct group_job *j)
{
    free_tasks(j->tasks);
    free(j);
}

int group_finish(void)
{
    struct group_job *j;
    int error, result;

    if (group.depth == 0) {
        standin_warn("ncclGroupEnd: not in a group call");
        return NCCL_BAD_USAGE;
    }
    if (--group.depth > 0)
        return NCCL_OK;
    error = group.error;
    j = take_tasks();
    memset(&group, 0, sizeof(group));
    if (error != NCCL_OK)
        for (unsigned i = 0; i < j->comms; i++)
            if (!j->comm[i]->blocking)
                comm_set_state(j->comm[i], error);
    if (error == NCCL_OK && j->tasks && !j->comm[0]->blocking)
        return start_in_progress(j);
    result = error == NCCL_OK ? run_blocking(j) : error;
    drop_job(j);
    return result;
}

void group_join_job(struct nccl_comm *c)
{
    struct group_job *j = c->job;

    if (!j)
        return;
    c->job = NULL;
    if (!atomic_exchange(&j->joined, true))
        pthread_join(j->thread, NULL);
    if (atomic_fetch_sub(&j->refs, 1) == 1)
        drop_job(j);
}

/* -- calls ------------------------------------------------------------------------- */

COMM_API int ncclGroupStart(void)
{
    int result;

    (void)standin_fault("ncclGroupStart", -1, &result);
    if (result != NCCL_OK)
        standin_warn("%s", standin_last_error());
    else
        group_begin();
    return result;
}

/* The fault belongs to the group's work. */
COMM_API int ncclGroupEnd(void)
{
    int result;
    enum fault fault = standin_fault("ncclGroupEnd", -1, &result);

    for (struct task *t = group.first; t && fault != FAULT_NONE; t = t->next)
        if (t->stage == STAGE_OPERATION) {
            ((struct operation *)(void *)t)->fault = fault;
            if (fault == FAULT_ASYNC)
                atomic_store(&t->comm->breaks, true);
        }
    if (result != NCCL_OK)
        standin_warn("%s", standin_last_error());
    group_note_error(result);
    return group_finish();
}

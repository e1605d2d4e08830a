/* SPDX-License-Identifier: MIT */
#include "worker-lib/training/ddp.h"
#include "worker-lib/training/ddp_slices.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker-lib/core/profiler_ranges.h"
#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

/* The reducer as an object: registered parameters, memory, views. The step is in
 * ddp_step.c, the layout in ddp_layout.c, the order in which buckets are launched in
 * ddp_launch_order.c, the state for checkpoints in ddp_state.c. */

double ddp_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_gradient_type(crun_dtype t)
{
    return t == CRUN_F32 || t == CRUN_BF16 || t == CRUN_F16;
}

crun_status crun_ddp_create(crun_ddp **ddp, crun_world *world,
                            const crun_ddp_options *options)
{
    crun_ddp *d;

    *ddp = NULL;
    if (world_refuse_in_group(world, "crun_ddp_create") != CRUN_OK)
        return CRUN_BAD_ARGUMENT;
    if (options && options->keep_half && options->grad_type == CRUN_F32)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "keep_half needs gradients of bf16 or f16");
    if (options && (options->shard < 0 || options->shard > 2))
        return status_fail(CRUN_BAD_ARGUMENT, "shard cannot be %d: 0, 1 or 2",
                           options->shard);
    if (options && options->gather_half && !(options->shard && options->keep_half))
        return status_fail(CRUN_BAD_ARGUMENT, "gather_half needs shard and keep_half");
    if (options && options->hook.begin && options->shard)
        return status_fail(CRUN_BAD_ARGUMENT,
                           "a hook exchanges whole gradients, which shard does not");
    if (options && !is_gradient_type(options->grad_type))
        return status_fail(CRUN_BAD_ARGUMENT,
                           "gradients cannot be %s: f32, bf16 or f16",
                           crun_dtype_name(options->grad_type));
    d = calloc(1, sizeof(*d));
    if (!d)
        return status_fail(CRUN_NO_MEMORY, "no memory for a reducer");
    if (options)
        d->options = *options;
    ddp_default_buckets(&d->options);
    d->world = world;
    d->ops = world_device(world);
    if (!d->ops) {
        free(d);
        return status_fail(CRUN_UNSUPPORTED,
                           "a reducer on GPUs needs a build with CUDA, and "
                           "its driver");
    }
    d->rank = (unsigned)crun_rank(world);
    d->size = (unsigned)crun_size(world);
    d->divided = d->options.shard || (d->options.share_step && !d->options.hook.begin &&
                                      !d->ops->queued && world_is_one_memory(world));
    d->windowed = d->options.shard == 2 && d->size > 1;
    d->element = crun_dtype_size(d->options.grad_type);
    d->gradients_since = 1;
    pthread_mutex_init(&d->lock, NULL);
    *ddp = d;
    return CRUN_OK;
}

static void ddp_free_names(struct ddp_parameter *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        free(list[i].name);
    free(list);
}

void crun_ddp_destroy(crun_ddp *ddp)
{
    if (!ddp)
        return;
    /* the status of a step that was abandoned does not matter */
    if (ddp_wait_all(ddp, NULL) != CRUN_OK)
        ddp->step.status = CRUN_OK;
    range_end(ddp->step.range);
    ddp_end_copies(ddp);
    for (unsigned i = 0; i < DDP_NOTES; i++)
        ddp->ops->free_note(ddp->unused.note[i]);
    ddp->ops->free(ddp->unused.sum);
    if (ddp->options.gather_half)
        crun_free(ddp->world, ddp->arena.half);
    else
        ddp->ops->free(ddp->arena.half);
    crun_free(ddp->world, ddp->arena.buffers);
    crun_free(ddp->world, ddp->arena.gradients);
    ddp_windows_free(ddp);
    crun_free(ddp->world, ddp->arena.values);
    ddp_free_names(ddp->parameter, ddp->parameters);
    ddp_free_names(ddp->buffer, ddp->buffers);
    pthread_mutex_destroy(&ddp->lock);
    free(ddp->bucket);
    free(ddp->launch_order);
    free(ddp->unused.names);
    free(ddp->state.part);
    free(ddp->state.range);
    free(ddp);
}

/* The list has memory for a power of two: it grows by doubling. */
static int ddp_register(crun_ddp *ddp, struct ddp_parameter **list, unsigned *count,
                        const char *name, size_t elements)
{
    unsigned n = *count;
    struct ddp_parameter *grown = *list;
    char *copy;

    if (ddp->sealed || !name || elements == 0) {
        status_fail(CRUN_BAD_ARGUMENT, "\"%s\" of %zu elements cannot be registered%s",
                    name ? name : "", elements, ddp->sealed ? " after the seal" : "");
        return -1;
    }
    if ((n & (n - 1)) == 0)
        grown = realloc(grown, (n ? 2 * (size_t)n : 1) * sizeof(*grown));
    if (grown)
        *list = grown;
    copy = strdup(name);
    if (!grown || !copy || n >= INT32_MAX / 2) {
        free(copy);
        status_fail(CRUN_NO_MEMORY, "no memory for parameter %u", n);
        return -1;
    }
    memset(&grown[n], 0, sizeof(*grown));
    grown[n].name = copy;
    grown[n].count = elements;
    *count = n + 1;
    return (int)n;
}

int crun_ddp_parameter(crun_ddp *ddp, const char *name, size_t count)
{
    return ddp_register(ddp, &ddp->parameter, &ddp->parameters, name, count);
}

int crun_ddp_buffer(crun_ddp *ddp, const char *name, size_t count)
{
    return ddp_register(ddp, &ddp->buffer, &ddp->buffers, name, count);
}

static crun_status ddp_alloc_arena(crun_ddp *ddp)
{
    void *values, *gradients, *half, *buffers;
    crun_status s = crun_alloc(ddp->world, ddp->arena.length * sizeof(float), &values);

    if (s != CRUN_OK)
        return s;
    ddp->arena.values = values;
    s = crun_alloc(ddp->world, ddp_gradients_kept(ddp), &gradients);
    if (s != CRUN_OK)
        return s;
    ddp->arena.gradients = gradients;
    s = ddp_windows_alloc(ddp);
    if (s != CRUN_OK)
        return s;
    if (ddp->options.gather_half) {
        s = crun_alloc(ddp->world, ddp->arena.length * ddp->element, &half);
        if (s != CRUN_OK)
            return s;
        ddp->arena.half = half;
    }
    if (ddp->buffers == 0)
        return CRUN_OK;
    s = crun_alloc(ddp->world, ddp->arena.buffer_length * sizeof(float), &buffers);
    if (s == CRUN_OK)
        ddp->arena.buffers = buffers;
    return s;
}

/* The memory that is not allocated by all ranks together. */
static crun_status ddp_alloc_own(crun_ddp *ddp)
{
    const struct device_ops *ops = ddp->ops;
    crun_status s = CRUN_OK;

    if (ddp->options.keep_half && !ddp->options.gather_half)
        s = ops->alloc(ddp->arena.length * sizeof(*ddp->arena.half),
                       (void **)&ddp->arena.half);
    if (s != CRUN_OK || !ops->queued)
        return s;
    s = ops->alloc(sizeof(*ddp->unused.sum), (void **)&ddp->unused.sum);
    for (unsigned i = 0; s == CRUN_OK && i < DDP_NOTES; i++) {
        ddp->unused.note[i] = ops->make_note();
        if (!ddp->unused.note[i])
            s = status_fail(CRUN_NO_MEMORY, "no pinned memory");
    }
    return s;
}

crun_status crun_ddp_seal(crun_ddp *ddp)
{
    crun_status s = world_refuse_in_group(ddp->world, "crun_ddp_seal");

    if (s != CRUN_OK)
        return s;
    if (ddp->sealed)
        return status_fail(CRUN_BAD_ARGUMENT, "the reducer is sealed already");
    /* first, so that all ranks report the mistake of one */
    s = ddp_compare(ddp);
    if (s == CRUN_OK && ddp->parameters == 0)
        s = status_fail(CRUN_BAD_ARGUMENT, "no parameter was registered");
    if (s == CRUN_OK)
        s = ddp_lay_out(ddp);
    if (s == CRUN_OK)
        s = ddp_alloc_arena(ddp);
    if (s == CRUN_OK)
        s = ddp_alloc_own(ddp);
    if (s == CRUN_OK)
        s = ddp_describe_state(ddp);
    ddp->sealed = s == CRUN_OK;
    return s;
}

static const struct ddp_parameter *sealed_parameter(const crun_ddp *ddp, int parameter)
{
    bool there = ddp->sealed && parameter >= 0 && parameter < (int)ddp->parameters;

    return there ? &ddp->parameter[parameter] : NULL;
}

float *crun_ddp_value(const crun_ddp *ddp, int parameter)
{
    const struct ddp_parameter *p = sealed_parameter(ddp, parameter);

    return p ? ddp->arena.values + p->at : NULL;
}

void *crun_ddp_gradient(const crun_ddp *ddp, int parameter)
{
    const struct ddp_parameter *p = sealed_parameter(ddp, parameter);

    if (p && ddp->windowed)
        return ddp_window_gradient((crun_ddp *)(uintptr_t)ddp, p);
    return p ? ddp_gradient_at(ddp, p->at) : NULL;
}

const uint16_t *crun_ddp_half_value(const crun_ddp *ddp, int parameter)
{
    const struct ddp_parameter *p = sealed_parameter(ddp, parameter);

    return p && ddp->arena.half ? ddp->arena.half + p->at : NULL;
}

float *crun_ddp_buffer_value(const crun_ddp *ddp, int buffer)
{
    if (!ddp->sealed || buffer < 0 || buffer >= (int)ddp->buffers)
        return NULL;
    return ddp->arena.buffers + ddp->buffer[buffer].at;
}

size_t crun_ddp_count(const crun_ddp *ddp)
{
    return ddp->count;
}

float *crun_ddp_values(const crun_ddp *ddp)
{
    return ddp->arena.values;
}

crun_status crun_ddp_gather(crun_ddp *ddp)
{
    crun_status s;

    if (!ddp->sealed)
        return status_fail(CRUN_BAD_ARGUMENT, "the reducer is not sealed");
    s = ddp_await_copies(ddp);
    if (!ddp->options.gather_half || ddp->size == 1)
        return s;
    for (unsigned i = 0; s == CRUN_OK && i < ddp->buckets; i++) {
        const struct ddp_bucket *b = &ddp->bucket[i];

        s = crun_all_gather(ddp->world, ddp->arena.values + ddp_slice_at(ddp, b),
                            ddp->arena.values + b->at, ddp_slice_count(ddp, b),
                            CRUN_F32, NULL);
    }
    return s;
}

crun_status crun_ddp_broadcast(crun_ddp *ddp, int root)
{
    crun_status s = world_refuse_in_group(ddp->world, "crun_ddp_broadcast");

    if (s != CRUN_OK)
        return s;
    if (!ddp->sealed)
        return status_fail(CRUN_BAD_ARGUMENT, "the reducer is not sealed");
    s = ddp_await_copies(ddp);
    if (s == CRUN_OK)
        s = crun_broadcast(ddp->world, ddp->arena.values, ddp->arena.length, CRUN_F32,
                           root, NULL);
    if (s == CRUN_OK)
        s = ddp_narrow_values(ddp);
    return s == CRUN_OK ? crun_ddp_broadcast_buffers(ddp, root) : s;
}

crun_status crun_ddp_broadcast_buffers(crun_ddp *ddp, int root)
{
    crun_status s = world_refuse_in_group(ddp->world, "crun_ddp_broadcast_buffers");

    if (s != CRUN_OK)
        return s;
    if (!ddp->sealed)
        return status_fail(CRUN_BAD_ARGUMENT, "the reducer is not sealed");
    if (ddp->buffers == 0)
        return CRUN_OK;
    return crun_broadcast(ddp->world, ddp->arena.buffers, ddp->arena.buffer_length,
                          CRUN_F32, root, NULL);
}

void crun_ddp_get_stats(crun_ddp *ddp, crun_ddp_stats *stats)
{
    *stats = (crun_ddp_stats){
        .steps = ddp->steps_synced,
        .communication_s = ddp->times.communication_s,
        .exposed_s = ddp->times.exposed_s,
        .skew_s = ddp->times.skew_s,
        .buckets = ddp->buckets,
        .unused = ddp->unused.names ? ddp->unused.names : "",
    };
}

crun_status ddp_narrow_values(crun_ddp *ddp)
{
    return ddp->arena.half
               ? ddp->ops->narrow(ddp_queue(ddp), ddp->arena.half, ddp->arena.values,
                                  ddp->arena.length, ddp->options.grad_type)
               : CRUN_OK;
}

/* SPDX-License-Identifier: MIT */
#include "worker-lib/training/ddp.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker-lib/core/status.h"
#include "worker-lib/world/world.h"

/* The reducer as an object: what is registered in it, its memory, its views. The step
 * is in ddp_step.c, the layout in ddp_layout.c. */

#define FIRST_BUCKET_BYTES ((size_t)1 << 20)
#define BUCKET_BYTES ((size_t)25 << 20)

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
    if (options && options->keep_half && options->grad_type == CRUN_F32)
        return fail(CRUN_BAD_ARGUMENT, "a copy of parameters in f32 would be one too "
                                       "many: keep_half is for bf16 and f16");
    if (options && !is_gradient_type(options->grad_type))
        return fail(CRUN_BAD_ARGUMENT, "gradients cannot be %s: f32, bf16 or f16",
                    crun_dtype_name(options->grad_type));
    d = calloc(1, sizeof(*d));
    if (!d)
        return fail(CRUN_NO_MEMORY, "no memory for a reducer");
    if (options)
        d->options = *options;
    if (d->options.first_bucket_bytes == 0)
        d->options.first_bucket_bytes = FIRST_BUCKET_BYTES;
    if (d->options.bucket_bytes == 0)
        d->options.bucket_bytes = BUCKET_BYTES;
    d->world = world;
    d->ops = world_device(world);
    if (!d->ops) {
        free(d);
        return fail(CRUN_UNSUPPORTED, "a reducer on GPUs needs a build with CUDA, and "
                                      "its driver");
    }
    d->rank = (unsigned)crun_rank(world);
    d->size = (unsigned)crun_size(world);
    d->divided = d->options.shard || (d->options.share_step && !d->ops->queued &&
                                      world_is_one_memory(world));
    d->element = crun_dtype_size(d->options.grad_type);
    d->since = 1;
    pthread_mutex_init(&d->lock, NULL);
    *ddp = d;
    return CRUN_OK;
}

static void free_names(struct ddp_parameter *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        free(list[i].name);
    free(list);
}

void crun_ddp_destroy(crun_ddp *ddp)
{
    if (!ddp)
        return;
    /* a step that was given up: only its end matters */
    if (ddp_wait_all(ddp, NULL) != CRUN_OK)
        ddp->status = CRUN_OK;
    for (unsigned i = 0; i < DDP_NOTES; i++)
        ddp->ops->free_note(ddp->unused_note[i]);
    ddp->ops->free(ddp->unused_sum);
    ddp->ops->free(ddp->half);
    free(ddp->mirror);
    crun_free(ddp->world, ddp->buffer_values);
    crun_free(ddp->world, ddp->gradients);
    crun_free(ddp->world, ddp->values);
    free_names(ddp->parameter, ddp->parameters);
    free_names(ddp->buffer, ddp->buffers);
    pthread_mutex_destroy(&ddp->lock);
    free(ddp->bucket);
    free(ddp->order);
    free(ddp->unused);
    free(ddp->part);
    free(ddp->part_range);
    free(ddp);
}

/* Grows by doubling: the list has room for the next power of two. */
static int add(crun_ddp *ddp, struct ddp_parameter **list, unsigned *count,
               const char *name, size_t elements)
{
    unsigned n = *count;
    struct ddp_parameter *grown = *list;
    char *copy;

    if (ddp->sealed || !name || elements == 0) {
        fail(CRUN_BAD_ARGUMENT, "\"%s\" of %zu elements cannot be registered%s",
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
        fail(CRUN_NO_MEMORY, "no memory for parameter %u", n);
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
    return add(ddp, &ddp->parameter, &ddp->parameters, name, count);
}

int crun_ddp_buffer(crun_ddp *ddp, const char *name, size_t count)
{
    return add(ddp, &ddp->buffer, &ddp->buffers, name, count);
}

static crun_status allocate(crun_ddp *ddp)
{
    void *values, *gradients, *buffers;
    crun_status s = crun_alloc(ddp->world, ddp->length * sizeof(float), &values);

    if (s != CRUN_OK)
        return s;
    ddp->values = values;
    s = crun_alloc(ddp->world, ddp->length * ddp->element, &gradients);
    if (s != CRUN_OK)
        return s;
    ddp->gradients = gradients;
    if (ddp->buffers == 0)
        return CRUN_OK;
    s = crun_alloc(ddp->world, ddp->buffer_length * sizeof(float), &buffers);
    if (s == CRUN_OK)
        ddp->buffer_values = buffers;
    return s;
}

/* What this rank alone needs, beside the arenas. */
static crun_status allocate_own(crun_ddp *ddp)
{
    const struct device_ops *ops = ddp->ops;
    crun_status s = CRUN_OK;

    if (ddp->options.keep_half)
        s = ops->alloc(ddp->length * sizeof(*ddp->half), (void **)&ddp->half);
    if (s != CRUN_OK || !ops->queued)
        return s;
    s = ops->alloc(sizeof(*ddp->unused_sum), (void **)&ddp->unused_sum);
    for (unsigned i = 0; s == CRUN_OK && i < DDP_NOTES; i++) {
        ddp->unused_note[i] = ops->make_note();
        if (!ddp->unused_note[i])
            s = fail(CRUN_NO_MEMORY, "no pinned memory");
    }
    ddp->mirror = calloc(ddp->length + ddp->buffer_length, sizeof(*ddp->mirror));
    return s == CRUN_OK && !ddp->mirror
               ? fail(CRUN_NO_MEMORY, "no memory for a copy of %zu parameters",
                      ddp->count)
               : s;
}

static struct state_part whole(const struct ddp_parameter *p, float *arena,
                               struct state_range *range)
{
    *range = (struct state_range){ 0, p->count, arena + p->at };
    return (struct state_part){
        .name = p->name,
        .type = CRUN_F32,
        .total = p->count,
        .range = range,
        .ranges = 1,
    };
}

static crun_status describe_state(crun_ddp *ddp)
{
    float *values = ddp->mirror ? ddp->mirror : ddp->values;
    float *buffers = ddp->mirror ? ddp->mirror + ddp->length : ddp->buffer_values;
    unsigned n = 0;

    ddp->part = calloc(ddp->parameters + ddp->buffers, sizeof(*ddp->part));
    ddp->part_range = calloc(ddp->parameters + ddp->buffers, sizeof(*ddp->part_range));
    if (!ddp->part || !ddp->part_range)
        return fail(CRUN_NO_MEMORY, "no memory for a list of %u parameters",
                    ddp->parameters);
    for (unsigned i = 0; i < ddp->parameters; i++, n++)
        ddp->part[n] = whole(&ddp->parameter[i], values, &ddp->part_range[n]);
    for (unsigned i = 0; i < ddp->buffers; i++, n++)
        ddp->part[n] = whole(&ddp->buffer[i], buffers, &ddp->part_range[n]);
    return CRUN_OK;
}

crun_status crun_ddp_seal(crun_ddp *ddp)
{
    crun_status s;

    if (ddp->sealed)
        return fail(CRUN_BAD_ARGUMENT, "the reducer is sealed already");
    /* first of all, so that what one rank alone does wrong is told to all */
    s = ddp_compare(ddp);
    if (s == CRUN_OK && ddp->parameters == 0)
        s = fail(CRUN_BAD_ARGUMENT, "no parameter was registered");
    if (s == CRUN_OK)
        s = ddp_lay_out(ddp);
    if (s == CRUN_OK)
        s = allocate(ddp);
    if (s == CRUN_OK)
        s = allocate_own(ddp);
    if (s == CRUN_OK)
        s = describe_state(ddp);
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

    return p ? ddp->values + p->at : NULL;
}

void *crun_ddp_gradient(const crun_ddp *ddp, int parameter)
{
    const struct ddp_parameter *p = sealed_parameter(ddp, parameter);

    return p ? ddp->gradients + p->at * ddp->element : NULL;
}

const uint16_t *crun_ddp_half_value(const crun_ddp *ddp, int parameter)
{
    const struct ddp_parameter *p = sealed_parameter(ddp, parameter);

    return p && ddp->half ? ddp->half + p->at : NULL;
}

float *crun_ddp_buffer_value(const crun_ddp *ddp, int buffer)
{
    if (!ddp->sealed || buffer < 0 || buffer >= (int)ddp->buffers)
        return NULL;
    return ddp->buffer_values + ddp->buffer[buffer].at;
}

size_t crun_ddp_count(const crun_ddp *ddp)
{
    return ddp->count;
}

float *crun_ddp_values(const crun_ddp *ddp)
{
    return ddp->values;
}

crun_world *ddp_world(const crun_ddp *ddp)
{
    return ddp->world;
}

crun_status crun_ddp_broadcast(crun_ddp *ddp, int root)
{
    crun_status s;

    if (!ddp->sealed)
        return fail(CRUN_BAD_ARGUMENT, "the reducer is not sealed");
    s = crun_broadcast(ddp->world, ddp->values, ddp->length, CRUN_F32, root, NULL);
    if (s == CRUN_OK)
        s = ddp_narrow_values(ddp);
    return s == CRUN_OK ? crun_ddp_broadcast_buffers(ddp, root) : s;
}

crun_status crun_ddp_broadcast_buffers(crun_ddp *ddp, int root)
{
    if (!ddp->sealed)
        return fail(CRUN_BAD_ARGUMENT, "the reducer is not sealed");
    if (ddp->buffers == 0)
        return CRUN_OK;
    return crun_broadcast(ddp->world, ddp->buffer_values, ddp->buffer_length, CRUN_F32,
                          root, NULL);
}

void crun_ddp_get_stats(crun_ddp *ddp, crun_ddp_stats *stats)
{
    *stats = (crun_ddp_stats){
        .steps = ddp->synced,
        .communication_s = ddp->communication_s,
        .exposed_s = ddp->exposed_s,
        .skew_s = ddp->skew_s,
        .buckets = ddp->buckets,
        .unused = ddp->unused ? ddp->unused : "",
    };
}

unsigned ddp_state(crun_ddp *ddp, const struct state_part **parts)
{
    *parts = ddp->part;
    return ddp->sealed ? ddp->parameters + ddp->buffers : 0;
}

/* Either way between the arenas and what the host sees of them. */
static crun_status move_state(crun_ddp *ddp,
                              crun_status (*move)(crun_ddp *ddp, float *arena,
                                                  float *host, size_t count))
{
    crun_status s;

    if (!ddp->mirror || !ddp->sealed)
        return CRUN_OK;
    s = move(ddp, ddp->values, ddp->mirror, ddp->length);
    if (s == CRUN_OK && ddp->buffers > 0)
        s = move(ddp, ddp->buffer_values, ddp->mirror + ddp->length,
                 ddp->buffer_length);
    return s;
}

static crun_status fetch(crun_ddp *ddp, float *arena, float *host, size_t count)
{
    return ddp->ops->fetch(ddp_queue(ddp), host, arena, count * sizeof(*host));
}

static crun_status put(crun_ddp *ddp, float *arena, float *host, size_t count)
{
    return ddp->ops->put(ddp_queue(ddp), arena, host, count * sizeof(*host));
}

crun_status ddp_state_fetch(crun_ddp *ddp)
{
    return move_state(ddp, fetch);
}

crun_status ddp_state_put(crun_ddp *ddp)
{
    crun_status s = move_state(ddp, put);

    return s == CRUN_OK ? ddp_narrow_values(ddp) : s;
}

crun_status ddp_narrow_values(crun_ddp *ddp)
{
    return ddp->half ? ddp->ops->narrow(ddp_queue(ddp), ddp->half, ddp->values,
                                        ddp->length, ddp->options.grad_type)
                     : CRUN_OK;
}

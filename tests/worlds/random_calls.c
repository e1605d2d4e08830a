/* SPDX-License-Identifier: MIT */
#include "tests/worlds/random_calls.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/any_memory.h"
#include "tests/worlds/collectives.h"
#include "tests/worlds/ranks.h"

#define PENDING_MAX 4

enum kind { ALL_REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BARRIER };
enum { KIND_COUNT = BARRIER + 1 };

struct random_call {
    unsigned number, size, rank;
    enum kind kind;
    crun_dtype type;
    crun_op op;
    int root;
    size_t count;
    bool in_place, shared, later, on_gpu;
    char *memory; /* inputs, then outputs */
    char *in, *out;
    size_t ins, outs; /* elements */
    crun_work *work;
};

static uint64_t draw_call(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* -- elements ---------------------------------------------------------------------- */

/* Small numbers, of which sums and products are exact in every type. */
static int value(const struct random_call *c, unsigned rank, size_t i)
{
    uint64_t state = c->number * 1000003u + rank * 7919u + i;
    int v = (int)(draw_call(&state) % 5);

    return c->type == CRUN_U8 ? v : v - 2;
}

static float half_value(crun_dtype type, uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    int exponent = (h >> 10) & 31, fraction = h & 1023;
    float f;

    if (type == CRUN_BF16) {
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
    f = exponent ? (float)(1024 + fraction) : (float)fraction;
    for (int e = exponent ? exponent : 1; e < 25; e++)
        f /= 2;
    for (int e = 25; e < exponent; e++)
        f *= 2;
    return h & 0x8000 ? -f : f;
}

static uint16_t half_of(crun_dtype type, int v)
{
    float f = (float)v;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    if (type == CRUN_BF16)
        return (uint16_t)(bits >> 16);
    return v ? (uint16_t)(((bits >> 16) & 0x8000) |
                          (((bits & 0x7fffffff) - 0x38000000) >> 13))
             : 0;
}

static void put_memory(const struct random_call *c, char *at, size_t i, int v)
{
    switch (c->type) {
    case CRUN_F32:
        ((float *)(void *)at)[i] = (float)v;
        break;
    case CRUN_F64:
        ((double *)(void *)at)[i] = v;
        break;
    case CRUN_I32:
        ((int32_t *)(void *)at)[i] = v;
        break;
    case CRUN_I64:
        ((int64_t *)(void *)at)[i] = v;
        break;
    case CRUN_U8:
        ((uint8_t *)at)[i] = (uint8_t)v;
        break;
    default:
        ((uint16_t *)(void *)at)[i] = half_of(c->type, v);
    }
}

static double get_memory(const struct random_call *c, const char *at, size_t i)
{
    switch (c->type) {
    case CRUN_F32:
        return (double)((const float *)(const void *)at)[i];
    case CRUN_F64:
        return ((const double *)(const void *)at)[i];
    case CRUN_I32:
        return ((const int32_t *)(const void *)at)[i];
    case CRUN_I64:
        return (double)((const int64_t *)(const void *)at)[i];
    case CRUN_U8:
        return ((const uint8_t *)at)[i];
    default:
        return (double)half_value(c->type, ((const uint16_t *)(const void *)at)[i]);
    }
}

/* -- the reference ----------------------------------------------------------------- */

static double reduced(const struct random_call *c, size_t i)
{
    int sum = value(c, 0, i);

    for (unsigned r = 1; r < c->size; r++) {
        int v = value(c, r, i);

        if (c->op == CRUN_SUM || c->op == CRUN_MEAN)
            sum += v;
        else if (c->op == CRUN_PRODUCT)
            sum *= v;
        else
            sum = (c->op == CRUN_MIN) == (v < sum) ? v : sum;
    }
    if (c->type == CRUN_U8)
        sum &= 255;
    if (c->op != CRUN_MEAN)
        return sum;
    if (c->type == CRUN_F32)
        return (double)((float)sum / (float)c->size);
    return (double)sum / c->size;
}

static double expected(const struct random_call *c, size_t i)
{
    switch (c->kind) {
    case ALL_REDUCE:
        return reduced(c, i);
    case REDUCE_SCATTER:
        return reduced(c, c->rank * c->count + i);
    case BROADCAST:
        return value(c, (unsigned)c->root, i);
    case ALL_GATHER:
        return value(c, (unsigned)(i / c->count), i % c->count);
    case ALL_TO_ALL:
        return value(c, (unsigned)(i / c->count), c->rank * c->count + i % c->count);
    case BARRIER:
        break;
    }
    return 0;
}

/* A mean of halves is rounded, once; NCCL multiplies by 1 / n before it adds. */
static bool is_right(const struct random_call *c, double seen, double right)
{
    double error = seen < right ? right - seen : seen - right;
    double size = right < 0 ? -right : right;
    bool half = c->type == CRUN_F16 || c->type == CRUN_BF16;

    if (c->op != CRUN_MEAN)
        return error == 0;
    return half ? error <= size / 256 : error <= (c->on_gpu ? size / 1e6 + 1e-6 : 0);
}

static void check_output(const struct random_call *c)
{
    size_t bytes = c->outs * crun_dtype_size(c->type);
    char *seen = malloc(bytes + 1);

    memory_read(seen, c->out, bytes);
    for (size_t i = 0; i < c->outs; i++)
        if (!is_right(c, get_memory(c, seen, i), expected(c, i)))
            ck_abort_msg("rank %u of %u, call %u, kind %d, %zu x %s %s, root %d%s%s: "
                         "element %zu is %g, should be %g",
                         c->rank, c->size, c->number, c->kind, c->count,
                         crun_dtype_name(c->type), crun_op_name(c->op), c->root,
                         c->in_place ? ", in place" : "", c->shared ? ", shared" : "",
                         i, get_memory(c, seen, i), expected(c, i));
    free(seen);
}

/* -- calls ------------------------------------------------------------------------- */

static void decide(struct random_call *c, uint64_t *state, size_t count_max)
{
    bool large = draw_call(state) % 4 == 0;

    c->kind = (enum kind)(draw_call(state) % KIND_COUNT);
    c->type = (crun_dtype)(draw_call(state) % CRUN_DTYPE_COUNT);
    c->op = (crun_op)(draw_call(state) % CRUN_OP_COUNT);
    if (c->op == CRUN_MEAN && c->type >= CRUN_I32) /* integers have none */
        c->op = CRUN_SUM;
    c->root = (int)(draw_call(state) % c->size);
    c->count = draw_call(state) % ((large ? count_max : count_max / 64 + 1) + 1);
    c->in_place = draw_call(state) % 2 && c->kind != ALL_TO_ALL;
    c->shared = draw_call(state) % 2;
    c->later = draw_call(state) % 3 == 0;
    c->work = NULL;
}

static bool has_blocks_in(enum kind k)
{
    return k == REDUCE_SCATTER || k == ALL_TO_ALL;
}

static bool has_blocks_out(enum kind k)
{
    return k == ALL_GATHER || k == ALL_TO_ALL;
}

static void allocate_buffers(crun_world *world, struct random_call *c)
{
    size_t element = crun_dtype_size(c->type), bytes;
    void *memory = NULL;

    c->ins = c->count * (has_blocks_in(c->kind) ? c->size : 1);
    c->outs = c->count * (has_blocks_out(c->kind) ? c->size : 1);
    bytes = (c->ins + c->outs + 2) * element;
    if (c->shared)
        ranks_ok(crun_alloc(world, bytes, &memory));
    else
        memory = malloc(bytes);
    ck_assert_ptr_nonnull(memory);
    c->memory = memory;
    c->in = c->memory;
    c->out = c->memory + c->ins * element;
    if (c->kind == BROADCAST)
        c->in = c->out;
    else if (c->in_place && c->kind == ALL_REDUCE)
        c->out = c->in;
    else if (c->in_place && c->kind == REDUCE_SCATTER)
        c->out = c->in + c->rank * c->count * element;
    else if (c->in_place && c->kind == ALL_GATHER)
        c->in = c->out + c->rank * c->count * element;
}

static void fill(const struct random_call *c)
{
    size_t bytes = c->ins * crun_dtype_size(c->type);
    char *input;

    if (c->kind == BROADCAST && c->root != (int)c->rank)
        return;
    input = malloc(bytes + 1);
    for (size_t i = 0; i < c->ins; i++)
        put_memory(c, input, i, value(c, c->rank, i));
    memory_write(c->in, input, bytes);
    free(input);
}

static crun_status start_call(crun_world *w, struct random_call *c)
{
    crun_work **k = c->later ? &c->work : NULL;

    switch (c->kind) {
    case ALL_REDUCE:
        return crun_all_reduce(w, c->in, c->out, c->count, c->type, c->op, k);
    case BROADCAST:
        return crun_broadcast(w, c->out, c->count, c->type, c->root, k);
    case REDUCE_SCATTER:
        return crun_reduce_scatter(w, c->in, c->out, c->count, c->type, c->op, k);
    case ALL_GATHER:
        return crun_all_gather(w, c->in, c->out, c->count, c->type, k);
    case ALL_TO_ALL:
        return crun_all_to_all(w, c->in, c->out, c->count, c->type, k);
    case BARRIER:
        c->outs = 0;
        return crun_barrier(w, k);
    }
    return CRUN_BAD_ARGUMENT;
}

static void finish_call(crun_world *world, struct random_call *c)
{
    if (c->work)
        ranks_ok(crun_wait(c->work));
    check_output(c);
    if (c->shared)
        crun_free(world, c->memory);
    else
        free(c->memory);
}

void random_calls(crun_world *world, unsigned seed, unsigned calls, size_t count_max)
{
    struct random_call call[PENDING_MAX];
    unsigned pending = 0;
    uint64_t state = seed;

    calls = collectives_rounds(calls);
    for (unsigned n = 0; n < calls; n++) {
        struct random_call *c = &call[pending++];

        *c = (struct random_call){ .number = n,
                                   .size = (unsigned)crun_size(world),
                                   .rank = (unsigned)crun_rank(world),
                                   .on_gpu = strcmp(crun_backend(world), "nccl") == 0 };
        decide(c, &state, count_max);
        allocate_buffers(world, c);
        fill(c);
        ranks_ok(start_call(world, c));
        if (pending < PENDING_MAX && n + 1 < calls)
            continue;
        while (pending > 0)
            finish_call(world, &call[--pending]);
    }
}

void random_messages(crun_world *world, unsigned seed, unsigned calls, size_t count_max)
{
    int size = crun_size(world), rank = crun_rank(world);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    uint64_t state = seed;
    uint32_t *out = malloc((count_max + 1) * 4), *in = malloc((count_max + 1) * 4);

    for (unsigned n = 0; n < calls && size > 1; n++) {
        size_t count = draw_call(&state) % (count_max + 1);

        for (size_t i = 0; i < count; i++)
            out[i] = (uint32_t)(n * 1000 + (unsigned)rank * 100 + i);
        /* rank 0 begins: a message may be longer than what lies between two ranks */
        if (rank == 0)
            ranks_ok(crun_send(world, out, count, CRUN_I32, next));
        ranks_ok(crun_receive(world, in, count, CRUN_I32, before));
        if (rank != 0)
            ranks_ok(crun_send(world, out, count, CRUN_I32, next));
        for (size_t i = 0; i < count; i++)
            ck_assert_uint_eq(in[i], (uint32_t)(n * 1000 + (unsigned)before * 100 + i));
    }
    free(out);
    free(in);
}

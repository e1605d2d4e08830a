/* SPDX-License-Identifier: MIT */
/* takes: 6 s */
#include "worker-lib/training/optim.h"

#include <math.h>
#include <pthread.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/optimizers.h"
#include "tests/worlds/tiny_model.h"
#include "tests/worlds/world_stub.h"

/* -- against the definitions ------------------------------------------------------- */

/* What torch.optim says, in f64. */
struct reference {
    const crun_optim_options *o;
    double p, m, v, beta1, beta2;
};

static void reference_step(struct reference *r, double g, double t)
{
    const crun_optim_options *o = r->o;
    double lr = (double)o->lr, decay = (double)o->weight_decay,
           mu = (double)o->momentum;

    if (o->kind == CRUN_ADAMW)
        r->p -= lr * decay * r->p;
    else
        g += decay * r->p;
    if (o->kind == CRUN_SGD) {
        r->m = t == 1 ? g : mu * r->m + g;
        r->p -= lr * (o->nesterov ? g + mu * r->m : r->m);
        return;
    }
    r->m = r->beta1 * r->m + (1 - r->beta1) * g;
    r->v = r->beta2 * r->v + (1 - r->beta2) * g * g;
    r->p -= lr * (r->m / (1 - pow(r->beta1, t))) /
            (sqrt(r->v / (1 - pow(r->beta2, t))) + (o->eps ? (double)o->eps : 1e-8));
}

#define COUNT 77
#define STEPS 200

static float gradient_of(int step, int i)
{
    return sinf((float)(i * 31 + step * 7)) * (i % 5 == 0 ? 1e-3f : 1);
}

static double clipping(const crun_optim_options *o, int step)
{
    double squares = 0, norm;

    for (int i = 0; i < COUNT; i++)
        squares += (double)gradient_of(step, i) * (double)gradient_of(step, i);
    norm = sqrt(squares);
    return o->clip_norm > 0 ? fmin(1, (double)o->clip_norm / (norm + 1e-6)) : 1;
}

static void as_defined(crun_world *w, void *arg)
{
    const struct named *n = arg;
    crun_optim_options o = n->options;
    struct reference r[COUNT];
    crun_ddp *ddp;
    crun_optim *optim;
    float *p, *g;

    must(crun_ddp_create(&ddp, w, NULL));
    ck_assert_int_eq(crun_ddp_parameter(ddp, "p", COUNT), 0);
    must(crun_ddp_seal(ddp));
    must(crun_optim_create(&optim, ddp, &o));
    p = crun_ddp_value(ddp, 0);
    g = crun_ddp_gradient(ddp, 0);
    for (int i = 0; i < COUNT; i++) {
        p[i] = cosf((float)i);
        r[i] = (struct reference){ .o = &o, .p = (double)p[i] };
        r[i].beta1 = o.beta1 != 0 ? 0.8 : 0.9;
        r[i].beta2 = o.beta2 != 0 ? 0.95 : 0.999;
    }
    for (int step = 1; step <= STEPS; step++) {
        double factor = clipping(&o, step);

        o.lr = n->options.lr * (step > STEPS / 2 ? 0.5f : 1);
        must(crun_optim_set_lr(optim, o.lr));
        must(crun_ddp_begin(ddp, true));
        for (int i = 0; i < COUNT; i++)
            g[i] = gradient_of(step, i);
        must(crun_ddp_ready(ddp, 0));
        must(crun_ddp_finish(ddp));
        must(crun_optim_step(optim, NULL));
        for (int i = 0; i < COUNT; i++)
            reference_step(&r[i], factor * (double)gradient_of(step, i), step);
    }
    for (int i = 0; i < COUNT; i++)
        ck_assert_msg(fabs((double)p[i] - r[i].p) < 3e-5,
                      "%s: element %d: %.9g, not %.9g", n->name, i, (double)p[i],
                      r[i].p);
    for (size_t i = COUNT; i < ddp->arena.length; i++)
        ck_assert_msg(p[i] == 0, "padding %zu is %g", i, (double)p[i]);
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
}

TEST_LOOP(optimizers_are_what_pytorch_defines, 0, OPTIMIZERS)
{
    world_stub_run(1, as_defined, (void *)&optimizers[_i]);
}

/* -- on a GPU ---------------------------------------------------------------------- */

/* As on a GPU whose queue is always empty. */
static struct device_ops queued_ops;

static void make_queued_ops(void)
{
    queued_ops = device_cpu;
    queued_ops.queued = true;
}

static const struct device_ops *queued_device(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_queued_ops);
    return &queued_ops;
}

/* -- any number of ranks ----------------------------------------------------------- */

#define TRAINING 50

struct training {
    const struct named *optimizer;
    crun_ddp_options ddp;
    bool queued;
    unsigned parts; /* of a step's batch, accumulated */
    float scale;    /* of the loss; 0: none */
    float result[STUB_RANKS_MAX][VALUES_MAX], begin[VALUES_MAX];
    size_t values;
};

/* One after the other: their places in the arena depend on the options. */
static void copy_values(const struct tiny *t, float *to)
{
    for (int p = 0; p < TINY_PARAMETERS; to += tiny_count[p++])
        memcpy(to, crun_ddp_value(t->ddp, p), tiny_count[p] * sizeof(float));
}

static void train(crun_world *w, void *arg)
{
    struct training *t = arg;
    crun_optim_options o = t->optimizer->options;
    struct tiny tiny;

    o.loss_scaling = t->scale != 0;
    if (t->queued)
        w->device = queued_device();
    must(tiny_open(&tiny, w, &t->ddp, &o));
    if (t->scale != 0)
        (void)!optim_set_scalars(tiny.optim,
                                 &(struct optim_scalars){ .scale = t->scale });
    ck_assert_uint_lt(tiny.ddp->arena.length, VALUES_MAX);
    if (w->rank == 0) {
        t->values = tiny.ddp->count;
        copy_values(&tiny, t->begin);
    }
    for (uint64_t i = 0; i < TRAINING; i++)
        must(tiny_step(&tiny, i, GLOBAL_BATCH / (unsigned)w->ranks->size, t->parts,
                       NULL));
    must(crun_ddp_gather(tiny.ddp));
    copy_values(&tiny, t->result[w->rank]);
    tiny_close(&tiny);
}

static const struct precision {
    const char *name;
    crun_dtype type;
    float scale;
    double tolerance; /* of how far the values have moved at most */
} precisions[] = {
    { "f32", CRUN_F32, 0, 1e-3 },
    { "bf16", CRUN_BF16, 0, 0.1 },
    { "f16", CRUN_F16, 1024, 0.02 },
};

#define PRECISIONS 3
#define CASES (OPTIMIZERS * PRECISIONS)

static struct training case_of(int i)
{
    const struct precision *p = &precisions[i % PRECISIONS];

    return (struct training){
        .optimizer = &optimizers[i / PRECISIONS],
        .ddp = { .first_bucket_bytes = 256, .bucket_bytes = 700, .grad_type = p->type },
        .parts = 1,
        .scale = p->scale,
    };
}

static void assert_ranks_equal(const struct training *t, int size)
{
    for (int r = 1; r < size; r++)
        ck_assert_msg(memcmp(t->result[0], t->result[r], t->values * sizeof(float)) ==
                          0,
                      "%s: rank %d differs from rank 0", t->optimizer->name, r);
}

static void assert_close(const struct training *t, const struct training *one,
                         const struct precision *p)
{
    double moved = 0, apart = 0;

    for (size_t i = 0; i < t->values; i++) {
        moved = fmax(moved, fabs((double)one->result[0][i] - (double)one->begin[i]));
        apart = fmax(apart, fabs((double)one->result[0][i] - (double)t->result[0][i]));
    }
    ck_assert_double_gt(moved, 1e-3);
    ck_assert_msg(apart <= p->tolerance * moved, "%s, %s: moved %g, apart %g",
                  t->optimizer->name, p->name, moved, apart);
}

static void assert_same_divided(const struct training *many, int size,
                                crun_ddp_options how)
{
    static struct training divided;

    divided = *many;
    divided.ddp.shard = how.shard;
    divided.ddp.share_step = how.share_step;
    divided.queued = false;
    memset(divided.result, 0, sizeof(divided.result));
    world_stub_run(size, train, &divided);
    assert_ranks_equal(&divided, size);
    ck_assert_mem_eq(many->result[0], divided.result[0], sizeof(many->result[0]));
}

/* N ranks with a batch of B and one rank with N * B; the same run again; divided. */
TEST_LOOP(any_number_of_ranks_trains_the_same_model, 0, CASES)
{
    static struct training one, many, again;

    one = case_of(_i);
    world_stub_run(1, train, &one);
    for (int size = 2; size <= 3; size++) {
        many = case_of(_i);
        world_stub_run(size, train, &many);
        assert_ranks_equal(&many, size);
        assert_close(&many, &one, &precisions[_i % PRECISIONS]);

        again = case_of(_i);
        world_stub_run(size, train, &again);
        ck_assert_mem_eq(many.result[0], again.result[0], sizeof(many.result[0]));

        assert_same_divided(&many, size, (crun_ddp_options){ .shard = 1 });
        assert_same_divided(&many, size, (crun_ddp_options){ .shard = 2 });
        assert_same_divided(&many, size, (crun_ddp_options){ .share_step = true });
    }
}

/* A factor that is a power of two changes no bits. */
TEST_LOOP(a_gpu_that_adds_trains_the_same_model, 0, CASES)
{
    static struct training host, gpu;

    for (int size = 2; size <= 4; size++) {
        host = case_of(_i);
        host.ddp.shard = size == 2;
        host.parts = size == 4 ? 3 : 1;
        gpu = host;
        gpu.queued = true;
        world_stub_run(size, train, &host);
        world_stub_run(size, train, &gpu);
        assert_ranks_equal(&gpu, size);
        if (size == 3)
            assert_close(&gpu, &host, &precisions[_i % PRECISIONS]);
        else
            ck_assert_mem_eq(host.result[0], gpu.result[0], sizeof(host.result[0]));
    }
}

/* Ranks that exchange only half values, and compute with these. */
TEST_LOOP(half_values_gathered_are_those_of_gathered_values, 0, OPTIMIZERS * 2 * 2)
{
    static struct training values, halves;
    int c = _i / 2;

    values = case_of(c / 2 * PRECISIONS + 1 + c % 2);
    values.queued = _i % 2;
    values.ddp.shard = values.ddp.keep_half = true;
    halves = values;
    halves.ddp.gather_half = true;
    world_stub_run(3, train, &values);
    world_stub_run(3, train, &halves);
    assert_ranks_equal(&halves, 3);
    ck_assert_mem_eq(values.result[0], halves.result[0], sizeof(values.result[0]));
}

TEST_LOOP(accumulated_parts_make_the_same_step, 0, OPTIMIZERS)
{
    static struct training one, parts;

    one = case_of(_i * PRECISIONS);
    world_stub_run(1, train, &one);
    parts = case_of(_i * PRECISIONS);
    parts.parts = 3;
    world_stub_run(2, train, &parts);
    assert_ranks_equal(&parts, 2);
    assert_close(&parts, &one, &precisions[0]);
}

/* -- the norm, infinities, the scale ----------------------------------------------- */

static void set_gradient(struct tiny *t, int parameter, unsigned i, float value)
{
    void *g = crun_ddp_gradient(t->ddp, parameter);

    if (t->type == CRUN_F32)
        ((float *)g)[i] = value;
    else if (t->type == CRUN_F16)
        ((uint16_t *)g)[i] = tiny_to_f16(value);
    else
        ((uint16_t *)g)[i] = tiny_to_bf16(value);
}

/* Everything zero but one gradient of each rank. */
static crun_status bare_step(struct tiny *t, float value, crun_step_info *info)
{
    const int all[] = { t->b2, t->w2, t->b1, t->w1 };

    crun_ddp_zero(t->ddp);
    must(crun_ddp_begin(t->ddp, true));
    set_gradient(t, t->w2, (unsigned)crun_rank(t->world), value);
    for (unsigned i = 0; i < 4; i++)
        must(crun_ddp_ready(t->ddp, all[i]));
    must(crun_ddp_finish(t->ddp));
    return crun_optim_step(t->optim, info);
}

struct norm_case {
    crun_dtype type;
    bool shard, queued;
};

static void norms(crun_world *w, void *arg)
{
    const struct norm_case *c = arg;
    const crun_ddp_options ddp = { .first_bucket_bytes = 64,
                                   .bucket_bytes = 64,
                                   .shard = c->shard,
                                   .grad_type = c->type };
    const crun_optim_options sgd = { .kind = CRUN_SGD, .lr = 1, .clip_norm = 2 };
    crun_step_info info;
    struct tiny t;
    float before;

    if (c->queued)
        w->device = queued_device();
    must(tiny_open(&t, w, &ddp, &sgd));
    before = crun_ddp_value(t.ddp, t.w2)[1];
    /* the mean over two ranks: (3, 4), of norm 5, is clipped to 2 */
    must(bare_step(&t, w->rank == 0 ? 6 : 8, &info));
    ck_assert_float_eq(info.grad_norm, 5);
    ck_assert(!info.skipped);
    ck_assert_float_eq_tol(crun_ddp_value(t.ddp, t.w2)[1], before - 1.6f, 1e-5f);
    before = crun_ddp_value(t.ddp, t.w2)[1];
    must(bare_step(&t, w->rank == 0 ? 0 : 1, &info)); /* nothing to clip */
    ck_assert_float_eq(info.grad_norm, 0.5f);
    ck_assert_float_eq(crun_ddp_value(t.ddp, t.w2)[1], before - 0.5f);
    tiny_close(&t);
}

static const struct norm_case norm_cases[] = {
    { CRUN_F32, false, false }, { CRUN_F32, true, false },  { CRUN_BF16, false, false },
    { CRUN_BF16, true, false }, { CRUN_F16, false, false }, { CRUN_F16, true, false },
    { CRUN_F32, false, true },  { CRUN_F32, true, true },   { CRUN_BF16, false, true },
    { CRUN_BF16, true, true },  { CRUN_F16, false, true },  { CRUN_F16, true, true },
};

#define NORM_CASES (int)(sizeof(norm_cases) / sizeof(*norm_cases))

TEST_LOOP(the_norm_is_that_of_the_whole_mean_gradient, 0, NORM_CASES)
{
    world_stub_run(2, norms, (void *)&norm_cases[_i]);
}

/* Only the last rank's gradient is infinite; all ranks skip the step and halve the
 * scale. */
static void overflow(crun_world *w, void *arg)
{
    const struct norm_case *c = arg;
    const crun_ddp_options ddp = { .first_bucket_bytes = 64,
                                   .bucket_bytes = 64,
                                   .shard = c->shard,
                                   .grad_type = c->type };
    const crun_optim_options adam = { .kind = CRUN_ADAM,
                                      .lr = 0.1f,
                                      .loss_scaling = true };
    bool last = w->rank == w->ranks->size - 1;
    float before[VALUES_MAX];
    struct optim_scalars scalars;
    crun_step_info info;
    struct tiny t;

    if (c->queued)
        w->device = queued_device();
    must(tiny_open(&t, w, &ddp, &adam));
    ck_assert_float_eq(crun_optim_scale(t.optim), 65536);
    must(bare_step(&t, 1, &info));
    memcpy(before, t.ddp->arena.values, t.ddp->arena.length * sizeof(float));
    must(bare_step(&t, last ? INFINITY : 1, &info));
    ck_assert(info.skipped);
    ck_assert_float_eq(info.scale, 65536);
    ck_assert_float_eq(crun_optim_scale(t.optim), 32768);
    must(bare_step(&t, last ? NAN : 1, NULL));
    ck_assert_mem_eq(before, t.ddp->arena.values, t.ddp->arena.length * sizeof(float));
    optim_get_scalars(t.optim, &scalars);
    ck_assert_uint_eq(scalars.steps, 1);
    for (int i = 0; i < 3; i++)
        must(bare_step(&t, 1, NULL));
    optim_get_scalars(t.optim, &scalars);
    ck_assert_uint_eq(scalars.good, 3);
    scalars.good = 1999;
    (void)!optim_set_scalars(t.optim, &scalars);
    ck_assert_float_eq(crun_optim_scale(t.optim), 16384);
    must(bare_step(&t, 1, &info));
    ck_assert(!info.skipped);
    ck_assert_float_eq(crun_optim_scale(t.optim), 32768);
    tiny_close(&t);
}

TEST_LOOP(an_infinite_gradient_anywhere_skips_the_step_everywhere, 0, NORM_CASES)
{
    world_stub_run(2, overflow, (void *)&norm_cases[_i]);
}

/* The first gradient after a step whose gradients are 1 on all ranks. */
static float gradient_after_step(struct tiny *t)
{
    const int all[] = { t->b2, t->w2, t->b1, t->w1 };
    const void *g = crun_ddp_gradient(t->ddp, t->w2);

    crun_ddp_zero(t->ddp);
    must(crun_ddp_begin(t->ddp, true));
    set_gradient(t, t->w2, 0, 1);
    for (unsigned i = 0; i < 4; i++)
        must(crun_ddp_ready(t->ddp, all[i]));
    must(crun_ddp_finish(t->ddp));
    return t->type == CRUN_F32   ? *(const float *)g
           : t->type == CRUN_F16 ? tiny_from_f16(*(const uint16_t *)g)
                                 : tiny_from_bf16(*(const uint16_t *)g);
}

/* Only where an optimizer divides. */
static void sums(crun_world *w, void *arg)
{
    const struct precision *p = arg;
    const crun_ddp_options ddp = { .grad_type = p->type };
    crun_optim_options sgd = { .kind = CRUN_SGD, .lr = 1 };
    struct tiny t;

    w->device = queued_device();
    must(tiny_open(&t, w, &ddp, &sgd));
    ck_assert_float_eq(gradient_after_step(&t), p->type == CRUN_F16 ? 1 : 3);
    crun_optim_destroy(t.optim);
    ck_assert_float_eq(gradient_after_step(&t), 1);
    sgd.loss_scaling = true;
    must(crun_optim_create(&t.optim, t.ddp, &sgd));
    ck_assert_float_eq(gradient_after_step(&t), 3);
    tiny_close(&t);
}

TEST_LOOP(a_gpu_adds_where_an_optimizer_divides, 0, PRECISIONS)
{
    world_stub_run(3, sums, (void *)&precisions[_i]);
}

/* A rank has ended the world while the GPUs summed, so the norm is that of garbage. */
STUB_RANKS_TEST(a_norm_of_an_aborted_sum_is_an_error, 2)
{
    const crun_ddp_options ddp = { 0 };
    crun_step_info info = { .grad_norm = -1 };
    struct tiny t;

    w->device = queued_device();
    must(tiny_open(&t, w, &ddp, &optimizers[0].options));
    must(bare_step(&t, 1, &info));
    ck_assert_float_gt(info.grad_norm, 0);
    info.grad_norm = -1;
    atomic_store(&w->ended, true);
    ck_assert_int_eq(bare_step(&t, 1, &info), CRUN_PEER_LOST);
    ck_assert_float_eq(info.grad_norm, -1);
    tiny_close(&t);
}

/* Without a guard, asking for the norm changes nothing. */
STUB_RANKS_TEST(without_a_guard_infinities_are_stepped, 2)
{
    const crun_ddp_options ddp = { 0 };
    crun_step_info info;
    struct tiny t;

    must(tiny_open(&t, w, &ddp, &optimizers[0].options));
    must(bare_step(&t, INFINITY, &info));
    ck_assert(!info.skipped);
    ck_assert(isinf(info.grad_norm));
    ck_assert(isinf(crun_ddp_value(t.ddp, t.w2)[0]));
    tiny_close(&t);
}

/* As by clip_grad_norm_ of PyTorch: with a NaN all become NaN, and with an infinite
 * norm the others stay, as their gradients are multiplied by 0. */
static void clipped(crun_world *w, void *arg)
{
    const float *gradient = arg;
    const crun_ddp_options ddp = { 0 };
    const crun_optim_options sgd = { .kind = CRUN_SGD, .lr = 1, .clip_norm = 2 };
    crun_step_info info;
    struct tiny t;
    float before;

    must(tiny_open(&t, w, &ddp, &sgd));
    before = crun_ddp_value(t.ddp, t.w1)[0];
    must(bare_step(&t, *gradient, &info));
    ck_assert(!info.skipped);
    ck_assert(isnan(crun_ddp_value(t.ddp, t.w2)[0]));
    if (isnan(*gradient))
        ck_assert(isnan(crun_ddp_value(t.ddp, t.w1)[0]));
    else
        ck_assert_float_eq(crun_ddp_value(t.ddp, t.w1)[0], before);
    tiny_close(&t);
}

static float not_finite[] = { NAN, INFINITY };

TEST_LOOP(clipping_lets_nan_and_infinity_through, 0, 2)
{
    world_stub_run(2, clipped, &not_finite[_i]);
}

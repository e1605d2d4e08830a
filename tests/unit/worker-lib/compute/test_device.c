/* SPDX-License-Identifier: MIT */
/* takes: 6 s */
/* emulated GPU: the GPU's memory and kernels */
#include "worker-lib/compute/device.h"

#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"
#include "worker-lib/compute/gpu_calls.h"
#include "worker-lib/compute/reduce.h"

/*
 * What a GPU does with arrays, against the host's plain loops: the same bits, but for
 * sums. Without a GPU (or one that is emulated, make CUDA=emulated) the host is
 * compared with itself, unless CRUN_TEST_NEEDS_GPU is set: then that is a failure.
 */

/* -- helpers ----------------------------------------------------------------------- */

#define COUNT 20000 /* more than one round of a small grid */

static const struct device_ops *device(void)
{
    const struct device_ops *ops = device_gpu();

    ck_assert_msg(ops || !getenv("CRUN_TEST_NEEDS_GPU"), "there is no GPU to test");
    return ops ? ops : &device_cpu;
}

static void must(crun_status s)
{
    ck_assert_msg(s == CRUN_OK, "%s", crun_error_text());
}

/* The same bytes on the host and on the device. */
struct both {
    void *host, *there;
    size_t bytes;
};

static struct both make(size_t bytes)
{
    struct both b = { .bytes = bytes };

    must(device_cpu.alloc(bytes, &b.host));
    must(device()->alloc(bytes, &b.there));
    return b;
}

static void send(const struct both *b)
{
    must(device()->put(NULL, b->there, b->host, b->bytes));
}

static void drop(struct both *b)
{
    device_cpu.free(b->host);
    device()->free(b->there);
}

static void expect_same(const struct both *b, const char *what)
{
    char *back = malloc(b->bytes);

    must(device()->fetch(NULL, back, b->there, b->bytes));
    for (size_t i = 0; i < b->bytes / 2; i++)
        ck_assert_msg(memcmp(back + 2 * i, (char *)b->host + 2 * i, 2) == 0,
                      "%s differs at byte %zu", what, 2 * i);
    free(back);
}

/* Of all sizes, and of both signs. */
static float some(unsigned *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return ldexpf((float)(int)(*seed >> 8) / 0x1p23f - 1, (int)(*seed >> 3 & 15) - 10);
}

static void fill(struct both *b, unsigned seed, float least)
{
    float *f = b->host;

    for (size_t i = 0; i < b->bytes / sizeof(*f); i++)
        f[i] = fmaxf(some(&seed), least);
    send(b);
}

static void fill_gradient(struct both *b, unsigned seed, crun_dtype type)
{
    struct both f = make(COUNT * sizeof(float));

    fill(&f, seed, -INFINITY);
    if (type == CRUN_F32)
        memcpy(b->host, f.host, b->bytes);
    else
        must(device_cpu.narrow(NULL, b->host, f.host, COUNT, type));
    send(b);
    drop(&f);
}

/* -- cases ------------------------------------------------------------------------- */

static const crun_dtype types[] = { CRUN_F32, CRUN_BF16, CRUN_F16 };
#define TYPES 3

static struct optim_request request(enum optim_rule rule)
{
    return (struct optim_request){ .rule = rule,
                                   .lr = 0.01f,
                                   .momentum = 0.9f,
                                   .weight_decay = 0.1f,
                                   .decoupled = 1,
                                   .eps = 1e-8f,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .divisor = 3 };
}

TEST_LOOP(a_step_has_the_same_bits_everywhere, 0, 9)
{
    enum optim_rule rule = (enum optim_rule)(_i / TYPES);
    crun_dtype type = types[_i % TYPES];
    struct both p = make(COUNT * 4), m = make(COUNT * 4), v = make(COUNT * 4);
    struct both g = make(COUNT * crun_dtype_size(type)), half = make(COUNT * 2);
    struct both control = make(sizeof(struct optim_control));
    struct optim_control *c = control.host;
    struct optim_request r = request(rule);

    fill(&p, 1, -INFINITY);
    fill(&m, 2, -INFINITY);
    fill(&v, 3, 0);
    fill_gradient(&g, 4, type);
    c->scale = 3;
    optim_prepare(c, &r, NULL);
    send(&control);
    for (unsigned i = 0; i < 2; i++) {
        struct step_arrays here = { p.host, m.host, v.host, g.host, type, half.host };
        struct step_arrays there = { p.there, m.there, v.there,
                                     g.there, type,    half.there };

        if (type == CRUN_F32)
            here.half = there.half = NULL;
        must(device_cpu.step(NULL, c, rule, &here, COUNT));
        must(device()->step(NULL, control.there, rule, &there, COUNT));
    }
    expect_same(&p, "p");
    expect_same(&m, "m");
    expect_same(&v, "v");
    expect_same(&half, "half");
    drop(&p), drop(&m), drop(&v), drop(&g), drop(&half), drop(&control);
}

TEST(a_skipped_step_changes_nothing)
{
    struct both p = make(COUNT * 4), g = make(COUNT * 4);
    struct both control = make(sizeof(struct optim_control));
    struct optim_control *c = control.host;
    struct step_arrays there = { .p = p.there, .g = g.there, .type = CRUN_F32 };

    fill(&p, 1, -INFINITY);
    fill(&g, 2, -INFINITY);
    c->skip = 1;
    send(&control);
    must(device()->step(NULL, control.there, RULE_SGD, &there, COUNT));
    expect_same(&p, "p");
    drop(&p), drop(&g), drop(&control);
}

TEST_LOOP(prepare_is_the_same_everywhere, 0, 8)
{
    static const double sums[][2] = { { 1, 3 },        { 1e-20, 0 }, { 4e30, 1 },
                                      { INFINITY, 1 }, { NAN, 1 },   { 9, 16 } };
    struct both control = make(sizeof(struct optim_control)), two = make(16);
    struct optim_control *c = control.host, back;
    struct optim_request r = request(_i % 2 ? RULE_ADAM : RULE_MOMENTUM);

    r.clip_norm = _i & 2 ? 0.5f : 0;
    r.loss_scaling = _i & 4 ? 1 : 0;
    r.ranks = 2;
    c->scale = 65536;
    c->good = 1997;
    send(&control);
    for (unsigned i = 0; i < 6; i++) {
        memcpy(two.host, sums[i], 16);
        send(&two);
        must(device_cpu.prepare(NULL, c, &r, two.host));
        must(device()->prepare(NULL, control.there, &r, two.there));
        must(device()->fetch(NULL, &back, control.there, sizeof(back)));
        ck_assert_uint_eq(back.steps, c->steps);
        ck_assert_uint_eq(back.skip, c->skip);
        ck_assert_uint_eq(back.good, c->good);
        ck_assert(back.scale == c->scale && back.scale_used == c->scale_used);
        ck_assert(memcmp(&back.norm, &c->norm, 4) == 0 ||
                  (isnan(c->norm) && isnan(back.norm)));
        /* pow() may be another's */
        ck_assert(fabsf(back.use.adam.step - c->use.adam.step) <=
                  2e-7f * fabsf(c->use.adam.step));
        ck_assert(memcmp(&back.use.adam, &c->use.adam, 5 * sizeof(float)) == 0);
    }
    drop(&control), drop(&two);
}

TEST_LOOP(squares_add_up, 0, TYPES)
{
    crun_dtype type = types[_i % TYPES];
    struct both g = make(COUNT * crun_dtype_size(type)), sum = make(8), again = make(8);
    struct both work = make(sizeof(struct squares_work));
    double right, got, same;

    fill_gradient(&g, 5, type);
    must(device_cpu.squares(NULL, work.host, sum.host, g.host, COUNT, type));
    right = 2 * *(double *)sum.host;
    for (unsigned i = 0; i < 2; i++) {
        must(device()->squares(NULL, work.there, sum.there, g.there, COUNT, type));
        must(device()->squares(NULL, work.there, again.there, g.there, COUNT, type));
    }
    must(device()->fetch(NULL, &got, sum.there, 8));
    must(device()->fetch(NULL, &same, again.there, 8));
    ck_assert_double_eq_tol(got, right, 1e-12 * right);
    ck_assert(got == same);
    drop(&g), drop(&sum), drop(&again), drop(&work);
}

/* Numbers whose squares have no place in f32, few numbers, and none that are finite. */
TEST(squares_are_right_for_all_numbers)
{
    static const float sizes[] = { 0x1p127f, 0x1p100f, 0x1p-100f, 0x1p-140f, 0 };
    static const float kept[] = { 0x1p-149f, INFINITY, -INFINITY, NAN };
    struct both g = make(64 * 4), sum = make(8),
                work = make(sizeof(struct squares_work));
    float *f = g.host;
    double right, got;

    for (unsigned i = 0; i < 5 * 4 * 8; i++) {
        size_t count = 8 * (1 + i % 8);

        for (unsigned k = 0; k < count; k++)
            f[k] = sizes[i / 32] * (1.5f - (float)k / 64) * (k % 2 ? -1 : 1);
        f[i % count] = kept[i / 8 % 4];
        right = got = 0;
        send(&g);
        must(device()->put(NULL, sum.there, &got, 8));
        must(device_cpu.squares(NULL, work.host, &right, f, count, CRUN_F32));
        must(device()->squares(NULL, work.there, sum.there, g.there, count, CRUN_F32));
        must(device()->fetch(NULL, &got, sum.there, 8));
        ck_assert_msg(isnan(right)   ? isnan(got)
                      : isinf(right) ? got == right
                                     : fabs(got - right) <= 1e-6 * right,
                      "%zu of size %g with %g: %g, not %g", count,
                      (double)sizes[i / 32], (double)f[i % count], got, right);
    }
    drop(&g), drop(&sum), drop(&work);
}

TEST_LOOP(narrowing_has_the_same_bits, 0, 2)
{
    crun_dtype type = types[1 + _i];
    struct both f = make(COUNT * 4), half = make(COUNT * 2);
    float *edges = f.host;

    fill(&f, 6, -INFINITY);
    edges[0] = INFINITY, edges[1] = -INFINITY, edges[2] = 65519, edges[3] = 65520;
    edges[4] = 0x1p-24f, edges[5] = 0x1p-25f, edges[6] = -0.0f, edges[7] = 6.1e-5f;
    send(&f);
    must(device_cpu.narrow(NULL, half.host, f.host, COUNT, type));
    must(device()->narrow(NULL, half.there, f.there, COUNT, type));
    expect_same(&half, "half");
    drop(&f), drop(&half);
}

/* Every half but infinities and what is no number. */
TEST_LOOP(divisions_have_the_same_bits, 1, 3)
{
    const struct gpu_calls *gpu = device_gpu() ? gpu_calls_cuda() : NULL;
    crun_dtype type = types[_i];
    struct both b = make(65536 * sizeof(uint16_t));
    unsigned exponent = type == CRUN_F16 ? 0x7c00 : 0x7f80;
    uint16_t *half = b.host;
    const void *in[] = { b.host };

    for (unsigned bits = 0; bits < 65536; bits++)
        half[bits] = (bits & exponent) == exponent ? 0 : (uint16_t)bits;
    send(&b);
    reduce_inputs(b.host, in, 1, 65536, type, CRUN_MEAN, 3);
    if (gpu)
        ck_assert_int_eq(gpu->divide(b.there, 65536, type, 3, NULL), GPU_OK);
    else
        memcpy(b.there, b.host, b.bytes);
    expect_same(&b, "the third");
    drop(&b);
}

TEST(notes_keep_the_moment)
{
    int32_t *word;
    struct device_note *first = device()->make_note(), *second = device()->make_note();

    ck_assert(first && second);
    must(device()->alloc(4, (void **)&word));
    must(device()->put_word(NULL, word, 7));
    must(device()->write_note(NULL, first, word, 4));
    must(device()->put_word(NULL, word, 8));
    must(device()->write_note(NULL, second, word, 4));
    must(device()->zero(NULL, word, 4));
    ck_assert_int_eq(*(const int32_t *)device()->read_note(second), 8);
    ck_assert_int_eq(*(const int32_t *)device()->read_note(first), 7);
    device()->free(word);
    device()->free_note(first);
    device()->free_note(second);
}

#ifdef CRUN_EMULATED
TEST(a_wait_for_a_gpu_that_hangs_ends)
{
    struct device_note *note = device()->make_note();
    int32_t *word, value;

    ck_assert_ptr_nonnull(note);
    must(device()->alloc(4, (void **)&word));
    device_limit_waits(100);
    setenv("CRUN_STANDIN_FAULT", "cudaLaunchKernel:stall:0", 1);
    must(device()->put_word(NULL, word, 7));
    must(device()->write_note(NULL, note, word, 4));
    ck_assert_ptr_null(device()->read_note(note));
    ck_assert_int_eq(device()->fetch(NULL, &value, word, 4), CRUN_TIMEOUT);
    ck_assert_ptr_nonnull(
        strstr(crun_error_text(), " has not done the work before it"));
}
#endif

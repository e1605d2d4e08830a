/* SPDX-License-Identifier: MIT */
/* What an optimizer refuses, and how it ends. */
#include "worker-lib/training/optim.h"

#include <math.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/optimizers.h"
#include "tests/worlds/tiny_model.h"
#include "tests/worlds/world_stub.h"

static const struct {
    crun_optim_options options;
    const char *text;
} others[] = {
    { { .kind = CRUN_ADAM, .lr = 0.1f }, "Adam, lr 0.100000001, " },
    { { .lr = 0.2f }, "SGD, lr 0.200000003, " },
    { { .lr = 0.1f, .clip_norm = 1 }, "clip_norm 1" },
    { { .lr = 0.1f, .loss_scaling = true }, ", loss scaling" },
};

static void differ(crun_world *w, void *arg)
{
    const int *i = arg;
    const crun_optim_options sgd = { .kind = CRUN_SGD, .lr = 0.1f };
    crun_optim *optim;
    struct tiny t;
    const char *text;

    must(tiny_open(&t, w, &(crun_ddp_options){ 0 }, &sgd));
    ck_assert_int_eq(
        crun_optim_create(&optim, t.ddp, w->rank == 1 ? &others[*i].options : &sgd),
        CRUN_MISMATCH);
    ck_assert_ptr_null(optim);
    text = strstr(crun_error_text(),
                  "optimizers differ: rank 0 has SGD, lr 0.100000001");
    ck_assert_msg(text, "%s", crun_error_text());
    text = strstr(text, ", rank 1 has ");
    ck_assert_msg(text && strstr(text, others[*i].text), "%s", crun_error_text());
    tiny_close(&t);
}

TEST_EACH(optimizers_that_differ_are_noticed, others)
{
    world_stub_run(2, differ, &_i);
}

STUB_RANKS_TEST(gradients_that_were_not_exchanged_are_not_stepped, 2)
{
    struct tiny t;

    must(tiny_open(&t, w, &(crun_ddp_options){ 0 }, &optimizers[0].options));
    must(crun_ddp_begin(t.ddp, false));
    must(crun_ddp_finish(t.ddp));
    ck_assert_int_eq(crun_optim_step(t.optim, NULL), CRUN_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "sync false"));
    must(tiny_step(&t, 0, 2, 1, NULL));
    tiny_close(&t);
}

static const struct {
    crun_optim_options options;
    const char *text;
} refused[] = {
    { { .kind = 7, .lr = 1 }, "there is no optimizer 7" },
    { { .lr = -1 },
      "learning rate, momentum, weight decay and norm cannot be negative" },
    { { .lr = NAN },
      "learning rate, momentum, weight decay and norm cannot be negative" },
    { { .lr = 1, .clip_norm = -1 },
      "learning rate, momentum, weight decay and norm cannot be negative" },
    { { .lr = 1, .nesterov = true }, "nesterov needs a momentum" },
    { { .kind = CRUN_ADAM, .beta1 = 1, .beta2 = 0.5f, .eps = 1 },
      "betas must be in [0, 1) and eps above 0: not 1, 0.5 and 1" },
    { { .kind = CRUN_ADAMW, .beta1 = 0.5f, .beta2 = 0.5f },
      "betas must be in [0, 1) and eps above 0: not 0.5, 0.5 and 0" },
};

static void refuses(crun_world *w, void *arg)
{
    crun_optim *optim = (crun_optim *)w;
    struct tiny t;
    crun_ddp *raw;
    int i = *(int *)arg;

    must(crun_ddp_create(&raw, w, NULL));
    ck_assert_int_eq(crun_optim_create(&optim, raw, &optimizers[0].options),
                     CRUN_BAD_ARGUMENT);
    ck_assert_ptr_null(optim);
    crun_ddp_destroy(raw);
    must(tiny_open(&t, w, &(crun_ddp_options){ 0 }, &optimizers[0].options));
    ck_assert_int_eq(crun_optim_create(&optim, t.ddp, &refused[i].options),
                     CRUN_BAD_ARGUMENT);
    ck_assert_str_eq(crun_error_text(), refused[i].text);
    ck_assert_int_eq(crun_optim_set_lr(t.optim, -1), CRUN_BAD_ARGUMENT);
    ck_assert_int_eq(crun_optim_set_lr(t.optim, NAN), CRUN_BAD_ARGUMENT);
    ck_assert_str_eq(crun_error_text(), "the learning rate cannot be nan");
    must(crun_ddp_begin(t.ddp, true));
    ck_assert_int_eq(crun_optim_step(t.optim, NULL), CRUN_BAD_ARGUMENT);
    tiny_close(&t);
    crun_optim_destroy(NULL);
}

TEST_EACH(nonsense_is_refused, refused)
{
    world_stub_run(1, refuses, &_i);
}

STUB_RANKS_TEST(a_lost_peer_ends_the_step, 2)
{
    const crun_ddp_options sharded = { .shard = true };
    struct tiny t;

    must(tiny_open(&t, w, &sharded, &optimizers[5].options));
    must(tiny_step(&t, 0, 2, 1, NULL));
    w->fail_after = 3; /* one bucket, the count of unused ones, and then values */
    ck_assert_int_eq(tiny_step(&t, 1, 2, 1, NULL), CRUN_PEER_LOST);
    ck_assert_str_eq(crun_error_text(), "rank 1 is gone");
    ck_assert_int_eq(crun_optim_step(t.optim, NULL), CRUN_PEER_LOST);
    tiny_close(&t);
}

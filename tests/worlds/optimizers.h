/* SPDX-License-Identifier: MIT */
#pragma once

#include "tests/worlds/check_main.h"
#include "worker-lib/crun/worker.h"

/* What the tests of the optimizers train with. */
#define GLOBAL_BATCH 12
#define VALUES_MAX 4096 /* the tiny model has fewer */

static inline void must(crun_status s)
{
    ck_assert_msg(s == CRUN_OK, "%s", crun_error_text());
}

static const struct named {
    const char *name;
    crun_optim_options options;
} optimizers[] = {
    { "sgd", { .kind = CRUN_SGD, .lr = 0.05f } },
    { "sgd, weight decay", { .kind = CRUN_SGD, .lr = 0.05f, .weight_decay = 0.1f } },
    { "momentum", { .kind = CRUN_SGD, .lr = 0.02f, .momentum = 0.9f } },
    { "nesterov",
      { .kind = CRUN_SGD,
        .lr = 0.02f,
        .momentum = 0.9f,
        .nesterov = true,
        .weight_decay = 0.01f } },
    { "adam", { .kind = CRUN_ADAM, .lr = 0.01f, .weight_decay = 0.01f } },
    { "adamw", { .kind = CRUN_ADAMW, .lr = 0.01f, .weight_decay = 0.1f } },
    { "adamw, clipped",
      { .kind = CRUN_ADAMW,
        .lr = 0.01f,
        .beta1 = 0.8f,
        .beta2 = 0.95f,
        .eps = 1e-6f,
        .clip_norm = 0.1f } },
};

#define OPTIMIZERS (int)(sizeof(optimizers) / sizeof(*optimizers))

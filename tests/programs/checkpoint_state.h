/* SPDX-License-Identifier: MIT */
#pragma once

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker-lib/crun/worker.h"

/* The state of a rank of checkpoint-ranks: what a save makes of it, and what it is. */

#define RANKS_MAX 4
#define SAVES_MAX 24
#define PARAMETERS 4
#define COUNT_MAX 130
#define BUFFER_COUNT 6
#define BUFFER_NAME 4 /* its number as a name */
#define JUNK 4000     /* no save */
#define STEPS_MAX 12  /* without gradients, after a save */

struct life {
    char job[64];
    int size, shard, optim, order, model, names, seed, own, keep;
};

/* What the processes of a life share with this one. */
struct shared {
    char file[SAVES_MAX][512]; /* in which a save was found, if that was seen */
    struct {
        size_t used;
        char text[32768];
    } said[RANKS_MAX];
};

static struct shared *shared;
static struct life life;
static int rank;

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    size_t used = shared->said[rank].used,
           room = sizeof(shared->said[rank].text) - used;
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(shared->said[rank].text + used, room, format, ap);
    va_end(ap);
    if (n > 0)
        shared->said[rank].used += (size_t)n < room ? (size_t)n : room - 1;
}

/* -- the model -------------------------------------------------------------- */

#define X10 "xxxxxxxxxx"
#define X50 X10 X10 X10 X10 X10
#define X150 X50 X50 X50

static const char *const names[][PARAMETERS] = {
    { "a", "b.weight", "c", "d" },
    { "a", "b.weight", "c", "__metadata__" },
    { "a", "b.weight", "c", "c@1" },
    { "a", "b.weight", "c", "optimizer.m" },
    { "a", "b.weight", "c", "optimizer.v@3" },
    { "a", "b.weight", "c", X150 X150 },
    /* odd ranks exchange b and c */
    { "a", X150 ".weight", X150 ".bias", "d" },
};
#define EXCHANGED 6
static const int orders[][PARAMETERS] = { { 0, 1, 2, 3 },
                                          { 3, 2, 1, 0 },
                                          { 1, 0, 3, 2 } };

static crun_world *world;
static crun_ddp *ddp;
static crun_optim *optim;
static crun_sampler *sampler;
static crun_extra extra = { .key = "save", .value = "none" };
static int parameter[PARAMETERS], buffer;

static size_t count_of(int name)
{
    static const size_t counts[PARAMETERS] = { 5, 40, COUNT_MAX, 7 };

    if (name == 2 && life.names == EXCHANGED)
        return counts[1];
    return counts[name] + (name == 1 && life.model == 1);
}

static float value_of(int save, int name, size_t i)
{
    return (float)(save * 4096 + name * 512) + (float)i;
}

/* Of the optimizer's state in its save; no two are near each other. */
static double save_state_of(int save, int name, size_t i)
{
    return save * 1024 + name * 160 + (double)i + 1;
}

static void put_values(int save)
{
    for (int n = 0; n < PARAMETERS; n++)
        for (size_t i = 0; i < count_of(n); i++)
            crun_ddp_value(ddp, parameter[n])[i] = value_of(save, n, i);
    for (size_t i = 0; buffer >= 0 && i < BUFFER_COUNT; i++)
        crun_ddp_buffer_value(ddp, buffer)[i] = value_of(save, BUFFER_NAME, i);
}

static crun_status make_optim(void)
{
    static const crun_optim_options kinds[] = {
        { 0 },
        { .kind = CRUN_SGD, .lr = 1 },
        { .kind = CRUN_SGD, .lr = 1, .momentum = 0.5f },
        { .kind = CRUN_ADAM, .lr = 1, .beta1 = 0.5f, .beta2 = 0.5f, .eps = 4096 },
        { .kind = CRUN_ADAMW, .lr = 1, .beta1 = 0.5f, .beta2 = 0.5f, .eps = 4096 },
    };

    crun_optim_destroy(optim);
    optim = NULL;
    return life.optim ? crun_optim_create(&optim, ddp, &kinds[life.optim]) : CRUN_OK;
}

/* With `save` the gradients make the state of a new optimizer that of this save; with 0
 * there are none. */
static crun_status step_once(int save)
{
    double factor = life.optim >= 3 ? 2 : 1; /* 1 / (1 - beta) */
    crun_status s = optim ? crun_ddp_begin(ddp, true) : CRUN_OK;

    for (int n = 0; optim && s == CRUN_OK && n < PARAMETERS; n++) {
        float *g = crun_ddp_gradient(ddp, parameter[n]);

        for (size_t i = 0; i < count_of(n); i++)
            g[i] = save ? (float)(factor * save_state_of(save, n, i)) : 0;
        s = crun_ddp_ready(ddp, parameter[n]);
    }
    if (optim && s == CRUN_OK)
        s = crun_ddp_finish(ddp);
    return optim && s == CRUN_OK ? crun_optim_step(optim, NULL) : s;
}

static crun_status put_save(int save, int steps)
{
    crun_sampler_state place = { .samples = 1000,
                                 .seed = (uint64_t)life.seed,
                                 .pass = (uint64_t)save,
                                 .dealt = (uint64_t)save * 12 };
    crun_status s = make_optim();

    for (int i = 0; s == CRUN_OK && i <= steps; i++)
        s = step_once(i == 0 ? save : 0);
    put_values(save);
    if (s == CRUN_OK && sampler)
        s = crun_sampler_restore(sampler, &place);
    snprintf(extra.value, sizeof(extra.value), "%d", save);
    return s;
}

/* -- what the state is ------------------------------------------------------ */

/* What a step without gradients adds to a parameter that is 0, in the state of the save
 * after `steps` such steps. */
static double next_change(int save, int steps, int name, size_t i)
{
    double m = save_state_of(save, name, i), at = ldexp(1, -(steps + 1)), grown;

    if (life.optim < 3)
        return -m * at;
    grown = 1 - at / 2;
    return -(m * at / grown) / (sqrt(2 * m * m * at / grown) + 4096);
}

static bool is_equal(double a, double b)
{
    return fabs(a - b) <= 3e-6 * fabs(b);
}

static bool has_state(const float *change, int name, int save, int steps)
{
    for (size_t i = 0; i < count_of(name); i++)
        if (!is_equal((double)change[i], next_change(save, steps, name, i)))
            return false;
    return true;
}

/* SAVE * 100 + steps; 0: no state at all; -1: not that of a save. */
static int find_state(const float *change, int name)
{
    bool none = true;

    for (size_t i = 0; i < count_of(name); i++)
        none = none && change[i] == 0;
    if (none)
        return 0;
    for (int save = 1; save < SAVES_MAX; save++)
        for (int steps = 0; steps < STEPS_MAX; steps++)
            if (is_equal((double)change[0], next_change(save, steps, name, 0)) &&
                has_state(change, name, save, steps))
                return save * 100 + steps;
    return -1;
}

/* Of equal numbers one, else each. */
static void report_all(const char *what, const int *found, int count)
{
    bool same = true;

    for (int i = 1; i < count; i++)
        same = same && found[i] == found[0];
    report(" %s=%d", what, found[0]);
    for (int i = 1; !same && i < count; i++)
        report("/%d", found[i]);
}

/* Its save, or -1. */
static int find_value(const float *value, size_t count, int name)
{
    int save = (int)(value[0] / 4096);

    for (size_t i = 0; i < count; i++)
        if (value[i] != value_of(save, name, i))
            return -1;
    return save;
}

static crun_status report_optim(void)
{
    float kept[PARAMETERS][COUNT_MAX], *value;
    int found[PARAMETERS];
    crun_status s;

    for (int n = 0; n < PARAMETERS; n++) {
        value = crun_ddp_value(ddp, parameter[n]);
        memcpy(kept[n], value, count_of(n) * sizeof(float));
        memset(value, 0, count_of(n) * sizeof(float));
    }
    s = step_once(0);
    for (int n = 0; n < PARAMETERS; n++) {
        value = crun_ddp_value(ddp, parameter[n]);
        found[n] = find_state(value, n);
        memcpy(value, kept[n], count_of(n) * sizeof(float));
    }
    report_all("optim", found, PARAMETERS);
    return s;
}

static crun_status report_state(void)
{
    crun_sampler_state place = { 0 };
    int found[PARAMETERS];

    for (int n = 0; n < PARAMETERS; n++)
        found[n] = find_value(crun_ddp_value(ddp, parameter[n]), count_of(n), n);
    report_all("values", found, PARAMETERS);
    if (buffer >= 0)
        report(" buffer=%d", find_value(crun_ddp_buffer_value(ddp, buffer),
                                        BUFFER_COUNT, BUFFER_NAME));
    if (sampler) {
        crun_sampler_save(sampler, &place);
        report(" sampler=%d", place.dealt == place.pass * 12 ? (int)place.pass : -1);
    }
    report(" extra=%s", *extra.value ? extra.value : "empty");
    return life.optim > 1 ? report_optim() : CRUN_OK;
}

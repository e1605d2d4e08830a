/* SPDX-License-Identifier: MIT */
/*
 * The cost of a step of the reducer and of an optimizer, without the arithmetic of a
 * model.
 *
 *   ddp-load optimizer ELEMENTS             GB/s of AdamW, 28 bytes a parameter
 *   ddp-load step PARAMETERS ELEMENTS STEPS  microseconds of begin, ready, finish, with
 * so many parameters of so many elements each
 *
 * One line of JSON, of rank 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker-lib/crun/worker.h"

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(crun_status s)
{
    if (s == CRUN_OK)
        return;
    fprintf(stderr, "ddp-load: %s: %s\n", crun_status_name(s), crun_error_text());
    exit(1);
}

static crun_ddp *make(crun_world *w, unsigned parameters, size_t elements)
{
    crun_ddp *ddp;
    char name[32];

    must(crun_ddp_create(&ddp, w, NULL));
    for (unsigned i = 0; i < parameters; i++) {
        snprintf(name, sizeof(name), "p%u", i);
        if (crun_ddp_parameter(ddp, name, elements) < 0)
            must(CRUN_NO_MEMORY);
    }
    must(crun_ddp_seal(ddp));
    return ddp;
}

struct cost {
    double begin, ready, finish;
};

static void one_step(crun_ddp *ddp, unsigned parameters, struct cost *c)
{
    double began = seconds(), backward, finish;

    must(crun_ddp_begin(ddp, true));
    backward = seconds();
    for (unsigned i = parameters; i-- > 0;)
        must(crun_ddp_ready(ddp, (int)i));
    finish = seconds();
    must(crun_ddp_finish(ddp));
    c->begin += backward - began;
    c->ready += finish - backward;
    c->finish += seconds() - finish;
}

static void measure_steps(crun_world *w, unsigned parameters, size_t elements,
                          unsigned steps)
{
    crun_ddp *ddp = make(w, parameters, elements);
    struct cost c = { 0 };
    crun_ddp_stats stats;

    for (unsigned i = 0; i < 10; i++)
        one_step(ddp, parameters, &c);
    c = (struct cost){ 0 };
    for (unsigned i = 0; i < steps; i++)
        one_step(ddp, parameters, &c);
    crun_ddp_get_stats(ddp, &stats);
    if (crun_rank(w) == 0)
        printf("{\"buckets\": %u, \"begin_us\": %.3f, \"ready_us\": %.4f, "
               "\"finish_us\": %.3f}\n",
               stats.buckets, 1e6 * c.begin / steps, 1e6 * c.ready / steps / parameters,
               1e6 * c.finish / steps);
    crun_ddp_destroy(ddp);
}

static void measure_optimizer(crun_world *w, size_t elements)
{
    const crun_optim_options adamw = { .kind = CRUN_ADAMW, .lr = 1e-3f };
    crun_ddp *ddp = make(w, 1, elements);
    float *g = crun_ddp_gradient(ddp, 0);
    crun_optim *optim;
    double best = 1e9;

    must(crun_optim_create(&optim, ddp, &adamw));
    for (size_t i = 0; i < elements; i++)
        g[i] = (float)(i % 17) - 8;
    for (unsigned i = 0; i < 12; i++) {
        double began = seconds();

        must(crun_optim_step(optim, NULL));
        best = seconds() - began < best ? seconds() - began : best;
    }
    if (crun_rank(w) == 0)
        printf("{\"adamw_gb_s\": %.2f}\n", 28e-9 * (double)elements / best);
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
}

int main(int argc, char **argv)
{
    bool optimizer = argc == 3 && strcmp(argv[1], "optimizer") == 0;
    crun_world *w;

    if (!optimizer && !(argc == 5 && strcmp(argv[1], "step") == 0)) {
        fputs("usage: ddp-load optimizer ELEMENTS | step PARAMETERS ELEMENTS STEPS\n",
              stderr);
        return 2;
    }
    must(crun_init(&w, NULL));
    if (optimizer)
        measure_optimizer(w, strtoull(argv[2], NULL, 10));
    else
        measure_steps(w, (unsigned)atoi(argv[2]), strtoull(argv[3], NULL, 10),
                      (unsigned)atoi(argv[4]));
    crun_finalize(w);
    return 0;
}

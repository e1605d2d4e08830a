/* SPDX-License-Identifier: MIT */
/* In a build without CUDA: nobody gets a card, and so nobody calls the rest. */
#include "worker-lib/train/gpu/gpu_trainer.h"

#ifndef CRUN_CUDA
#include <stdlib.h>

struct gpu_trainer *gpu_trainer_create(const struct gpu_trainer_plan *p, struct err *e)
{
    (void)p;
    err_set(e, "this build of train is without CUDA");
    return NULL;
}

void gpu_trainer_destroy(struct gpu_trainer *c)
{
    (void)c;
}

void *gpu_trainer_stream(const struct gpu_trainer *c)
{
    (void)c;
    abort();
}

int gpu_trainer_load(struct gpu_trainer *c, enum gpu_trainer_set set,
                     const uint8_t *images, const uint8_t *labels, size_t count,
                     struct err *e)
{
    (void)c, (void)set, (void)images, (void)labels, (void)count, (void)e;
    abort();
}

void gpu_trainer_bind(struct gpu_trainer *c, unsigned parameter, const float *value,
                      const void *half, void *gradient)
{
    (void)c, (void)parameter, (void)value, (void)half, (void)gradient;
    abort();
}

int gpu_trainer_copy(struct gpu_trainer *c, void *to, const void *from, size_t bytes,
                     struct err *e)
{
    (void)c, (void)to, (void)from, (void)bytes, (void)e;
    abort();
}

int gpu_trainer_round(struct gpu_trainer *c, void *to, const float *from, size_t count,
                      struct err *e)
{
    (void)c, (void)to, (void)from, (void)count, (void)e;
    abort();
}

void *gpu_trainer_alloc(struct gpu_trainer *c, size_t bytes, struct err *e)
{
    (void)c, (void)bytes, (void)e;
    abort();
}

int gpu_trainer_run(struct gpu_trainer *c, const struct gpu_trainer_batch *b,
                    void (*ready)(void *arg, unsigned parameter), void *arg,
                    struct err *e)
{
    (void)c, (void)b, (void)ready, (void)arg, (void)e;
    abort();
}

int gpu_trainer_note_score(struct gpu_trainer *c, struct err *e)
{
    (void)c, (void)e;
    abort();
}

int gpu_trainer_read_score(struct gpu_trainer *c, struct score *sum, struct err *e)
{
    (void)c, (void)sum, (void)e;
    abort();
}
#endif

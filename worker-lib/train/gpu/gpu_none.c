/* SPDX-License-Identifier: MIT */
/* A build without CUDA: creating fails, so that nothing else is called. */
#include "worker-lib/train/gpu/gpu_trainer.h"

#ifndef CRUN_CUDA
#include <stdlib.h>

struct gpu_trainer *gpu_trainer_create(const struct gpu_trainer_plan *p, struct err *e)
{
    err_set(e, "this build of train is without CUDA");
    return NULL;
}

const char *gpu_trainer_device_name(void)
{
    return "the GPU";
}

void gpu_trainer_destroy(struct gpu_trainer *g)
{
}

void *gpu_trainer_stream(const struct gpu_trainer *g)
{
    abort();
}

int gpu_trainer_load_set(struct gpu_trainer *g, enum gpu_trainer_set set,
                         const uint8_t *images, const uint8_t *labels, size_t count,
                         struct err *e)
{
    (void)g, (void)set, (void)images, (void)labels, (void)count, (void)e;
    abort();
}

void gpu_trainer_bind_parameter(struct gpu_trainer *g, unsigned parameter,
                                const float *value, const void *half, void *gradient)
{
    (void)g, (void)parameter, (void)value, (void)half, (void)gradient;
    abort();
}

int gpu_trainer_copy(struct gpu_trainer *g, void *to, const void *from, size_t bytes,
                     struct err *e)
{
    (void)g, (void)to, (void)from, (void)bytes, (void)e;
    abort();
}

int gpu_trainer_narrow(struct gpu_trainer *g, void *to, const float *from, size_t count,
                       struct err *e)
{
    (void)g, (void)to, (void)from, (void)count, (void)e;
    abort();
}

void *gpu_trainer_alloc_wide(struct gpu_trainer *g, size_t bytes, struct err *e)
{
    (void)g, (void)bytes, (void)e;
    abort();
}

int gpu_trainer_run_batch(struct gpu_trainer *g, const struct gpu_trainer_batch *b,
                          void (*ready)(void *arg, unsigned parameter), void *arg,
                          struct err *e)
{
    (void)g, (void)b, (void)ready, (void)arg, (void)e;
    abort();
}

const char *gpu_trainer_graph_failure(const struct gpu_trainer *g)
{
    abort();
}

int gpu_trainer_note_score(struct gpu_trainer *g, struct err *e)
{
    (void)g, (void)e;
    abort();
}

int gpu_trainer_read_score(struct gpu_trainer *g, struct score *sum, struct err *e)
{
    (void)g, (void)sum, (void)e;
    abort();
}
#endif

/* SPDX-License-Identifier: MIT */
/* In a build without CUDA: nobody gets a card, and so nobody calls the rest. */
#include "worker-lib/train/gpu/gpu_trainer.h"

#ifndef CRUN_CUDA
#include <stdlib.h>

struct card *card_create(const struct card_plan *p, struct err *e)
{
    (void)p;
    err_set(e, "this build of train is without CUDA");
    return NULL;
}

void card_destroy(struct card *c)
{
    (void)c;
}

void *card_stream(const struct card *c)
{
    (void)c;
    abort();
}

int card_load(struct card *c, enum card_set set, const uint8_t *images,
              const uint8_t *labels, size_t count, struct err *e)
{
    (void)c, (void)set, (void)images, (void)labels, (void)count, (void)e;
    abort();
}

void card_bind(struct card *c, unsigned parameter, const float *value, const void *half,
               void *gradient)
{
    (void)c, (void)parameter, (void)value, (void)half, (void)gradient;
    abort();
}

int card_copy(struct card *c, void *to, const void *from, size_t bytes, struct err *e)
{
    (void)c, (void)to, (void)from, (void)bytes, (void)e;
    abort();
}

int card_round(struct card *c, void *to, const float *from, size_t count, struct err *e)
{
    (void)c, (void)to, (void)from, (void)count, (void)e;
    abort();
}

void *card_alloc(struct card *c, size_t bytes, struct err *e)
{
    (void)c, (void)bytes, (void)e;
    abort();
}

int card_run(struct card *c, const struct card_batch *b,
             void (*ready)(void *arg, unsigned parameter), void *arg, struct err *e)
{
    (void)c, (void)b, (void)ready, (void)arg, (void)e;
    abort();
}

int card_note_score(struct card *c, struct err *e)
{
    (void)c, (void)e;
    abort();
}

int card_read_score(struct card *c, struct score *sum, struct err *e)
{
    (void)c, (void)sum, (void)e;
    abort();
}
#endif

/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_UI_LOSS_CURVE_H
#define WORKER_LIB_TRAIN_UI_LOSS_CURVE_H

#include <stdint.h>

/*
 * The loss of a training by its steps, in bounded memory: when there are too many
 * points, each two become one. Pure.
 */
#define LOSS_CURVE_POINTS 512

struct loss_point {
    uint64_t step;      /* the last of its steps */
    double steps, loss; /* how many, and the sum of their losses */
};

struct loss_curve {
    struct loss_point point[LOSS_CURVE_POINTS];
    unsigned count;
    double steps_each; /* a point is full with so many */
    uint64_t last;     /* step */
};

void loss_curve_init(struct loss_curve *c);
/* The training continues after this step: what lies beyond is forgotten. */
void loss_curve_continue(struct loss_curve *c, uint64_t after);
/* The mean loss of the steps since the last one, up to `step`. */
void loss_curve_add(struct loss_curve *c, uint64_t step, double loss);
/* What a file of --metrics tells, as far as it can be read. */
void loss_curve_read(struct loss_curve *c, const char *path);

#endif

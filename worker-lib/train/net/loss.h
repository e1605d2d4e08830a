/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_LOSS_H
#define WORKER_LIB_TRAIN_NET_LOSS_H

#include <stddef.h>
#include <stdint.h>

/* What came out of some samples. */
struct score {
    double loss; /* summed over the samples */
    double right;
    double samples;
};

/*
 * Softmax and cross-entropy of `samples` rows of `classes` numbers; added to *score.
 * gradient, unless NULL, becomes `scale` times that of the summed loss; it may be the
 * memory of `outputs`.
 */
void loss_cross_entropy(const float *outputs, const uint8_t *labels, size_t samples,
                        size_t classes, float scale, float *gradient,
                        struct score *score);

#endif

/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_LOSS_H
#define WORKER_LIB_TRAIN_NET_LOSS_H

#include <stddef.h>
#include <stdint.h>

/* Loss and correct answers of some samples. */
struct score {
    double loss; /* summed over the samples */
    double right;
    double samples;
};

/*
 * Adds softmax cross-entropy of `samples` rows of `classes` numbers to *score.
 * gradient, unless NULL, is set to `scale` times the gradient of the summed loss; it
 * may be `outputs`.
 */
void loss_cross_entropy(const float *outputs, const uint8_t *labels, size_t samples,
                        size_t classes, float scale, float *gradient,
                        struct score *score);

#endif

/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/loss.h"

#include <math.h>

static size_t index_of_largest(const float *row, size_t classes)
{
    size_t best = 0;

    for (size_t c = 1; c < classes; c++)
        if (row[c] > row[best])
            best = c;
    return best;
}

void loss_cross_entropy(const float *outputs, const uint8_t *labels, size_t samples,
                        size_t classes, float scale, float *gradient,
                        struct score *score)
{
    for (size_t s = 0; s < samples; s++, outputs += classes) {
        size_t label = labels[s], best = index_of_largest(outputs, classes);
        float most = outputs[best], at_label = outputs[label];
        double sum = 0;

        for (size_t c = 0; c < classes; c++)
            sum += (double)expf(outputs[c] - most);
        score->loss += log(sum) + (double)most - (double)at_label;
        score->right += best == label;
        for (size_t c = 0; gradient && c < classes; c++) {
            float probability = expf(outputs[c] - most) / (float)sum;

            *gradient++ = (probability - (c == label)) * scale;
        }
    }
    score->samples += (double)samples;
}

/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/compute.h"
#include "worker-lib/train/hash.h"

static struct {
    float *images;
    uint8_t *label;
    struct score score; /* of the last loss */
} host;

static void *host_alloc(size_t bytes)
{
    return xcalloc(1, bytes);
}

static int host_copy(void *to, const void *from, size_t bytes, struct err *e)
{
    memcpy(to, from, bytes);
    return 0;
}

static float *host_load(struct data *d, const uint64_t *sample, struct batch *b)
{
    data_get(d, sample, b->size, host.images, host.label);
    b->sample = sample;
    b->label = host.label;
    return host.images;
}

static void host_multiply(const struct product *p)
{
    size_t count = p->rows * p->columns;

    if (p->bias)
        for (size_t r = 0; r < p->rows; r++)
            memcpy(p->out + r * p->columns, p->bias, p->columns * sizeof(float));
    else if (!p->add)
        memset(p->out, 0, count * sizeof(float));
    matrix_add_product(p);
    for (size_t i = 0; p->relu && i < count; i++)
        p->out[i] = p->out[i] < 0 ? 0 : p->out[i];
}

static void host_sum_rows(const float *from, size_t rows, size_t columns, float *out)
{
    memset(out, 0, columns * sizeof(*out));
    for (size_t r = 0; r < rows; r++, from += columns)
        for (size_t c = 0; c < columns; c++)
            out[c] += from[c];
}

static void host_relu_backward(float *dy, const float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}

/* A row of a filter is contiguous in the input. */
static void host_unroll(const float *x, float *rows, const struct images *s)
{
    size_t run = FILTER * s->channels, out = s->side - (FILTER - 1);

    for (size_t top = 0; top < s->count * s->side; top++)
        for (size_t left = 0; top % s->side < out && left < out; left++)
            for (size_t f = 0; f < FILTER; f++, rows += run)
                memcpy(rows, x + ((top + f) * s->side + left) * s->channels,
                       run * sizeof(*rows));
}

static void host_roll(const float *rows, float *dx, const struct images *s)
{
    size_t run = FILTER * s->channels, out = s->side - (FILTER - 1);

    memset(dx, 0, s->count * s->side * s->side * s->channels * sizeof(*dx));
    for (size_t top = 0; top < s->count * s->side; top++)
        for (size_t left = 0; top % s->side < out && left < out; left++)
            for (size_t f = 0; f < FILTER; f++, rows += run) {
                float *to = dx + ((top + f) * s->side + left) * s->channels;

                for (size_t i = 0; i < run; i++)
                    to[i] += rows[i];
            }
}

static float larger_of(float a, float b)
{
    return a > b ? a : b;
}

static void host_pool(const float *x, float *y, const struct images *s)
{
    size_t row = s->side * s->channels, n = s->channels;

    for (size_t top = 0; top < s->count * s->side / 2; top++, x += row)
        for (size_t left = 0; left < s->side / 2; left++, x += 2 * n)
            for (size_t c = 0; c < n; c++)
                *y++ = larger_of(larger_of(x[c], x[c + n]),
                                 larger_of(x[c + row], x[c + row + n]));
}

static void host_unpool(const float *restrict x, const float *restrict dy,
                        float *restrict dx, const struct images *s)
{
    size_t row = s->side * s->channels, n = s->channels;
    const size_t at[] = { 0, n, row, row + n };

    for (size_t top = 0; top < s->count * s->side / 2; top++, x += row, dx += row)
        for (size_t left = 0; left < s->side / 2; left++, x += 2 * n, dx += 2 * n) {
            for (size_t c = 0; c < n; c++) {
                float most = larger_of(larger_of(x[c], x[c + n]),
                                       larger_of(x[c + row], x[c + row + n]));
                float gradient = dy[c];

                for (unsigned k = 0; k < 4; k++) {
                    float own = x[at[k] + c];

                    dx[at[k] + c] = own == most ? gradient : 0;
                    gradient = own == most ? 0 : gradient;
                }
            }
            dy += n;
        }
}

static void host_dropout(float *data, size_t width, unsigned dropped,
                         const struct batch *b)
{
    float scale = 256.0f / (float)(256 - dropped);

    for (size_t n = 0; n < b->size; n++) {
        uint64_t key = hash_key(b->seed, width, b->sample[n]);

        for (size_t i = 0; i < width; i += HASH_BYTES, data += HASH_BYTES) {
            uint64_t random = hash_mix(key + i);

            for (unsigned k = 0; k < HASH_BYTES; k++)
                data[k] = (random >> (8 * k) & 255) < dropped ? 0 : data[k] * scale;
        }
    }
}

static void host_loss(float *outputs, const struct batch *b, float scale,
                      const float *factor)
{
    struct score *score = &host.score;

    *score = (struct score){ .samples = (double)b->size };
    for (size_t s = 0; s < b->size; s++, outputs += CLASSES) {
        size_t label = b->label[s], best = 0;
        double sum = 0;
        float most;

        for (size_t c = 1; c < CLASSES; c++)
            best = outputs[c] > outputs[best] ? c : best;
        most = outputs[best];
        for (size_t c = 0; c < CLASSES; c++)
            sum += (double)expf(outputs[c] - most);
        score->loss += log(sum) + (double)most - (double)outputs[label];
        score->right += best == label;
        for (size_t c = 0; b->training && c < CLASSES; c++)
            outputs[c] = (expf(outputs[c] - most) / (float)sum - (c == label)) * scale;
    }
}

static int host_score(const struct batch *b, struct score *score, struct err *e)
{
    score->loss += host.score.loss;
    score->right += host.score.right;
    score->samples += host.score.samples;
    return 0;
}

static void host_narrow(void *to, const float *from, size_t count, crun_dtype type)
{
    (void)!crun_narrow(to, from, count, type); /* fails with other types only */
}

const struct compute *compute_on_host(size_t capacity)
{
    static const struct compute compute = { .images_at_once = 1,
                                            .alloc = host_alloc,
                                            .copy = host_copy,
                                            .load = host_load,
                                            .multiply = host_multiply,
                                            .sum_rows = host_sum_rows,
                                            .relu_backward = host_relu_backward,
                                            .unroll = host_unroll,
                                            .roll = host_roll,
                                            .pool = host_pool,
                                            .unpool = host_unpool,
                                            .dropout = host_dropout,
                                            .loss = host_loss,
                                            .score = host_score,
                                            .narrow = host_narrow };

    host.images = host_alloc(capacity * IMAGE_PIXELS * sizeof(*host.images));
    host.label = host_alloc(capacity);
    return &compute;
}

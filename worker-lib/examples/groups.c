/* SPDX-License-Identifier: MIT */
/*
 * Trains a small net, each of whose layers is split over two ranks (tensor parallel),
 * on batches that are divided among the pairs of ranks (data parallel). With 4 ranks:
 *
 *                     half 0 of the net     half 1 of the net
 *     batches 0          rank 0       <-->      rank 1          rows: one net
 *                          |                      |
 *     batches 1          rank 2       <-->      rank 3
 *                          columns: the same weights
 *
 *     cc groups.c $(pkg-config --cflags --libs crun-worker) -lm
 *     crun --nproc_per_node=4 ./a.out
 *
 * With one rank it trains the same net, with the same losses but for rounding.
 */
#include <crun/worker.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 16, HIDDEN = 64, OUTPUTS = 8, BATCH = 64, STEPS = 100 };

/* Ends the program; the launcher then ends the other ranks. */
static void must(crun_status s)
{
    if (s == CRUN_OK)
        return;
    fprintf(stderr, "%s\n", crun_error_text());
    exit(1);
}

/* A number in [-1, 1) that depends on its place alone, so all ranks agree. */
static float noise(uint32_t place)
{
    place = (place ^ (place >> 16)) * 0x45d9f3bu;
    place = (place ^ (place >> 16)) * 0x45d9f3bu;
    return (float)(place ^ (place >> 16)) / 2147483648.0f - 1;
}

/* -- this rank's part of the net --------------------------------------------------- */

/* out = second * max(0, first * in), for the hidden units from `begin` on */
struct part {
    int begin, units;
    float first[HIDDEN][INPUTS], second[HIDDEN][OUTPUTS];
    float first_gradient[HIDDEN][INPUTS], second_gradient[HIDDEN][OUTPUTS];
    float in[BATCH][INPUTS], hidden[BATCH][HIDDEN], out[BATCH][OUTPUTS];
};

static void init_part(struct part *p, int rank, int ranks)
{
    p->units = HIDDEN / ranks;
    p->begin = rank * p->units;
    for (int u = 0; u < p->units; u++) {
        for (int i = 0; i < INPUTS; i++)
            p->first[u][i] = noise((uint32_t)((p->begin + u) * INPUTS + i)) / 4;
        for (int o = 0; o < OUTPUTS; o++)
            p->second[u][o] = noise((uint32_t)(9000 + (p->begin + u) * OUTPUTS + o)) /
                              8;
    }
}

/* `out` is what the units of this rank add to the output. */
static void forward(struct part *p, int samples)
{
    for (int s = 0; s < samples; s++) {
        for (int o = 0; o < OUTPUTS; o++)
            p->out[s][o] = 0;
        for (int u = 0; u < p->units; u++) {
            float sum = 0;

            for (int i = 0; i < INPUTS; i++)
                sum += p->first[u][i] * p->in[s][i];
            p->hidden[s][u] = sum > 0 ? sum : 0;
            for (int o = 0; o < OUTPUTS; o++)
                p->out[s][o] += p->second[u][o] * p->hidden[s][u];
        }
    }
}

/* `error` is the derivative of the loss by the output. Adds to the gradients. */
static void backward_sample(struct part *p, const float *in, const float *hidden,
                            const float *error)
{
    for (int u = 0; u < p->units; u++) {
        float back = 0;

        for (int o = 0; o < OUTPUTS; o++) {
            p->second_gradient[u][o] += hidden[u] * error[o];
            back += p->second[u][o] * error[o];
        }
        for (int i = 0; i < INPUTS && hidden[u] > 0; i++)
            p->first_gradient[u][i] += back * in[i];
    }
}

/* The gradients of the mean over these samples. Returns their loss. */
static float backward(struct part *p, int samples)
{
    float loss = 0, error[OUTPUTS];

    for (int u = 0; u < p->units; u++) {
        for (int i = 0; i < INPUTS; i++)
            p->first_gradient[u][i] = 0;
        for (int o = 0; o < OUTPUTS; o++)
            p->second_gradient[u][o] = 0;
    }
    for (int s = 0; s < samples; s++) {
        for (int o = 0; o < OUTPUTS; o++) {
            float target = sinf(3 * p->in[s][o] + p->in[s][o + OUTPUTS]);

            error[o] = (p->out[s][o] - target) / (float)samples;
            loss += (p->out[s][o] - target) * error[o] / 2;
        }
        backward_sample(p, p->in[s], p->hidden[s], error);
    }
    return loss;
}

static void update(struct part *p, float rate)
{
    for (int u = 0; u < p->units; u++) {
        for (int i = 0; i < INPUTS; i++)
            p->first[u][i] -= rate * p->first_gradient[u][i];
        for (int o = 0; o < OUTPUTS; o++)
            p->second[u][o] -= rate * p->second_gradient[u][o];
    }
}

/* -- a step of all ranks ----------------------------------------------------------- */

static void draw_samples(struct part *p, int step, int first, int samples)
{
    for (int s = 0; s < samples; s++)
        for (int i = 0; i < INPUTS; i++)
            p->in[s][i] = noise((uint32_t)((step * BATCH + first + s) * INPUTS + i) +
                                100000u);
}

static float train_step(struct part *p, int step, crun_world *row, crun_world *column)
{
    int samples = BATCH / crun_size(column);
    float loss;

    draw_samples(p, step, samples * crun_rank(column), samples);
    forward(p, samples);
    /* the output is the sum over the halves of the net */
    must(crun_all_reduce(row, p->out, p->out, (size_t)samples * OUTPUTS, CRUN_F32,
                         CRUN_SUM, NULL));
    loss = backward(p, samples);
    /* gradients, and the loss, are means over the halves of the batch: one operation */
    must(crun_group_begin(column));
    must(crun_all_reduce(column, p->first_gradient, p->first_gradient,
                         (size_t)p->units * INPUTS, CRUN_F32, CRUN_MEAN, NULL));
    must(crun_all_reduce(column, p->second_gradient, p->second_gradient,
                         (size_t)p->units * OUTPUTS, CRUN_F32, CRUN_MEAN, NULL));
    must(crun_all_reduce(column, &loss, &loss, 1, CRUN_F32, CRUN_MEAN, NULL));
    must(crun_group_end(column, NULL));
    update(p, 0.2f);
    return loss;
}

int main(void)
{
    static struct part part;
    crun_world *world, *row, *column;
    int rank, width;

    must(crun_init(&world, NULL));
    rank = crun_rank(world);
    width = crun_size(world) > 1 ? 2 : 1;
    if (crun_size(world) % width || BATCH % (crun_size(world) / width)) {
        fprintf(stderr, "1 rank, or 2, 4, 8, ... 128\n");
        return 1;
    }
    must(crun_split(world, rank / width, rank, &row));
    must(crun_split(world, rank % width, rank, &column));
    init_part(&part, crun_rank(row), crun_size(row));
    for (int step = 0; step < STEPS; step++) {
        float loss = train_step(&part, step, row, column);

        if (rank == 0 && (step + 1) % 10 == 0)
            printf("step %d: loss %.6f\n", step + 1, (double)loss);
    }
    crun_finalize(row);
    crun_finalize(column);
    crun_finalize(world);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Data-parallel training with the worker library, in one file: a small net learns to
 * read digits, and resumes from its last checkpoint when crun restarts it.
 *
 *     cc train.c $(pkg-config --cflags --libs crun-worker) -lm -o digits
 *     crun --nproc_per_node=4 --max-restarts=3 ./digits --checkpoints=/tmp/digits
 *
 * With --data=FOLDER the digits are MNIST's: its four files, unpacked by gunzip.
 * Without, they are drawn: a small font, shifted at random, with noise.
 */
#include <crun/worker.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, HIDDEN = 64, CLASSES = 10 };
enum { BATCH = 32, STEPS_PER_CHECKPOINT = 50 };

static crun_world *world;
static crun_ddp *ddp; /* parameters and gradients */
static crun_optim *optim;
static crun_sampler *sampler;
static crun_checkpoints *checkpoints; /* NULL: none are written */
static uint64_t step, pass;

/* A rank that exits with 1 makes crun end the others, and restart all of them if
 * restarts are left. */
static void stop_with(const char *what, const char *why)
{
    fprintf(stderr, "digits: %s: %s\n", what, why);
    exit(1);
}

static void check_status(crun_status status)
{
    if (status != CRUN_OK)
        stop_with(crun_status_name(status), crun_error_text());
}

/* -- the data ---------------------------------------------------------------------- */

static struct digit {
    uint8_t pixel[PIXELS], label;
} train[60000], test[10000];
static size_t trains, tests;

/* MNIST's files: a header, then the pixels or labels, a byte each. */
static size_t read_digits(const char *folder, const char *set, struct digit *digit,
                          size_t most)
{
    char path[4096];
    FILE *images, *labels;
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/%s-labels-idx1-ubyte", folder, set);
    labels = fopen(path, "rb");
    snprintf(path, sizeof(path), "%s/%s-images-idx3-ubyte", folder, set);
    images = fopen(path, "rb");
    if (!images || !labels || fseek(images, 16, 0) != 0 || fseek(labels, 8, 0) != 0)
        stop_with(path, "these images, or their labels, cannot be read");
    while (n < most && fread(digit[n].pixel, PIXELS, 1, images) == 1 &&
           fread(&digit[n].label, 1, 1, labels) == 1 && digit[n].label < CLASSES)
        n++;
    fclose(images);
    fclose(labels);
    return n;
}

/* From 0 to below - 1. */
static int random_number(uint64_t *state, int below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)below);
}

/* 7 rows of 5 dots, one bit each. */
static const uint8_t font[CLASSES][7] = {
    { 14, 17, 17, 17, 17, 17, 14 }, { 4, 12, 4, 4, 4, 4, 14 },
    { 14, 17, 1, 2, 4, 8, 31 },     { 14, 17, 1, 6, 1, 17, 14 },
    { 2, 6, 10, 18, 31, 2, 2 },     { 31, 16, 30, 1, 1, 17, 14 },
    { 6, 8, 16, 30, 17, 17, 14 },   { 31, 1, 2, 4, 8, 8, 8 },
    { 14, 17, 17, 14, 17, 17, 14 }, { 14, 17, 17, 15, 1, 2, 12 },
};

/* All ranks draw the same digits from the same seed. A dot is 3 by 3 pixels. */
static size_t draw_digits(uint64_t seed, struct digit *digit, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int left = 4 + random_number(&seed, 6), top = random_number(&seed, 6);

        digit[i].label = (uint8_t)random_number(&seed, CLASSES);
        for (int p = 0; p < PIXELS; p++) {
            int x = p % SIDE - left, y = p / SIDE - top;
            int dot = x >= 0 && x < 15 && y >= 0 && y < 21 &&
                      (font[digit[i].label][y / 3] >> (4 - x / 3) & 1);

            digit[i].pixel[p] = (uint8_t)(160 * dot + random_number(&seed, 96));
        }
    }
    return count;
}

/* -- the net: pixels, a hidden layer, classes -------------------------------------- */

/* A parameter of crun_ddp each: a row of `out` weights for each input, the last of
 * which is always 1. */
enum { HIDDEN_LAYER, OUTPUT_LAYER, LAYERS };
static const struct net_layer {
    const char *name;
    size_t in, out;
} layers[] = { { "hidden", PIXELS + 1, HIDDEN }, { "output", HIDDEN + 1, CLASSES } };

struct activations { /* of one sample */
    float in[PIXELS + 1], hidden[HIDDEN + 1], out[CLASSES];
};

static void layer_initialize(int layer)
{
    float *weight = crun_ddp_value(ddp, layer);
    float bound = 1 / sqrtf((float)layers[layer].in);
    uint64_t seed = (uint64_t)layer;

    for (size_t i = 0; i < layers[layer].in * layers[layer].out; i++)
        weight[i] = bound * (float)(random_number(&seed, 2001) - 1000) / 1000;
}

static void layer_forward(int layer, const float *in, float *out)
{
    const float *weight = crun_ddp_value(ddp, layer);

    memset(out, 0, layers[layer].out * sizeof(*out));
    for (size_t i = 0; i < layers[layer].in; i++)
        for (size_t o = 0; o < layers[layer].out; o++)
            out[o] += in[i] * *weight++;
}

/* Adds to the gradient of the weights. */
static void layer_backward(int layer, const float *in, const float *d_out)
{
    float *gradient = crun_ddp_gradient(ddp, layer);

    for (size_t i = 0; i < layers[layer].in; i++)
        for (size_t o = 0; o < layers[layer].out; o++)
            *gradient++ += in[i] * d_out[o];
}

/* Returns the class that the net finds most likely. */
static int model_forward(const struct digit *digit, struct activations *a)
{
    int best = 0;

    for (int i = 0; i < PIXELS; i++)
        a->in[i] = (float)digit->pixel[i] / 255;
    a->in[PIXELS] = 1;
    layer_forward(HIDDEN_LAYER, a->in, a->hidden);
    for (int h = 0; h < HIDDEN; h++)
        a->hidden[h] = fmaxf(a->hidden[h], 0);
    a->hidden[HIDDEN] = 1;
    layer_forward(OUTPUT_LAYER, a->hidden, a->out);
    for (int o = 1; o < CLASSES; o++)
        best = a->out[o] > a->out[best] ? o : best;
    return best;
}

/* Adds the gradients of `scale` times the cross-entropy, which it returns. */
static double model_backward(const struct activations *a, int label, float scale)
{
    const float *weight = crun_ddp_value(ddp, OUTPUT_LAYER);
    float d_out[CLASSES], d_hidden[HIDDEN] = { 0 };
    double sum = 0;

    for (int o = 0; o < CLASSES; o++)
        sum += exp(a->out[o] - a->out[label]);
    for (int o = 0; o < CLASSES; o++)
        d_out[o] = scale * (float)(exp(a->out[o] - a->out[label]) / sum - (o == label));
    for (int h = 0; h < HIDDEN; h++)
        for (int o = 0; o < CLASSES && a->hidden[h] > 0; o++)
            d_hidden[h] += weight[h * CLASSES + o] * d_out[o];
    layer_backward(OUTPUT_LAYER, a->hidden, d_out);
    layer_backward(HIDDEN_LAYER, a->in, d_hidden);
    return log(sum);
}

/* -- the training: each rank holds the whole net, and has a share of the samples --- */

static void open_training(void)
{
    const crun_optim_options adam = { .kind = CRUN_ADAM, .lr = 0.002f };
    crun_sampler_options deal = { trains, .rank = crun_rank(world),
                                  .size = crun_size(world) };

    check_status(crun_ddp_create(&ddp, world, NULL));
    for (int i = 0; i < LAYERS; i++)
        if (crun_ddp_parameter(ddp, layers[i].name, layers[i].in * layers[i].out) < 0)
            stop_with(layers[i].name, crun_error_text());
    check_status(crun_ddp_seal(ddp));
    for (int i = 0; i < LAYERS; i++)
        layer_initialize(i);
    check_status(crun_ddp_broadcast(ddp, 0));
    check_status(crun_optim_create(&optim, ddp, &adam));
    check_status(crun_sampler_create(&sampler, &deal));
}

static void print_warning(void *arg, const char *text)
{
    fprintf(arg, "digits: %s\n", text);
}

/* The newest checkpoint has parameters, optimizer, and the position of the sampler. */
static void resume_from(const char *directory)
{
    const crun_checkpoint_options keep = { .directory = directory,
                                           .warn = print_warning,
                                           .arg = stderr };
    crun_sampler_state state;
    crun_status status;

    check_status(crun_checkpoints_open(&checkpoints, world, &keep));
    status = crun_checkpoint_load(checkpoints, "", &step, ddp, optim, sampler, NULL, 0);
    if (status == CRUN_NOT_FOUND)
        return; /* this is the first start */
    check_status(status);
    crun_sampler_save(sampler, &state);
    pass = state.pass;
    if (crun_rank(world) == 0)
        printf("resumed after step %d\n", (int)step);
}

/* Gradients become the mean over the ranks in crun_ddp_finish. */
static double train_step(const uint64_t *sample, size_t count)
{
    struct activations a;
    double loss = 0;

    check_status(crun_ddp_begin(ddp, true));
    crun_ddp_zero(ddp);
    for (size_t i = 0; i < count; i++) {
        model_forward(&train[sample[i]], &a);
        loss += model_backward(&a, train[sample[i]].label, 1 / (float)count);
    }
    for (int i = LAYERS - 1; i >= 0; i--)
        check_status(crun_ddp_ready(ddp, i));
    check_status(crun_ddp_finish(ddp));
    check_status(crun_optim_step(optim, NULL));
    if (++step % STEPS_PER_CHECKPOINT != 0 || !checkpoints)
        return loss;
    check_status(crun_checkpoint_save(checkpoints, step, ddp, optim, sampler, NULL, 0));
    return loss;
}

/* The rest of a pass over all samples, then the test. */
static void run_pass(void)
{
    enum { LOSS, SAMPLES, CORRECT, SUMS };
    size_t size = (size_t)crun_size(world), count;
    double sum[SUMS] = { 0 };
    uint64_t sample[BATCH];
    struct activations a;

    while ((count = crun_sampler_next(sampler, sample, BATCH)) > 0) {
        sum[LOSS] += train_step(sample, count);
        sum[SAMPLES] += (double)count;
        crun_progress(world, CRUN_PHASE_TRAINING, step, 0, 0, sum[LOSS] / sum[SAMPLES]);
    }
    for (size_t i = (size_t)crun_rank(world); i < tests; i += size)
        sum[CORRECT] += model_forward(&test[i], &a) == test[i].label;
    check_status(crun_all_reduce(world, sum, sum, SUMS, CRUN_F64, CRUN_SUM, NULL));
    crun_sampler_set_pass(sampler, ++pass);
    if (crun_rank(world) == 0)
        printf("pass %d: loss %.4f, test accuracy %.2f %%\n", (int)pass,
               sum[LOSS] / sum[SAMPLES], 100 * sum[CORRECT] / (double)tests);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *data = NULL, *directory = NULL;
    uint64_t passes = 3;

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--data=", 7) == 0)
            data = argv[i] + 7;
        else if (strncmp(argv[i], "--checkpoints=", 14) == 0)
            directory = argv[i] + 14;
        else if (strncmp(argv[i], "--passes=", 9) == 0)
            passes = strtoull(argv[i] + 9, NULL, 10);
        else
            stop_with(argv[i], "not --data=, --checkpoints= or --passes=");
    trains = data ? read_digits(data, "train", train, 60000)
                  : draw_digits(1, train, 6000);
    tests = data ? read_digits(data, "t10k", test, 10000) : draw_digits(2, test, 1000);
    check_status(crun_init(&world, NULL));
    open_training();
    if (directory)
        resume_from(directory);
    while (pass < passes)
        run_pass();
    if (checkpoints)
        check_status(crun_checkpoint_wait(checkpoints)); /* the last one is on disk */
    crun_checkpoints_close(checkpoints);
    crun_sampler_destroy(sampler);
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
    crun_finalize(world);
    return 0;
}

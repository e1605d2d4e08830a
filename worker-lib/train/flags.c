/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/trainer.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/opt.h"

/* Sets a field to the number of the value among the words of `arg`, "mlp|cnn". */
static int set_choice(void *target, const struct opt *o, const char *value,
                      struct err *e)
{
    char words[64], text[96] = "", *rest = words;
    int number = 0;

    snprintf(words, sizeof(words), "%s", o->arg);
    for (const char *word; (word = strsep(&rest, "|")); number++) {
        if (strcmp(word, value) == 0) {
            *(int *)((char *)target + o->offset) = number;
            return 0;
        }
        strcat(text, number == 0 ? "" : rest ? ", " : " or ");
        strcat(text, word);
    }
    return err_set(e, "\"%s\" is not %s", value, text);
}

static int set_zero(void *target, const struct opt *o, const char *value, struct err *e)
{
    return opt_set_int(target, o, value ? value : "1", e);
}

static int set_learning_rate(void *target, const struct opt *o, const char *value,
                             struct err *e)
{
    char *end;
    float lr = strtof(value, &end);

    if (end == value || *end != '\0' || !(lr > 0) || !(lr <= 1000))
        return err_set(e, "\"%s\" is not a learning rate, such as 0.001", value);
    ((struct train_flags *)target)->lr = lr;
    return 0;
}

#define FLAG(flag, words, setter, field, text, ...)                                    \
    {                                                                                  \
        .name = flag, .arg = words, .help = text, .set = setter,                       \
        OPT_FIELD(struct train_flags, field), __VA_ARGS__                              \
    }
#define NUMBER(flag, words, field, least, most, text)                                  \
    FLAG(flag, words, opt_set_int, field, text, .min = least, .max = most)

static const struct opt table[] = {
    FLAG("model", "mlp|cnn", set_choice, model, "The net to train. Default: cnn."),
    FLAG("data", "DIR", opt_set_text, data,
         "Folder of MNIST's four files, plain or .gz. Default: generated digits."),
    NUMBER("passes", "N", passes, 1, 1000000, "Passes over all samples. Default: 10."),
    NUMBER("batch", "N", batch, 1, 4096, "Samples per step and rank. Default: 32."),
    FLAG("optimizer", "sgd|adam|adamw", set_choice, optimizer, "Default: adam."),
    FLAG("lr", "RATE", set_learning_rate, lr,
         "Learning rate at the beginning, which falls to nearly 0. Default: "
         "0.001, or 0.05 with sgd."),
    FLAG("precision", "f32|bf16|f16", set_choice, precision_number,
         "Type of the gradients that are exchanged; parameters are f32. A GPU also "
         "computes in it. Default: f32."),
    NUMBER("seed", "N", seed, 0, INT64_MAX,
           "Seed of initial parameters, order and generated digits. Default: "
           "1."),
    NUMBER("train-limit", "N", train_limit, 1, INT64_MAX,
           "Use only the first N samples, and at most as many for the test."),

    FLAG("device", "auto|cpu|cuda", set_choice, device,
         "Where to compute; auto: on GPUs if every rank has one. Default: auto."),
    FLAG("backend", "auto|shm|tcp|shm+tcp|nccl", opt_set_text, backend,
         "How ranks communicate. Default: auto."),
    FLAG("cuda-graph", NULL, opt_set_true, cuda_graph,
         "Replay the work of a step on a GPU as CUDA graphs, one for each layer's "
         "gradients."),
    FLAG("zero", "1|2", set_zero, zero,
         "Each rank keeps only its part of the optimizer's state (ZeRO-1), with 2 "
         "also of the gradients. Default: 1.",
         .min = 1, .max = 2, .arg_optional = true),
    FLAG("ckpt-dir", "DIR", opt_set_text, checkpoints,
         "Folder of checkpoints: one is written after each pass and on SIGTERM, and a "
         "start resumes from the newest."),
    NUMBER("ckpt-every", "STEPS", checkpoint_every, 1, INT64_MAX,
           "Also write a checkpoint every so many steps."),
    NUMBER("memory-every", "STEPS", memory_every, 1, INT32_MAX,
           "Under crun, also keep a checkpoint in memory every so many steps: after a "
           "failure the training resumes from there."),
    FLAG("metrics", "FILE", opt_set_text, metrics,
         "Append a line of JSON to FILE after each pass."),
    NUMBER("metrics-every", "STEPS", metrics_every, 1, INT64_MAX,
           "Also append the loss after every so many steps."),
    OPT_HELP(struct train_flags),
    OPT_VERSION(struct train_flags),
    { .name = NULL }
};

int train_flags_parse(struct train_flags *f, int argc, char **argv, struct err *e)
{
    const struct opt_rules rules = { .table = table };
    int word = argc;

    *f = (struct train_flags){
        .model = MODEL_CNN, .passes = 10, .batch = 32, .seed = 1, .optimizer = CRUN_ADAM
    };
    if (opt_parse(&rules, argc, argv, f, &word, e) < 0)
        return -1;
    if (word < argc)
        return err_set(e, "unexpected argument \"%s\" (see --help)", argv[word]);
    if ((f->checkpoint_every || f->memory_every) && !f->checkpoints)
        return err_set(e, "--%s-every needs --ckpt-dir",
                       f->checkpoint_every ? "ckpt" : "memory");
    if (f->metrics_every && !f->metrics)
        return err_set(e, "--metrics-every needs --metrics");
    if (f->cuda_graph && f->zero == 2)
        return err_set(e,
                       "--cuda-graph needs gradients that stay in place: not --zero=2");
    f->precision = (crun_dtype[]){ CRUN_F32, CRUN_BF16, CRUN_F16 }[f->precision_number];
    if (f->lr == 0)
        f->lr = f->optimizer == CRUN_SGD ? .05f : .001f;
    return 0;
}

void train_flags_print_help(FILE *out)
{
    fputs(
        "usage: train [flags]\n"
        "       crun --nproc-per-node=4 --max-restarts=3 train --ckpt-dir=DIR [flags]\n"
        "\n"
        "Trains a small net to recognize digits, on one rank or on several.\n\n",
        out);
    opt_print(table, out);
}

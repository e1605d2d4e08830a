/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/flags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/opt.h"

#define FIELD(name) offsetof(struct train_flags, name)

const char *const train_optimizers[] = {
    [CRUN_SGD] = "sgd", [CRUN_ADAM] = "adam", [CRUN_ADAMW] = "adamw"
};

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
    int *zero = &((struct train_flags *)target)->zero;

    *zero = value ? atoi(value) : 1;
    return *zero == 1 || *zero == 2 ? 0 : err_set(e, "\"%s\" is not 1 or 2", value);
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

static const struct opt table[] = {
    { .name = "model",
      .arg = "mlp|cnn",
      .help = "The net to train. Default: cnn.",
      .set = set_choice,
      .offset = FIELD(model) },
    { .name = "data",
      .arg = "DIR",
      .help = "Folder of MNIST's four files, plain or .gz. Default: generated digits.",
      .set = opt_set_text,
      .offset = FIELD(data) },
    { .name = "passes",
      .arg = "N",
      .help = "Passes over all samples. Default: 10.",
      .set = opt_set_int,
      .offset = FIELD(passes),
      .min = 1,
      .max = 1000000 },
    { .name = "batch",
      .arg = "N",
      .help = "Samples per step and rank. Default: 32.",
      .set = opt_set_int,
      .offset = FIELD(batch),
      .min = 1,
      .max = 4096 },
    { .name = "optimizer",
      .arg = "sgd|adam|adamw",
      .help = "Default: adam.",
      .set = set_choice,
      .offset = FIELD(optimizer) },
    { .name = "lr",
      .arg = "RATE",
      .help = "Peak learning rate, reached after a twentieth of the training. Default: "
              "0.001, or 0.05 with sgd.",
      .set = set_learning_rate },
    { .name = "precision",
      .arg = "f32|bf16|f16",
      .help =
          "Type of the gradients that are exchanged; parameters are f32. A GPU also "
          "computes in it. Default: f32.",
      .set = set_choice,
      .offset = FIELD(precision_number) },
    { .name = "seed",
      .arg = "N",
      .help = "Seed of initial parameters, order, dropout and generated digits. "
              "Default: 1.",
      .set = opt_set_int,
      .offset = FIELD(seed),
      .min = 0,
      .max = INT64_MAX },
    { .name = "train-limit",
      .arg = "N",
      .help = "Use only the first N samples, and at most as many for the test.",
      .set = opt_set_int,
      .offset = FIELD(train_limit),
      .min = 1,
      .max = INT64_MAX },

    { .name = "device",
      .arg = "auto|cpu|cuda",
      .help = "Where to compute; auto: on GPUs if every rank has one. Default: auto.",
      .set = set_choice,
      .offset = FIELD(device) },
    { .name = "backend",
      .arg = "auto|shm|tcp|shm+tcp|nccl",
      .help = "How ranks communicate. Default: auto.",
      .set = opt_set_text,
      .offset = FIELD(backend) },
    { .name = "cuda-graph",
      .help = "Replay the work of a step on a GPU as CUDA graphs, one for each layer's "
              "gradients.",
      .set = opt_set_true,
      .offset = FIELD(cuda_graph) },
    { .name = "zero",
      .arg = "1|2",
      .arg_optional = true,
      .help = "Each rank keeps only its part of the optimizer's state (ZeRO-1), with 2 "
              "also of the gradients. Default: 1.",
      .set = set_zero },
    { .name = "ckpt-dir",
      .arg = "DIR",
      .help = "Folder of checkpoints: one is written after each pass and on SIGTERM, "
              "and a start resumes from the newest.",
      .set = opt_set_text,
      .offset = FIELD(checkpoints) },
    { .name = "ckpt-every",
      .arg = "STEPS",
      .help = "Also write a checkpoint every so many steps.",
      .set = opt_set_int,
      .offset = FIELD(checkpoint_every),
      .min = 1,
      .max = INT64_MAX },
    { .name = "memory-every",
      .arg = "STEPS",
      .help = "Under crun, also keep a checkpoint in memory every so many steps: after "
              "a failure the training resumes from there.",
      .set = opt_set_int,
      .offset = FIELD(memory_every),
      .min = 1,
      .max = INT32_MAX },
    { .name = "metrics",
      .arg = "FILE",
      .help = "Append a line of JSON to FILE after each pass.",
      .set = opt_set_text,
      .offset = FIELD(metrics) },
    { .name = "metrics-every",
      .arg = "STEPS",
      .help = "Also append the loss after every so many steps.",
      .set = opt_set_int,
      .offset = FIELD(metrics_every),
      .min = 1,
      .max = INT64_MAX },
    OPT_HELP(struct train_flags),
    OPT_VERSION(struct train_flags),
    { .name = NULL }
};

static int check_flags_together(struct train_flags *f, struct err *e)
{
    if (f->checkpoint_every && !f->checkpoints)
        return err_set(e, "--ckpt-every needs --ckpt-dir");
    if (f->memory_every && !f->checkpoints)
        return err_set(e, "--memory-every needs --ckpt-dir");
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
    return check_flags_together(f, e);
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

/* SPDX-License-Identifier: MIT */
#include "worker-lib/coll-bench/flags.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/opt.h"

#define BYTES_MAX (1ull << 40)
#define ITERATIONS_MAX 1000000

static int set_op(void *target, const struct opt *opt, const char *value, struct err *e)
{
    struct bench_flags *f = target;

    f->op = bench_find(value);
    return f->op ? 0 : err_set(e, "\"%s\" is not %s", value, bench_names());
}

static int set_type(void *target, const struct opt *opt, const char *value,
                    struct err *e)
{
    struct bench_flags *f = target;

    for (int t = 0; t < CRUN_DTYPE_COUNT; t++)
        if (strcmp(crun_dtype_name((crun_dtype)t), value) == 0) {
            f->type = (crun_dtype)t;
            return 0;
        }
    return err_set(e, "\"%s\" is not f32, f64, f16, bf16, i32, i64 or u8", value);
}

static int set_reduce(void *target, const struct opt *opt, const char *value,
                      struct err *e)
{
    struct bench_flags *f = target;

    for (int o = 0; o < CRUN_OP_COUNT; o++)
        if (strcmp(crun_op_name((crun_op)o), value) == 0) {
            f->reduce = (crun_op)o;
            return 0;
        }
    return err_set(e, "\"%s\" is not sum, mean, min, max or product", value);
}

static int set_bytes(void *target, const struct opt *opt, const char *value,
                     struct err *e)
{
    static const char suffix[] = "KMG";
    uint64_t *bytes = (uint64_t *)(void *)((char *)target + opt->offset);
    unsigned long long number;
    const char *unit;
    char *end;

    errno = 0;
    number = strtoull(value, &end, 10);
    unit = *end ? strchr(suffix, toupper((unsigned char)*end)) : NULL;
    if (!isdigit((unsigned char)*value) || errno || (*end && (!unit || end[1])) ||
        number > BYTES_MAX >> (unit ? 10 * (unit - suffix + 1) : 0))
        return err_set(e, "\"%s\" is not a number of bytes (as 4096, 64K, 16M)", value);
    *bytes = number << (unit ? 10 * (unit - suffix + 1) : 0);
    if (opt->offset == offsetof(struct bench_flags, bytes))
        ((struct bench_flags *)target)->one_size = true;
    return 0;
}

static const struct opt table[] = {
    { .name = "op",
      .letter = 'o',
      .arg = "NAME",
      .help = "what to measure: all_reduce (the default), broadcast, reduce_scatter, "
              "all_gather, all_to_all, barrier or sendrecv",
      .set = set_op },
    { .name = "bytes",
      .letter = 'b',
      .arg = "N",
      .help = "only this size; of all ranks' parts together",
      .set = set_bytes,
      OPT_FIELD(struct bench_flags, bytes) },
    { .name = "min-bytes",
      .arg = "N",
      .help = "smallest size (4)",
      .set = set_bytes,
      OPT_FIELD(struct bench_flags, min) },
    { .name = "max-bytes",
      .arg = "N",
      .help = "largest size (64M)",
      .set = set_bytes,
      OPT_FIELD(struct bench_flags, max) },
    { .name = "factor",
      .arg = "N",
      .help = "factor between sizes (4)",
      .set = opt_set_int,
      OPT_FIELD(struct bench_flags, factor),
      .min = 2,
      .max = 1 << 20 },
    { .name = "dtype",
      .letter = 'd',
      .arg = "TYPE",
      .help = "f32 (the default), f64, f16, bf16, i32, i64 or u8",
      .set = set_type },
    { .name = "reduce",
      .letter = 'r',
      .arg = "OP",
      .help = "sum (the default), mean, min, max or product",
      .set = set_reduce },
    { .name = "backend",
      .arg = "NAME",
      .help = "auto (the default), shm, tcp, shm+tcp or nccl",
      .set = opt_set_text,
      OPT_FIELD(struct bench_flags, backend) },
    { .name = "own-buffers",
      .help = "use ordinary memory, not the library's",
      .set = opt_set_true,
      OPT_FIELD(struct bench_flags, own_buffers) },
    { .name = "iterations",
      .letter = 'n',
      .arg = "N",
      .help = "runs of each size (by size: 20 to 2000)",
      .set = opt_set_int,
      OPT_FIELD(struct bench_flags, iterations),
      .min = 1,
      .max = ITERATIONS_MAX },
    { .name = "warmup",
      .letter = 'w',
      .arg = "N",
      .help = "runs before those (by default, a tenth of them)",
      .set = opt_set_int,
      OPT_FIELD(struct bench_flags, warmup),
      .min = 0,
      .max = ITERATIONS_MAX },
    { .name = "check",
      .letter = 'c',
      .help = "check the results",
      .set = opt_set_true,
      OPT_FIELD(struct bench_flags, check) },
    { .name = "json",
      .help = "one line of JSON for each size",
      .set = opt_set_true,
      OPT_FIELD(struct bench_flags, json) },
    OPT_HELP(struct bench_flags),
    OPT_VERSION(struct bench_flags),
    { 0 },
};

int bench_flags_parse(struct bench_flags *f, int argc, char **argv, struct err *e)
{
    const struct opt_rules rules = { .table = table };
    int first;

    *f = (struct bench_flags){ .op = bench_find("all_reduce"),
                               .min = 4,
                               .max = 64u << 20,
                               .factor = 4,
                               .warmup = -1 };
    if (opt_parse(&rules, argc, argv, f, &first, e) < 0)
        return -1;
    if (first < argc)
        return err_set(e, "unexpected argument \"%s\" (see --help)", argv[first]);
    if (f->min > f->max)
        return err_set(e, "--min-bytes is more than --max-bytes");
    return 0;
}

void bench_flags_print_help(void)
{
    fputs("usage: crun --nproc_per_node=N coll-bench [flags]\n"
          "Measures collective operations of the worker library: the median of the\n"
          "slowest rank's times. GB/s is bytes over time; bus GB/s is the bandwidth\n"
          "that each link needs, as nccl-tests defines it.\n\n",
          stdout);
    opt_print(table, stdout);
}

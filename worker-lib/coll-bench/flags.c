/* SPDX-License-Identifier: MIT */
#include "worker-lib/coll-bench/flags.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/opt.h"

#define BYTES_MAX (1ull << 40)
#define ITERATIONS_MAX 1000000

static int set_op(void *target, const struct opt *opt, const char *value, struct err *e)
{
    struct flags *f = target;

    (void)opt;
    f->op = bench_find(value);
    return f->op ? 0 : err_set(e, "\"%s\" is not %s", value, bench_names());
}

static int set_type(void *target, const struct opt *opt, const char *value,
                    struct err *e)
{
    struct flags *f = target;

    (void)opt;
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
    struct flags *f = target;

    (void)opt;
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
    if (opt->offset == offsetof(struct flags, bytes))
        ((struct flags *)target)->one_size = true;
    return 0;
}

static const struct opt table[] = {
    { "op", 'o', "NAME",
      "what to measure: all_reduce (the default), broadcast, reduce_scatter, "
      "all_gather, all_to_all, barrier or sendrecv",
      set_op, 0, 0, 0 },
    { "bytes", 'b', "N", "one size only; of all parts together", set_bytes,
      offsetof(struct flags, bytes), 0, 0 },
    { "min-bytes", 0, "N", "smallest size (4)", set_bytes, offsetof(struct flags, min),
      0, 0 },
    { "max-bytes", 0, "N", "largest size (64M)", set_bytes, offsetof(struct flags, max),
      0, 0 },
    { "factor", 0, "N", "from one size to the next (4)", opt_set_int,
      offsetof(struct flags, factor), 2, 1 << 20 },
    { "dtype", 'd', "TYPE", "f32 (the default), f64, f16, bf16, i32, i64 or u8",
      set_type, 0, 0, 0 },
    { "reduce", 'r', "OP", "sum (the default), mean, min, max or product", set_reduce,
      0, 0, 0 },
    { "backend", 0, "NAME", "auto (the default), shm, tcp, shm+tcp or nccl",
      opt_set_text, offsetof(struct flags, backend), 0, 0 },
    { "own-buffers", 0, NULL, "ordinary memory instead of the library's", opt_set_true,
      offsetof(struct flags, own_buffers), 0, 0 },
    { "iterations", 'n', "N", "runs of each size (by size: 20 to 2000)", opt_set_int,
      offsetof(struct flags, iterations), 1, ITERATIONS_MAX },
    { "warmup", 'w', "N", "runs before those (a tenth of them)", opt_set_int,
      offsetof(struct flags, warmup), 0, ITERATIONS_MAX },
    { "check", 'c', NULL, "compare the results with what they must be", opt_set_true,
      offsetof(struct flags, check), 0, 0 },
    { "json", 0, NULL, "one line of JSON for each size", opt_set_true,
      offsetof(struct flags, json), 0, 0 },
    OPT_HELP(struct flags),
    OPT_VERSION(struct flags),
    { 0 },
};

int flags_parse(struct flags *f, int argc, char **argv, struct err *e)
{
    const struct opt_rules rules = { .table = table };
    int first;

    *f = (struct flags){ .op = bench_find("all_reduce"),
                         .min = 4,
                         .max = 64u << 20,
                         .factor = 4,
                         .warmup = -1 };
    if (opt_parse(&rules, argc, argv, f, &first, e) < 0)
        return -1;
    if (first < argc)
        return err_set(e, "\"%s\": nothing but flags is understood (see --help)",
                       argv[first]);
    if (f->min > f->max)
        return err_set(e, "--min-bytes is more than --max-bytes");
    return 0;
}

void flags_help(void)
{
    fputs("usage: crun --nproc_per_node=N coll-bench [flags]\n"
          "Times collective operations of the worker library: the median of the\n"
          "slowest rank's times. GB/s is bytes over time; bus GB/s what each link\n"
          "carries at least, as nccl-tests counts it.\n\n",
          stdout);
    opt_print(table, stdout);
}

/* SPDX-License-Identifier: MIT */
/*
 * coll-bench: measures the library's collectives and checks their results. It uses only
 * the library's public header.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/text.h"
#include "worker-lib/coll-bench/flags.h"

#define EXIT_USAGE 2
#define LAUNCHER_MS 300 /* for the launcher to end this rank */
#define SMALL_BYTES 65536
#define MEDIUM_BYTES 4194304

struct bench_result {
    double us;
    size_t errors;
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static long long iterations_for(const struct bench_flags *f, uint64_t bytes)
{
    if (f->iterations)
        return f->iterations;
    return bytes <= SMALL_BYTES ? 2000 : bytes <= MEDIUM_BYTES ? 200 : 20;
}

/* -- one size ---------------------------------------------------------------------- */

static crun_status alloc_buffer(const struct bench_flags *f, crun_world *w,
                                size_t bytes, void **buffer)
{
    if (!f->own_buffers)
        return crun_alloc(w, bytes, buffer);
    *buffer = calloc(1, bytes);
    return *buffer ? CRUN_OK : CRUN_NO_MEMORY;
}

static void free_buffer(const struct bench_flags *f, crun_world *w, void *buffer)
{
    if (f->own_buffers)
        free(buffer);
    else
        crun_free(w, buffer);
}

/* One run with known inputs; *errors is the number of wrong elements on all ranks. */
static crun_status bench_check_result(const struct bench *b, size_t *errors)
{
    int64_t wrong;
    crun_status s;

    bench_fill(b);
    s = crun_barrier(b->world, NULL);
    if (s == CRUN_OK)
        s = b->op->run(b);
    if (s != CRUN_OK)
        return s;
    wrong = (int64_t)bench_errors(b);
    s = crun_all_reduce(b->world, &wrong, &wrong, 1, CRUN_I64, CRUN_SUM, NULL);
    *errors = (size_t)wrong;
    return s;
}

static crun_status time_once(const struct bench *b, double *us)
{
    double begin;
    crun_status s = b->op->alone ? crun_barrier(b->world, NULL) : CRUN_OK;

    begin = now_us();
    if (s == CRUN_OK)
        s = b->op->run(b);
    *us = (now_us() - begin) / b->op->calls;
    return s;
}

/* The slowest rank's time, its median over all runs. */
static crun_status time_runs(const struct bench *b, long long iterations,
                             long long warmup, double *us)
{
    double *took = calloc((size_t)iterations, sizeof(*took));
    crun_status s = took ? crun_barrier(b->world, NULL) : CRUN_NO_MEMORY;

    for (long long i = -warmup; i < iterations && s == CRUN_OK; i++)
        s = time_once(b, &took[i > 0 ? i : 0]);
    if (s == CRUN_OK)
        s = crun_all_reduce(b->world, took, took, (size_t)iterations, CRUN_F64,
                            CRUN_MAX, NULL);
    if (s == CRUN_OK) {
        qsort(took, (size_t)iterations, sizeof(*took), compare_times);
        *us = took[iterations / 2];
    }
    free(took);
    return s;
}

static crun_status measure_size(const struct bench_flags *f, struct bench *b,
                                uint64_t bytes, struct bench_result *r)
{
    size_t item = crun_dtype_size(b->type);
    long long iterations = iterations_for(f, bytes);
    long long warmup = f->warmup >= 0 ? f->warmup : iterations / 10 + 1;
    crun_status s = alloc_buffer(f, b->world, bench_in_count(b) * item + 1, &b->in);

    b->out = b->in;
    if (s == CRUN_OK && !b->op->in_place)
        s = alloc_buffer(f, b->world, bench_out_count(b) * item + 1, &b->out);
    if (s == CRUN_OK && f->check)
        s = bench_check_result(b, &r->errors);
    if (s == CRUN_OK) {
        memset(b->in, 0, bench_in_count(b) * item); /* in-place sums do not overflow */
        s = time_runs(b, iterations, warmup, &r->us);
    }
    if (b->out != b->in)
        free_buffer(f, b->world, b->out);
    free_buffer(f, b->world, b->in);
    return s;
}

/* -- all sizes --------------------------------------------------------------------- */

static void print_head(const struct bench_flags *f, crun_world *w)
{
    int nodes = crun_nodes(w), ranks = crun_size(w);

    printf("# %s of %s", f->op->name, crun_dtype_name(f->type));
    if (strstr(f->op->name, "reduce"))
        printf(", %s", crun_op_name(f->reduce));
    printf("; %d rank%s on %d node%s, %s, %s memory\n", ranks,
           text_plural((unsigned)ranks), nodes, text_plural((unsigned)nodes),
           crun_backend(w), f->own_buffers ? "ordinary" : "the library's");
    printf("# %12s %12s %12s %9s %9s %7s\n", "bytes", "elements", "us", "GB/s",
           "bus GB/s", "errors");
    fflush(stdout);
}

static void print_bench_result(const struct bench_flags *f, const struct bench *b,
                               uint64_t bytes, const struct bench_result *r,
                               double init_ms)
{
    double gb = r->us > 0 ? (double)bytes / r->us / 1e3 : 0;
    double bus = gb * b->op->bus(crun_size(b->world));
    char errors[24] = "null";

    if (f->check)
        snprintf(errors, sizeof(errors), "%zu", r->errors);
    if (f->json)
        printf(
            "{\"op\": \"%s\", \"backend\": \"%s\", \"ranks\": %d, \"dtype\": \"%s\", "
            "\"bytes\": %llu, \"us\": %.2f, \"gb_per_s\": %.4f, "
            "\"bus_gb_per_s\": %.4f, \"errors\": %s, \"init_ms\": %.3f}\n",
            b->op->name, crun_backend(b->world), crun_size(b->world),
            crun_dtype_name(b->type), (unsigned long long)bytes, r->us, gb, bus, errors,
            init_ms);
    else
        printf("  %12llu %12zu %12.2f %9.3f %9.3f %7s\n", (unsigned long long)bytes,
               b->count, r->us, gb, bus, f->check ? errors : "-");
    fflush(stdout);
}

/* Rounds bytes to whole elements of each rank. */
static uint64_t fit_count(struct bench *b, uint64_t bytes)
{
    size_t item = crun_dtype_size(b->type);
    uint64_t unit = b->op->per_rank ? item * (uint64_t)crun_size(b->world) : item;

    if (!b->op->expected)
        bytes = 0;
    b->count = bytes / unit;
    if (b->count == 0 && bytes > 0)
        b->count = 1;
    return b->count * unit;
}

static crun_status measure_all(const struct bench_flags *f, crun_world *w,
                               double init_ms, size_t *errors)
{
    uint64_t size = f->one_size ? f->bytes : f->min;
    uint64_t last = f->one_size || !f->op->expected ? size : f->max;
    uint64_t before = UINT64_MAX;

    for (; size <= last; size *= (uint64_t)f->factor) {
        struct bench b = {
            .world = w, .op = f->op, .type = f->type, .reduce = f->reduce
        };
        struct bench_result r = { 0 };
        uint64_t bytes = fit_count(&b, size);
        crun_status s = bytes == before ? CRUN_OK : measure_size(f, &b, bytes, &r);

        if (s != CRUN_OK)
            return s;
        if (bytes != before && crun_rank(w) == 0)
            print_bench_result(f, &b, bytes, &r, init_ms);
        before = bytes;
        *errors += r.errors;
        if (size == 0)
            break;
    }
    return CRUN_OK;
}

static bool is_rank_0(void)
{
    static const char *const variable[] = { "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                            "SLURM_PROCID" };

    for (size_t i = 0; i < sizeof(variable) / sizeof(variable[0]); i++)
        if (getenv(variable[i]))
            return strcmp(getenv(variable[i]), "0") == 0;
    return true;
}

/* All ranks find the same mistake, and one line is enough. A rank that exited before
 * rank 0 has printed it could have the launcher end rank 0: the others wait for their
 * end. */
static int report_usage(const struct err *e)
{
    if (!is_rank_0())
        usleep(LAUNCHER_MS * 1000);
    fprintf(stderr, "coll-bench: %s\n", e->text);
    return EXIT_USAGE;
}

static int run_bench(const struct bench_flags *f)
{
    crun_options options = { .backend = f->backend };
    crun_world *w = NULL;
    size_t errors = 0;
    double begin = now_us(), init_ms;
    crun_status s = crun_init(&w, &options);

    /* the minimum is the time of the rank that arrived last */
    init_ms = (now_us() - begin) / 1e3;
    if (s == CRUN_OK)
        s = crun_all_reduce(w, &init_ms, &init_ms, 1, CRUN_F64, CRUN_MIN, NULL);
    if (s == CRUN_OK) {
        if (crun_rank(w) == 0 && !f->json)
            print_head(f, w);
        s = measure_all(f, w, init_ms, &errors);
    }
    if (s != CRUN_OK)
        fprintf(stderr, "coll-bench: %s: %s\n", crun_status_name(s), crun_error_text());
    else if (errors > 0 && crun_rank(w) == 0)
        fprintf(stderr, "coll-bench: %zu elements are wrong\n", errors);
    crun_finalize(w);
    return s == CRUN_OK && errors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct bench_flags f;
    struct err e;

    if (bench_flags_parse(&f, argc, argv, &e) < 0)
        return report_usage(&e);
    if (f.help) {
        if (is_rank_0())
            bench_flags_print_help();
        return EXIT_SUCCESS;
    }
    if (f.version) {
        if (is_rank_0())
            printf("coll-bench %s\n", crun_version());
        return EXIT_SUCCESS;
    }
    return run_bench(&f);
}

/* SPDX-License-Identifier: MIT */
/*
 * Products of matrices, block by block: rows of a and columns of b are copied side by
 * side, so that the innermost loop reads both in order, and blocks of a stay in the
 * processor's cache.
 */
#include "worker-lib/train/net/matrix.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/base/thread.h"
#include "rendezvous/base/xalloc.h"

#define BLOCK_DEPTH 256
#define BLOCK_ROWS 520
#define WIDTH_MAX 32
#define LINE 64 /* bytes of the cache's lines */

struct matrix_scratch {
    float a[BLOCK_ROWS * BLOCK_DEPTH] __attribute__((aligned(LINE)));
    float b[WIDTH_MAX * BLOCK_DEPTH] __attribute__((aligned(LINE)));
};

static inline size_t at_most(size_t count, size_t limit)
{
    return count < limit ? count : limit;
}

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

/* -- kernels -------------------------------------------------------------- */

static bool matrix_plain_is_supported(void)
{
    return true;
}

#define KERNEL(name) matrix_plain_##name
#define TARGET
#define LANES 4
#define ROWS 6
#define VECTORS 2
#include "worker-lib/train/net/matrix_kernel_body.h"

#ifdef __x86_64__
static bool matrix_avx2_is_supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool matrix_avx512_is_supported(void)
{
    return __builtin_cpu_supports("avx512f");
}

#define KERNEL(name) matrix_avx2_##name
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define ROWS 6
#define VECTORS 2
#include "worker-lib/train/net/matrix_kernel_body.h"

#define KERNEL(name) matrix_avx512_##name
#define TARGET __attribute__((target("avx512f,fma")))
#define LANES 16
#define ROWS 13
#define VECTORS 2
#include "worker-lib/train/net/matrix_kernel_body.h"
#endif

#define MATRIX_KERNEL(kind)                                                            \
    {                                                                                  \
#kind, matrix_##kind##_is_supported, matrix_##kind##_add_product               \
    }

const struct matrix_kernel matrix_kernels[] = {
#ifdef __x86_64__
    MATRIX_KERNEL(avx512),
    MATRIX_KERNEL(avx2),
#endif
    MATRIX_KERNEL(plain),
    { NULL, NULL, NULL },
};

static const struct matrix_kernel *best_kernel(void)
{
    const struct matrix_kernel *k = matrix_kernels;

    while (!k->is_supported())
        k++;
    return k;
}

struct matrix_scratch *matrix_scratch_create(void)
{
    void *s;

    if (posix_memalign(&s, LINE, sizeof(struct matrix_scratch)) != 0)
        s = xmalloc(SIZE_MAX); /* says that memory is exhausted */
    return s;
}

void matrix_scratch_destroy(struct matrix_scratch *s)
{
    free(s);
}

/* -- threads --------------------------------------------------------------- */

/* One product, which each thread computes for some rows, or for some columns. */
struct matrix_job {
    float *out;
    size_t rows, columns, depth;
    struct matrix a, b;
};

static struct {
    unsigned threads;
    pthread_barrier_t start, end;
    struct matrix_job job;
    const struct matrix_kernel *kernel;
    struct matrix_scratch *scratch; /* of the calling thread */
} matrix;

static void compute_part(unsigned part, struct matrix_scratch *scratch)
{
    const struct matrix_job *j = &matrix.job;
    bool by_rows = j->rows >= j->columns;
    size_t count = by_rows ? j->rows : j->columns;
    size_t first = count * part / matrix.threads;
    size_t number = count * (part + 1) / matrix.threads - first;
    struct matrix a = j->a, b = j->b;
    float *out = j->out + first * (by_rows ? j->columns : 1);

    if (by_rows)
        a.at += first * a.row;
    else
        b.at += first * b.column;
    matrix.kernel->add_product(scratch, out, j->columns, by_rows ? number : j->rows,
                               by_rows ? j->columns : number, j->depth, a, b);
}

static void *run_matrix_thread(void *arg)
{
    struct matrix_scratch *scratch = matrix_scratch_create();

    for (;;) {
        pthread_barrier_wait(&matrix.start);
        compute_part((unsigned)(size_t)arg, scratch);
        pthread_barrier_wait(&matrix.end);
    }
    return NULL;
}

/* A thread whose barrier never opens is harmless: it ends with the process. */
void matrix_set_threads(unsigned threads)
{
    pthread_t id;
    unsigned started = 1;

    pthread_barrier_init(&matrix.start, NULL, threads);
    pthread_barrier_init(&matrix.end, NULL, threads);
    while (started < threads &&
           thread_start(&id, run_matrix_thread, (void *)(size_t)started) == 0)
        started++;
    matrix.threads = started == threads ? threads : 1;
}

void matrix_add_product(float *out, size_t rows, size_t columns, size_t depth,
                        struct matrix a, struct matrix b)
{
    if (!matrix.kernel) {
        matrix.kernel = best_kernel();
        matrix.scratch = matrix_scratch_create();
        matrix.threads = matrix.threads ? matrix.threads : 1;
    }
    matrix.job = (struct matrix_job){ out, rows, columns, depth, a, b };
    if (matrix.threads > 1)
        pthread_barrier_wait(&matrix.start);
    compute_part(0, matrix.scratch);
    if (matrix.threads > 1)
        pthread_barrier_wait(&matrix.end);
}

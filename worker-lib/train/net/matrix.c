/* SPDX-License-Identifier: MIT */
/*
 * Products of matrices, block by block: rows of a and columns of b are copied side by
 * side, so that the innermost loop reads both in order, and a tile of the result stays
 * in the processor's registers.
 */
#include "worker-lib/train/net/matrix.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"

#define WIDTH_MAX 32
#define ROWS_MAX 8
#define DEPTH 256
#define BLOCK_ROWS 480

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* What a thread copies rows of a and columns of b to. */
struct scratch {
    float a[BLOCK_ROWS * DEPTH], b[DEPTH * WIDTH_MAX];
};

static inline size_t at_most(size_t count, size_t limit)
{
    return count < limit ? count : limit;
}

/* Sums of one tile: `sum` is of ROWS rows of two vectors, which stay in registers. */
#define KERNEL(name, target_attribute, LANES, ROWS)                                    \
    typedef float name##_vector                                                        \
        __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));    \
    target_attribute static void name(float *to, size_t depth, const float *a,         \
                                      const float *b)                                  \
    {                                                                                  \
        name##_vector sum[ROWS][2] = { 0 };                                            \
                                                                                       \
        for (size_t k = 0; k < depth; k++, a += ROWS, b += 2 * LANES)                  \
            UNROLL for (int r = 0; r < ROWS; r++)                                      \
            {                                                                          \
                sum[r][0] += a[r] * ((const name##_vector *)b)[0];                     \
                sum[r][1] += a[r] * ((const name##_vector *)b)[1];                     \
            }                                                                          \
        UNROLL for (int r = 0; r < ROWS; r++)                                          \
            memcpy(to + r * 2 * LANES, sum[r], sizeof(sum[r]));                        \
    }

KERNEL(sum_plain, , 4, 6)
#ifdef __x86_64__
KERNEL(sum_avx2, __attribute__((target("avx2,fma"))), 8, 6)
KERNEL(sum_avx512, __attribute__((target("avx512f,fma"))), 16, 8)
#endif

struct kernel {
    void (*sum)(float *to, size_t depth, const float *a, const float *b);
    size_t rows, width; /* of a tile */
};

static const struct kernel *find_kernel(unsigned which)
{
    static const struct kernel plain = { sum_plain, 6, 8 };
#ifdef __x86_64__
    static const struct kernel avx2 = { sum_avx2, 6, 16 },
                               avx512 = { sum_avx512, 8, 32 };

    if (which == 2)
        return __builtin_cpu_supports("avx512f") ? &avx512 : NULL;
    if (which == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2
                                                                               : NULL;
#endif
    return which == 0 ? &plain : NULL;
}

/* `count` rows or columns, side by side; zeros where there are fewer than `width`. */
INLINE void pack_panel(float *to, size_t width, const float *from, size_t along,
                       size_t across, size_t depth, size_t count)
{
    if (count == width && across == 1) {
        for (size_t k = 0; k < depth; k++)
            memcpy(to + k * width, from + k * along, width * sizeof(*to));
        return;
    }
    if (count < width)
        memset(to, 0, depth * width * sizeof(*to));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < depth; k++)
            to[k * width + i] = from[k * along + i * across];
}

/* out += a * b for a block whose rows of a fit into the scratch memory. */
static void add_block(const struct kernel *kernel, struct scratch *s, float *out,
                      size_t out_row, size_t rows, size_t columns, size_t depth,
                      struct matrix a, struct matrix b)
{
    float sum[ROWS_MAX * WIDTH_MAX];

    for (size_t r = 0; r < rows; r += kernel->rows)
        pack_panel(s->a + r * depth, kernel->rows, a.at + r * a.row, a.column, a.row,
                   depth, at_most(rows - r, kernel->rows));
    for (size_t c = 0; c < columns; c += kernel->width) {
        size_t width = at_most(columns - c, kernel->width);

        if (kernel->width == WIDTH_MAX) /* a constant makes it quicker */
            pack_panel(s->b, WIDTH_MAX, b.at + c * b.column, b.row, b.column, depth,
                       width);
        else
            pack_panel(s->b, kernel->width, b.at + c * b.column, b.row, b.column, depth,
                       width);
        for (size_t r = 0; r < rows; r += kernel->rows) {
            size_t height = at_most(rows - r, kernel->rows);

            kernel->sum(sum, depth, s->a + r * depth, s->b);
            for (size_t i = 0; i < height; i++)
                for (size_t j = 0; j < width; j++)
                    out[(r + i) * out_row + c + j] += sum[i * kernel->width + j];
        }
    }
}

/* -- threads --------------------------------------------------------------- */

/* One product, which each thread computes for some rows, or for some columns. */
static struct {
    unsigned threads;
    pthread_barrier_t start, end;
    float *out;
    size_t rows, columns, depth;
    struct matrix a, b;
    const struct kernel *kernel;
    struct scratch *scratch; /* of the calling thread */
} job;

static struct scratch *scratch_create(void)
{
    void *s;

    if (posix_memalign(&s, 64, sizeof(struct scratch)) != 0)
        s = xmalloc(SIZE_MAX); /* says that memory is exhausted */
    return s;
}

static void compute_part(unsigned part, struct scratch *scratch)
{
    bool by_rows = job.rows >= job.columns;
    size_t count = by_rows ? job.rows : job.columns;
    size_t first = count * part / job.threads;
    size_t number = count * (part + 1) / job.threads - first;
    size_t row = by_rows ? first : 0, column = by_rows ? 0 : first;
    size_t rows = by_rows ? number : job.rows, columns = by_rows ? job.columns : number;

    for (size_t k = 0; k < job.depth; k += DEPTH)
        for (size_t r = 0; r < rows; r += BLOCK_ROWS) {
            struct matrix a = job.a, b = job.b;

            a.at += (row + r) * a.row + k * a.column;
            b.at += k * b.row + column * b.column;
            add_block(job.kernel, scratch, job.out + (row + r) * job.columns + column,
                      job.columns, at_most(rows - r, BLOCK_ROWS), columns,
                      at_most(job.depth - k, DEPTH), a, b);
        }
}

static void *run_thread(void *arg)
{
    struct scratch *scratch = scratch_create();

    for (;;) {
        pthread_barrier_wait(&job.start);
        compute_part((unsigned)(size_t)arg, scratch);
        pthread_barrier_wait(&job.end);
    }
    return NULL;
}

/* A thread whose barrier never opens is harmless: it ends with the process. */
void matrix_set_threads(unsigned threads)
{
    pthread_t id;
    unsigned started = 1;

    pthread_barrier_init(&job.start, NULL, threads);
    pthread_barrier_init(&job.end, NULL, threads);
    while (started < threads &&
           thread_start(&id, run_thread, (void *)(size_t)started) == 0)
        started++;
    job.threads = started == threads ? threads : 1;
}

bool matrix_choose_kernel(unsigned which)
{
    const struct kernel *found = find_kernel(which);

    job.kernel = found ? found : job.kernel;
    return found;
}

void matrix_add_product(float *out, size_t rows, size_t columns, size_t depth,
                        struct matrix a, struct matrix b)
{
    if (!job.scratch) {
        job.scratch = scratch_create();
        job.threads = job.threads ? job.threads : 1;
        for (unsigned k = 0; k < MATRIX_KERNELS && !job.kernel; k++)
            (void)matrix_choose_kernel(MATRIX_KERNELS - 1 - k);
    }
    job.out = out;
    job.rows = rows, job.columns = columns, job.depth = depth;
    job.a = a, job.b = b;
    if (job.threads > 1)
        pthread_barrier_wait(&job.start);
    compute_part(0, job.scratch);
    if (job.threads > 1)
        pthread_barrier_wait(&job.end);
}

/* SPDX-License-Identifier: MIT */
/*
 * The limit of this machine's memory: as many threads as ranks, each of which sums up
 * its share of all buffers and writes it back to all of them. An all-reduce in place
 * must read and write this much; here no thread waits for others, and nothing is
 * copied. The median over the runs of the slowest thread's time, a line "BYTES US".
 *
 *   allreduce-bare RANKS ITERATIONS:BYTES
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define RANKS_MAX 16
#define BLOCK 2048 /* floats, summed up in the first cache */

struct bare {
    float *buffer[RANKS_MAX];
    long ranks, iterations, count;
    pthread_barrier_t all;
    double *took[RANKS_MAX];
};

struct rank {
    struct bare *bare;
    long number;
    pthread_t thread;
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void sum_block(const struct bare *b, long begin, long count)
{
    float sum[BLOCK];

    memcpy(sum, b->buffer[0] + begin, (size_t)count * sizeof(float));
    for (long r = 1; r < b->ranks; r++) {
        const float *in = b->buffer[r] + begin;

        for (long i = 0; i < count; i++)
            sum[i] += in[i];
    }
    for (long r = 0; r < b->ranks; r++)
        memcpy(b->buffer[r] + begin, sum, (size_t)count * sizeof(float));
}

static void *run(void *arg)
{
    struct rank *rank = arg;
    struct bare *b = rank->bare;
    long begin = b->count / b->ranks * rank->number, end = begin + b->count / b->ranks;

    for (long i = 0; i < b->iterations; i++) {
        double start;

        pthread_barrier_wait(&b->all);
        start = now_us();
        for (long at = begin; at < end; at += BLOCK)
            sum_block(b, at, end - at < BLOCK ? end - at : BLOCK);
        b->took[rank->number][i] = now_us() - start;
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_us(struct bare *b)
{
    double *slowest = b->took[0];

    for (long i = 0; i < b->iterations; i++)
        for (long r = 1; r < b->ranks; r++)
            if (b->took[r][i] > slowest[i])
                slowest[i] = b->took[r][i];
    qsort(slowest, (size_t)b->iterations, sizeof(*slowest), compare);
    return slowest[b->iterations / 2];
}

int main(int argc, char **argv)
{
    struct bare b = { 0 };
    struct rank rank[RANKS_MAX];
    long bytes = 0;

    if (argc != 3 || (b.ranks = atol(argv[1])) < 1 || b.ranks > RANKS_MAX ||
        sscanf(argv[2], "%ld:%ld", &b.iterations, &bytes) != 2 || b.iterations < 1 ||
        bytes < 4) {
        fprintf(stderr, "usage: allreduce-bare RANKS ITERATIONS:BYTES\n");
        return 2;
    }
    b.count = bytes / (long)sizeof(float);
    pthread_barrier_init(&b.all, NULL, (unsigned)b.ranks);
    for (long r = 0; r < b.ranks; r++) {
        b.buffer[r] = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        b.took[r] = calloc((size_t)b.iterations, sizeof(double));
        if (b.buffer[r] == MAP_FAILED || !b.took[r]) {
            perror("allreduce-bare");
            return 1;
        }
    }
    for (long r = 0; r < b.ranks; r++) {
        rank[r] = (struct rank){ .bare = &b, .number = r };
        pthread_create(&rank[r].thread, NULL, run, &rank[r]);
    }
    for (long r = 0; r < b.ranks; r++)
        pthread_join(rank[r].thread, NULL);
    printf("%ld %.3f\n", bytes, median_us(&b));
    return 0;
}

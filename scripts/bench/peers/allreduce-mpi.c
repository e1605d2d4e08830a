/* SPDX-License-Identifier: MIT */
/*
 * The counterpart of coll-bench on an MPI: all-reduce of f32 in place, the median over
 * the runs of the slowest rank's time, a line "BYTES US" for each size. For mpicc of
 * any MPI.
 *
 *   allreduce-mpi ITERATIONS:BYTES...
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_us(float *buffer, int count, int iterations)
{
    double *took = calloc((size_t)iterations, sizeof(*took)), median;

    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = -iterations / 10 - 1; i < iterations; i++) {
        double begin = MPI_Wtime();

        MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        took[i > 0 ? i : 0] = MPI_Wtime() - begin;
    }
    MPI_Allreduce(MPI_IN_PLACE, took, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(took, (size_t)iterations, sizeof(*took), compare);
    median = took[iterations / 2];
    free(took);
    return median * 1e6;
}

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int a = 1; a < argc; a++) {
        int iterations = 0, bytes = 0;
        float *buffer;
        double us;

        if (sscanf(argv[a], "%d:%d", &iterations, &bytes) != 2 || iterations < 1)
            MPI_Abort(MPI_COMM_WORLD, 2);
        buffer = calloc(1, (size_t)bytes);
        us = median_us(buffer, bytes / (int)sizeof(*buffer), iterations);
        free(buffer);
        if (rank == 0)
            printf("%d %.3f\n", bytes, us);
    }
    MPI_Finalize();
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * Each rank contributes its number and gets the sum over all ranks.
 *
 *     cc all_reduce.c $(pkg-config --cflags --libs crun-worker)
 *     crun --nproc_per_node=4 ./a.out
 */
#include <crun/worker.h>

#include <stdio.h>

static int print_error(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, crun_error_text());
    return 1;
}

int main(void)
{
    crun_world *world;
    float *number;
    void *memory;

    if (crun_init(&world, NULL) != CRUN_OK)
        return print_error("crun_init");
    if (crun_alloc(world, sizeof(*number), &memory) != CRUN_OK)
        return print_error("crun_alloc");
    number = (float *)memory;
    *number = (float)crun_rank(world);
    if (crun_all_reduce(world, number, number, 1, CRUN_F32, CRUN_SUM, NULL) != CRUN_OK)
        return print_error("crun_all_reduce");
    printf("rank %d of %d (%s): the sum is %g\n", crun_rank(world), crun_size(world),
           crun_backend(world), (double)*number);
    crun_free(world, memory);
    crun_finalize(world);
    return 0;
}

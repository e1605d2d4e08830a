/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/train/kernels.h"

static void *host_alloc(size_t bytes)
{
    return xcalloc(1, bytes);
}

static int host_copy(void *to, const void *from, size_t bytes, struct err *e)
{
    memcpy(to, from, bytes);
    return 0;
}

static void host_launch(enum kernel kernel, const struct launch *arguments)
{
    const struct launch l = *arguments;

    switch (kernel) {
#define LAUNCH(name)                                                                   \
    case KERNEL_##name:                                                                \
        for (uint32_t n = 0; n < l.count; n++)                                         \
            for (uint32_t y = 0; y < l.rows; y++)                                      \
                for (uint32_t x = 0; x < l.columns; x++)                               \
                    kernel_##name(&l, n, y, x, 0, l.width);                            \
        break;
        KERNELS(LAUNCH)
    }
}

/* An image's rows stay in the processor's cache. */
const struct compute compute_on_host = { .image_by_image = true,
                                         .alloc = host_alloc,
                                         .copy = host_copy,
                                         .multiply = matrix_multiply,
                                         .launch = host_launch };

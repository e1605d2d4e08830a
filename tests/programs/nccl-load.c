/* SPDX-License-Identifier: MIT */
/*
 * Loads the NCCL of $CRUN_NCCL_LIBRARY as the worker library does. It prints a line
 * each for the version ("version: 2.28.9"), for "unique id: ok", and for the result of
 * crun_init with NCCL: "world: nccl" or "world: STATUS: TEXT". Exit code 1: the library
 * refuses that NCCL, and the only line has the reason.
 */
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/backends/nccl/nccl_calls.h"

#define OPEN_MS 60000

static void try_world(void)
{
    crun_options options = { .backend = "nccl", .device = "auto" };
    crun_world *world = NULL;
    crun_status s = crun_init(&world, &options);

    if (s == CRUN_OK)
        printf("world: %s\n", crun_backend(world));
    else
        printf("world: %s: %s\n", crun_status_name(s), crun_error_text());
    crun_finalize(world);
}

int main(void)
{
    const struct nccl_calls *nccl;
    struct nccl_id id = { "" }, none = { "" };
    struct err e;
    int version = 0, result;

    if (nccl_open(&nccl, clock_ms() + OPEN_MS, &e) != CRUN_OK) {
        printf("%s\n", e.text);
        return 1;
    }
    nccl->get_version(&version);
    printf("version: %d.%d.%d\n", version / 10000, version % 10000 / 100,
           version % 100);
    result = nccl->get_unique_id(&id);
    printf("unique id: %s\n", result != NCCL_OK ? nccl->error_string(result)
                              : memcmp(&id, &none, sizeof(id)) == 0 ? "all zero"
                                                                    : "ok");
    try_world();
    return 0;
}

/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/engine/backend.h"

/*
 * Turns a backend that runs one operation at a time into a backend that runs operations
 * by itself. `run` runs in the caller's thread, as do operations queued before it.
 * Started works run in one thread, which is created with the first of them; but an
 * operation that the backend can post is posted by the caller, and an operation that
 * does not have to start soon is left to the thread that waits for it.
 */
struct world_failure;

struct op_queue_config {
    struct backend *backend;
    struct world_failure *failure;
    struct flight_recorder *flight;
    unsigned size;
    uint64_t timeout_ms; /* of each operation, from its start */
};

/* NULL: no memory. `close` leaves the inner backend open; works that have not been
 * waited for are freed. */
struct backend *op_queue_open(const struct op_queue_config *config);

/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/devices/gpu_health.h"
#include "rendezvous/common/base/err.h"

/*
 * The process that calls NVML for an agent, so that a call that hangs in the driver, or
 * a library that crashes, does not harm the agent, and its memory is not part of the
 * agent's. It reads the state of the workers' GPUs on request, reports each XID at
 * once, and ends with its agent. Its reports are packets.
 */
#define GPU_PROBE_ARGV0 "crun-gpus"

enum gpu_probe_event_type {
    GPU_PROBE_HEALTH,   /* one for each GPU, then COMPLETE */
    GPU_PROBE_COMPLETE, /* ends the answer to a request; count is valid */
    GPU_PROBE_XID,
};

struct gpu_probe_event {
    enum gpu_probe_event_type type;
    uint32_t at;    /* local rank of the first worker that uses it */
    uint32_t count; /* of COMPLETE */
    uint64_t xid;
    struct gpu_health health;
};

/* Starts the process; its first reading is under way. Returns the agent's end of its
 * socket. Call it before the guard is started, because the guard regards every later
 * child as a worker. */
int gpu_probe_start(uint32_t workers, struct err *e) MUST_CHECK;

/* Requests another reading. False if the process is gone. */
bool gpu_probe_request(int socket);

/* Called first in main: the probe is this program, executed again. It does not return
 * then. */
void gpu_probe_main_if_asked(int argc, char **argv);

/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GPU_GPU_PROBE_H
#define AGENT_GPU_GPU_PROBE_H

#include "agent/gpu/gpu_health.h"
#include "rendezvous/base/err.h"

/*
 * The process that talks to NVML for an agent: a call that hangs in the driver, or a
 * library that crashes, is its trouble alone, and its memory is not the agent's. It
 * looks at the GPUs of the workers when it is asked, tells of each XID when it comes,
 * and ends with its agent. What it says comes as packets.
 */
#define GPU_PROBE_ARGV0 "crun-gpus"

enum gpu_tell_type {
    GPU_TELL_SIGHT, /* one for each GPU, then */
    GPU_TELL_SEEN,  /* how many there are; the answer to an ask */
    GPU_TELL_XID,
};

struct gpu_tell {
    enum gpu_tell_type type;
    uint32_t at;    /* local rank of the first worker that has it */
    uint32_t count; /* SEEN */
    uint64_t xid;
    struct gpu_health sight;
};

/* Starts it. Returns the agent's end of its socket; the first look is under way. Before
 * the guard is started, which takes every later child for a worker's. */
int gpu_probe_start(uint32_t workers, struct err *e) MUST_CHECK;

/* Another look. False if it is gone. */
bool gpu_probe_ask(int socket);

/* First in main(): the probe is this program, executed again. Then it does not return.
 */
void gpu_probe_main_if_asked(int argc, char **argv);

#endif

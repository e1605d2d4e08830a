/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GPU_LIMITS_H
#define AGENT_GPU_LIMITS_H

/* How the GPUs of a node are watched. */
#define GPUS_PER_NODE_MAX 64    /* that are looked after */
#define GPU_LOOK_MS 1000        /* at least, between two looks */
#define GPU_SILENT_MS 5000      /* a longer look is a driver that hangs */
#define GPU_FIRST_MS 60000      /* the first one may wake up every GPU */
#define GPU_XIDS_KEPT 8         /* of one GPU and epoch, each told once */
#define GPU_XID_BEFORE_MS 30000 /* a failure, to be named in its report */
#define PREFLIGHT_MEMORY_FREE_PERCENT 80

#endif

/* SPDX-License-Identifier: MIT */
#pragma once

/* Monitoring of a node's GPUs. */
#define GPUS_PER_NODE_MAX 64    /* that are monitored */
#define GPU_NAME_SIZE 160       /* of a text that names one */
#define GPU_READ_MS 1000        /* at least, between two readings */
#define GPU_SILENT_MS 5000      /* a reading that takes longer: the driver hangs */
#define GPU_FIRST_MS 60000      /* for the first reading, which may wake up every GPU */
#define GPU_XIDS_KEPT 8         /* of one GPU and epoch, each reported once */
#define GPU_XID_BEFORE_MS 30000 /* before a failure, to be named in its report */
#define PREFLIGHT_MEMORY_FREE_PERCENT 80

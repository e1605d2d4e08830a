/* SPDX-License-Identifier: MIT */
#ifndef AGENT_GPU_GPU_MONITOR_H
#define AGENT_GPU_GPU_MONITOR_H

#include "agent/config/config.h"

struct gpu_monitor;
struct loop;

/*
 * The agent's eye on the GPUs of its workers: their load for the heartbeats, their
 * troubles as remarks, each once. All of it comes from the probe; nothing here waits
 * for a driver. On a node without one there is no care at all: NULL is fine everywhere.
 */
struct gpu_monitor_calls {
    /* A remark about a GPU: NOTE_XID, NOTE_ECC or NOTE_GPU. */
    void (*remark)(void *arg, enum note_kind kind, const char *text);
    void *arg;
};

/* Before the guard is started (gpu_probe.h). */
struct gpu_monitor *gpu_monitor_create(struct loop *loop, const struct config *config,
                                       const struct gpu_monitor_calls *calls);
void gpu_monitor_destroy(struct gpu_monitor *c);

/* Calls done once it is known, perhaps at once, whether the GPUs can serve a job that
 * begins: "" or why not. */
void gpu_monitor_check(struct gpu_monitor *c,
                       void (*done)(void *arg, const char *unfit), void *arg);

/* An epoch begins: from now on ranks are known, and XIDs are news again. */
void gpu_monitor_begin(struct gpu_monitor *c, const struct msg_start *start);

/* What the next heartbeat is to say; its note goes before the one that is there. Has
 * them looked at again for the one after it. */
void gpu_monitor_progress(struct gpu_monitor *c, struct msg_heartbeat *progress);

/* A worker has failed: if its GPU had an XID just before, that is added to `what`. */
void gpu_monitor_explain(struct gpu_monitor *c, struct failure *f);

#endif

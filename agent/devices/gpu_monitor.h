/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"

struct gpu_monitor;
struct loop;

/*
 * Monitors the GPUs of this node's workers: their load for the heartbeats, and their
 * troubles as remarks, each once. Everything comes from the probe; nothing here waits
 * for a driver. On a node without a GPU driver there is no monitor: NULL is fine
 * everywhere.
 */
struct gpu_monitor_calls {
    /* A remark about a GPU: NOTE_XID, NOTE_ECC or NOTE_GPU. */
    void (*remark)(void *arg, enum note_kind kind, const char *text);
    void *arg;
};

/* Call it before the guard is started (gpu_probe.h). */
struct gpu_monitor *gpu_monitor_create(struct loop *loop, const struct config *config,
                                       const struct gpu_monitor_calls *calls);
void gpu_monitor_destroy(struct gpu_monitor *m);

/* Calls done, perhaps at once, with "" if the GPUs can serve a new job, or else with
 * the reason. */
void gpu_monitor_check(struct gpu_monitor *m,
                       void (*done)(void *arg, const char *unfit), void *arg);

/* An epoch begins: the ranks are known, and XIDs are reported anew. */
void gpu_monitor_begin(struct gpu_monitor *m, const struct msg_start *start);

/* Fills in the next heartbeat; its note goes before an existing one. Requests a reading
 * for the heartbeat after it. */
void gpu_monitor_fill_heartbeat(struct gpu_monitor *m, struct msg_heartbeat *progress);

/* A worker has failed: adds to `what` an XID that its GPU had just before. */
void gpu_monitor_explain(struct gpu_monitor *m, struct failure *f);

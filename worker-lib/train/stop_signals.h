/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_STOP_SIGNALS_H
#define WORKER_LIB_TRAIN_STOP_SIGNALS_H

#include "worker-lib/crun/worker.h"

/*
 * Handles SIGTERM and SIGINT: after stop_signals_watch they are recorded, so that all
 * ranks can write a checkpoint together. If a collective hangs afterwards because
 * another rank is gone, the world is aborted. A second SIGINT ends the program.
 */
void stop_signals_watch(crun_world *world);

/* The signal that was received, or 0. */
int stop_signals_received(void);

/* The world was aborted after a signal, since another rank did not answer. */
bool stop_signals_gave_up(void);

/* This rank makes progress: called after each batch, it delays the abort. */
void stop_signals_alive(void);

/* Like stop_signals_received, but waits up to `ms` for a signal. */
int stop_signals_wait(unsigned ms);

/* From now on there are so many seconds for the rest: then the text is printed, and the
 * process ends with CRUN_EXIT_STUCK. */
void stop_signals_limit(unsigned seconds, const char *text);

#endif

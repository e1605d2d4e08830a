/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_STOP_SIGNALS_H
#define WORKER_LIB_TRAIN_STOP_SIGNALS_H

#include "worker-lib/crun/worker.h"

/*
 * SIGTERM and SIGINT: from stop_signals_watch on they are noted, so that all ranks
 * together can leave a checkpoint. A rank that hangs in a collective after one, because
 * another rank is gone, gets out of it by an abort of the world. A second SIGINT ends
 * the program.
 */
void stop_signals_watch(crun_world *world);

/* The signal that came, or 0. */
int stop_signals_signal(void);

/* It came, and the world was aborted from here, since another rank did not answer. */
bool stop_signals_gave_up(void);

/* Some samples are done: said so often, the world is not aborted. */
void stop_signals_alive(void);

/* As stop_signals_signal, after waiting for one if there is none yet. */
int stop_signals_signal_within(unsigned ms);

#endif

/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Handles SIGTERM and SIGINT: after stop_signals_watch they are recorded, so that all
 * ranks can write a checkpoint together. A second SIGINT ends the program.
 */
void stop_signals_watch(void);

/* The signal that was received, or 0. */
int stop_signals_received(void);

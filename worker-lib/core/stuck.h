/* SPDX-License-Identifier: MIT */
#pragma once

/* A call of a foreign library hangs in this process and cannot be ended: from now on
 * crun_exit_code returns CRUN_EXIT_STUCK, and the process ends with that code in
 * $CRUN_STUCK_EXIT seconds. Any thread. */
void stuck_set(void);

/* Before the first such call: starts the thread that ends the process. A call that
 * hangs may hold the loader's lock, and then no thread can be started. */
void stuck_prepare(void);

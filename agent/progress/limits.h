/* SPDX-License-Identifier: MIT */
#ifndef AGENT_PROGRESS_LIMITS_H
#define AGENT_PROGRESS_LIMITS_H

/* Workers that hang, workers that lag, checkpoints on request. */
#define HANG_LOOK_MS 1000  /* between two looks at the status pages */
#define HANG_STALL_MS 2500 /* a longer gap counts as one of those */
#define HANG_AUTO_STEPS 5  /* before --hang-timeout auto judges a worker */
#define HANG_AUTO_MS_MIN 30000
#define HANG_AUTO_LONG_MS_MIN 600000 /* loading, evaluating, writing a checkpoint */
#define HANG_RANKS_TOLD 64           /* of one node; more would flood the events */
#define STRAGGLERS_SAMPLES_MIN 60
#define CHECKPOINT_LOOK_MS 20 /* while workers are asked for one */

#endif

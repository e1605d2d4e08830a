/* SPDX-License-Identifier: MIT */
#pragma once

/* Hangs, stragglers, and checkpoints on request. */
#define HANG_READ_MS 1000    /* between two readings of the status pages */
#define NEWS_READ_MS_MIN 100 /* the same until the steps are new ones */
#define NEWS_READS 20        /* within the time that this took */
#define HANG_STALL_MS 2500   /* a longer gap counts as HANG_READ_MS */
#define HANG_AUTO_STEPS 5    /* seen before --hang-timeout=auto applies to a worker */
#define HANG_AUTO_MS_MIN 30000
#define HANG_AUTO_LONG_MS_MIN 600000 /* long phases, and programs that are watched */
#define HANG_ENDING_MS 60000         /* at least, while a worker's interpreter ends */
#define HANG_RANKS_REPORTED 64       /* of one node; more would flood the events */
#define STACKS_MORE_MS 600           /* the same, for one that waits for a CPU */
#define STACKS_TAKE_MS 800           /* until a worker counts as silent */
#define STACKS_QUEUE_MAX 8           /* questions that wait */
#define STACKS_BYTES_MAX (1 << 20)   /* read of one worker */
#define RECORDER_TAKE_MS 3000        /* torch looks once a second whether it is asked */
#define RECORDER_READ_MS 50
#define SILENCE_LOOKS 30 /* within --silence-warning */
#define SILENCE_LOOK_MS_MIN 1000
#define SILENCE_CPU_PERCENT 5 /* of one CPU, used by a worker; less is idle */
#define SILENCE_GPU_PERCENT 5
#define STRAGGLERS_READ_MS 500 /* between two samples */
#define STRAGGLERS_SAMPLES_MIN 120
#define STRAGGLERS_ASKS 3           /* for the stack of one */
#define STRAGGLERS_SAMPLES_CLEAR 18 /* of a rank that is far slower */
#define CHECKPOINT_READ_MS 20       /* while a checkpoint is awaited */

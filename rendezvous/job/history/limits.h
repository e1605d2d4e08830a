/* SPDX-License-Identifier: MIT */
#pragma once

/* What is kept of one job. */
#define CURVE_POINTS_MAX 256
#define CURVE_EVERY_MS 1000 /* between two points; more, once some were thinned out */
#define EPOCHS_KEPT 64
#define EPOCHS_KEPT_FIRST 16 /* of them; the others are the newest */
#define EPOCH_TEXT_MAX_BYTES 255
#define JOB_EVENTS_KEPT 64
#define JOB_EVENTS_BYTES_MAX 16384 /* their texts together; then fewer are kept */

/* And of all jobs on disk. */
#define ARCHIVE_JOBS_MAX 1000
#define ARCHIVE_BYTES_MAX (16u << 20)
#define ARCHIVE_FILE_MAX (256 << 10)
#define ARCHIVE_EVERY_MS 60000    /* of a job that runs */
#define ARCHIVE_EPOCH_MS 5000     /* after an epoch has formed or stopped */
#define ARCHIVE_WRITES_PER_TURN 8 /* then other work is done first */

/* SPDX-License-Identifier: MIT */
#pragma once

#define METRICS_ENDED_SHOWN_MS 600000 /* a job that has ended */
#define METRICS_FILE_MS 15000         /* between two writes of --metrics-file */

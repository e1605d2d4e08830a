/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_METRICS_LIMITS_H
#define RENDEZVOUS_SHOW_METRICS_LIMITS_H

#define METRICS_ENDED_SHOWN_MS 600000 /* a job that has ended */
#define METRICS_FILE_MS 15000         /* between two writes of --metrics-file */

#endif

/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_REGISTRY_LIMITS_H
#define RENDEZVOUS_REGISTRY_LIMITS_H

/* What the daemon keeps of its jobs, and how much of it one answer holds. */
#define JOBS_MAX 4096
#define EVENTS_KEPT 1024
#define NOTES_PER_EPOCH_MAX 512 /* remarks of a job's nodes */
#define STATUS_PER_PAGE 256

#endif

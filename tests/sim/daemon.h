/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;
struct sim_link;
struct sim;

/*
 * The rendezvous: the real registry, driven as server.c drives it (messages, then one
 * tick and one commit, and only then the answers), with a disk that forgets what was
 * not synced. It can be paused, killed between any two things it does, and started
 * again.
 */
struct sim_daemon;

struct sim_daemon *daemon_create(struct sim *s);
void daemon_destroy(struct sim_daemon *d);

void daemon_start(struct sim_daemon *d);
/* It dies, and is started again after that. `quiet`: its machine dies with it. */
void daemon_crash(struct sim_daemon *d, bool quiet, uint64_t restart_us);
/* It dies at the next commit: at that write or sync of it, or (0) right after it. */
void daemon_crash_in_commit(struct sim_daemon *d, unsigned operation,
                            uint64_t restart_us);
void daemon_pause(struct sim_daemon *d, uint64_t for_us);
void daemon_set_disk_full(struct sim_daemon *d, bool full);
/* The next operation on its disk fails; it is started again after that. */
void daemon_fail_disk(struct sim_daemon *d, uint64_t restart_us);
/* The first time: keeps what its disk holds. The next time: it dies, and that is what
 * the disk holds again. */
void daemon_restore_disk(struct sim_daemon *d, uint64_t restart_us);
/* It dies, and the end of what its disk held is gone. */
void daemon_tear_disk(struct sim_daemon *d, uint64_t restart_us);
/* No fault is left to strike. */
void daemon_heal(struct sim_daemon *d);
void daemon_jump_wall_clock(struct sim_daemon *d);

bool daemon_is_up(const struct sim_daemon *d);
/* Its own clock, without the time it was paused. */
uint64_t daemon_awake_ms(const struct sim_daemon *d);
/* NULL if it is down or knows no such job. */
const struct job *daemon_job(const struct sim_daemon *d, const char *run_id);
/* While it is torn down: what it does has no meaning. */
bool daemon_is_dying(const struct sim_daemon *d);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

struct peers;

/* Processes of the same user cannot look into this one, and it leaves no core dump:
 * call it before a key is read. */
void confinement_hide_memory(void);

/*
 * Give up what a rendezvous does not need once its journal and its listener are open:
 * new privileges, files outside two folders, TCP connections to elsewhere, programs and
 * processes. It cannot be taken back. Threads must not have been started. What the
 * kernel or the build lacks is left out, and the text says so: "locked in: ...; not:
 * ...". Returns buf.
 *
 * state_dir is written to, key_path, a file or a folder, is read, and metrics_file is
 * replaced by files of its folder; NULL: none. To the ports of peers it may connect;
 * NULL: to none.
 */
char *confinement_enter(const char *state_dir, const char *key_path,
                        const char *metrics_file, const struct peers *peers, char *buf,
                        size_t size);

/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_REMOTE_SSH_FAILURE_H
#define LAUNCHER_REMOTE_SSH_FAILURE_H

#include <stdbool.h>

/*
 * What the words of ssh, or of another program, mean: a few words for the report, as in
 * "refused the key". *busy: sshd refused one of many connections, and a second attempt
 * may succeed.
 */
const char *ssh_failure_explain(const char *said, bool *busy);

#endif

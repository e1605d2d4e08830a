/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/*
 * What the words of ssh, or of another program, mean: a few words for the report, as in
 * "refused the key". *busy: sshd refused one of many connections, and a second attempt
 * may succeed.
 */
const char *ssh_failure_explain(const char *said, bool *busy);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "launcher/remote/remote_order.h"

/* Why a host takes no part: what it is, in a few words, and a line of details. */
struct remote_failure {
    const char *host;
    const char *what; /* "refused the key" */
    const char
        *said;       /* all that ssh or the far side has said; the last line is shown */
    uint8_t refusal; /* enum remote_refusal; 0: there was no far side */
};

const char *remote_report_refusal(uint8_t refusal);

/* The last line of a text that says something, without what ssh says always; "" if
 * there is none. Returns buf. */
char *remote_report_last_line(const char *said, char *buf, size_t size);

/* One error for all, in the log. Hosts with the same failure share a line. */
void remote_report_failures(const struct remote_failure *failures, size_t count,
                            size_t hosts);

/* The exit code of a job that could not start: of a mistake, or of a failure that time
 * may mend. */
int remote_report_code(const struct remote_failure *failures, size_t count);

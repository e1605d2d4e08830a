/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_report.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

#define EXIT_USAGE 2
#define HOSTS_SHOWN_MAX 8 /* in one line */

const char *remote_report_refusal(uint8_t refusal)
{
    static const char *const texts[REMOTE_REFUSAL_COUNT] = {
        [REMOTE_NO_FOLDER] = "no such folder",
        [REMOTE_NO_PROGRAM] = "no such program",
        [REMOTE_FULL] = "no space left",
        [REMOTE_BAD_FLAGS] = "the flags are refused",
        [REMOTE_BAD_ORDER] = "the order could not be read",
        [REMOTE_NO_SOCKET] = "cannot listen",
    };

    return refusal < REMOTE_REFUSAL_COUNT && texts[refusal] ? texts[refusal]
                                                            : "could not be started";
}

char *remote_report_last_line(const char *said, char *buf, size_t size)
{
    const char *found = "", *next;
    size_t length = 0;

    for (const char *line = said; line; line = next) {
        size_t n = strcspn(line, "\r\n");

        /* Words that say nothing about a failure. */
        if (!(n == 0 || strncmp(line, "Warning: Permanently added", 26) == 0 ||
              strncmp(line, "** ", 3) == 0)) {
            found = line;
            length = n;
        }
        next = line[n] ? line + n + 1 : NULL;
    }
    snprintf(buf, size, "%.*s", (int)length, found);
    return buf;
}

/* What is shown of it, apart from its host. Returns buf. */
static char *format_failure(const struct remote_failure *f, char *buf, size_t size)
{
    char line[256];

    remote_report_last_line(f->said, line, sizeof(line));
    snprintf(buf, size, "%s%s%s", f->what, *line ? ": " : "", line);
    return buf;
}

static bool is_same_failure(const struct remote_failure *a,
                            const struct remote_failure *b)
{
    char shown_a[320], shown_b[320];

    format_failure(a, shown_a, sizeof(shown_a));
    format_failure(b, shown_b, sizeof(shown_b));
    return strcmp(shown_a, shown_b) == 0;
}

/* The first of those with the same failure writes for all. */
static void report_alike(const struct remote_failure *failures, size_t first,
                         size_t count, bool *done)
{
    char *hosts = xstrdup(""), *more, shown[320];
    size_t n = 0;

    for (size_t i = first; i < count; i++) {
        if (done[i] || !is_same_failure(&failures[first], &failures[i]))
            continue;
        done[i] = true;
        if (n++ >= HOSTS_SHOWN_MAX)
            continue;
        more = xasprintf("%s%s%s", hosts, n > 1 ? ", " : "", failures[i].host);
        free(hosts);
        hosts = more;
    }
    format_failure(&failures[first], shown, sizeof(shown));
    if (n > HOSTS_SHOWN_MAX)
        log_error("%s and %zu more: %s", hosts, n - HOSTS_SHOWN_MAX, shown);
    else
        log_error("%s: %s", hosts, shown);
    free(hosts);
}

void remote_report_failures(const struct remote_failure *failures, size_t count,
                            size_t hosts)
{
    bool *done = xcalloc(count + 1, sizeof(*done));

    if (hosts > 1)
        log_error("%zu of %zu hosts cannot take part", count, hosts);
    for (size_t i = 0; i < count; i++)
        if (!done[i])
            report_alike(failures, i, count, done);
    free(done);
}

int remote_report_code(const struct remote_failure *failures, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (failures[i].refusal == REMOTE_NO_FOLDER ||
            failures[i].refusal == REMOTE_NO_PROGRAM ||
            failures[i].refusal == REMOTE_BAD_FLAGS)
            return EXIT_USAGE;
    return EX_UNAVAILABLE;
}

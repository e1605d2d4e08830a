/* SPDX-License-Identifier: MIT */
#include "worker-lib/core/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/version.h"

static _Thread_local char last_error[512]; /* without control characters */

static const char *const names[CRUN_STATUS_COUNT] = {
    [CRUN_OK] = "ok",
    [CRUN_BAD_ARGUMENT] = "bad argument",
    [CRUN_BAD_ENVIRONMENT] = "bad environment",
    [CRUN_NO_MEMORY] = "no memory",
    [CRUN_SYSTEM] = "system error",
    [CRUN_TIMEOUT] = "timeout",
    [CRUN_PEER_LOST] = "peer lost",
    [CRUN_MISMATCH] = "mismatch",
    [CRUN_ABORTED] = "aborted",
    [CRUN_UNSUPPORTED] = "unsupported",
    [CRUN_NOT_FOUND] = "not found",
    [CRUN_CORRUPT] = "corrupt",
    [CRUN_NO_SPACE] = "no space",
    [CRUN_STALE] = "stale",
};

const char *crun_status_name(crun_status s)
{
    return (unsigned)s < CRUN_STATUS_COUNT ? names[s] : "unknown";
}

const char *crun_error_text(void)
{
    return last_error;
}

const char *crun_version(void)
{
    return CRUN_VERSION;
}

crun_status status_fail(crun_status s, const char *format, ...)
{
    char text[sizeof(last_error)];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    text_printable(text, last_error, sizeof(last_error));
    return s;
}

crun_status status_fail_with(crun_status s, const struct err *e)
{
    if (s != CRUN_OK)
        text_printable(e->text, last_error, sizeof(last_error));
    return s;
}

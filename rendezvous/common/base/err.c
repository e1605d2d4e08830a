/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    return err_set_code(e, 0, 0);
}

int err_set_errno(struct err *e, int errnum, const char *fmt, ...)
{
    va_list ap;
    size_t len;

    va_start(ap, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    va_end(ap);
    len = strlen(e->text);
    snprintf(e->text + len, sizeof(e->text) - len, ": %s", strerror(errnum));
    return err_set_code(e, 0, 0);
}

int err_set_code(struct err *e, int code, unsigned rank)
{
    e->code = code;
    e->rank = rank;
    return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    char context[sizeof(e->text)];
    size_t used;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(context, sizeof(context) - 2, fmt, ap);
    va_end(ap);
    used = strlen(context);
    snprintf(context + used, sizeof(context) - used, ": %s", e->text);
    memcpy(e->text, context, sizeof(e->text));
    return -1;
}

/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"

int metrics_append(const char *path, struct err *e, const char *fmt, ...)
{
    int fd = fd_create_file(path, O_APPEND, 0666), written;
    va_list args;

    if (fd < 0)
        return err_set_errno(e, errno, "--metrics: %s", path);
    va_start(args, fmt);
    written = vdprintf(fd, fmt, args);
    va_end(args);
    if (close(fd) != 0 || written < 0)
        return err_set_errno(e, errno, "--metrics: %s", path);
    return 0;
}

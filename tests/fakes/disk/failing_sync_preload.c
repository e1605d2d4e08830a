/* SPDX-License-Identifier: MIT */
/* A disk that fails: once the file FAILING_SYNC names is there, every sync says EIO. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int sync_unless_failing(const char *name, int fd)
{
    const char *flag = getenv("FAILING_SYNC");
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);

    if (flag && access(flag, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fsync(int fd)
{
    return sync_unless_failing("fsync", fd);
}

int fdatasync(int fd)
{
    return sync_unless_failing("fdatasync", fd);
}

/* SPDX-License-Identifier: MIT */
#include "rendezvous/base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void fd_keep_std(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

void fd_close_from(int first)
{
    struct dirent *entry;
    DIR *dir;

    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return;
    dir = opendir("/proc/self/fd");
    while (dir && (entry = readdir(dir))) {
        int fd = atoi(entry->d_name);

        if (fd >= first && fd != dirfd(dir))
            close(fd);
    }
    if (dir)
        closedir(dir);
}

int fd_create_file(const char *path, int flags, mode_t mode)
{
    const int all = flags | O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY;
    int fd = open(path, all | O_NOFOLLOW, mode);
    struct stat st;

    if (fd >= 0 || errno != ELOOP)
        return fd;
    if (lstat(path, &st) == 0 && (st.st_uid == geteuid() || st.st_uid == 0))
        return open(path, all, mode);
    errno = ELOOP;
    return -1;
}

int fd_write_all(int fd, const void *data, size_t *size)
{
    const char *at = data;

    while (*size > 0) {
        ssize_t n = write(fd, at, *size);

        if (n > 0) {
            at += n;
            *size -= (size_t)n;
        } else if (n == 0) {
            return ENOSPC;
        } else if (errno == EAGAIN) {
            struct pollfd p = { .fd = fd, .events = POLLOUT };

            poll(&p, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

ssize_t fd_read_all(int fd, char *text, size_t size)
{
    size_t used = 0;
    ssize_t n = 1;

    while (n != 0 && used < size - 1) {
        n = read(fd, text + used, size - 1 - used);
        if (n < 0 && errno != EINTR)
            break;
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = '\0';
    return n < 0 ? -1 : (ssize_t)used;
}

ssize_t fd_read_file(int dir, const char *path, char *text, size_t size)
{
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC), errnum;
    ssize_t n;

    text[0] = '\0';
    if (fd < 0)
        return -1;
    n = fd_read_all(fd, text, size);
    errnum = errno;
    close(fd);
    errno = errnum;
    return n;
}

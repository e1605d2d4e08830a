/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINKS_MAX 16 /* from a name to a file */

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

/* -- output ------------------------------------------------------------------------ */

static void close_quietly(int fd)
{
    int errnum = errno;

    close(fd);
    errno = errnum;
}

static bool is_trusted(const struct stat *st)
{
    return st->st_uid == geteuid() || st->st_uid == 0;
}

/* Replaces the path of a link by the path to which it points. */
static int resolve_link(int link, const struct stat *st, char path[PATH_MAX])
{
    char target[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    ssize_t length = readlinkat(link, "", target, sizeof(target));

    if (!is_trusted(st)) {
        errno = ELOOP;
        return -1;
    }
    if (length <= 0)
        return -1;
    if (target[0] == '/')
        folder = 0;
    if (folder + (size_t)length >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(path + folder, target, (size_t)length);
    path[folder + (size_t)length] = '\0';
    return 0;
}

/* The file that was looked at, unless another one is in its place now. */
static int open_found(const char *path, int flags, const struct stat *found)
{
    int fd = open(path, (flags & ~O_TRUNC) | O_NOFOLLOW | O_NOCTTY);
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) < 0 || st.st_dev != found->st_dev || st.st_ino != found->st_ino)
        errno = ELOOP;
    else if (!(flags & O_TRUNC) || !S_ISREG(st.st_mode) || ftruncate(fd, 0) == 0)
        return fd;
    close_quietly(fd);
    return -1;
}

/* A link in /proc points to an open file, and not to a path. */
static bool is_in_proc(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

/* Opens what has the name already. 1: it is a link, and now path is its target. */
static int open_existing(char path[PATH_MAX], int flags, int *fd)
{
    int at = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC), rc = 0;
    struct stat st;

    *fd = -1;
    if (at < 0)
        return -1;
    if (fstat(at, &st) < 0)
        rc = -1;
    else if (S_ISLNK(st.st_mode) && is_in_proc(at))
        *fd = open(path, flags & ~O_TRUNC);
    else if (S_ISLNK(st.st_mode))
        rc = resolve_link(at, &st, path) < 0 ? -1 : 1;
    else if (S_ISREG(st.st_mode) ? st.st_nlink > 1 : !is_trusted(&st)) {
        errno = S_ISREG(st.st_mode) ? EMLINK : EACCES;
        rc = -1;
    } else
        *fd = open_found(path, flags, &st);
    close_quietly(at);
    return rc;
}

int fd_create_file(const char *path, int flags, mode_t mode)
{
    char at[PATH_MAX];
    int fd, rc = 1;

    if (strlen(path) >= sizeof(at)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(at, path, strlen(path) + 1);
    flags |= O_WRONLY | O_CLOEXEC;
    for (unsigned links = 0; rc > 0 && links < LINKS_MAX; links++) {
        fd = open(at, flags | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
        rc = open_existing(at, flags, &fd);
    }
    if (rc > 0)
        errno = ELOOP;
    return rc == 0 ? fd : -1;
}

/* -- input ------------------------------------------------------------------------- */

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

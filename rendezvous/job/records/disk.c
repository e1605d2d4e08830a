/* SPDX-License-Identifier: MIT */
/*
 * The disk of the journal on the real file system: one directory. Its names are opened
 * relative to its descriptor and never through a symbolic link; a handle is a
 * descriptor. The lock belongs to an open file description: it ends with the process,
 * and is kept when another descriptor of the file is closed.
 */
#include "rendezvous/job/records/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"

#define LOCK_NAME "lock"

struct directory {
    struct disk disk; /* first: a disk is cast to its directory */
    char *path;
    int fd;
    int lock_fd; /* -1: not locked */
};

static struct directory *directory_of(struct disk *d)
{
    return (struct directory *)d;
}

static int open_file(struct directory *dir, const char *name, bool create)
{
    int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | (create ? O_CREAT : 0);
    int fd = openat(dir->fd, name, flags, 0600);
    struct stat st;

    /* others may have been able to write to the directory before */
    if (fd < 0 || (fstat(fd, &st) == 0 && st.st_uid == geteuid()))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/*
 * The kernel may hold pages as clean that an earlier process failed to sync. They are
 * dropped, so that reads come from the disk.
 */
static int directory_open(struct disk *d, const char *name, bool create)
{
    int fd = open_file(directory_of(d), name, create);
    int why;

    if (fd < 0)
        return -1;
    if (fdatasync(fd) < 0) {
        why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return fd;
}

static int directory_close(struct disk *d, int file)
{
    return close(file);
}

/* The pid is only for users. Writing it may fail: a full disk must not keep the daemon
 * from starting. Its width is fixed, so that overwriting an older pid needs no room. */
static void lock_write_pid(int fd)
{
    char text[16];
    int length = snprintf(text, sizeof(text), "%11d\n", (int)getpid());

    if (pwrite(fd, text, (size_t)length, 0) != length)
        errno = 0;
}

static int lock_refused(int fd, struct err *e)
{
    char text[16] = "";

    if (errno != EAGAIN && errno != EACCES)
        return err_set_errno(e, errno, "cannot lock");
    if (pread(fd, text, sizeof(text) - 1, 0) > 0 && atoi(text) > 0)
        return err_set(e, "in use by pid %d", atoi(text));
    return err_set(e, "in use by another process");
}

static int directory_lock(struct disk *d, struct err *e)
{
    struct directory *dir = directory_of(d);
    struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int fd = open_file(dir, LOCK_NAME, true);

    if (fd < 0)
        return err_set_errno(e, errno, "cannot open %s", LOCK_NAME);
    if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
        lock_refused(fd, e);
        close(fd);
        return -1;
    }
    lock_write_pid(fd);
    dir->lock_fd = fd;
    return 0;
}

/* The file stays: removing it would let two processes lock two files of one name. */
static void directory_unlock(struct disk *d)
{
    struct directory *dir = directory_of(d);

    if (dir->lock_fd >= 0)
        close(dir->lock_fd);
    dir->lock_fd = -1;
}

static int64_t directory_size(struct disk *d, int file)
{
    struct stat st;

    return fstat(file, &st) < 0 ? -1 : st.st_size;
}

static int64_t directory_read(struct disk *d, int file, void *data, size_t size,
                              uint64_t at)
{
    ssize_t n;

    do
        n = pread(file, data, size, (off_t)at);
    while (n < 0 && errno == EINTR);
    return n;
}

static int64_t directory_write(struct disk *d, int file, const void *data, size_t size,
                               uint64_t at)
{
    ssize_t n;

    do
        n = pwrite(file, data, size, (off_t)at);
    while (n < 0 && errno == EINTR);
    return n;
}

static int directory_truncate(struct disk *d, int file, uint64_t size)
{
    int r;

    do
        r = ftruncate(file, (off_t)size);
    while (r < 0 && errno == EINTR);
    return r;
}

/* For a file system that cannot reserve: append zeros, or restore the size. */
static int reserve_by_zeros(struct disk *d, int file, uint64_t end)
{
    static const char zeros[65536];
    int64_t old_size = directory_size(d, file);
    uint64_t at = (uint64_t)old_size;

    if (old_size < 0)
        return -1;
    while (at < end) {
        size_t want = end - at < sizeof(zeros) ? (size_t)(end - at) : sizeof(zeros);
        int64_t n = directory_write(d, file, zeros, want, at);

        if (n <= 0) {
            int why = n < 0 ? errno : ENOSPC;

            if (directory_truncate(d, file, (uint64_t)old_size) < 0)
                return -1;
            errno = why;
            return -1;
        }
        at += (uint64_t)n;
    }
    return 0;
}

static int directory_reserve(struct disk *d, int file, uint64_t at, uint64_t size)
{
    int r;

    do
        r = fallocate(file, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)size);
    while (r < 0 && errno == EINTR);
    if (r < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        return reserve_by_zeros(d, file, at + size);
    return r;
}

/* fdatasync also writes a changed size and new blocks: all but the times. */
static int directory_sync(struct disk *d, int file)
{
    int r;

    do
        r = fdatasync(file);
    while (r < 0 && errno == EINTR);
    return r;
}

static int directory_sync_names(struct disk *d)
{
    return fsync(directory_of(d)->fd);
}

static int directory_replace(struct disk *d, const char *from, const char *to)
{
    int fd = directory_of(d)->fd;

    return renameat(fd, from, fd, to) < 0 ? -1 : directory_sync_names(d);
}

static int directory_remove(struct disk *d, const char *name)
{
    return unlinkat(directory_of(d)->fd, name, 0);
}

static void directory_destroy(struct disk *d)
{
    struct directory *dir = directory_of(d);

    directory_unlock(d);
    close(dir->fd);
    free(dir->path);
    free(dir);
}

static const struct disk_ops directory_ops = {
    .lock = directory_lock,
    .unlock = directory_unlock,
    .open = directory_open,
    .close = directory_close,
    .size = directory_size,
    .read = directory_read,
    .write = directory_write,
    .reserve = directory_reserve,
    .truncate = directory_truncate,
    .sync = directory_sync,
    .replace = directory_replace,
    .remove = directory_remove,
    .sync_names = directory_sync_names,
    .destroy = directory_destroy,
};

/*
 * The directory's own entry must be durable, or a power cut loses the whole directory.
 * The process that made it may have died before syncing the parent, so this is done at
 * every start. An unreadable parent matters only if the directory was just made.
 */
static int sync_parent(int fd, bool made, struct err *e, const char *path)
{
    int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = parent < 0 ? -1 : fsync(parent);
    int why = errno;

    if (parent >= 0)
        close(parent);
    if (r < 0 && made)
        return err_set_errno(e, why, "state directory %s: cannot sync its parent",
                             path);
    return 0;
}

/* A journal that another user can write says what the jobs of this crund are. */
static int check_owner(int fd, const char *path, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_set_errno(e, errno, "state directory %s", path);
    if (st.st_uid != geteuid())
        return err_set(e,
                       "state directory %s belongs to user %u, not to the user that "
                       "runs this program (%u)",
                       path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 0022)
        return err_set(
            e, "state directory %s can be written by other users: chmod go-w", path);
    return 0;
}

struct disk *disk_open_directory(const char *path, struct err *e)
{
    bool made = mkdir(path, 0700) == 0;
    struct directory *dir;
    int fd;

    if (!made && errno != EEXIST) {
        err_set_errno(e, errno, "state directory %s: cannot create", path);
        return NULL;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        err_set_errno(e, errno, "state directory %s: cannot open", path);
        return NULL;
    }
    if (check_owner(fd, path, e) < 0 || sync_parent(fd, made, e, path) < 0) {
        close(fd);
        return NULL;
    }
    dir = xcalloc(1, sizeof(*dir));
    dir->disk.ops = &directory_ops;
    dir->path = xstrdup(path);
    dir->fd = fd;
    dir->lock_fd = -1;
    return &dir->disk;
}

void disk_destroy(struct disk *d)
{
    if (d)
        d->ops->destroy(d);
}

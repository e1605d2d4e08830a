/* SPDX-License-Identifier: MIT */
/*
 * Loaded into a real daemon (LD_PRELOAD), this makes kill -9 as bad as a power cut for
 * the files directly in one directory: what was not synced is gone with the process.
 *
 *   LOSSYDISK_DIR    the directory; it must exist
 *   LOSSYDISK_SEED   also let some sectors of what is not synced reach the file early,
 *                    whole or torn, as a disk may
 *   LOSSYDISK_LIES   a sync says that it is done and does nothing: to see a test fail
 *
 * The daemon works on a copy in memory (a memfd), so that reading, writing and
 * reserving need no help. A sync carries what has changed over to the file. A rename
 * waits for the sync of the directory. A file named "lock" is left alone. For one
 * thread; what is closed without a sync is lost at once.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 16
#define SECTOR 512
#define EXPORT __attribute__((visibility("default")))

/* A file in the directory: copy is the descriptor that the daemon has. */
struct lossy_file {
    int copy;
    int real;
    off_t changed_from, changed_to; /* what is not synced; nothing if from >= to */
    bool cut;                       /* the real file may be longer than the copy */
};

static struct lossy_file files[FILES_MAX];
static struct stat directory;
static bool active, lies;
static uint64_t seed;

static struct {
    bool waits;
    int from_fd, to_fd;
    char from[NAME_MAX + 1], to[NAME_MAX + 1];
} renaming;

static int (*real_openat)(int, const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_unlinkat)(int, const char *, int);

static void find_file(void *place, const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);

    memcpy(place, &symbol, sizeof(symbol));
}

/* Also called by the first function that is: another library may be set up before. */
__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("LOSSYDISK_DIR"), *text = getenv("LOSSYDISK_SEED");

    if (real_openat)
        return;
    find_file(&real_openat, "openat");
    find_file(&real_close, "close");
    find_file(&real_pwrite, "pwrite");
    find_file(&real_ftruncate, "ftruncate");
    find_file(&real_fsync, "fsync");
    find_file(&real_fdatasync, "fdatasync");
    find_file(&real_renameat, "renameat");
    find_file(&real_unlinkat, "unlinkat");
    for (int i = 0; i < FILES_MAX; i++)
        files[i].copy = files[i].real = -1;
    lies = getenv("LOSSYDISK_LIES") != NULL;
    active = path && stat(path, &directory) == 0;
    seed = text ? strtoull(text, NULL, 10) * 2 + 1 : 0;
}

/* 0 without a seed: then nothing goes early. */
static unsigned random_below(unsigned bound)
{
    if (seed == 0)
        return 0;
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(seed >> 33) % bound;
}

static bool is_directory(int fd)
{
    struct stat st;

    return active && fstat(fd, &st) == 0 && st.st_dev == directory.st_dev &&
           st.st_ino == directory.st_ino;
}

static bool is_ours(int dir_fd, const char *name)
{
    begin();
    return !strchr(name, '/') && strcmp(name, "lock") != 0 && strcmp(name, "..") != 0 &&
           strcmp(name, ".") != 0 && is_directory(dir_fd);
}

static struct lossy_file *file_of(int fd)
{
    begin();
    for (int i = 0; active && fd >= 0 && i < FILES_MAX; i++)
        if (files[i].copy == fd)
            return &files[i];
    return NULL;
}

static int copy_range(int from, int to, off_t at, off_t end)
{
    char buf[65536];

    while (at < end) {
        size_t want = (size_t)(end - at) < sizeof(buf) ? (size_t)(end - at)
                                                       : sizeof(buf);
        ssize_t n = pread(from, buf, want, at);

        if (n <= 0)
            return (int)n;
        if (real_pwrite(to, buf, (size_t)n, at) != n)
            return -1;
        at += n;
    }
    return 0;
}

static int rename_now(void)
{
    if (!renaming.waits)
        return 0;
    renaming.waits = false;
    return real_renameat(renaming.from_fd, renaming.from, renaming.to_fd, renaming.to);
}

static void note_change(struct lossy_file *f, off_t from, off_t to)
{
    bool none = f->changed_from >= f->changed_to;

    f->changed_from = none || from < f->changed_from ? from : f->changed_from;
    f->changed_to = none || to > f->changed_to ? to : f->changed_to;
}

static int file_open(int dir_fd, const char *name, int flags, mode_t mode)
{
    struct lossy_file *f = files;
    struct stat st;
    int real, saved;

    if (rename_now() < 0)
        return -1;
    real = real_openat(dir_fd, name, flags, mode);
    if (real < 0 || fstat(real, &st) < 0 || !S_ISREG(st.st_mode))
        return real;
    while (f < files + FILES_MAX && f->copy >= 0)
        f++;
    if (f == files + FILES_MAX) {
        errno = EMFILE;
        goto fail;
    }
    f->copy = memfd_create("lossydisk", MFD_CLOEXEC);
    if (f->copy < 0)
        goto fail;
    f->real = real;
    f->changed_from = f->changed_to = 0;
    f->cut = false;
    if (copy_range(real, f->copy, 0, st.st_size) == 0)
        return f->copy;
    real_close(f->copy);
    f->copy = f->real = -1;
fail:
    saved = errno;
    real_close(real);
    errno = saved;
    return -1;
}

static int file_sync(struct lossy_file *f)
{
    struct stat st;

    if (lies)
        return 0;
    if (fstat(f->copy, &st) < 0)
        return -1;
    if (f->cut && real_ftruncate(f->real, st.st_size) < 0)
        return -1;
    if (copy_range(f->copy, f->real, f->changed_from, f->changed_to) < 0)
        return -1;
    f->changed_from = f->changed_to = 0;
    f->cut = false;
    return 0;
}

/* Some sectors of a write, in any order, some of them torn. */
static void leak_sectors(struct lossy_file *f, const char *data, size_t size, off_t at)
{
    if (random_below(3) == 0)
        return;
    for (size_t done = 0; done < size;) {
        size_t piece = SECTOR - (size_t)(at + (off_t)done) % SECTOR;

        if (piece > size - done)
            piece = size - done;
        if (random_below(2)) {
            size_t kept = random_below(4) ? piece : random_below((unsigned)piece + 1);

            if (real_pwrite(f->real, data + done, kept, at + (off_t)done) < 0)
                return;
        }
        done += piece;
    }
}

static int open_any(int dir_fd, const char *name, int flags, mode_t mode)
{
    if (is_ours(dir_fd, name))
        return file_open(dir_fd, name, flags, mode);
    return real_openat(dir_fd, name, flags, mode);
}

static int open_path(const char *path, int flags, mode_t mode)
{
    const char *name = strrchr(path, '/');
    char parent[PATH_MAX];
    int dir_fd, fd;

    begin();
    if (!active || !name)
        return real_openat(AT_FDCWD, path, flags, mode);
    snprintf(parent, sizeof(parent), "%.*s", (int)(name - path) + 1, path);
    dir_fd = real_openat(AT_FDCWD, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return -1;
    fd = name[1] ? open_any(dir_fd, name + 1, flags, mode)
                 : real_openat(AT_FDCWD, path, flags, mode);
    real_close(dir_fd);
    return fd;
}

#define MODE_ARGUMENT(mode, flags)                                                     \
    do {                                                                               \
        va_list ap;                                                                    \
        va_start(ap, flags);                                                           \
        mode = (flags) & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;               \
        va_end(ap);                                                                    \
    } while (0)

EXPORT int open(const char *path, int flags, ...)
{
    mode_t mode;

    MODE_ARGUMENT(mode, flags);
    return open_path(path, flags, mode);
}

EXPORT int openat(int dir_fd, const char *name, int flags, ...)
{
    mode_t mode;

    MODE_ARGUMENT(mode, flags);
    return open_any(dir_fd, name, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) __attribute__((alias("open")));
EXPORT int openat64(int dir_fd, const char *name, int flags, ...)
    __attribute__((alias("openat")));

EXPORT int close(int fd)
{
    struct lossy_file *f = file_of(fd);

    if (f) {
        real_close(f->real);
        f->copy = f->real = -1;
    }
    return real_close(fd);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    struct lossy_file *f = file_of(fd);
    ssize_t n = real_pwrite(fd, data, size, at);

    if (f && n > 0) {
        note_change(f, at, at + n);
        leak_sectors(f, data, (size_t)n, at);
    }
    return n;
}

EXPORT int ftruncate(int fd, off_t size)
{
    struct lossy_file *f = file_of(fd);
    int r = real_ftruncate(fd, size);

    if (f && r == 0)
        f->cut = true;
    return r;
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t size, off_t at)
    __attribute__((alias("pwrite")));
EXPORT int ftruncate64(int fd, off_t size) __attribute__((alias("ftruncate")));

EXPORT int fsync(int fd)
{
    struct lossy_file *f = file_of(fd);

    if (f)
        return file_sync(f);
    if (is_directory(fd))
        return rename_now();
    return real_fsync(fd);
}

EXPORT int fdatasync(int fd)
{
    struct lossy_file *f = file_of(fd);

    return f ? file_sync(f) : real_fdatasync(fd);
}

EXPORT int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    if (!is_ours(from_fd, from) || !is_ours(to_fd, to))
        return real_renameat(from_fd, from, to_fd, to);
    if (rename_now() < 0)
        return -1;
    renaming.waits = true;
    renaming.from_fd = from_fd;
    renaming.to_fd = to_fd;
    snprintf(renaming.from, sizeof(renaming.from), "%s", from);
    snprintf(renaming.to, sizeof(renaming.to), "%s", to);
    return random_below(2) ? rename_now() : 0;
}

EXPORT int unlinkat(int dir_fd, const char *name, int flags)
{
    if (is_ours(dir_fd, name) && rename_now() < 0)
        return -1;
    return real_unlinkat(dir_fd, name, flags);
}

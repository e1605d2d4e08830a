/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/launch_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cleanup/dead_launch.h"
#include "agent/cleanup/run_tmpdir.h"
#include "rendezvous/common/base/log.h"

#define SHARED_FOLDER                                                                  \
    "/dev/shm" /* cleared at boot and never shared between machines: locks work */
#define PATH_SIZE 64
#define SHARED_NAMES_MAX 1024 /* looked at in a sweep of the shared folder */

/* Where the files of this user are, and how their names begin. */
struct lock_folder {
    int fd;
    char prefix[32];
    unsigned names_max; /* in one sweep */
};

static void format_lock_name(const struct lock_folder *folder, const char *tag,
                             char name[PATH_SIZE])
{
    snprintf(name, PATH_SIZE, "%s%s", folder->prefix, tag);
}

/* A folder that no other user can write to; it stays until the machine is restarted. */
static int open_own_folder(void)
{
    char path[PATH_SIZE];
    struct stat st;
    int fd;

    snprintf(path, sizeof(path), SHARED_FOLDER "/crun-%u", (unsigned)geteuid());
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -1;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 ||
        (fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 0022) == 0))
        return fd;
    close(fd);
    return -1;
}

/* If another user has taken the name of our folder, the files are among those of all
 * users, which may be many: a sweep looks at some of them only. */
static bool open_lock_folder(struct lock_folder *folder)
{
    *folder = (struct lock_folder){ .fd = open_own_folder(), .names_max = UINT_MAX };
    if (folder->fd >= 0)
        return true;
    folder->fd = open(SHARED_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    folder->names_max = SHARED_NAMES_MAX;
    snprintf(folder->prefix, sizeof(folder->prefix), "crun-%u-", (unsigned)geteuid());
    return folder->fd >= 0;
}

static bool lock_file(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* Whether fd is still the file of that name. A process that removes the file holds its
 * lock. */
static bool is_current_file(int folder, const char *name, int fd)
{
    struct stat there, ours;

    return fstat(fd, &ours) == 0 && S_ISREG(ours.st_mode) && ours.st_uid == geteuid() &&
           fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           there.st_ino == ours.st_ino && there.st_dev == ours.st_dev;
}

/* The file's content is the launch's TMPDIR. */
static void remove_launch_tmpdir(int fd, const char *tag)
{
    char parent[PATH_MAX];
    ssize_t n = pread(fd, parent, sizeof(parent) - 1, 0);

    parent[n > 0 ? n : 0] = '\0';
    if (parent[0] == '/')
        run_tmpdir_remove_empty_below(parent, tag);
    else
        run_tmpdir_remove_empty(tag);
}

static void sweep_launch(int folder, const char *name, const char *tag)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return;
    if (is_current_file(folder, name, fd) && lock_file(fd) &&
        is_current_file(folder, name, fd) && dead_launch_kill(tag)) {
        remove_launch_tmpdir(fd, tag);
        unlinkat(folder, name, 0);
    }
    close(fd);
}

static void sweep_dead_launches(const struct lock_folder *folder)
{
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    size_t length = strlen(folder->prefix);
    unsigned left = folder->names_max;
    struct dirent *entry;

    while (list && left-- > 0 && (entry = readdir(list)))
        if (strncmp(entry->d_name, folder->prefix, length) == 0 &&
            strlen(entry->d_name + length) == RUN_TMPDIR_TAG_LEN)
            sweep_launch(folder->fd, entry->d_name, entry->d_name + length);
    if (list)
        closedir(list);
}

/* The file gets its name only when it is locked and complete, so no process finds it
 * otherwise. */
static int create_lock_file(const struct lock_folder *folder, const char *tag)
{
    char name[PATH_SIZE], path[32];
    int fd = openat(folder->fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    format_lock_name(folder, tag, name);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd >= 0) {
        char *parent = run_tmpdir_parent();

        if (parent && write(fd, parent, strlen(parent)) < 0)
            log_debug("the file of the launch's lock: %s", strerror(errno));
        free(parent);
    }
    if (fd < 0 || (lock_file(fd) &&
                   linkat(AT_FDCWD, path, folder->fd, name, AT_SYMLINK_FOLLOW) == 0))
        return fd;
    close(fd);
    return -1;
}

static int lock_fd = -1; /* of our own launch */

int launch_lock_make(const char *tag)
{
    struct lock_folder folder;

    if (lock_fd >= 0 || !open_lock_folder(&folder))
        return lock_fd;
    lock_fd = create_lock_file(&folder, tag);
    sweep_dead_launches(&folder);
    close(folder.fd);
    return lock_fd;
}

/* In the folder of all users the lock's name shows the tag, and they could make the
 * folder of the logs themselves: there the lock comes second. */
void launch_lock_make_with_tmpdir(void)
{
    int own = open_own_folder();

    if (own < 0)
        run_tmpdir_make();
    else
        close(own);
    launch_lock_make(run_tmpdir_tag());
    if (own >= 0)
        run_tmpdir_make();
}

void launch_lock_remove(const char *tag)
{
    struct lock_folder folder;
    char name[PATH_SIZE];

    if (strlen(tag) != RUN_TMPDIR_TAG_LEN || strchr(tag, '/') ||
        !open_lock_folder(&folder))
        return;
    format_lock_name(&folder, tag, name);
    unlinkat(folder.fd, name, 0);
    close(folder.fd);
}

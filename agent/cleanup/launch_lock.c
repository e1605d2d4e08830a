/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/launch_lock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/cleanup/run_tmpdir.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/xalloc.h"

#define FOLDER "/dev/shm" /* of this boot and this machine, where a lock is a lock */
#define NAME_SIZE 48
#define ENVIRONMENT_MAX (4u << 20)
#define ENVIRONMENT_STEP (64u << 10)
#define ROUNDS                                                                         \
    100 /* who is killed may have started somebody, and takes a moment to go */
#define MEMBERSHIP_US 2000

static void name_of(const char *tag, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "crun-%u-%s", (unsigned)geteuid(), tag);
}

/* -- the processes that carry a tag --------------------------------------------- */

/* Whole, behind a zero; to be freed. NULL: it is not ours to read, or gone. */
static char *read_environment(int process, size_t *size)
{
    int fd = openat(process, "environ", O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    size_t room = 0;
    ssize_t n = fd < 0 ? -1 : 1;

    for (*size = 1; n > 0 && *size<ENVIRONMENT_MAX; *size += n> 0 ? (size_t)n : 0) {
        if (room - *size < ENVIRONMENT_STEP || room == 0)
            text = xrealloc(text, room += 2 * ENVIRONMENT_STEP);
        text[0] = '\0';
        n = read(fd, text + *size, room - *size);
    }
    if (fd >= 0)
        close(fd);
    if (n < 0) {
        free(text);
        return NULL;
    }
    return text;
}

static bool carries(int process, const char *tag)
{
    char entry[sizeof(LAUNCH_LOCK_VARIABLE) + RUN_TMPDIR_TAG_LEN + 3];
    size_t length = (size_t)snprintf(entry, sizeof(entry),
                                     "%c" LAUNCH_LOCK_VARIABLE "=%s", 0, tag) +
                    1, /* with the zeros before and behind it */
        size;
    char *text = read_environment(process, &size);
    bool found = text && memmem(text, size, entry, length);

    free(text);
    return found;
}

/* True if it was to be killed. The descriptor was there before the look at it: whoever
 * else may have the pid by now is not hit. */
static bool kill_if_carrying(const char *pid, const char *tag)
{
    int fd = (int)syscall(SYS_pidfd_open, atoi(pid), 0u), process = -1;
    char path[32];
    struct stat st;
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%.16s", pid);
    if (fd >= 0)
        process = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (process >= 0 && fstat(process, &st) == 0 && st.st_uid == geteuid() &&
        carries(process, tag))
        found = syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0u) == 0;
    if (process >= 0)
        close(process);
    if (fd >= 0)
        close(fd);
    return found;
}

static unsigned kill_once(const char *tag)
{
    DIR *list = opendir("/proc");
    struct dirent *entry;
    unsigned count = 0;

    while (list && (entry = readdir(list)))
        if (isdigit((unsigned char)entry->d_name[0]))
            count += kill_if_carrying(entry->d_name, tag);
    if (list)
        closedir(list);
    return count;
}

/* The numbers that /proc shows are ours: it may be of another namespace. */
static bool proc_is_ours(void)
{
    char self[16] = "";

    return readlink("/proc/self", self, sizeof(self) - 1) > 0 && atoi(self) == getpid();
}

/* True when none is left. We may live below such a launch ourselves. */
static bool end_all(const char *tag)
{
    const char *outer = getenv(LAUNCH_LOCK_VARIABLE);
    unsigned found = 0, now = 1;

    if (!proc_is_ours() || (outer && strcmp(outer, tag) == 0))
        return false;
    for (int i = 0; i < ROUNDS && now > 0; i++) {
        now = kill_once(tag);
        if (i == 0)
            found = now;
        if (now > 0)
            usleep(MEMBERSHIP_US);
    }
    if (found > 0)
        log_warn("ended what a crun that was killed had left behind: %u process%s",
                 found, found == 1 ? "" : "es");
    return now == 0;
}

/* -- the files ------------------------------------------------------------------ */

static bool is_locked_by_us(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* It is the file of that name yet: whoever removes one holds its lock. */
static bool is_there(int folder, const char *name, int fd)
{
    struct stat there, ours;

    return fstat(fd, &ours) == 0 && S_ISREG(ours.st_mode) && ours.st_uid == geteuid() &&
           fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           there.st_ino == ours.st_ino && there.st_dev == ours.st_dev;
}

static void sweep(int folder, const char *name, const char *tag)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return;
    if (is_there(folder, name, fd) && is_locked_by_us(fd) &&
        is_there(folder, name, fd) && end_all(tag)) {
        run_tmpdir_remove_empty(tag);
        unlinkat(folder, name, 0);
    }
    close(fd);
}

static void sweep_all(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    char prefix[NAME_SIZE];
    struct dirent *entry;
    size_t length;

    name_of("", prefix);
    length = strlen(prefix);
    while (list && (entry = readdir(list)))
        if (strncmp(entry->d_name, prefix, length) == 0 &&
            strlen(entry->d_name + length) == RUN_TMPDIR_TAG_LEN)
            sweep(folder, entry->d_name, entry->d_name + length);
    if (list)
        closedir(list);
}

/* It is there under its name only once it is locked: nobody finds it free. */
static int make(int folder, const char *tag)
{
    char name[NAME_SIZE], path[32];
    int fd = openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    name_of(tag, name);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd < 0 || (is_locked_by_us(fd) &&
                   linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW) == 0))
        return fd;
    close(fd);
    return -1;
}

int launch_lock_make(const char *tag)
{
    static int held = -1;
    int folder = held >= 0 ? -1 : open(FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (folder < 0)
        return held;
    sweep_all(folder);
    held = make(folder, tag);
    close(folder);
    return held;
}

void launch_lock_remove(const char *tag)
{
    char name[NAME_SIZE], path[sizeof(FOLDER) + NAME_SIZE];

    if (strlen(tag) != RUN_TMPDIR_TAG_LEN || strchr(tag, '/'))
        return;
    name_of(tag, name);
    snprintf(path, sizeof(path), FOLDER "/%s", name);
    unlink(path);
}

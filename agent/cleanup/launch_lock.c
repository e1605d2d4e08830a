/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/launch_lock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

#define SHARED_FOLDER                                                                  \
    "/dev/shm" /* cleared at boot and never shared between machines: locks work */
#define PATH_SIZE 64
#define SHARED_NAMES_MAX 1024 /* looked at in a sweep of the shared folder */
#define ENVIRONMENT_MAX (4u << 20)
#define ENVIRONMENT_STEP (64u << 10)
#define ROUNDS 100 /* a killed process may just have started another one */
#define ROUND_US 2000

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

/* -- the processes that carry a tag --------------------------------------------- */

/* Returns the whole environment after a zero byte; the caller frees it. NULL: the
 * process is not readable by us, or has ended. */
static char *read_process_environment(int process, size_t *size)
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

static bool process_has_tag(int process, const char *tag)
{
    char entry[sizeof(LAUNCH_LOCK_VARIABLE) + RUN_TMPDIR_TAG_LEN + 3];
    size_t length = (size_t)snprintf(entry, sizeof(entry),
                                     "%c" LAUNCH_LOCK_VARIABLE "=%s", 0, tag) +
                    1, /* with the zero bytes around it */
        size;
    char *text = read_process_environment(process, &size);
    bool found = text && memmem(text, size, entry, length);

    free(text);
    return found;
}

/* True if it was killed. The pidfd was opened before the check, so a process that gets
 * the pid later is never hit. */
static bool kill_if_tagged(const char *pid, const char *tag)
{
    int fd = (int)syscall(SYS_pidfd_open, atoi(pid), 0u), process = -1;
    char path[32];
    struct stat st;
    bool found = false;

    snprintf(path, sizeof(path), "/proc/%.16s", pid);
    if (fd >= 0)
        process = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (process >= 0 && fstat(process, &st) == 0 && st.st_uid == geteuid() &&
        process_has_tag(process, tag))
        found = syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0u) == 0;
    if (process >= 0)
        close(process);
    if (fd >= 0)
        close(fd);
    return found;
}

static unsigned kill_tagged_processes(const char *tag)
{
    DIR *list = opendir("/proc");
    struct dirent *entry;
    unsigned count = 0;

    while (list && (entry = readdir(list)))
        if (isdigit((unsigned char)entry->d_name[0]))
            count += kill_if_tagged(entry->d_name, tag);
    if (list)
        closedir(list);
    return count;
}

/* Whether /proc shows our pid namespace. */
static bool proc_is_ours(void)
{
    char self[16] = "";

    return readlink("/proc/self", self, sizeof(self) - 1) > 0 && atoi(self) == getpid();
}

/* True when none is left. We may be a process of that launch ourselves. */
static bool kill_all_tagged(const char *tag)
{
    const char *outer = getenv(LAUNCH_LOCK_VARIABLE);
    unsigned found = 0, now = 1;

    if (!proc_is_ours() || (outer && strcmp(outer, tag) == 0))
        return false;
    for (int i = 0; i < ROUNDS && now > 0; i++) {
        now = kill_tagged_processes(tag);
        if (i == 0)
            found = now;
        if (now > 0)
            usleep(ROUND_US);
    }
    if (found > 0)
        log_warn("killed %u process%s that a killed crun had left behind", found,
                 found == 1 ? "" : "es");
    return now == 0;
}

/* -- the files ------------------------------------------------------------------ */

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
        is_current_file(folder, name, fd) && kill_all_tagged(tag)) {
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

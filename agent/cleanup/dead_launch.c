/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/dead_launch.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/cleanup/launch_lock.h"
#include "agent/cleanup/run_tmpdir.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

#define ENVIRONMENT_MAX (4u << 20)
#define ENVIRONMENT_STEP (64u << 10)
#define ROUNDS 100 /* a killed process may just have started another one */
#define ROUND_US 2000

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

/* We may be a process of that launch ourselves. */
bool dead_launch_kill(const char *tag)
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

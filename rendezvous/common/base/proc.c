/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/proc.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "rendezvous/common/base/fd.h"

/* A name is in parentheses and may contain anything, including parentheses and
 * spaces. */
bool proc_parse_stat(const char *text, struct proc_stat *s)
{
    const char *name = strchr(text, '('), *end = strrchr(text, ')');
    unsigned long long started, user, kernel;
    int parent;

    if (!name || !end || end < name ||
        sscanf(end,
               ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d "
               "%*d %*d %llu",
               &s->state, &parent, &user, &kernel, &started) != 5)
        return false;
    s->parent = parent;
    s->cpu_ticks = user + kernel;
    s->started = started;
    snprintf(s->name, sizeof(s->name), "%.*s", (int)(end - name - 1), name + 1);
    return true;
}

bool proc_read_stat(pid_t pid, struct proc_stat *s)
{
    char path[40], text[1024];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    return fd_read_file(AT_FDCWD, path, text, sizeof(text)) > 0 &&
           proc_parse_stat(text, s);
}

uint64_t proc_pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

bool proc_user_name(uid_t uid, char *name, size_t size)
{
    FILE *f = fopen("/etc/passwd", "re");
    struct passwd entry, *found = NULL;
    char line[1024];

    while (f && fgetpwent_r(f, &entry, line, sizeof(line), &found) == 0 &&
           found->pw_uid != uid)
        ;
    if (f)
        fclose(f);
    if (!found || found->pw_uid != uid)
        return false;
    snprintf(name, size, "%s", found->pw_name);
    return true;
}

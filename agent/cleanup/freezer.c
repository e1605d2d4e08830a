/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/freezer.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/fd.h"

/* Whether a file of the cgroup has the text. */
static bool group_file_has(const char *mount, const char *group, const char *name,
                           const char *text, char *path, size_t size)
{
    char content[256];

    return (size_t)snprintf(path, size, "%s%s/%s", mount, group, name) < size &&
           fd_read_file(AT_FDCWD, path, content, sizeof(content)) > 0 &&
           strstr(content, text);
}

/* Lines of /proc/PID/cgroup: "0::/path", or "7:freezer:/path" for version 1. */
bool freezer_holds(pid_t pid, char *path, size_t size)
{
    char file[64], groups[4096], *rest = groups, *line;

    snprintf(file, sizeof(file), "/proc/%d/cgroup", (int)pid);
    if (fd_read_file(AT_FDCWD, file, groups, sizeof(groups)) <= 0)
        return false;
    while ((line = strsep(&rest, "\n"))) {
        char *name = strchr(line, ':'), *group = name ? strchr(name + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = '\0';
        if (name[1] == '\0' &&
            (group_file_has("/sys/fs/cgroup", group, "cgroup.events", "frozen 1", path,
                            size) ||
             group_file_has("/sys/fs/cgroup/unified", group, "cgroup.events",
                            "frozen 1", path, size)))
            return true;
        if (strcmp(name + 1, "freezer") == 0 &&
            group_file_has("/sys/fs/cgroup/freezer", group, "freezer.state", "FROZEN",
                           path, size))
            return true;
    }
    return false;
}

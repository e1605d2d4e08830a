/* SPDX-License-Identifier: MIT */
#include "agent/memory/memory_budget.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cleanup/cgroup.h"
#include "agent/memory/limits.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/xalloc.h"

#define FILE_BYTES (256u << 10)

/* The number behind a name at the start of a line; 0: there is none. */
static uint64_t number_of(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (; text; text = strchr(text, '\n')) {
        text += *text == '\n';
        if (strncmp(text, name, length) == 0)
            return strtoull(text + length, NULL, 10);
    }
    return 0;
}

uint64_t memory_budget_parse(const char *meminfo)
{
    uint64_t available = number_of(meminfo, "MemAvailable:") << 10;
    uint64_t spare = (number_of(meminfo, "MemTotal:") << 10) / MEMORY_SPARE_PART;

    return available > spare ? available - spare : 0;
}

/* The number in a file of a cgroup; UINT64_MAX: there is none, or "max". */
static uint64_t read_number(const char *folder, const char *name, const char *field)
{
    char path[PATH_MAX], text[8192];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (fd_read_file(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return UINT64_MAX;
    if (*field)
        return number_of(text, field);
    return *text >= '0' && *text <= '9' ? strtoull(text, NULL, 10) : UINT64_MAX;
}

/* What one cgroup leaves; what it has only read from files goes when it is needed. */
static uint64_t cgroup_leaves(const char *folder, const char *limit, const char *use)
{
    uint64_t max = read_number(folder, limit, "");
    uint64_t used = read_number(folder, use, "");
    uint64_t cache = read_number(folder, "memory.stat", "inactive_file ");

    if (max == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    used -= cache < used ? cache : 0;
    return used < max ? max - used : 0;
}

/* Of our cgroup and all above it. */
static uint64_t cgroups_leave(void)
{
    static const char *const names[2][3] = {
        { "", "memory.max", "memory.current" },
        { "memory", "memory.limit_in_bytes", "memory.usage_in_bytes" },
    };
    char *mounts = xmalloc(FILE_BYTES), group[PATH_MAX], path[PATH_MAX];
    uint64_t least = UINT64_MAX;

    for (int v = 0; v < 2; v++) {
        if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", mounts, FILE_BYTES) < 0 ||
            fd_read_file(AT_FDCWD, "/proc/self/cgroup", group, sizeof(group)) < 0 ||
            !cgroup_own_path(mounts, group, names[v][0], path, sizeof(path)))
            continue;
        for (char *end; (end = strrchr(path, '/')) && end > path; *end = '\0') {
            uint64_t left = cgroup_leaves(path, names[v][1], names[v][2]);

            least = left < least ? left : least;
        }
    }
    free(mounts);
    return least;
}

struct memory_free memory_budget_free(void)
{
    char text[8192];
    struct memory_free now = { UINT64_MAX, "this machine" };
    uint64_t cgroup = cgroups_leave();

    if (fd_read_file(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) > 0)
        now.bytes = memory_budget_parse(text);
    return cgroup < now.bytes ? (struct memory_free){ cgroup, "the cgroup" } : now;
}

struct size_text {
    char text[24];
};

static struct size_text size_text(uint64_t bytes)
{
    static const struct {
        uint64_t least;
        const char *format;
    } units[] = { { UINT64_C(1) << 30, "%.2f GiB" },
                  { 1 << 20, "%.1f MiB" },
                  { 1 << 10, "%.1f KiB" },
                  { 1, "%.0f bytes" } };
    struct size_text t;
    unsigned i = 0;

    while (bytes < units[i].least && i < 3)
        i++;
    snprintf(t.text, sizeof(t.text), units[i].format,
             (double)bytes / (double)units[i].least);
    return t;
}

int memory_budget_check(uint64_t limit, const struct memory_free *now, uint64_t granted,
                        uint64_t resident, uint64_t more, struct err *e)
{
    uint64_t promised = granted > resident ? granted - resident : 0;

    if (limit && (more > limit || granted > limit - more))
        return err_set(e,
                       "checkpoints in memory: %s more are needed, %s are in use, and "
                       "--memory-limit is %s",
                       size_text(more).text, size_text(granted).text,
                       size_text(limit).text);
    if (more > now->bytes || promised > now->bytes - more)
        return err_set(
            e, "checkpoints in memory: %s more are needed, and %s has %s left",
            size_text(more).text, now->by,
            size_text(now->bytes > promised ? now->bytes - promised : 0).text);
    return 0;
}

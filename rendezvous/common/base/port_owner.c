/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/port_owner.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/proc.h"

#define TCP_LISTEN_STATE 0x0a
#define PATH_SIZE 300 /* "/proc/", a pid, "/fd/" and one directory entry */

/* The inode of the socket that listens on port in /proc/net/tcp or tcp6; 0: none. */
static unsigned long find_listener_inode(const char *table, uint16_t port,
                                         unsigned *uid)
{
    FILE *f = fopen(table, "re");
    unsigned long inode, found = 0;
    unsigned local_port, state;
    char line[512];

    if (!f)
        return 0;
    while (!found && fgets(line, sizeof(line), f))
        if (sscanf(line, "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %u %*s %lu",
                   &local_port, &state, uid, &inode) == 4 &&
            local_port == port && state == TCP_LISTEN_STATE)
            found = inode;
    fclose(f);
    return found;
}

static bool process_has_link(const char *pid, const char *link_wanted)
{
    char path[2 * PATH_SIZE], link[64];
    struct dirent *entry;
    bool found = false;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    dir = opendir(path);
    while (dir && !found && (entry = readdir(dir))) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, entry->d_name);
        n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        found = strcmp(link, link_wanted) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

static void describe_process(const char *pid, char *text, size_t size)
{
    char path[PATH_SIZE], name[64] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%s/comm", pid);
    f = fopen(path, "re");
    if (f && fgets(name, sizeof(name), f))
        name[strcspn(name, "\n")] = '\0';
    if (f)
        fclose(f);
    snprintf(text, size, "%s (%s)", pid, name);
}

bool port_owner_find(uint16_t port, char *text, size_t size)
{
    unsigned uid = 0;
    unsigned long inode = find_listener_inode("/proc/net/tcp", port, &uid);
    struct dirent *entry;
    bool found = false;
    char link[64], user[64];
    DIR *dir;

    if (!inode)
        inode = find_listener_inode("/proc/net/tcp6", port, &uid);
    if (!inode)
        return false;
    snprintf(link, sizeof(link), "socket:[%lu]", inode);
    dir = opendir("/proc");
    while (dir && !found && (entry = readdir(dir)))
        if (isdigit((unsigned char)entry->d_name[0]) &&
            process_has_link(entry->d_name, link)) {
            describe_process(entry->d_name, text, size);
            found = true;
        }
    if (dir)
        closedir(dir);
    if (!found && uid != geteuid()) { /* whose descriptors are not shown */
        if (proc_user_name(uid, user, sizeof(user)))
            snprintf(text, size, "a process of user %s", user);
        else
            snprintf(text, size, "a process of uid %u", uid);
        found = true;
    }
    return found;
}

/* SPDX-License-Identifier: MIT */
#include "agent/progress/proc_state.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cleanup/freezer.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/proc.h"

#define STACK_FUNCTIONS_MAX 5

/* Reads a file in /proc/PID; false if that is not possible. */
static bool read_proc_file(pid_t pid, const char *name, char *buf, size_t size)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fd_read_file(AT_FDCWD, path, buf, size) > 0;
}

static const char *state_name(char state)
{
    static const struct {
        char letter;
        const char *name;
    } names[] = { { 'R', "running" }, { 'S', "sleeping" }, { 'D', "uninterruptible" },
                  { 'T', "stopped" }, { 't', "traced" },   { 'Z', "dead, not reaped" },
                  { 'I', "idle" },    { 'X', "dead" } };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].letter == state)
            return names[i].name;
    return "in an unknown state";
}

/* "[<0>] futex_wait+0x1/0x2\n..." to "futex_wait < do_futex < ..." */
static void append_stack(pid_t pid, char *buf, size_t size)
{
    char stack[4096], *rest = stack, *line;
    size_t used = strlen(buf);
    unsigned count = 0;

    if (!read_proc_file(pid, "stack", stack, sizeof(stack)))
        return;
    while ((line = strsep(&rest, "\n")) && count < STACK_FUNCTIONS_MAX) {
        char *name = strstr(line, "] ");

        if (!name || used >= size)
            continue;
        name += 2;
        name[strcspn(name, "+ ")] = '\0';
        /* every system call's stack begins with it */
        if (strncmp(name, "__x64_sys_", 10) == 0 ||
            strncmp(name, "__arm64_sys_", 12) == 0 ||
            strncmp(name, "do_syscall_", 11) == 0)
            return;
        used += (size_t)snprintf(buf + used, size - used, "%s%s",
                                 count++ ? " < " : "; stack ", name);
    }
}

static void append_channel(pid_t pid, char *buf, size_t size)
{
    char channel[128];
    size_t used = strlen(buf);

    if (read_proc_file(pid, "wchan", channel, sizeof(channel)) && isalpha(channel[0]))
        snprintf(buf + used, size - used, " in %s", channel);
}

static void append_call(pid_t pid, char *buf, size_t size)
{
    char call[128];
    size_t used = strlen(buf);

    if (used < size && read_proc_file(pid, "syscall", call, sizeof(call)) &&
        isdigit(call[0]))
        snprintf(buf + used, size - used, ", system call %.*s",
                 (int)strcspn(call, " \n"), call);
}

char *proc_state_describe(pid_t pid, char *buf, size_t size)
{
    struct proc_stat stat;
    bool is_there = proc_read_stat(pid, &stat);

    snprintf(buf, size, "%s", is_there ? state_name(stat.state) : "");
    if (!is_there || stat.state == 'R')
        return buf;
    append_channel(pid, buf, size);
    append_call(pid, buf, size);
    append_stack(pid, buf, size);
    return buf;
}

char *proc_state_describe_briefly(pid_t pid, char *buf, size_t size)
{
    struct proc_stat stat;
    bool is_there = proc_read_stat(pid, &stat);

    snprintf(buf, size, "%s", is_there ? state_name(stat.state) : "");
    if (is_there && stat.state != 'R')
        append_channel(pid, buf, size);
    return buf;
}

const char *proc_state_of_halted(pid_t pid)
{
    struct proc_stat stat;
    char path[512];

    if (freezer_holds(pid, path, sizeof(path)))
        return "frozen";
    if (!proc_read_stat(pid, &stat))
        return "";
    return stat.state == 'T' ? "stopped" : stat.state == 't' ? "traced" : "";
}

static bool read_signals(const char *status, const char *name, uint64_t *bits)
{
    const char *at = strstr(status, name);

    if (at)
        *bits = strtoull(at + strlen(name), NULL, 16);
    return at;
}

bool proc_state_read_signals(pid_t pid, struct proc_signals *signals)
{
    char status[4096];

    return read_proc_file(pid, "status", status, sizeof(status)) &&
           read_signals(status, "\nShdPnd:\t", &signals->pending) &&
           read_signals(status, "\nSigBlk:\t", &signals->blocked) &&
           read_signals(status, "\nSigCgt:\t", &signals->caught);
}

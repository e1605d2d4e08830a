/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_NAME_SIZE                                                                 \
    64 /* the kernel cuts a name at 15 bytes, names of its own threads at 63 */

/* The facts about a process in /proc/PID/stat. */
struct proc_stat {
    char name[PROC_NAME_SIZE];
    char state; /* a letter: 'R', 'S', 'D', 'T', 'Z' ... */
    pid_t parent;
    uint64_t cpu_ticks; /* used by all its threads */
    uint64_t started; /* in ticks since boot: with the pid, it identifies the process */
};

/* False if there is no such process, or /proc does not show it. */
bool proc_read_stat(pid_t pid, struct proc_stat *s);

/* The same of the text of such a file. */
bool proc_parse_stat(const char *text, struct proc_stat *s);

/* The name of a user of this machine. False if /etc/passwd has none: others that may
 * know it, such as a directory server, are not asked, because that may take long. */
bool proc_user_name(uid_t uid, char *name, size_t size);

/* The number of the pid namespace of this process; 0: unknown. */
uint64_t proc_pid_namespace(void);

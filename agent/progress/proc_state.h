/* SPDX-License-Identifier: MIT */
#ifndef AGENT_PROGRESS_PROC_STATE_H
#define AGENT_PROGRESS_PROC_STATE_H

#include <stddef.h>
#include <sys/types.h>

/*
 * Describes what a process is doing, from /proc alone: "sleeping in futex_wait_queue,
 * system call 202" and, where the kernel's stack is readable, its first functions. It
 * describes the first thread, the most relevant one in most programs. Returns buf; ""
 * if there is no such process.
 */
char *proc_state_describe(pid_t pid, char *buf, size_t size);

#endif

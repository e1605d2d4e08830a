/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Describes what a process is doing, from /proc alone: "sleeping in futex_wait_queue,
 * system call 202" and, where the kernel's stack is readable, its first functions. It
 * describes the first thread, the most relevant one in most programs. Returns buf; ""
 * if there is no such process.
 */
char *proc_state_describe(pid_t pid, char *buf, size_t size);

/* "sleeping in futex_wait_queue". Returns buf. */
char *proc_state_describe_briefly(pid_t pid, char *buf, size_t size);

/* "stopped", "traced" or "frozen" (by its cgroup): no signal reaches its code. "": it
 * is none of these. */
const char *proc_state_of_halted(pid_t pid);

/* The signals of a process as bits: pending for all threads, blocked by the first
 * thread, and with a handler. False if there is no such process. */
struct proc_signals {
    uint64_t pending, blocked, caught;
};

bool proc_state_read_signals(pid_t pid, struct proc_signals *signals);

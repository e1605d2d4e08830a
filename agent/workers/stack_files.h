/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * The files into which Python workers write their stacks (see bootstrap/stacks.py):
 * memory of this process, which a worker opens by its path in /proc. Nothing is
 * inherited, and no name can be left behind.
 */
struct stack_files;

struct stack_files *stack_files_create(uint32_t workers);
void stack_files_destroy(struct stack_files *s); /* NULL is fine */

/* A new file for a new worker. Returns buf: its path, "" if there is none. */
char *stack_files_renew(struct stack_files *s, uint32_t local_rank, char *buf,
                        size_t size);

/* The worker's file, or -1. */
int stack_files_fd(const struct stack_files *s, uint32_t local_rank);

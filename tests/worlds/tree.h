/* SPDX-License-Identifier: MIT */
#pragma once

/* A directory that stands in for "/": a test puts into it what it wants to be read. */
extern char tree_root[64];

/* A checked fixture. */
void tree_setup(void);
void tree_teardown(void);

/* Make a file below the root, and the directories on the way. */
void tree_put(const char *text, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void tree_remove(const char *path);

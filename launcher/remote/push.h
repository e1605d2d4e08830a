/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

struct evbuffer;

/*
 * How a host gets a crun of this version. The remote command is `sh`, one word for any
 * login shell. It reads its commands from standard input: the first one executes the
 * crun at the launcher's path; the second one executes the copy in the user's cache
 * folder, or reads that copy from standard input. A command that fails prints a mark,
 * and the launcher waits for it before it sends more, because a shell may read ahead.
 *
 * The copy is ~/.cache/crun/DIGEST/bin/crun, beside the libraries that are not part of
 * every system. It is complete before it gets that name.
 */
#define PUSH_LIBRARIES "CRUN_COPIED_LIBRARIES" /* their folder, if needed */
#define PUSH_SHELL_MARK "%crun-sh%\n"    /* the shell has read the first command */
#define PUSH_ABSENT_MARK "%crun-none%\n" /* there is no such file */
#define PUSH_WANTED_MARK "%crun-push%\n" /* send the files */

struct push {
    char *self;   /* the path of this program */
    char *digest; /* of all the files; NULL: not computed yet */
    struct push_file {
        char *path, *name; /* here; below the folder there */
        size_t size;
        char sha256[65];
    } * file;
    unsigned count;
};

/* 'text' for sh. To be freed by the caller. */
char *push_quote(const char *text);

int push_init(struct push *p, struct err *e) MUST_CHECK;
void push_fini(struct push *p);

/* The first command. The caller frees it. */
char *push_first_command(const struct push *p);
/* The second. Computes digests at its first call. */
char *push_second_command(struct push *p, struct err *e) MUST_CHECK;
/* The files, in the order that the second command expects. */
int push_add_files(const struct push *p, struct evbuffer *out,
                   struct err *e) MUST_CHECK;

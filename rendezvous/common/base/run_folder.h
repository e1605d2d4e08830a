/* SPDX-License-Identifier: MIT */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "rendezvous/common/base/err.h"

/*
 * The folder of a user in which each crun has its socket and its record, and in which
 * jobs that have ended are kept for a while. Only that user may look into it. It is the
 * first of these that can be used:
 *   $CRUN_RUNTIME_DIR          (if it is set, only that one)
 *   $XDG_RUNTIME_DIR/crun
 *   /run/user/UID/crun
 *   /tmp/crun-UID
 * Others may write to /tmp: what is not a folder of the user with mode 0700 is left as
 * it is, and no symbolic link is followed.
 */
#define RUN_FOLDERS_MAX 4
#define RUN_FOLDER_ENDED "ended"

struct run_folder {
    int fd; /* -1: none */
    uid_t owner;
    char path[PATH_MAX];
};

/* Whether $CRUN_RUNTIME_DIR names the only one. */
bool run_folder_is_chosen(void);
/* Where cruns of this user may have put their files, the best first. */
unsigned run_folder_list(char paths[RUN_FOLDERS_MAX][PATH_MAX]);

/* "$XDG_STATE_HOME/crun" or "~/.local/state/crun", from which nothing vanishes at a
 * logout; with `make` it is made. To be freed by the caller. */
char *run_folder_state(bool make);
/* The folder of the records of jobs that --detach has left running on other machines:
 * "jobs" in that folder, or in $CRUN_RUNTIME_DIR. -1 and errno. */
int run_folder_open_detached(bool make, struct run_folder *f) MUST_CHECK;

/* Makes or opens the first that can be used. */
int run_folder_make(struct run_folder *f, struct err *e) MUST_CHECK;
/* Opens one that is there, of that user. -1 and errno. */
int run_folder_open(struct run_folder *f, const char *path, uid_t owner) MUST_CHECK;
/* Its folder of ended jobs, which `make` makes if it is missing. -1 and errno. */
int run_folder_open_ended(const struct run_folder *f, bool make,
                          struct run_folder *ended) MUST_CHECK;
/* Whether its path still leads to it: at a logout the system removes some of them. */
bool run_folder_is_there(const struct run_folder *f);
void run_folder_close(struct run_folder *f);

/* A socket that listens under this name. What is left of a process that was killed is
 * replaced. -1 and errno: EADDRINUSE, if a process listens there. */
int run_folder_listen(const struct run_folder *f, const char *name) MUST_CHECK;
/* A connection to the socket of that name, whose process is of the folder's user. -1
 * and errno: ECONNREFUSED, if its process is gone; EAGAIN, if it takes none. */
int run_folder_connect(const struct run_folder *f, const char *name) MUST_CHECK;

/* Writes a file as a whole: readers see the old text or the new one. -1 and errno. */
int run_folder_write(const struct run_folder *f, const char *name, const char *text,
                     size_t size) MUST_CHECK;
/* An ordinary file of the folder's user, to read. -1 and errno. */
int run_folder_open_file(const struct run_folder *f, const char *name) MUST_CHECK;
/* The text of such a file, of at most max bytes: to be freed by the caller. NULL and
 * errno. */
char *run_folder_read(const struct run_folder *f, const char *name, size_t max);
void run_folder_remove(const struct run_folder *f, const char *name);

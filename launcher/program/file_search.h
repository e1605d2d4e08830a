/* SPDX-License-Identifier: MIT */
#pragma once

#include <unistd.h>

#include "rendezvous/common/base/err.h"

/*
 * The search for a file of one name. The caller tries places in their order; the first
 * file that can be used is found. An unfit file is one that cannot be used: the first
 * of them is kept for the error.
 */
struct file_search {
    const char *name;
    int mode;    /* F_OK; X_OK; R_OK: for Python, which also runs folders */
    char *found; /* or NULL; the caller takes it */
    char *unfit; /* or NULL */
    int unfit_errno;
};

/* Takes ownership of path. */
void file_search_try(struct file_search *s, char *path);
/* Tries the folders of PATH; NULL: PATH is not set. */
void file_search_try_path(struct file_search *s, const char *path);

/* Sets e to the reason why nothing was found. looked: the places, for a file that is
 * nowhere. */
int file_search_refuse(const struct file_search *s, const char *looked, struct err *e);

/* Releases all but found. */
void file_search_release(struct file_search *s);

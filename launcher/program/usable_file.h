/* SPDX-License-Identifier: MIT */
#pragma once

#include <unistd.h>

#include "rendezvous/common/base/err.h"

/*
 * The search for a file of one name. The caller tries places in their order; the first
 * file that can be used is found. An unfit file is one that cannot be used: the first
 * of them is kept for the error.
 */
struct usable_file {
    const char *name;
    int mode;    /* F_OK; X_OK; R_OK: for Python, which also runs folders */
    char *found; /* or NULL; the caller takes it */
    char *unfit; /* or NULL */
    int unfit_errno;
};

/* Takes ownership of path. */
void usable_file_try(struct usable_file *s, char *path);
/* Tries the folders of PATH; NULL: PATH is not set. */
void usable_file_try_path(struct usable_file *s, const char *path);

/* Sets e to the reason why nothing was found. looked: the places, for a file that is
 * nowhere. */
int usable_file_refuse(const struct usable_file *s, const char *looked, struct err *e);

/* Releases all but found. */
void usable_file_release(struct usable_file *s);

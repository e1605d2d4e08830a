/* SPDX-License-Identifier: MIT */
#pragma once

#include <sys/stat.h>

#include "rendezvous/common/base/err.h"

/*
 * Open the file at path for reading, following links, and check that no other user than
 * root could put another file there: this user or root owns every folder and link on
 * the way, and others cannot write the folders. A sticky folder may be writable by all:
 * only the owner of an entry can replace it, and the owner is checked. Of the file
 * itself only the type is checked: it is a regular file. Returns the descriptor, or -1:
 * e names the culprit, and e->code is an errno value if something was not found.
 */
int key_path_open(const char *path, struct stat *st, struct err *e) MUST_CHECK;

/* The owner is this user or root. `what` names it in e. */
int key_path_check_owner(const char *what, const struct stat *st, struct err *e);

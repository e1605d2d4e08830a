/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/common/base/err.h"

/*
 * Where a program finds its key: the file that --key-file or CRUN_KEY_FILE names, else
 * $CREDENTIALS_DIRECTORY/crun.key, else $XDG_CONFIG_HOME/crun/key (~/.config/crun/key).
 */

/* 1: path is that of the file to be read; `named` (may be NULL) if given is it, whether
 * it exists or not. 0: there is none. -1: a place could not be looked at. */
int key_search(const char *named, char *path, size_t size, struct err *e) MUST_CHECK;

/* The file in the user's configuration folder, where crunctl keygen puts it. False:
 * there is no such folder, because neither XDG_CONFIG_HOME nor HOME is set. */
bool key_search_home(char *path, size_t size);

/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <sys/stat.h>

#include "rendezvous/common/security/key.h"

/*
 * Key files, checked as ssh checks its own: this user or root owns the file, others
 * cannot read or write it, its group cannot write it, and no other user can replace it
 * or a folder or link on the way to it.
 */

/*
 * Read all keys of the file into keys[max]; lines that are empty or begin with # are
 * skipped. *seen is the file that was read, also of one that is refused. Returns
 * their number (1 at least), or -1: e names the file and what to do. Never blocks on a
 * FIFO or a device.
 */
int key_file_read(const char *path, struct key *keys, int max, struct stat *seen,
                  struct err *e) MUST_CHECK;

/* The same of the content of a file, which path names in messages. */
int key_file_parse(const char *path, const char *text, size_t size, struct key *keys,
                   int max, struct err *e) MUST_CHECK;

/* Make a new file of one key, with mode 0600, in folders that get mode 0700 if they are
 * missing. Never replaces a file. */
int key_file_create(const char *path, const struct key *k, struct err *e) MUST_CHECK;

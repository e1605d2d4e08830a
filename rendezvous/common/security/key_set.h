/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "rendezvous/common/security/key.h"

/*
 * The keys of a file or of a folder of files, as they were when they were read. Not
 * changed after that.
 */
struct key_set_entry {
    struct key key;
    unsigned order; /* in the file, or over all files */
    unsigned file;  /* index of its file's name */
};

struct key_set {
    bool is_folder, is_text;       /* is_text: of no file */
    struct stat seen;              /* the file, or the folder */
    struct key_set_entry *entries; /* in memory for secrets */
    size_t count, room;
    const struct key_set_entry **by_id;
    char (*names)[PEER_OWNER_MAX + 1]; /* of the files in a folder */
    struct stat *names_seen;
    size_t name_count;
};

/* NULL: e names the file and what to do. */
struct key_set *key_set_read(const char *path, bool is_folder,
                             struct err *e) MUST_CHECK;
/* Of a text in the place of a file, which `name` names in messages. */
struct key_set *key_set_of_text(const char *name, const char *text,
                                struct err *e) MUST_CHECK;
void key_set_destroy(struct key_set *s); /* NULL is fine */

/* Whether the files are still those that were read, as far as stat tells. */
bool key_set_is_current(const struct key_set *s, const char *path);

const struct key_set_entry *key_set_find(const struct key_set *s, const char *id);
/* The name of the entry's file in a folder, else "". */
const char *key_set_file(const struct key_set *s, const struct key_set_entry *entry);

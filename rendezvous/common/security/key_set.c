/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key_set.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_file.h"
#include "rendezvous/common/security/key_memory.h"
#include "rendezvous/common/security/limits.h"

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
           a->st_size == b->st_size && a->st_mode == b->st_mode &&
           a->st_uid == b->st_uid && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int compare_entries(const void *a, const void *b)
{
    const struct key_set_entry *const *x = a, *const *y = b;

    return strcmp((*x)->key.id, (*y)->key.id);
}

static int key_set_grow(struct key_set *s, size_t more, struct err *e)
{
    size_t room = s->room ? 2 * s->room : KEYS_PER_FILE_MAX;
    struct key_set_entry *entries;

    if (s->count + more <= s->room)
        return 0;
    while (room < s->count + more)
        room *= 2;
    entries = key_memory_create(room * sizeof(*entries), e);
    if (!entries)
        return -1;
    if (s->count)
        memcpy(entries, s->entries, s->count * sizeof(*entries));
    key_memory_destroy(s->entries, s->room * sizeof(*entries));
    s->entries = entries;
    s->room = room;
    return 0;
}

/* text NULL: the content of the file at path. */
static int key_set_add_file(struct key_set *s, const char *path, const char *text,
                            unsigned file, struct stat *seen, struct err *e)
{
    const size_t size = KEYS_PER_FILE_MAX * sizeof(struct key);
    struct key *keys = key_memory_create(size, e);
    int n;

    if (!keys)
        return -1;
    n = text ? key_file_parse(path, text, strlen(text), keys, KEYS_PER_FILE_MAX, e)
             : key_file_read(path, keys, KEYS_PER_FILE_MAX, seen, e);
    if (n > 0 && key_set_grow(s, (size_t)n, e) < 0)
        n = -1;
    for (int i = 0; i < n; i++) {
        struct key_set_entry *entry = &s->entries[s->count];

        /* member by member: a whole one would be put together on the stack */
        entry->key = keys[i];
        entry->order = (unsigned)s->count++;
        entry->file = file;
    }
    key_memory_destroy(keys, size);
    return n < 0 ? -1 : 0;
}

/* Hidden files are none: "..data" of Kubernetes, an editor's. */
static int is_key_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int key_set_add_names(struct key_set *s, const char *path, struct dirent **list,
                             int n, struct err *e)
{
    char file[PATH_MAX];

    if (n > KEY_FILES_MAX)
        return err_set(e, "%s has more than %d files", path, KEY_FILES_MAX);
    s->names = xcalloc((size_t)n + 1, sizeof(*s->names));
    s->names_seen = xcalloc((size_t)n + 1, sizeof(*s->names_seen));
    for (int i = 0; i < n; i++) {
        if (strlen(list[i]->d_name) > PEER_OWNER_MAX)
            return err_set(e, "%s/%s: the name is longer than %d bytes", path,
                           list[i]->d_name, PEER_OWNER_MAX);
        snprintf(s->names[i], sizeof(s->names[i]), "%s", list[i]->d_name);
        snprintf(file, sizeof(file), "%s/%s", path, list[i]->d_name);
        if (key_set_add_file(s, file, NULL, (unsigned)i, &s->names_seen[i], e) < 0)
            return -1;
        s->name_count++;
    }
    return 0;
}

static int key_set_add_folder(struct key_set *s, const char *path, struct err *e)
{
    struct dirent **list;
    int rc, n = scandir(path, &list, is_key_name, alphasort);

    if (n < 0)
        return err_set_errno(e, errno, "%s", path);
    rc = key_set_add_names(s, path, list, n, e);
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
    return rc;
}

/* Two files may not have the same key: a job belongs to one of them. */
static int key_set_check_ids(const struct key_set *s, const char *path, struct err *e)
{
    for (size_t i = 1; i < s->count; i++)
        if (compare_entries(&s->by_id[i - 1], &s->by_id[i]) == 0)
            return err_set(e, "%s: %s and %s have the same key %s", path,
                           s->names[s->by_id[i - 1]->file], s->names[s->by_id[i]->file],
                           s->by_id[i]->key.id);
    return 0;
}

/* The entries stay where they are: qsort would copy them into memory of its own. */
static void key_set_sort(struct key_set *s)
{
    s->by_id = xcalloc(s->count + 1, sizeof(const struct key_set_entry *));
    for (size_t i = 0; i < s->count; i++)
        s->by_id[i] = &s->entries[i];
    qsort(s->by_id, s->count, sizeof(const struct key_set_entry *), compare_entries);
}

struct key_set *key_set_read(const char *path, bool is_folder, struct err *e)
{
    struct key_set *s = xcalloc(1, sizeof(*s));
    int rc;

    s->is_folder = is_folder;
    if (!is_folder)
        rc = key_set_add_file(s, path, NULL, 0, &s->seen, e);
    else if (stat(path, &s->seen) < 0)
        rc = err_set_errno(e, errno, "%s", path);
    else
        rc = key_set_add_folder(s, path, e);
    if (rc == 0)
        key_set_sort(s);
    if (rc == 0 && key_set_check_ids(s, path, e) == 0)
        return s;
    key_set_destroy(s);
    return NULL;
}

struct key_set *key_set_of_text(const char *name, const char *text, struct err *e)
{
    struct key_set *s = xcalloc(1, sizeof(*s));

    s->is_text = true;
    if (key_set_add_file(s, name, text, 0, NULL, e) == 0) {
        key_set_sort(s);
        return s;
    }
    key_set_destroy(s);
    return NULL;
}

void key_set_destroy(struct key_set *s)
{
    if (!s)
        return;
    key_memory_destroy(s->entries, s->room * sizeof(*s->entries));
    free(s->by_id);
    free(s->names);
    free(s->names_seen);
    free(s);
}

bool key_set_is_current(const struct key_set *s, const char *path)
{
    char file[PATH_MAX];
    struct stat now;

    if (s->is_text)
        return true;
    if (stat(path, &now) < 0 || !is_same_file(&now, &s->seen))
        return false;
    for (size_t i = 0; i < s->name_count; i++) {
        snprintf(file, sizeof(file), "%s/%s", path, s->names[i]);
        if (stat(file, &now) < 0 || !is_same_file(&now, &s->names_seen[i]))
            return false;
    }
    return true;
}

const struct key_set_entry *key_set_find(const struct key_set *s, const char *id)
{
    const struct key_set_entry **found, *wanted;
    struct key_set_entry like = { .order = 0 };

    snprintf(like.key.id, sizeof(like.key.id), "%s", id);
    wanted = &like;
    found = bsearch(&wanted, s->by_id, s->count, sizeof(wanted), compare_entries);
    return found ? *found : NULL;
}

const char *key_set_file(const struct key_set *s, const struct key_set_entry *entry)
{
    return s->is_folder ? s->names[entry->file] : "";
}

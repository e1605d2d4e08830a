/* SPDX-License-Identifier: MIT */
#include "launcher/python.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/file_search.h"
#include "rendezvous/base/xalloc.h"

#define LINKS_MAX 8

bool python_is_torchrun(const char *self)
{
    const char *slash = self ? strrchr(self, '/') : NULL;

    return self && strcmp(slash ? slash + 1 : self, "torchrun") == 0;
}

/* FOLDER/name, where file is FOLDER/...; the caller frees it. */
static char *path_beside(const char *file, const char *name)
{
    const char *slash = strrchr(file, '/');

    return xasprintf("%.*s%s", slash ? (int)(slash + 1 - file) : 0, file, name);
}

static bool has_beside(const char *file, const char *name)
{
    char *path = path_beside(file, name);
    bool has = access(path, F_OK) == 0;

    free(path);
    return has;
}

/* The folder of file is that of the programs of a virtual environment. */
static bool is_in_environment(const char *file)
{
    return has_beside(file, "../pyvenv.cfg") || has_beside(file, "../conda-meta");
}

/* The target of a symbolic link, or NULL; the caller frees it. */
static char *read_link(const char *path)
{
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof(target) - 1);

    if (length <= 0)
        return NULL;
    target[length] = '\0';
    return *target == '/' ? xstrdup(target) : path_beside(path, target);
}

/* The path of crun as it was called; the caller frees it. NULL: not known. */
static char *find_self(const struct python_hints *h)
{
    struct file_search s = { .name = h->self, .mode = X_OK };

    if (!h->self || !*h->self)
        return NULL;
    if (strchr(h->self, '/'))
        return xstrdup(h->self);
    file_search_try_path(&s, h->path);
    file_search_release(&s);
    return s.found;
}

/*
 * Tries the python3 beside crun if that is an environment's. The name with which crun
 * was called is often a link in an environment, or a link to one: each link is looked
 * at, since the file at the end is where crun is installed.
 */
static void try_environment(struct file_search *s, char *self)
{
    for (int links = 0; self && !s->found && links < LINKS_MAX; links++) {
        char *next;

        if (is_in_environment(self))
            file_search_try(s, path_beside(self, "python3"));
        next = read_link(self);
        free(self);
        self = next;
    }
    free(self);
}

static char *find_python_exec(const struct python_hints *h, struct err *e)
{
    struct file_search s = { .name = h->exec, .mode = X_OK };
    bool is_path = strchr(h->exec, '/');

    if (is_path)
        file_search_try(&s, xstrdup(h->exec));
    else
        file_search_try_path(&s, h->path);
    if (!s.found)
        (void)err_set(e, "PYTHON_EXEC: %s is not a program%s", h->exec,
                      is_path ? "" : " of PATH");
    file_search_release(&s);
    return s.found;
}

char *python_find(const struct python_hints *h, const char *program, struct err *e)
{
    struct file_search s = { .name = "python3", .mode = X_OK };
    char *self;

    if (h->exec && *h->exec)
        return find_python_exec(h, e);
    self = find_self(h);
    if (self) {
        try_environment(&s, xstrdup(self));
        if (python_is_torchrun(self))
            file_search_try(&s, path_beside(self, "python3"));
        free(self);
    }
    file_search_try_path(&s, h->path);
    if (!s.found)
        (void)err_set(e,
                      "%s needs python3, which is not in PATH (PYTHON_EXEC names "
                      "another)",
                      program);
    file_search_release(&s);
    return s.found;
}

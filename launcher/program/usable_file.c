/* SPDX-License-Identifier: MIT */
#include "launcher/program/usable_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rendezvous/common/base/xalloc.h"

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

/* A folder that Python runs. */
static bool has_main(const char *folder)
{
    char *path = xasprintf("%s/__main__.py", folder);
    bool has = access(path, R_OK) == 0;

    free(path);
    return has;
}

/* 0, or the errno of why path cannot be used.
 * An unreadable folder of PATH counts as missing. */
static int file_unfitness(const struct usable_file *s, const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == EACCES && !strchr(s->name, '/') ? ENOENT : errno;
    if (S_ISDIR(st.st_mode) && (s->mode != R_OK || !has_main(path)))
        return EISDIR;
    return access(path, s->mode) < 0 ? errno : 0;
}

void usable_file_try(struct usable_file *s, char *path)
{
    int why = s->found ? ENOENT : file_unfitness(s, path);

    if (why == 0) {
        s->found = path;
        return;
    }
    if (why != ENOENT && why != ENOTDIR && !s->unfit) {
        s->unfit = path;
        s->unfit_errno = why;
        return;
    }
    free(path);
}

void usable_file_try_path(struct usable_file *s, const char *path)
{
    for (path = path ? path : DEFAULT_PATH; !s->found; path++) {
        int length = (int)strcspn(path, ":");

        /* an empty entry is the working directory */
        usable_file_try(
            s, xasprintf("%.*s%s%s", length, path, length ? "/" : "./", s->name));
        path += length;
        if (*path == '\0')
            return;
    }
}

int usable_file_refuse(const struct usable_file *s, const char *looked, struct err *e)
{
    if (!s->unfit)
        return err_set(e, "%s: no such file%s", s->name, looked);
    if (s->unfit_errno == EISDIR)
        return err_set(e, "%s is a directory", s->unfit);
    if (s->unfit_errno == EACCES && s->mode == X_OK && access(s->unfit, F_OK) == 0)
        return err_set(e, "%s is not executable (chmod +x)", s->unfit);
    return err_set_errno(e, s->unfit_errno, "%s", s->unfit);
}

void usable_file_release(struct usable_file *s)
{
    free(s->unfit);
    s->unfit = NULL;
}

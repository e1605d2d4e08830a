/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key_search.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* 1 or 0; -1 if it cannot be told, because no connection may be plain by mistake. */
static int key_file_exists(const char *path, struct err *e)
{
    struct stat st;

    if (lstat(path, &st) == 0)
        return 1;
    if (errno == ENOENT || errno == ENOTDIR)
        return 0;
    return err_set_errno(e, errno, "%s", path);
}

bool key_search_home(char *path, size_t size)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (config && *config == '/')
        snprintf(path, size, "%s/crun/key", config);
    else if (home && *home == '/')
        snprintf(path, size, "%s/.config/crun/key", home);
    else
        return false;
    return true;
}

int key_search(const char *named, char *path, size_t size, struct err *e)
{
    const char *credentials = getenv("CREDENTIALS_DIRECTORY");
    int found = 0;

    if (named) {
        snprintf(path, size, "%s", named);
        return 1;
    }
    if (credentials && *credentials == '/') {
        snprintf(path, size, "%s/crun.key", credentials);
        found = key_file_exists(path, e);
    }
    if (found == 0 && key_search_home(path, size))
        found = key_file_exists(path, e);
    return found;
}

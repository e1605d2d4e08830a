/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/run_tmpdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz0123456789"
#define DEPTH 3 /* the run, its attempts, their ranks */
#define RANDOM_AT_ONCE 16

void run_tmpdir_random(char *letters, size_t count)
{
    unsigned char byte[RANDOM_AT_ONCE] = { 0 };

    while (getrandom(byte, sizeof(byte), 0) < 0 && errno == EINTR)
        ;
    for (size_t i = 0; i < count; i++)
        letters[i] = LETTERS[byte[i % sizeof(byte)] % (sizeof(LETTERS) - 1)];
    letters[count] = '\0';
}

const char *run_tmpdir_tag(void)
{
    static char tag[RUN_TMPDIR_TAG_LEN + 1];

    if (!*tag)
        run_tmpdir_random(tag, RUN_TMPDIR_TAG_LEN);
    return tag;
}

static const char *own_tmpdir(void)
{
    const char *tmp = getenv("TMPDIR");

    return tmp && *tmp ? tmp : "/tmp";
}

char *run_tmpdir_path(const char *tag)
{
    return xasprintf("%s/crun_%s", own_tmpdir(), tag);
}

char *run_tmpdir_parent(void)
{
    return realpath(own_tmpdir(), NULL);
}

void run_tmpdir_make(void)
{
    char *path = run_tmpdir_path(run_tmpdir_tag());

    if (mkdir(path, 0700) < 0)
        log_debug("%s: %s", path, strerror(errno));
    free(path);
}

void run_tmpdir_remove_at(int parent, const char *name, int depth, bool with_files)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (dir && depth > 0 && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !(with_files && unlinkat(fd, entry->d_name, 0) == 0))
            run_tmpdir_remove_at(fd, entry->d_name, depth - 1, with_files);
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    unlinkat(parent, name, AT_REMOVEDIR);
}

static bool is_our_folder(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

void run_tmpdir_remove_empty_below(const char *parent, const char *tag)
{
    char *path;

    if (strlen(tag) != RUN_TMPDIR_TAG_LEN || strspn(tag, LETTERS) != RUN_TMPDIR_TAG_LEN)
        return;
    path = xasprintf("%s/crun_%s", parent, tag);
    if (is_our_folder(path))
        run_tmpdir_remove_at(AT_FDCWD, path, DEPTH, false);
    free(path);
}

void run_tmpdir_remove_empty(const char *tag)
{
    run_tmpdir_remove_empty_below(own_tmpdir(), tag);
}

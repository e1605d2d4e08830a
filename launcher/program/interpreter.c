/* SPDX-License-Identifier: MIT */
#include "launcher/program/interpreter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/program/usable_file.h"
#include "rendezvous/common/base/xalloc.h"

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
    struct usable_file s = { .name = h->self, .mode = X_OK };

    if (!h->self || !*h->self)
        return NULL;
    if (strchr(h->self, '/'))
        return xstrdup(h->self);
    usable_file_try_path(&s, h->path);
    usable_file_release(&s);
    return s.found;
}

/*
 * Tries the python3 beside crun if that is an environment's. The name with which crun
 * was called is often a link in an environment, or a link to one: each link is looked
 * at, since the file at the end is where crun is installed.
 */
static void try_environment(struct usable_file *s, char *self)
{
    for (int links = 0; self && !s->found && links < LINKS_MAX; links++) {
        char *next;

        /* a program of a virtual environment */
        if (has_beside(self, "../pyvenv.cfg") || has_beside(self, "../conda-meta"))
            usable_file_try(s, path_beside(self, "python3"));
        next = read_link(self);
        free(self);
        self = next;
    }
    free(self);
}

static char *find_python_exec(const struct python_hints *h, struct err *e)
{
    struct usable_file s = { .name = h->exec, .mode = X_OK };
    bool is_path = strchr(h->exec, '/');

    if (is_path)
        usable_file_try(&s, xstrdup(h->exec));
    else
        usable_file_try_path(&s, h->path);
    if (!s.found)
        (void)err_set(e, "PYTHON_EXEC: %s is not a program%s", h->exec,
                      is_path ? "" : " of PATH");
    usable_file_release(&s);
    return s.found;
}

char *python_find(const struct python_hints *h, const char *program, struct err *e)
{
    struct usable_file s = { .name = "python3", .mode = X_OK };
    char *self;

    if (h->exec && *h->exec)
        return find_python_exec(h, e);
    self = find_self(h);
    if (self) {
        try_environment(&s, xstrdup(self));
        if (python_is_torchrun(self))
            usable_file_try(&s, path_beside(self, "python3"));
        free(self);
    }
    usable_file_try_path(&s, h->path);
    if (!s.found)
        (void)err_set(e,
                      "%s needs python3, which is not in PATH (PYTHON_EXEC names "
                      "another)",
                      program);
    usable_file_release(&s);
    return s.found;
}

/* -- scripts that stand for an interpreter ----------------------------------------- */

bool python_is_script(const char *path)
{
    char start[2] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool found = fd >= 0 && read(fd, start, sizeof(start)) == sizeof(start) &&
                 memcmp(start, "#!", sizeof(start)) == 0;

    if (fd >= 0)
        close(fd);
    return found;
}

static pid_t start_asking(const char *script, int answer)
{
    extern char **environ;
    char *argv[] = { (char *)script, (char *)"-c",
                     (char *)"import sys; sys.stdout.write(sys.executable)", NULL };
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, answer, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, script, &actions, NULL, argv, environ) != 0)
        pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

/* Whether the program wrote a path into the pipe and ended with 0. Closes the pipe. */
static bool read_answer(int pipe, pid_t pid, char *path, size_t size)
{
    size_t length = 0;
    ssize_t n;
    int status;

    while ((n = TEMP_FAILURE_RETRY(read(pipe, path + length, size - 1 - length))) > 0)
        length += (size_t)n;
    path[length] = '\0';
    close(pipe); /* a program that writes more must not wait for a reader */
    return TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) == pid && status == 0 &&
           *path == '/' && access(path, X_OK) == 0 && !python_is_script(path);
}

char *python_behind_shim(const char *script)
{
    char path[PATH_MAX];
    const char *name = strrchr(script, '/');
    int answer[2];
    bool found = false;
    pid_t pid;

    if (!name || name - script < 6 || strncmp(name - 6, "/shims", 6) != 0 ||
        pipe2(answer, O_CLOEXEC) < 0)
        return NULL;
    pid = start_asking(script, answer[1]);
    close(answer[1]);
    if (pid > 0)
        found = read_answer(answer[0], pid, path, sizeof(path));
    else
        close(answer[0]);
    return found ? xstrdup(path) : NULL;
}

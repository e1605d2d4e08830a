/* SPDX-License-Identifier: MIT */
#include "launcher/remote/push.h"

#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/sha256.h"

#define SMALL_FILE_BYTES 65536

/* -- the files --------------------------------------------------------------------- */

static void add_push_file(struct push *p, const char *path, char *name)
{
    p->file = xrealloc(p->file, (p->count + 1) * sizeof(*p->file));
    p->file[p->count++] = (struct push_file){ .path = xstrdup(path), .name = name };
}

/* Libraries of the system's C library fit only the system that they are from. */
static bool is_system_library(const char *name)
{
    static const char *const names[] = { "libc.so",       "libm.so",   "ld-linux",
                                         "libpthread.so", "libdl.so",  "librt.so",
                                         "linux-vdso",    "linux-gate" };

    for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static int on_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *name = strrchr(info->dlpi_name, '/');

    if (name && !is_system_library(name + 1))
        add_push_file(arg, info->dlpi_name, xasprintf("lib/crun%s", name));
    return 0;
}

/* What Python workers import: the far side's crun finds it as this one does. */
static void add_python_files(struct push *p)
{
    int folder = (int)(strrchr(p->self, '/') - p->self);
    char *pattern = xasprintf("%.*s/../{lib,share}/crun/python/{bootstrap,crun,for_jax}"
                              "/*.py",
                              folder, p->self);
    glob_t found;

    if (glob(pattern, GLOB_BRACE, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *path = found.gl_pathv[i];

            add_push_file(p, path,
                          xasprintf("lib%s", strstr(path + folder, "/crun/python/")));
        }
        globfree(&found);
    }
    free(pattern);
}

int push_init(struct push *p, struct err *e)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    *p = (struct push){ .self = NULL };
    if (n < 0)
        return err_set_errno(e, errno, "/proc/self/exe");
    path[n] = '\0';
    p->self = xstrdup(path);
    add_push_file(p, "/proc/self/exe", xstrdup("bin/crun"));
    dl_iterate_phdr(on_library, p);
    add_python_files(p);
    return 0;
}

void push_fini(struct push *p)
{
    for (unsigned i = 0; i < p->count; i++) {
        free(p->file[i].path);
        free(p->file[i].name);
    }
    free(p->file);
    free(p->self);
    free(p->digest);
    *p = (struct push){ .self = NULL };
}

static void format_digest(struct sha256 *h, char hex[65])
{
    uint8_t digest[SHA256_BYTES];

    sha256_finish(h, digest);
    for (unsigned i = 0; i < sizeof(digest); i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static int digest_file(struct push_file *f, struct err *e)
{
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    struct sha256 h;
    char data[65536];
    ssize_t n;

    if (fd < 0)
        return err_set_errno(e, errno, "%s", f->path);
    sha256_init(&h);
    f->size = 0;
    while ((n = read(fd, data, sizeof(data))) > 0) {
        sha256_add(&h, data, (size_t)n);
        f->size += (size_t)n;
    }
    close(fd);
    if (n < 0)
        return err_set_errno(e, errno, "%s", f->path);
    format_digest(&h, f->sha256);
    return 0;
}

static int push_digest(struct push *p, struct err *e)
{
    struct sha256 all;
    char hex[65];

    if (p->digest)
        return 0;
    sha256_init(&all);
    for (unsigned i = 0; i < p->count; i++) {
        if (digest_file(&p->file[i], e) < 0)
            return -1;
        sha256_add(&all, p->file[i].sha256, 64);
    }
    format_digest(&all, hex);
    p->digest = xstrdup(hex);
    return 0;
}

/* A copy of a small file needs no descriptor while it waits for its host. */
static int add_small_file(struct evbuffer *out, int fd, size_t left)
{
    int n = 1;

    while (left > 0 && (n = evbuffer_read(out, fd, (int)left)) > 0)
        left -= (size_t)n;
    close(fd);
    return left > 0 ? -1 : 0;
}

int push_add_files(const struct push *p, struct evbuffer *out, struct err *e)
{
    for (unsigned i = 0; i < p->count; i++) {
        int fd = open(p->file[i].path, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
            return err_set_errno(e, errno, "%s", p->file[i].path);
        if (p->file[i].size <= SMALL_FILE_BYTES) {
            if (add_small_file(out, fd, p->file[i].size) < 0)
                return err_set(e, "%s: it cannot be read", p->file[i].path);
        } else if (evbuffer_add_file(out, fd, 0, (ev_off_t)p->file[i].size) < 0) {
            close(fd);
            return err_set(e, "%s: it cannot be read", p->file[i].path);
        }
    }
    return 0;
}

/* -- the commands ------------------------------------------------------------------ */

char *push_quote(const char *text)
{
    char *quoted = xmalloc(4 * strlen(text) + 3), *to = quoted;

    *to++ = '\'';
    for (; *text; text++)
        if (*text == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *text;
    strcpy(to, "'");
    return quoted;
}

char *push_first_command(const struct push *p)
{
    char *path = push_quote(p->self);
    char *command = xasprintf(
        "echo '%.*s'; if [ -x %s ]; then exec %s --agent-stdin; fi; "
        "echo '%.*s'\n",
        (int)strlen(PUSH_SHELL_MARK) - 1, PUSH_SHELL_MARK, path, path,
        (int)strlen(PUSH_ABSENT_MARK) - 1, PUSH_ABSENT_MARK);

    free(path);
    return command;
}

/* Takes one file from standard input; fails if it is not complete. */
static char *receive_command(const struct push_file *f)
{
    return xasprintf("mkdir -p \"$t/%.*s\" && head -c %zu > \"$t/%s\" && [ $(wc -c < "
                     "\"$t/%s\") -eq %zu ] && "
                     "{ ! command -v sha256sum > /dev/null || "
                     "echo '%s' \"*$t/%s\" | sha256sum -c > /dev/null; } && ",
                     (int)(strrchr(f->name, '/') - f->name), f->name, f->size, f->name,
                     f->name, f->size, f->sha256, f->name);
}

/* Whoever can write into the folder of copies could exchange one before it runs, so
 * that folder is looked at first. Another launcher may have put its copy there
 * meanwhile: then that one is used. */
char *push_second_command(struct push *p, struct err *e)
{
    char *receive = xstrdup(""), *command;

    if (push_digest(p, e) < 0) {
        free(receive);
        return NULL;
    }
    for (unsigned i = 0; i < p->count; i++) {
        char *one = receive_command(&p->file[i]),
             *both = xasprintf("%s%s", receive, one);

        free(one);
        free(receive);
        receive = both;
    }
    command = xasprintf(
        "c=${XDG_CACHE_HOME:-$HOME/.cache}/crun; d=$c/%s; t=$d.$$; umask 077; "
        "mkdir -p \"$c\" || exit 1; [ -O \"$c\" ]; case $?$(ls -ldL \"$c\") in "
        "0d????[-]??[-]*) ;; *) echo \"$c is not yours alone: set XDG_CACHE_HOME "
        "there\" >&2; exit 1 ;; esac; "
        "start() { \"$d/bin/crun\" --version > /dev/null 2>&1 || { " PUSH_LIBRARIES
        "=$d/lib/crun; export " PUSH_LIBRARIES "; "
        "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$" PUSH_LIBRARIES "; "
        "export LD_LIBRARY_PATH; }; exec \"$d/bin/crun\" --agent-stdin; }; "
        "if [ -x \"$d/bin/crun\" ]; then start; fi; "
        "rm -rf \"$t\"; if mkdir \"$t\"; then echo '%.*s'; "
        "if %schmod 700 \"$t/bin/crun\"; then "
        "mv -T \"$t\" \"$d\" 2> /dev/null || { [ -x \"$d/bin/crun\" ] || "
        "mv \"$t\" \"$d\"; }; rm -rf \"$t\"; start; fi; rm -rf \"$t\"; "
        "echo \"crun could not be copied to $d\" >&2; fi; exit 1\n",
        p->digest, (int)strlen(PUSH_WANTED_MARK) - 1, PUSH_WANTED_MARK, receive);
    free(receive);
    return command;
}

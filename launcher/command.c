/* SPDX-License-Identifier: MIT */
/*
 * Finds the file of a command line's program. A Python program is looked up in the
 * working directory first, as the interpreter does, then in PATH; any other program in
 * PATH, as a shell does. The last place is crun's own folder, so that a build tree
 * works without being installed.
 */
#include "launcher/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/xalloc.h"

#define PREFIX_MAX 6 /* preflight, python -u -c CODE, the file, --local-rank */
#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

/* torchrun runs the program by runpy in its own process; the program's folder is not on
 * sys.path there either. */
static const char run_path_code[] = "import runpy, sys; sys.argv = sys.argv[1:]; "
                                    "runpy.run_path(sys.argv[0], run_name='__main__')";

/* The search for one file, and the first file of that name that cannot be used. */
struct search {
    const char *name;
    int mode;    /* R_OK or X_OK */
    char *found; /* or NULL */
    char *unfit; /* the path of a file that cannot be used */
    int unfit_errno;
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);

    return length > n && strcmp(text + length - n, end) == 0;
}

static bool is_python(const char *name)
{
    return ends_with(name, ".py") || ends_with(name, ".pyc") || ends_with(name, ".pyz");
}

/* 0, or the errno of why path cannot be used.
 * An unreadable folder of PATH counts as missing. */
static int file_unfitness(const struct search *s, const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == EACCES && !strchr(s->name, '/') ? ENOENT : errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    return access(path, s->mode) < 0 ? errno : 0;
}

/* Takes ownership of path. */
static void try_file(struct search *s, char *path)
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

static void try_path_folders(struct search *s, const char *path)
{
    for (path = path ? path : DEFAULT_PATH; !s->found; path++) {
        int length = (int)strcspn(path, ":");

        /* an empty entry is the working directory */
        try_file(s, xasprintf("%.*s%s%s", length, path, length ? "/" : "./", s->name));
        path += length;
        if (*path == '\0')
            return;
    }
}

static int refuse_file(const struct search *s, const char *looked, struct err *e)
{
    if (!s->unfit)
        return err_set(e, "%s: no such file%s", s->name, looked);
    if (s->unfit_errno == EISDIR)
        return err_set(e, "%s is a directory", s->unfit);
    if (s->unfit_errno == EACCES && s->mode == X_OK && access(s->unfit, F_OK) == 0)
        return err_set(e, "%s is not executable (chmod +x; Python programs end in .py)",
                       s->unfit);
    return err_set_errno(e, s->unfit_errno, "%s", s->unfit);
}

static const char *looked_in(const char *name, bool script)
{
    if (strchr(name, '/'))
        return "";
    if (script)
        return " (looked in the working directory, in PATH and in crun's folder)";
    if (access(name, F_OK) == 0)
        return " (looked in PATH and in crun's folder; \"./\" before the name means "
               "this folder)";
    return " (looked in PATH and in crun's folder)";
}

/* The path of the file that name means; the caller frees it. NULL with e. */
static char *find_file(const struct command *c, const char *name, bool python,
                       struct err *e)
{
    struct search s = { .name = name, .mode = python ? R_OK : X_OK };
    bool script = is_python(name);

    if (strchr(name, '/') || script)
        try_file(&s, xstrdup(name));
    if (!strchr(name, '/')) {
        /* execve does not search: a file of the working directory needs "./" */
        if (s.found && !python) {
            free(s.found);
            s.found = xasprintf("./%s", name);
        }
        try_path_folders(&s, c->path);
        if (c->beside)
            try_file(&s, xasprintf("%s/%s", c->beside, name));
    }
    if (!s.found)
        (void)refuse_file(&s, looked_in(name, script), e);
    free(s.unfit);
    return s.found;
}

/* The path of the interpreter; the caller frees it. */
static char *find_python(const struct command *c, const char *program, struct err *e)
{
    const char *name = c->python && *c->python ? c->python : "python3";
    struct search s = { .name = name, .mode = X_OK };

    if (strchr(name, '/'))
        try_file(&s, xstrdup(name));
    else
        try_path_folders(&s, c->path);
    if (!s.found && name == c->python)
        (void)err_set(e, "PYTHON_EXEC: %s is not a program%s", name,
                      strchr(name, '/') ? "" : " of PATH");
    else if (!s.found)
        (void)err_set(e,
                      "%s needs python3, which is not in PATH (PYTHON_EXEC names "
                      "another)",
                      program);
    free(s.unfit);
    return s.found;
}

static size_t count_words(const char *const *list)
{
    size_t n = 0;

    while (list[n])
        n++;
    return n;
}

/* Both lists in one, NULL-ended; the array and its texts are one allocation. */
static const char **join_words(const char *const *first, const char *const *second)
{
    const char *const *const lists[] = { first, second };
    size_t slots = count_words(first) + count_words(second) + 1, bytes = 0, used = 0;
    const char **joined;
    char *text;

    for (unsigned l = 0; l < 2; l++)
        for (const char *const *w = lists[l]; *w; w++)
            bytes += strlen(*w) + 1;
    joined = xmalloc(slots * sizeof(*joined) + bytes);
    text = (char *)(joined + slots);
    for (unsigned l = 0; l < 2; l++)
        for (const char *const *w = lists[l]; *w; w++) {
            joined[used++] = text;
            text = stpcpy(text, *w) + 1;
        }
    joined[used] = NULL;
    return joined;
}

/* Fills prefix, all words before the arguments, NULL-ended. The caller frees *file and
 * *python. */
static int find_program(const struct command *c, const char *program,
                        const char *prefix[PREFIX_MAX + 2], char **file, char **python,
                        struct err *e)
{
    bool interpreted = c->module || c->run_path ||
                       (is_python(program) && !c->no_python);
    unsigned n = 0;

    if (c->before)
        prefix[n++] = c->before;
    if (!c->module) {
        *file = find_file(c, program, interpreted, e);
        if (!*file)
            return -1;
    }
    if (interpreted) {
        *python = find_python(c, program, e);
        if (!*python)
            return -1;
        prefix[n++] = *python;
        prefix[n++] = "-u";
    }
    if (c->run_path) {
        prefix[n++] = "-c";
        prefix[n++] = run_path_code;
    } else if (c->module) {
        prefix[n++] = "-m";
    }
    prefix[n++] = c->module ? program : *file;
    if (c->local_rank_argument)
        prefix[n++] = "--local-rank=${local_rank}";
    prefix[n] = NULL;
    return 0;
}

const char **command_find(const struct command *c, const char *const *words,
                          struct err *e)
{
    const char *prefix[PREFIX_MAX + 2], **argv = NULL;
    char *file = NULL, *python = NULL;

    if (c->module && (c->no_python || c->run_path))
        (void)err_set(e, "--module and --%s exclude each other",
                      c->run_path ? "run-path" : "no-python");
    else if (!*words[0])
        (void)err_set(e, "the program's name is empty");
    else if (find_program(c, words[0], prefix, &file, &python, e) == 0)
        argv = join_words(prefix, words + 1);
    free(file);
    free(python);
    return argv;
}

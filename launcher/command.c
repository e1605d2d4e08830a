/* SPDX-License-Identifier: MIT */
/*
 * Finds the file of a command line's program. A Python program is looked up in the
 * working directory first, as the interpreter does, then in PATH; any other program in
 * PATH, as a shell does. The last place is crun's own folder, so that a build tree
 * works without being installed. Called as torchrun, crun looks only where torchrun
 * does.
 */
#include "launcher/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/file_search.h"
#include "launcher/python.h"
#include "rendezvous/base/xalloc.h"

#define PREFIX_MAX 6 /* preflight, python -u -c CODE, the file, --local-rank */

/* torchrun runs the program by runpy in its own process; the program's folder is not on
 * sys.path there either. */
static const char run_path_code[] = "import runpy, sys; sys.argv = sys.argv[1:]; "
                                    "runpy.run_path(sys.argv[0], run_name='__main__')";

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);

    return length > n && strcmp(text + length - n, end) == 0;
}

static bool is_python_name(const char *name)
{
    return ends_with(name, ".py") || ends_with(name, ".pyc") || ends_with(name, ".pyz");
}

static bool is_torchrun(const struct command *c)
{
    return python_is_torchrun(c->hints.self);
}

static const char *looked_in(const struct command *c, const char *name, bool python)
{
    bool script = is_python_name(name);

    if (strchr(name, '/'))
        return "";
    if (is_torchrun(c))
        return python ? " (looked in the working directory)" : " (looked in PATH)";
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
    struct file_search s = { .name = name, .mode = python ? R_OK : X_OK };
    bool torchrun = is_torchrun(c);

    if (strchr(name, '/') || is_python_name(name) || (torchrun && python))
        file_search_try(&s, xstrdup(name));
    if (!strchr(name, '/')) {
        /* execve does not search: a file of the working directory needs "./" */
        if (s.found && !python) {
            free(s.found);
            s.found = xasprintf("./%s", name);
        }
        if (!torchrun || !python)
            file_search_try_path(&s, c->hints.path);
        if (c->beside && !torchrun)
            file_search_try(&s, xasprintf("%s/%s", c->beside, name));
    }
    if (!s.found)
        (void)file_search_refuse(&s, looked_in(c, name, python), e);
    file_search_release(&s);
    return s.found;
}

static enum program_kind program_kind(const struct command *c, const char *name)
{
    if (c->run_path)
        return PROGRAM_PYTHON_RUN_PATH;
    if (c->module)
        return PROGRAM_PYTHON_MODULE;
    if (c->no_python)
        return PROGRAM_EXECUTED;
    return is_python_name(name) || is_torchrun(c) ? PROGRAM_PYTHON_FILE
                                                  : PROGRAM_EXECUTED;
}

int command_find_program(const struct command *c, const char *const *words,
                         struct program *p, struct err *e)
{
    *p = (struct program){ .kind = program_kind(c, words[0]), .arguments = words + 1 };
    if (c->module && (c->no_python || c->run_path))
        return err_set(e, "--module and --%s exclude each other",
                       c->run_path ? "run-path" : "no-python");
    if (!*words[0])
        return err_set(e, "the program's name is empty");
    p->name = c->module ? xstrdup(words[0])
                        : find_file(c, words[0], p->kind != PROGRAM_EXECUTED, e);
    if (p->name && p->kind != PROGRAM_EXECUTED)
        p->python = python_find(&c->hints, words[0], e);
    if (p->name && (p->python || p->kind == PROGRAM_EXECUTED))
        return 0;
    program_release(p);
    return -1;
}

void program_release(struct program *p)
{
    free(p->name);
    free(p->python);
    *p = (struct program){ .kind = PROGRAM_EXECUTED };
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

const char **command_argv(const struct command *c, const struct program *p)
{
    const char *prefix[PREFIX_MAX + 2];
    unsigned n = 0;

    if (c->before)
        prefix[n++] = c->before;
    if (p->python) {
        prefix[n++] = p->python;
        prefix[n++] = "-u";
    }
    if (p->kind == PROGRAM_PYTHON_RUN_PATH) {
        prefix[n++] = "-c";
        prefix[n++] = run_path_code;
    } else if (p->kind == PROGRAM_PYTHON_MODULE) {
        prefix[n++] = "-m";
    }
    prefix[n++] = p->name;
    if (c->local_rank_argument)
        prefix[n++] = "--local-rank=${local_rank}";
    prefix[n] = NULL;
    return join_words(prefix, p->arguments);
}

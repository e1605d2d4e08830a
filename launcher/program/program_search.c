/* SPDX-License-Identifier: MIT */
/*
 * Where a command line's program is looked for: in the working directory, as a Python
 * interpreter does, then in PATH, as a shell does. The last place is crun's own folder,
 * so that a build tree works without being installed. Called as torchrun, crun looks
 * only where torchrun does.
 */
#include "launcher/program/program_search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/program/command.h"
#include "launcher/program/interpreter.h"
#include "launcher/program/usable_file.h"
#include "rendezvous/common/base/xalloc.h"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);

    return length > n && strcmp(text + length - n, end) == 0;
}

bool program_is_named_python(const char *name)
{
    return ends_with(name, ".py") || ends_with(name, ".pyc") || ends_with(name, ".pyz");
}

static bool is_torchrun(const struct command *c)
{
    return python_is_torchrun(c->hints.self);
}

/* Where a program without a slash in its name is looked for. */
enum program_places {
    PLACES_PYTHON,    /* torchrun's: the working directory */
    PLACES_EXECUTED,  /* torchrun's with --no-python: PATH, the working directory */
    PLACES_DEFAULT,   /* the working directory, PATH, crun's folder */
    PLACES_NO_PYTHON, /* PATH, the working directory, crun's folder */
};

static const char *const looked_in[] = {
    [PLACES_PYTHON] = " (looked in the working directory)",
    [PLACES_EXECUTED] = " (looked in PATH and in the working directory)",
    [PLACES_DEFAULT] = " (looked in the working directory, in PATH and in crun's "
                       "folder)",
    [PLACES_NO_PYTHON] = " (looked in PATH, in the working directory and in crun's "
                         "folder)",
};

static enum program_places program_places(const struct command *c, const char *name,
                                          bool python)
{
    if (is_torchrun(c))
        return python ? PLACES_PYTHON : PLACES_EXECUTED;
    return c->no_python && !python && !program_is_named_python(name) ? PLACES_NO_PYTHON
                                                                     : PLACES_DEFAULT;
}

/* Tries the working directory. A file there is meant, even if it cannot be used: none
 * of another place takes its place. */
static bool try_working_directory(struct usable_file *s)
{
    if (s->found)
        return true;
    usable_file_try(s, xstrdup(s->name));
    return s->found || (s->unfit && s->unfit_errno != EISDIR);
}

static void try_places(struct usable_file *s, const struct command *c,
                       enum program_places places, int mode)
{
    bool path_first = places == PLACES_EXECUTED || places == PLACES_NO_PYTHON;

    if (!path_first && (try_working_directory(s) || places == PLACES_PYTHON))
        return;
    s->mode = mode;
    usable_file_try_path(s, c->hints.path);
    if (path_first && try_working_directory(s))
        return;
    if (c->beside && !is_torchrun(c))
        usable_file_try(s, xasprintf("%s/%s", c->beside, s->name));
}

char *program_search(const struct command *c, const char *name, bool python,
                     struct err *e)
{
    bool any = !python && !c->no_python;
    int mode = python ? R_OK : X_OK;
    struct usable_file s = { .name = name, .mode = any ? F_OK : mode };
    enum program_places places = program_places(c, name, python);

    if (strchr(name, '/'))
        usable_file_try(&s, xstrdup(name));
    else
        try_places(&s, c, places, mode);
    if (!s.found)
        (void)usable_file_refuse(&s, strchr(name, '/') ? "" : looked_in[places], e);
    usable_file_release(&s);
    return s.found;
}

/* SPDX-License-Identifier: MIT */
/* What the program of a command line is, and the command that its workers execute. */
#include "launcher/program/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/program/interpreter.h"
#include "launcher/program/program_search.h"
#include "rendezvous/common/base/xalloc.h"

#define PREFIX_MAX 6 /* preflight, python -u -c CODE, the file, --local-rank */

/* torchrun runs the program by runpy in its own process; the program's folder is not on
 * sys.path there either. */
static const char run_path_code[] = "import runpy, sys; sys.argv = sys.argv[1:]; "
                                    "runpy.run_path(sys.argv[0], run_name='__main__')";

#define HEAD_SIZE 512

/* The beginning of a regular file; its length, or -1. */
static ssize_t read_head(const char *path, char head[HEAD_SIZE])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    ssize_t length = -1;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        length = read(fd, head, HEAD_SIZE - 1);
    close(fd);
    head[length > 0 ? length : 0] = '\0';
    return length;
}

/* A file without the bytes that no text has, and without the "#!" of a text for another
 * interpreter. */
static bool is_python_text(const char *path)
{
    char head[HEAD_SIZE];
    ssize_t length = read_head(path, head);

    return length >= 0 && !memchr(head, '\0', (size_t)length) &&
           (length < 2 || memcmp(head, "#!", 2) != 0);
}

/* The kernel says "No such file" of a script whose interpreter is missing. */
static int check_interpreter(const char *path, struct err *e)
{
    char head[HEAD_SIZE], *name, *end;

    if (read_head(path, head) < 2 || memcmp(head, "#!", 2) != 0)
        return 0;
    end = head + strcspn(head, "\n");
    name = head + 2 + strspn(head + 2, " \t");
    if (*end && end[-1] == '\r' && end > name &&
        (name + strcspn(name, " \t\r") == end - 1 || strstr(head, "/env "))) {
        err_set(e, "%s has Windows line ends: its first line asks for \"%.*s\\r\"",
                path, (int)(end - 1 - name), name);
        return err_set_code(e, COMMAND_BAD_INTERPRETER, 0);
    }
    name[strcspn(name, " \t\n")] = '\0';
    if (*name != '/' || access(name, F_OK) == 0)
        return 0;
    err_set_errno(e, errno, "%s asks for %s", path, name);
    return err_set_code(e, COMMAND_NO_INTERPRETER, 0);
}

/* A shell, and a script's interpreter, look for a name without a slash elsewhere. */
static void name_with_slash(struct program *p)
{
    char *path;

    if (strchr(p->name, '/'))
        return;
    path = xasprintf("./%s", p->name);
    free(p->name);
    p->name = path;
}

/* Decides what a file is that neither its name nor a flag calls Python. */
static int judge_file(struct program *p, struct err *e)
{
    if (access(p->name, X_OK) == 0) {
        name_with_slash(p);
        return check_interpreter(p->name, e);
    }
    if (!is_python_text(p->name))
        return err_set(e, "%s is not executable (chmod +x)", p->name);
    p->kind = PROGRAM_PYTHON_FILE;
    p->is_guessed = true;
    return 0;
}

static enum program_kind program_kind(const struct command *c, const char *name)
{
    if (c->run_path)
        return PROGRAM_PYTHON_RUN_PATH;
    if (c->module)
        return PROGRAM_PYTHON_MODULE;
    if (c->no_python)
        return PROGRAM_EXECUTED;
    return program_is_named_python(name) || python_is_torchrun(c->hints.self)
               ? PROGRAM_PYTHON_FILE
               : PROGRAM_EXECUTED;
}

static int refuse_program(struct program *p)
{
    program_release(p);
    return -1;
}

int command_find_program(const struct command *c, const char *const *words,
                         struct program *p, struct err *e)
{
    /* as torchrun, whose parser takes a first "--" for its own */
    bool dashes = words[1] && strcmp(words[1], "--") == 0;

    *p = (struct program){ .kind = program_kind(c, words[0]),
                           .arguments = words + 1 + dashes };
    if (c->module && (c->no_python || c->run_path))
        return err_set(e, "--module and --%s exclude each other",
                       c->run_path ? "run-path" : "no-python");
    if (!*words[0])
        return err_set(e, "the program's name is empty");
    p->name = c->module ? xstrdup(words[0])
                        : program_search(c, words[0], p->kind != PROGRAM_EXECUTED, e);
    if (!p->name || (p->kind == PROGRAM_EXECUTED && judge_file(p, e) < 0))
        return refuse_program(p);
    if (p->kind != PROGRAM_EXECUTED &&
        !(p->python = python_find(&c->hints, words[0], e)))
        return refuse_program(p);
    return 0;
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

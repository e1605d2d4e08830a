/* SPDX-License-Identifier: MIT */
#include "launcher/program/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

/*
 * A working directory with files of each kind; "bin" is on PATH, "own" is crun's
 * folder.
 */
static char root[] = "/tmp/test_command.XXXXXX";
static struct command command;

static void make_file_of(const char *name, mode_t mode, const char *text, size_t size)
{
    FILE *f = fopen(name, "w");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, size, f), size);
    fclose(f);
    ck_assert_int_eq(chmod(name, mode), 0);
}

static void make_file(const char *name, mode_t mode)
{
    make_file_of(name, mode, "", 0);
}

static void setup(void)
{
    static const char *const folders[] = {
        "bin",    "own",      "scripts", "folder.py", "package",
        "venv",   "venv/bin", "conda",   "conda/bin", "conda/conda-meta",
        "system", "empty",    "links"
    };

    ck_assert_ptr_nonnull(mkdtemp(root));
    ck_assert_int_eq(chdir(root), 0);
    for (int i = 0; i < COUNT(folders); i++)
        ck_assert_int_eq(mkdir(folders[i], 0755), 0);
    ck_assert_int_eq(mkdir("locked", 0000), 0);
    make_file("train.py", 0644);
    make_file("local", 0755);
    make_file("plain", 0644);
    make_file("bin/plain", 0755);
    make_file("own/plain", 0755);
    make_file("here", 0755);
    make_file("bin/here", 0755);
    make_file("bin/scripts", 0755); /* a folder in the working directory */
    make_file_of("text", 0644, "print(1)\n", 9);
    make_file_of("own/text", 0755, "", 0);
    make_file_of("marked", 0644, "#!/bin/sh\n", 10);
    make_file_of("binary", 0644, "\177ELF\0\0", 6);
    make_file("bin/python3", 0755);
    make_file("bin/pypy", 0755);
    make_file("bin/train", 0755);
    make_file("bin/tool.py", 0755);
    make_file("bin/data", 0644);
    make_file("own/train", 0755); /* PATH is the stronger */
    make_file("own/bench", 0755);
    make_file("own/demo.py", 0644);
    make_file("scripts/eval.py", 0644);
    make_file("package/__main__.py", 0644);
    make_file("venv/pyvenv.cfg", 0644);
    make_file("venv/bin/python3", 0755);
    make_file("venv/bin/torchrun", 0755);
    make_file("conda/bin/python3", 0755);
    make_file("system/python3", 0755);
    make_file("system/crun", 0755);
    ck_assert_int_eq(symlink("../venv/bin/torchrun", "links/torchrun"), 0);
    ck_assert_int_eq(symlink("links/torchrun", "crun"), 0);
    ck_assert_int_eq(symlink("loop", "loop"), 0);
    command = (struct command){ .hints = { .path = "nowhere:bin" }, .beside = "own" };
}

static void teardown(void)
{
    char remove[64];

    ck_assert_int_eq(chdir("/"), 0);
    snprintf(remove, sizeof(remove), "rm -rf %s", root);
    ck_assert_int_eq(system(remove), 0);
    strcpy(root + strlen(root) - 6, "XXXXXX");
}

enum { MODULE = 1, NO_PYTHON = 2, RUN_PATH = 4, LOCAL_RANK = 8 };

#define CODE                                                                           \
    "import runpy, sys; sys.argv = sys.argv[1:]; "                                     \
    "runpy.run_path(sys.argv[0], run_name='__main__')"

static const struct {
    const char *word;
    int flags;
    const char *python; /* PYTHON_EXEC */
    const char *argv[8];
} found[] = {
    { "train.py", 0, NULL, { "bin/python3", "-u", "train.py" } },
    { "./train.py", 0, NULL, { "bin/python3", "-u", "./train.py" } },
    { "scripts/eval.py", 0, NULL, { "bin/python3", "-u", "scripts/eval.py" } },
    { "tool.py", 0, NULL, { "bin/python3", "-u", "bin/tool.py" } },
    { "demo.py", 0, NULL, { "bin/python3", "-u", "own/demo.py" } },
    { "train.py", 0, "pypy", { "bin/pypy", "-u", "train.py" } },
    { "train.py", 0, "./local", { "./local", "-u", "train.py" } },
    { "train.py", 0, "", { "bin/python3", "-u", "train.py" } },
    { "train", 0, NULL, { "bin/train" } },
    { "bench", 0, NULL, { "own/bench" } },
    { "./local", 0, NULL, { "./local" } },
    { "bin/train", 0, NULL, { "bin/train" } },
    { "tool.py", NO_PYTHON, NULL, { "bin/tool.py" } },
    { "train", NO_PYTHON, NULL, { "bin/train" } },
    { "any.module", MODULE, NULL, { "bin/python3", "-u", "-m", "any.module" } },
    { "train.py", RUN_PATH, NULL, { "bin/python3", "-u", "-c", CODE, "train.py" } },
    { "train.py",
      RUN_PATH | NO_PYTHON,
      NULL,
      { "bin/python3", "-u", "-c", CODE, "train.py" } },
    /* the working directory is first, for a program and for a text */
    { "local", 0, NULL, { "./local" } },
    { "here", 0, NULL, { "./here" } },
    { "plain", 0, NULL, { "bin/python3", "-u", "plain" } },
    { "./text", 0, NULL, { "bin/python3", "-u", "./text" } },
    { "text", 0, NULL, { "bin/python3", "-u", "text" } },
    { "text",
      LOCAL_RANK,
      NULL,
      { "bin/python3", "-u", "text", "--local-rank=${local_rank}" } },
    { "scripts", 0, NULL, { "bin/scripts" } },
    { "plain", RUN_PATH, NULL, { "bin/python3", "-u", "-c", CODE, "plain" } },
    /* --no-python: as a shell looks for it, and the working directory before crun's */
    { "here", NO_PYTHON, NULL, { "bin/here" } },
    { "local", NO_PYTHON, NULL, { "./local" } },
    { "bench", NO_PYTHON, NULL, { "own/bench" } },
    { "./plain", RUN_PATH, NULL, { "bin/python3", "-u", "-c", CODE, "./plain" } },
    { "train.py",
      LOCAL_RANK,
      NULL,
      { "bin/python3", "-u", "train.py", "--local-rank=${local_rank}" } },
    { "m",
      LOCAL_RANK | MODULE,
      NULL,
      { "bin/python3", "-u", "-m", "m", "--local-rank=${local_rank}" } },
    { "train", LOCAL_RANK, NULL, { "bin/train", "--local-rank=${local_rank}" } },
};

static const char **find_argv(const char *word, int flags, const char *python,
                              struct err *e)
{
    const char *const words[] = { word, "--flag", "", "a b", NULL };
    struct program program;
    const char **argv;

    command.module = flags & MODULE;
    command.no_python = flags & NO_PYTHON;
    command.run_path = flags & RUN_PATH;
    command.local_rank_argument = flags & LOCAL_RANK;
    command.hints.exec = python;
    if (command_find_program(&command, words, &program, e) < 0)
        return NULL;
    argv = command_argv(&command, &program);
    program_release(&program);
    return argv;
}

FIXTURE(setup, teardown);

TEST_EACH(a_program_is_found_and_run_by_what_it_needs, found)
{
    static const char *const arguments[] = { "--flag", "", "a b", NULL };
    struct err e;
    const char **argv = find_argv(found[_i].word, found[_i].flags, found[_i].python,
                                  &e);
    int n = 0;

    if (!found[_i].argv[0]) {
        ck_assert_ptr_null(argv);
        return;
    }
    ck_assert_msg(argv, "%s", e.text);
    for (; found[_i].argv[n]; n++)
        ck_assert_pstr_eq(argv[n], found[_i].argv[n]);
    for (int i = 0; i < 4; i++)
        ck_assert_pstr_eq(argv[n + i], arguments[i]);
    free(argv);
}

static const struct {
    const char *word;
    int flags;
    const char *error;
} missing[] = {
    { "eval.py", 0,
      "eval.py: no such file (looked in the working directory, in PATH and in "
      "crun's folder)" },
    { "eval", 0,
      "eval: no such file (looked in the working directory, in PATH and in crun's "
      "folder)" },
    { "eval", NO_PYTHON,
      "eval: no such file (looked in PATH, in the working directory and in crun's "
      "folder)" },
    { "./eval", 0, "./eval: no such file" },
    { "./eval.py", 0, "./eval.py: no such file" },
    { "train.py/x", 0, "train.py/x: no such file" },
    { "./plain", NO_PYTHON, "./plain is not executable (chmod +x)" },
    { "text", NO_PYTHON, "text is not executable (chmod +x)" },
    { "marked", 0, "marked is not executable (chmod +x)" },
    { "./marked", 0, "./marked is not executable (chmod +x)" },
    { "binary", 0, "binary is not executable (chmod +x)" },
    { "data", 0, "bin/data is not executable (chmod +x)" },
    { "train.py", NO_PYTHON, "train.py is not executable (chmod +x)" },
    { "own", 0, "own is a directory" },
    { "folder.py", 0, "folder.py is a directory" },
    { "./bin", 0, "./bin is a directory" },
    { "", 0, "the program's name is empty" },
    { "m", MODULE | NO_PYTHON, "--module and --no-python exclude each other" },
    { "m", MODULE | RUN_PATH, "--module and --run-path exclude each other" },
};

TEST_EACH(what_cannot_be_run_is_said_with_the_places_looked_in, missing)
{
    struct err e;

    ck_assert_ptr_null(find_argv(missing[_i].word, missing[_i].flags, NULL, &e));
    ck_assert_str_eq(e.text, missing[_i].error);
}

TEST(a_missing_interpreter_is_named)
{
    struct err e;

    ck_assert_ptr_null(find_argv("train.py", 0, "nosuch", &e));
    ck_assert_str_eq(e.text, "PYTHON_EXEC: nosuch is not a program of PATH");
    ck_assert_ptr_null(find_argv("train.py", 0, "/no/such", &e));
    ck_assert_str_eq(e.text, "PYTHON_EXEC: /no/such is not a program");
    command.hints.path = "own";
    ck_assert_ptr_null(find_argv("train.py", 0, NULL, &e));
    ck_assert_str_eq(e.text, "train.py needs python3, which is not in PATH "
                             "(PYTHON_EXEC names another)");
}

/* crun's own name, as it was typed, and the interpreter of train.py. */
static const struct {
    const char *self, *path, *python_exec, *python;
} interpreters[] = {
    { "venv/bin/torchrun", "bin", NULL, "venv/bin/python3" },
    { "venv/bin/crun", "bin", NULL, "venv/bin/python3" },
    { "./venv/bin/crun", "bin", NULL, "./venv/bin/python3" },
    { "conda/bin/crun", "bin", NULL, "conda/bin/python3" },
    { "torchrun", "nowhere:venv/bin:bin", NULL, "venv/bin/python3" },
    { "venv/bin/torchrun", "bin", "pypy", "bin/pypy" },
    { "venv/bin/torchrun", "bin", "./local", "./local" },
    { "venv/bin/torchrun", "bin", "", "venv/bin/python3" },
    /* links to an environment's launcher */
    { "links/torchrun", "bin", NULL, "links/../venv/bin/python3" },
    { "./crun", "bin", NULL, "./links/../venv/bin/python3" },
    { "./loop", "bin", NULL, "bin/python3" },
    /* a folder of programs is no environment: the active one, which is in PATH, counts,
     * unless the name is that of a Python program of this folder */
    { "system/crun", "bin", NULL, "bin/python3" },
    { "system/torchrun", "bin", NULL, "system/python3" },
    { "empty/torchrun", "bin", NULL, "bin/python3" },
    { "crun", "system:bin", NULL, "system/python3" },
    { "missing", "bin", NULL, "bin/python3" },
    { "", "bin", NULL, "bin/python3" },
    { NULL, "bin", NULL, "bin/python3" },
};

TEST_EACH(the_interpreter_is_that_of_the_environment_of_crun, interpreters)
{
    struct err e;
    const char **argv;

    command.hints.self = interpreters[_i].self;
    command.hints.path = interpreters[_i].path;
    argv = find_argv("./train.py", 0, interpreters[_i].python_exec, &e);
    ck_assert_msg(argv, "%s", e.text);
    ck_assert_str_eq(argv[0], interpreters[_i].python);
    free(argv);
}

/* Called as torchrun. */
static const struct {
    const char *word;
    int flags;
    const char *argv[4], *error;
} torchrun[] = {
    { "train.py", 0, { "venv/bin/python3", "-u", "train.py" }, NULL },
    { "plain", 0, { "venv/bin/python3", "-u", "plain" }, NULL },
    { "local", 0, { "venv/bin/python3", "-u", "local" }, NULL },
    { "./bin/train", 0, { "venv/bin/python3", "-u", "./bin/train" }, NULL },
    { "package", 0, { "venv/bin/python3", "-u", "package" }, NULL },
    { "train", NO_PYTHON, { "bin/train" }, NULL },
    { "train", 0, { NULL }, "train: no such file (looked in the working directory)" },
    { "demo.py",
      0,
      { NULL },
      "demo.py: no such file (looked in the working directory)" },
    { "bench",
      NO_PYTHON,
      { NULL },
      "bench: no such file (looked in PATH and in the working directory)" },
    { "marked", 0, { "venv/bin/python3", "-u", "marked" }, NULL },
    { "bin", 0, { NULL }, "bin is a directory" },
};

TEST_EACH(called_as_torchrun_every_program_is_python, torchrun)
{
    struct err e;
    const char **argv;

    command.hints.self = "venv/bin/torchrun";
    argv = find_argv(torchrun[_i].word, torchrun[_i].flags, NULL, &e);
    if (torchrun[_i].error) {
        ck_assert_ptr_null(argv);
        ck_assert_str_eq(e.text, torchrun[_i].error);
        return;
    }
    ck_assert_msg(argv, "%s", e.text);
    for (int n = 0; torchrun[_i].argv[n]; n++)
        ck_assert_pstr_eq(argv[n], torchrun[_i].argv[n]);
    free(argv);
}

TEST(a_folder_of_path_that_is_closed_is_passed_over)
{
    struct err e;
    const char **argv;

    if (geteuid() == 0) /* to whom none is closed; in this process alone */
        ck_assert_int_eq(chmod(".", 0755) | setresuid(65534, 65534, 0), 0);
    command.hints.path = "locked:bin";
    argv = find_argv("train", 0, NULL, &e);
    ck_assert_msg(argv, "%s", e.text);
    ck_assert_str_eq(argv[0], "bin/train");
    free(argv);
    command.hints.path = "locked";
    ck_assert_ptr_null(find_argv("other", 0, NULL, &e));
    ck_assert_str_eq(e.text,
                     "other: no such file (looked in the working directory, in PATH "
                     "and in crun's folder)");
    ck_assert_ptr_null(find_argv("locked/x", 0, NULL, &e));
    ck_assert_str_eq(e.text, "locked/x: Permission denied");
    (void)!setresuid(0, 0, 0); /* root again, if it was */
}

TEST_LOOP(an_empty_entry_of_path_is_the_working_directory, 0, 4)
{
    static const char *const paths[] = { "", ":nowhere", "nowhere:", "nowhere::own" };
    struct err e;
    const char **argv;

    command.hints.path = paths[_i];
    argv = find_argv("local", NO_PYTHON, NULL, &e);
    ck_assert_msg(argv, "%s", e.text);
    ck_assert_str_eq(argv[0], "./local");
    free(argv);
}

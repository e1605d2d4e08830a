/* SPDX-License-Identifier: MIT */
#include "launcher/plan/bootstrap.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

/* The flag that asks for the bootstrap, or NULL. --hang-timeout is also for programs
 * that write their status page themselves. */
static const char *asking_flag(const struct options *o)
{
    if (o->config.warm_modules)
        return "--warm";
    if (o->watch)
        return "--watch";
    return o->config.hang_auto || o->config.hang_timeout_ms ? "--hang-timeout" : NULL;
}

/* make installs it into lib, pip into share. NULL: it is in neither. */
char *bootstrap_installed(const char *own_folder, const char *name)
{
    static const char *const places[] = { "lib", "share" };
    char *found = NULL;

    for (size_t i = 0; own_folder && !found && i < 2; i++) {
        char *sought = xasprintf("%s/../%s/crun/python/%s", own_folder, places[i],
                                 name);

        found = realpath(sought, NULL);
        free(sought);
    }
    return found;
}

/* What Python workers import first where no flag asks for more: without a word. */
static char *find_folder_for_jax(const char *own_folder)
{
    char *found = bootstrap_installed(own_folder, "for_jax");

    if (found && strchr(found, ':')) {
        free(found);
        return NULL;
    }
    return found;
}

/* The folder, or NULL after a line that says why there is none. */
static char *find_folder(const char *own_folder, const char *flag)
{
    char *found = bootstrap_installed(own_folder, "bootstrap");

    if (!found)
        log_warn("%s: Python programs are neither watched nor started warm: there is "
                 "no %s/../lib/crun/python/bootstrap",
                 flag, own_folder ? own_folder : "?");
    else if (strchr(found, ':')) {
        log_warn("%s: Python programs are neither watched nor started warm: PYTHONPATH "
                 "cannot contain %s",
                 flag, found);
        free(found);
        found = NULL;
    }
    return found;
}

/* The template is the interpreter itself: a script may change the environment, or let
 * the interpreter ignore it, and then the template would run the program. */
static bool find_interpreter(struct program *program)
{
    char *python;

    if (!python_is_script(program->python))
        return true;
    python = python_behind_shim(program->python);
    if (python) {
        free(program->python);
        program->python = python;
    }
    return python;
}

static bool can_start_warm(const struct config *config, struct program *program)
{
    if (config->job.preflight)
        log_info("--warm has no effect with --preflight, which starts the workers");
    else if (!find_interpreter(program))
        log_info("--warm has no effect: %s is a script that starts Python (PYTHON_EXEC "
                 "names the interpreter itself)",
                 program->python);
    else
        return true;
    return false;
}

/* "crun python train.py" */
static bool is_interpreter(const struct program *program)
{
    const char *slash = strrchr(program->name, '/');

    return strncmp(slash ? slash + 1 : program->name, "python", 6) == 0;
}

void bootstrap_find(const struct options *o, struct program *program,
                    const char *own_folder, struct config *config)
{
    const char *flag = asking_flag(o);
    bool flag_needs_python = o->config.warm_modules || o->watch;
    bool followed = flag && program->kind != PROGRAM_EXECUTED;

    config->bootstrap = followed ? find_folder(own_folder, flag) : NULL;
    config->bootstrap_follows = config->bootstrap;
    if (!followed && (program->kind != PROGRAM_EXECUTED || is_interpreter(program)))
        config->bootstrap = find_folder_for_jax(own_folder);
    if (flag && flag_needs_python && !followed && o->no_python)
        log_info("%s has no effect with --no-python", flag);
    else if (flag && flag_needs_python && !followed)
        log_info("%s has no effect: %s is not a Python program", flag, program->name);
    if (!config->bootstrap_follows ||
        (config->warm_modules && !can_start_warm(config, program)))
        config->warm_modules = NULL;
}

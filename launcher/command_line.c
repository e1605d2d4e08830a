/* SPDX-License-Identifier: MIT */
#include "launcher/command_line.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/devices/gpu_visible.h"
#include "agent/logs/log_dirs.h"
#include "agent/logs/log_routing.h"
#include "launcher/flags/habits.h"
#include "launcher/plan/bootstrap.h"
#include "launcher/plan/config_build.h"
#include "launcher/program/command.h"
#include "launcher/program/mpi_use.h"
#include "rendezvous/common/base/log.h"

uint32_t command_line_count_cpus(void)
{
    size_t size = CPU_ALLOC_SIZE(8192);
    cpu_set_t *set = CPU_ALLOC(8192);
    int count = 1;

    if (set && sched_getaffinity(0, size, set) == 0)
        count = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    return (uint32_t)count;
}

uint32_t command_line_count_gpus(void)
{
    return gpu_visible_count(getenv("CUDA_VISIBLE_DEVICES"));
}

const char *command_line_own_folder(char *buf, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", buf, size - 1);
    char *slash;

    if (length <= 0)
        return NULL;
    buf[length] = '\0';
    slash = strrchr(buf, '/');
    if (slash)
        *slash = '\0';
    return slash ? buf : NULL;
}

/* What a user does not expect about the program. */
static void warn_about_program(const struct program *p, const struct config *c)
{
    unsigned long ranks = (unsigned long)c->workers * c->job.max_nodes;
    const char *file;
    char how[96];

    if (p->is_guessed)
        log_info("%s is not executable and has no \"#!\" line: Python runs it",
                 p->name);
    if (ranks > 1 && mpi_use_find(p, &file, how, sizeof(how)))
        log_warn(
            "%s %s, which crun does not start: MPI_Init makes each rank a world of its "
            "own; type \"mpirun -n %lu %s%s%s\", or let the program take its rank from "
            "RANK or ${rank}",
            file, how, ranks,
            file != p->name ? p->name
            : p->python     ? p->python
                            : "",
            file != p->name || p->python ? " " : "", file);
}

int command_line_build_argv(const struct options *o, const char *const *words,
                            struct config *config, struct err *e)
{
    char folder[PATH_MAX], preflight[PATH_MAX + 16];
    struct command c = { .module = o->module,
                         .no_python = o->no_python,
                         .run_path = o->run_path,
                         .local_rank_argument = o->launch_compat && !o->use_env,
                         .hints = { .exec = getenv("PYTHON_EXEC"),
                                    .self = o->self,
                                    .path = getenv("PATH") },
                         .beside = command_line_own_folder(folder, sizeof(folder)) };
    struct program program;
    const char *advice;

    if (o->config.job.preflight) {
        /* it checks the node and then executes the workers' program */
        snprintf(preflight, sizeof(preflight), "%s/crun-preflight",
                 c.beside ? c.beside : "?");
        if (access(preflight, X_OK) < 0)
            return err_set_errno(e, errno, "--preflight: %s", preflight);
        c.before = preflight;
    }
    if (command_find_program(&c, words, &program, e) < 0) {
        /* the word may be a command of another program */
        advice = o->module ? NULL : habits_explain_word(words[0]);
        return advice ? err_set(e, "no program \"%s\" here: %s", words[0], advice) : -1;
    }
    warn_about_program(&program, config);
    bootstrap_find(o, &program, c.beside, config);
    config->argv = command_argv(&c, &program);
    program_release(&program);
    return 0;
}

/* "crun --log-dir train.py": a flag may have taken what was meant as the program. */
static int refuse_no_program(const struct options *o, struct err *e)
{
    int last = o->flag_words - 1;

    if (last > 1 && o->argv[last][0] != '-' && o->argv[last - 1][0] == '-' &&
        !strchr(o->argv[last - 1], '='))
        return err_set(e, "a program is missing: %s took \"%s\" (%s -h)",
                       o->argv[last - 1], o->argv[last], log_program());
    return err_set(e, "a program is missing (%s -h)", log_program());
}

int command_line_build_config(const struct options *o, const char *const *words,
                              struct config *config, struct err *e)
{
    const struct scheduler_env env = { .variables = (const char *const *)environ };
    struct machine machine = { .cpus = command_line_count_cpus,
                               .gpus = command_line_count_gpus,
                               .cuda_visible_devices = getenv("CUDA_VISIBLE_DEVICES"),
                               .hip_visible_devices = getenv("HIP_VISIBLE_DEVICES"),
                               .now_s = time(NULL) };

    scheduler_read_batch(&env, &machine.batch);
    memset(config, 0, sizeof(*config));
    if (!words[0])
        return refuse_no_program(o, e);
    return config_build(o, words, &machine, config, e);
}

int command_line_refuse(const struct options *o, struct err *e)
{
    opt_spell_as_typed(o->flag_words, o->argv, e->text);
    log_error("%s", e->text);
    return EXIT_USAGE;
}

int command_line_prepare_logs(const struct config *config, struct err *e)
{
    if (!config->log_dir || log_routing_has_no_files(config))
        return 0;
    return log_dirs_prepare(config->log_dir, e);
}

void command_line_print_notes(const struct options *o)
{
    for (unsigned i = 0; i < o->note_count; i++)
        log_info("%s", o->notes[i]);
    if (*o->conf.note)
        log_warn("%s", o->conf.note);
}

void command_line_adopt_log(const struct options *o)
{
    log_init(log_name_of(o->self, "crun"), o->config.verbose ? LOG_DEBUG : LOG_INFO,
             LOG_TEXT);
}

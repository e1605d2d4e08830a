/* SPDX-License-Identifier: MIT */
/*
 * crun: launches a training job and keeps it alive. This file is its command line, from
 * argv to the agent's configuration; the agent does the rest.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/gpu/gpu_devices.h"
#include "agent/gpu/gpu_probe.h"
#include "agent/guard/guard_main.h"
#include "agent/logs/log_routing.h"
#include "agent/logs/log_dirs.h"
#include "launcher/bootstrap.h"
#include "launcher/command.h"
#include "launcher/dryrun.h"
#include "launcher/elf_needed.h"
#include "launcher/options.h"
#include "launcher/config_build.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/fd.h"
#include "rendezvous/base/version.h"

#define EXIT_USAGE 2

/* The CPUs that this process may run on, as torch counts them. */
static uint32_t count_cpus(void)
{
    size_t size = CPU_ALLOC_SIZE(8192);
    cpu_set_t *set = CPU_ALLOC(8192);
    int count = 1;

    if (set && sched_getaffinity(0, size, set) == 0)
        count = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    return (uint32_t)count;
}

static uint32_t count_gpus(void)
{
    return gpu_devices_count(getenv("CUDA_VISIBLE_DEVICES"));
}

/* The folder of this program, or NULL. */
static const char *own_folder(char *buf, size_t size)
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

/* crun-preflight checks the node and then executes the workers' program.
 * It is in crun's folder. */
static int find_preflight(const char *folder, char *path, size_t size, struct err *e)
{
    snprintf(path, size, "%s/crun-preflight", folder ? folder : "?");
    if (access(path, X_OK) < 0)
        return err_set_errno(e, errno, "--preflight: %s", path);
    return 0;
}

static bool has_several_ranks(const struct config *c)
{
    return c->workers > 1 || c->job.max_nodes > 1;
}

/* What a user does not expect about the program. */
static void warn_about_program(const struct program *p, const struct config *c)
{
    static const char *const mpi[] = { "libmpi.", "libmpi_", "libmpich.", NULL };
    char library[64];

    if (p->is_guessed)
        log_info("%s is not executable and has no \"#!\" line: Python runs it",
                 p->name);
    if (p->kind == PROGRAM_EXECUTED && has_several_ranks(c) &&
        elf_needs(p->name, mpi, library, sizeof(library)))
        log_warn(
            "%s is linked with MPI (%s), which crun does not start: MPI_Init makes "
            "each rank a world of its own; use mpirun, or pass ${rank} and "
            "${world_size} if the program takes them",
            p->name, library);
}

static int build_argv(const struct options *o, const char *const *words,
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
                         .beside = own_folder(folder, sizeof(folder)) };
    struct program program;

    if (o->config.job.preflight) {
        if (find_preflight(c.beside, preflight, sizeof(preflight), e) < 0)
            return -1;
        c.before = preflight;
    }
    if (command_find_program(&c, words, &program, e) < 0)
        return -1;
    warn_about_program(&program, config);
    bootstrap_find(o, &program, c.beside, config);
    config->argv = command_argv(&c, &program);
    program_release(&program);
    return 0;
}

static int build_config(const struct options *o, const char *const *words,
                        struct config *config, struct err *e)
{
    struct machine machine = { .cpus = count_cpus,
                               .gpus = count_gpus,
                               .cuda_visible_devices = getenv("CUDA_VISIBLE_DEVICES"),
                               .hip_visible_devices = getenv("HIP_VISIBLE_DEVICES"),
                               .slurm_job_id = getenv("SLURM_JOB_ID"),
                               .slurm_step_id = getenv("SLURM_STEP_ID"),
                               .slurm_job_end_time = getenv("SLURM_JOB_END_TIME"),
                               .now_s = time(NULL) };

    memset(config, 0, sizeof(*config));
    if (!words[0])
        return err_set(e, "a program is missing (crun --help)");
    if (config_build(o, words, &machine, config, e) < 0)
        return -1;
    return build_argv(o, words, config, e);
}

/* Fails early if --log-dir cannot be created. */
static int prepare_logs(const struct config *config, struct err *e)
{
    if (!config->log_dir || log_routing_has_no_files(config))
        return 0;
    return log_dirs_prepare(config->log_dir, e);
}

static int run_job(const struct options *o, const char *const *words)
{
    struct config config;
    struct err e;
    int code;

    if (build_config(o, words, &config, &e) < 0) {
        log_error("%s", e.text);
        code = EXIT_USAGE;
    } else if (o->dry_run) {
        dryrun_print(&config, (const char *const *)environ, stdout);
        code = fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    } else if (prepare_logs(&config, &e) < 0) {
        log_error("--log-dir: %s", e.text);
        code = EXIT_USAGE;
    } else {
        code = agent_run(&config);
    }
    config_build_release(&config);
    return code;
}

/* Answers --help, --version and --print-completion. False: none was given. */
static bool answer_question(const struct options *o)
{
    if (o->help)
        options_print_help(stdout);
    else if (o->version)
        printf("crun " CRUN_VERSION "\n");
    else if (o->completion)
        options_print_completion(o->completion, program_invocation_short_name, stdout);
    else
        return false;
    return true;
}

/* -x and --wdir of a job without hosts. */
static int apply_surroundings(const struct options *o, struct err *e)
{
    for (unsigned i = 0; i < o->exports.count; i++)
        if (strchr(o->exports.text[i], '=') && putenv((char *)o->exports.text[i]))
            return err_set_errno(e, errno, "-x %s", o->exports.text[i]);
    if (o->folder && chdir(o->folder) < 0)
        return err_set_errno(e, errno, "--wdir %s", o->folder);
    return 0;
}

int main(int argc, char **argv)
{
    struct options o;
    struct err e;
    int word;

    guard_main_if_asked(argc, argv);
    gpu_probe_main_if_asked(argc, argv);
    fd_keep_std();
    log_init("crun", LOG_INFO, LOG_TEXT);
    if (options_parse(argc, argv, &o, &word, &e) < 0) {
        log_error("%s", e.text);
        return EXIT_USAGE;
    }
    if (answer_question(&o))
        return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    log_init("crun", o.config.verbose ? LOG_DEBUG : LOG_INFO, LOG_TEXT);
    for (unsigned i = 0; i < o.note_count; i++)
        log_info("%s", o.notes[i]);
    if (*o.conf.note)
        log_warn("%s", o.conf.note);
    if (apply_surroundings(&o, &e) < 0) {
        log_error("%s", e.text);
        return EXIT_USAGE;
    }
    return run_job(&o, (const char *const *)argv + word);
}

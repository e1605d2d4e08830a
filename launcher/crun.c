/* SPDX-License-Identifier: MIT */
/*
 * crun: launches a training job and keeps it alive. This file is its command line, from
 * argv to the agent's configuration; the agent does the rest.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/devices/gpu_devices.h"
#include "agent/devices/gpu_probe.h"
#include "agent/guard/guard_main.h"
#include "agent/logs/log_routing.h"
#include "agent/logs/log_dirs.h"
#include "launcher/plan/bootstrap.h"
#include "launcher/program/command.h"
#include "launcher/plan/dryrun.h"
#include "launcher/program/mpi_use.h"
#include "launcher/line/habits.h"
#include "launcher/hosts/host_environment.h"
#include "launcher/hosts/hosts.h"
#include "launcher/line/options.h"
#include "launcher/plan/config_build.h"
#include "launcher/remote/channel.h"
#include "launcher/remote/far/far_reach.h"
#include "launcher/remote/far/far_side.h"
#include "launcher/remote/far/far_socket.h"
#include "launcher/remote/remote.h"
#include "launcher/remote/remote_order.h"
#include "launcher/plan/place.h"
#include "launcher/start_by/srun.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/software.h"

#define HOSTS_FILE_MAX (1 << 20)
#define EXIT_USAGE 2
#define FAR_LAST_CALL_MS 3000 /* for nodes that start at the same time */

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

/* The word may be a command of another program. */
static int explain_no_program(const struct options *o, const char *word, struct err *e)
{
    const char *says = o->module ? NULL : habits_explain_word(word);

    return says ? err_set(e, "no program \"%s\" here: %s", word, says) : -1;
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
        return explain_no_program(o, words[0], e);
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

static int build_flags(const struct options *o, const char *const *words,
                       struct config *config, struct err *e)
{
    const struct scheduler_env env = { .variables = (const char *const *)environ };
    struct machine machine = { .cpus = count_cpus,
                               .gpus = count_gpus,
                               .cuda_visible_devices = getenv("CUDA_VISIBLE_DEVICES"),
                               .hip_visible_devices = getenv("HIP_VISIBLE_DEVICES"),
                               .now_s = time(NULL) };

    scheduler_read_batch(&env, &machine.batch);
    memset(config, 0, sizeof(*config));
    if (!words[0])
        return refuse_no_program(o, e);
    return config_build(o, words, &machine, config, e);
}

/* An error about the command line, with its flags as they were typed. */
static int refuse_command_line(const struct options *o, struct err *e)
{
    opt_spell_as_typed(o->flag_words, o->argv, e->text);
    log_error("%s", e->text);
    return EXIT_USAGE;
}

/* Fails early if --log-dir cannot be created. */
static int prepare_logs(const struct config *config, struct err *e)
{
    if (!config->log_dir || log_routing_has_no_files(config))
        return 0;
    return log_dirs_prepare(config->log_dir, e);
}

/* Lines about flags and variables that have no effect. */
static void print_notes(const struct options *o)
{
    for (unsigned i = 0; i < o->note_count; i++)
        log_info("%s", o->notes[i]);
    if (*o->conf.note)
        log_warn("%s", o->conf.note);
}

/* -- on hosts ---------------------------------------------------------------------- */

/* The node that a far side runs: options point into the order. */
struct far_node {
    struct options options;
    struct config config;
    char end_file[PATH_MAX + 8];
};

static void adopt_name_and_verbosity(const struct options *o)
{
    log_init(log_name_of(o->self, "crun"), o->config.verbose ? LOG_DEBUG : LOG_INFO,
             LOG_TEXT);
}

static int prepare_far_node(void *arg, const struct remote_order *order, struct err *e)
{
    struct far_node *n = arg;
    struct options *o = &n->options;
    int argc = 0, word;

    while (order->argv[argc])
        argc++;
    if (options_parse(argc, order->argv, o, &word, e) < 0)
        return -1;
    adopt_name_and_verbosity(o);
    options_forget_hosts(o);
    if (order->workers) {
        o->nproc = NPROC_NUMBER;
        o->nproc_number = order->workers;
    }
    if (build_flags(o, (const char *const *)order->argv + word, &n->config, e) < 0)
        return -1;
    if (build_argv(o, (const char *const *)order->argv + word, &n->config, e) < 0)
        return err_set_code(e, REMOTE_NO_PROGRAM, 0);
    if (prepare_logs(&n->config, e) < 0)
        return err_wrap(e, "--log-dir");
    return 0;
}

static uint32_t far_node_grace(void *arg)
{
    return ((struct far_node *)arg)->config.job.shutdown_grace_ms;
}

/* Standard input reaches node rank 0 only. */
static void place_far_node(struct config *c, const struct rdzv_conf *conf,
                           const struct remote_order *order,
                           const struct remote_start *s, int listener)
{
    snprintf(c->run_id, sizeof(c->run_id), "%s", order->run_id);
    c->job.min_nodes = s->min_nodes;
    c->job.max_nodes = s->max_nodes;
    /* the launcher has seen all nodes that there are */
    if (s->nodes < s->max_nodes && !conf->last_call_given)
        c->job.last_call_ms = FAR_LAST_CALL_MS;
    c->node_rank = s->node_rank;
    c->rendezvous = *s->endpoints ? CONFIG_STATIC : CONFIG_LOCAL;
    free((void *)c->endpoints);
    c->endpoints = *s->endpoints ? xstrdup(s->endpoints) : NULL;
    c->rendezvous_fd = listener;
    c->key_text = *s->endpoints ? order->key : NULL;
    c->live_output = order->live;
    c->ignore_closed_output = true; /* the launcher decides */
    c->shares_output = !order->detach && s->max_nodes > 1;
    if (s->node_rank != 0)
        c->stdin_mode = CONFIG_STDIN_NONE;
}

static int run_far_node(void *arg, const struct remote_order *order,
                        const struct remote_start *s, int listener)
{
    struct far_node *n = arg;
    bool given = n->options.stdin_mode != STDIN_NOT_GIVEN;
    int code;

    if (s->node_rank == 0)
        print_notes(&n->options);
    if (!given)
        n->config.stdin_mode = CONFIG_STDIN_FIRST;
    place_far_node(&n->config, &n->options.conf, order, s, listener);
    if (order->detach && far_side_end_file("/proc/self/fd/1", n->end_file)) {
        unlink(n->end_file); /* of an earlier job with this name and pid */
        n->config.end_file = n->end_file;
    }
    code = agent_run(&n->config);
    config_build_release(&n->config);
    return code;
}

static int run_far_side(void)
{
    static struct far_node node; /* options are large */
    struct far_side_calls calls = { .prepare = prepare_far_node,
                                    .grace_ms = far_node_grace,
                                    .run = run_far_node,
                                    .arg = &node };

    return far_side_run(&calls);
}

/* The launcher says where all nodes are. */
static int check_hosts_flags(const struct options *o, const char *const *words,
                             struct err *e)
{
    const char *flag = o->endpoint                ? "--rdzv-endpoint"
                       : o->master_addr           ? "--master-addr"
                       : o->standalone            ? "--standalone"
                       : o->config.node_rank >= 0 ? "--node-rank"
                                                  : NULL;

    if (!words[0])
        return err_set(e, "a program is missing (%s -h)", log_program());
    if (flag)
        return err_set(e, "%s and a list of hosts cannot both be given", flag);
    return 0;
}

/* The first hosts of the list, as many as --nnodes says. */
static int limit_hosts(const struct options *o, struct remote_job *job, struct err *e)
{
    const struct job_config *j = &o->config.job;

    if (!o->nnodes_given)
        return 0;
    if (job->count < j->min_nodes)
        return err_set(e, "--nnodes: %u nodes, and there are %zu hosts", j->min_nodes,
                       job->count);
    if (job->count > j->max_nodes)
        job->count = j->max_nodes;
    job->min_nodes = j->min_nodes;
    job->max_nodes = j->max_nodes;
    return 0;
}

static int list_hosts(const struct options *o, struct hosts *h, struct err *e)
{
    uint32_t per_node = !o->nproc_given            ? 0
                        : o->nproc == NPROC_NUMBER ? o->nproc_number
                                                   : HOSTS_PER_NODE_AUTO;

    if (hosts_read(&o->hosts, h, e) < 0)
        return -1;
    return hosts_share_workers(h, o->processes, per_node, e);
}

static int run_remote_job(const struct options *o, const struct remote_job *job)
{
    struct err e;

    if (!o->dry_run)
        return remote_run(job);
    if (remote_print(job, stdout, &e) == 0)
        return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    log_error("%s", e.text);
    return EXIT_FAILURE;
}

/* -H and the like: this process starts the nodes, and is none. */
static int launch_on_hosts(const struct options *o, char **argv,
                           const char *const *words)
{
    char folder[PATH_MAX];
    struct hosts h = { .count = 0 };
    struct remote_target *targets;
    struct remote_job job = { .argv = argv,
                              .folder = o->folder,
                              .run_id = o->run_id,
                              .program = words[0],
                              .rsh = o->rsh,
                              .ssh_args = o->ssh_args,
                              .wanted = &o->hosts,
                              .hosts = &h,
                              .ignores_slots = o->nproc_given,
                              .host_prefix = o->host_prefix,
                              .detach = o->detach,
                              .grace_ms = o->config.job.shutdown_grace_ms,
                              .reads_stdin = o->stdin_mode != STDIN_NONE };
    struct err e;
    int code = EXIT_USAGE;

    if (!job.folder)
        job.folder = getcwd(folder, sizeof(folder));
    if (check_hosts_flags(o, words, &e) < 0 || list_hosts(o, &h, &e) < 0) {
        hosts_clear(&h);
        return refuse_command_line(o, &e);
    }
    job.count = h.count;
    targets = xcalloc(h.count, sizeof(*targets));
    for (size_t i = 0; i < h.count; i++)
        targets[i] = (struct remote_target){ h.host[i].name, h.host[i].slots };
    job.targets = targets;
    job.environment = host_environment_carried((const char *const *)environ,
                                               o->exports.text);
    if (limit_hosts(o, &job, &e) < 0)
        code = refuse_command_line(o, &e);
    else
        code = run_remote_job(o, &job);
    host_environment_free((char **)job.environment);
    free(targets);
    hosts_clear(&h);
    return code;
}

/* -- on this machine --------------------------------------------------------------- */

static int run_job(const struct options *o, const char *const *words)
{
    struct config config;
    struct err e;
    int code;

    if (build_flags(o, words, &config, &e) < 0) {
        code = refuse_command_line(o, &e);
    } else if (build_argv(o, words, &config, &e) < 0) {
        code = refuse_command_line(o, &e);
        code = e.code ? e.code : code;
    } else if (o->dry_run) {
        dryrun_print(&config, (const char *const *)environ, stdout);
        code = fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    } else if (prepare_logs(&config, &e) < 0) {
        err_wrap(&e, "--log-dir");
        code = refuse_command_line(o, &e);
    } else {
        code = agent_run(&config);
    }
    config_build_release(&config);
    return code;
}

/* The text of a list of hosts that a batch system has written. */
static char *read_hosts_file(const char *path)
{
    char *text = xmalloc(HOSTS_FILE_MAX);

    if (fd_read_file(AT_FDCWD, path, text, HOSTS_FILE_MAX) >= 0)
        return text;
    free(text);
    return NULL;
}

/* On the node that a scheduler's variables say this is, or on all nodes by srun. */
static int run_in_place(struct options *o, char **argv, const char *const *words)
{
    char host[HOST_NAME_MAX + 1] = "";
    struct place_machine machine = { .env = { .variables = (const char *const *)environ,
                                              .host = host,
                                              .read_file = read_hosts_file },
                                     .cpus = count_cpus,
                                     .gpus = count_gpus };
    struct place_found place = { .endpoint = NULL };
    struct err e;
    int code;

    (void)gethostname(host, sizeof(host) - 1);
    if (words[0] && place_find(o, &machine, &place, &e) < 0) {
        code = place_is_later_task(&machine, &place) ? EXIT_USAGE
                                                     : refuse_command_line(o, &e);
    } else if (!place.by_srun) {
        code = run_job(o, words);
    } else if (srun_start(place.node.source, place.node.nodes, argv, o->dry_run, &e) <
               0) {
        log_error("%s", e.text);
        code = EXIT_USAGE;
    } else {
        code = EXIT_SUCCESS;
    }
    free(place.endpoint);
    return code;
}

static void print_version(void)
{
    if (strcmp(log_program(), "crun") == 0)
        software_print(log_program(), "launcher of training jobs");
    else
        software_print(log_program(), "crun, launcher of training jobs");
}

/* Answers --help and --version. False: none was given. */
static bool answer_question(const struct options *o)
{
    if (o->help)
        options_print_help(stdout);
    else if (o->short_help)
        options_print_short_help(stdout);
    else if (o->version)
        print_version();
    else
        return false;
    return true;
}

/* -x and --wdir of a job without hosts. */
static int apply_surroundings(const struct options *o, struct err *e)
{
    if (o->detach)
        return err_set(e, "--detach needs a list of hosts (-H, --hosts, --hostfile)");
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
    int word, code;

    guard_main_if_asked(argc, argv);
    gpu_probe_main_if_asked(argc, argv);
    fd_keep_std();
    if (argc == 2 && strcmp(argv[1], "--agent-stdin") == 0)
        return run_far_side();
    if (argc == 2 && strcmp(argv[1], CHANNEL_SOCKET_FLAG) == 0)
        return far_socket_run();
    log_init(log_name_of(argv[0], "crun"), LOG_INFO, LOG_TEXT);
    if (options_parse(argc, argv, &o, &word, &e) < 0) {
        log_error("%s", e.text);
        return EXIT_USAGE;
    }
    if (answer_question(&o))
        return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    adopt_name_and_verbosity(&o);
    if (hosts_are_wanted(&o.hosts))
        code = launch_on_hosts(&o, argv, (const char *const *)argv + word);
    else if (print_notes(&o), apply_surroundings(&o, &e) < 0)
        code = refuse_command_line(&o, &e);
    else
        code = run_in_place(&o, argv, (const char *const *)argv + word);
    if (code == 128 + SIGINT)
        loop_die_of_signal(SIGINT);
    return code;
}

/* SPDX-License-Identifier: MIT */
#include "launcher/job_here.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "launcher/command_line.h"
#include "launcher/plan/config_build.h"
#include "launcher/plan/dryrun.h"
#include "launcher/plan/scheduler_defaults.h"
#include "launcher/plan/srun.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

/* mpiexec kills all tasks when one has failed: the first one prints the error before.
 */
#define LATER_TASK_US 500000

#define HOSTS_FILE_MAX (1 << 20)

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

static int run_job(const struct options *o, const char *const *words)
{
    struct config config;
    struct err e;
    int code;

    if (command_line_build_config(o, words, &config, &e) < 0) {
        code = command_line_refuse(o, &e);
    } else if (command_line_build_argv(o, words, &config, &e) < 0) {
        code = command_line_refuse(o, &e);
        code = e.code ? e.code : code;
    } else if (o->dry_run) {
        dryrun_print(&config, (const char *const *)environ, stdout);
        code = fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    } else if (command_line_prepare_logs(&config, &e) < 0) {
        err_wrap(&e, "--log-dir");
        code = command_line_refuse(o, &e);
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

int job_here_run(struct options *o, char **argv, const char *const *words)
{
    char host[HOST_NAME_MAX + 1] = "";
    struct defaults_machine machine = {
        .env = { .variables = (const char *const *)environ,
                 .host = host,
                 .read_file = read_hosts_file },
        .cpus = command_line_count_cpus,
        .gpus = command_line_count_gpus
    };
    struct defaults_found place = { .endpoint = NULL };
    struct err e;
    int code;

    command_line_print_notes(o);
    if (apply_surroundings(o, &e) < 0)
        return command_line_refuse(o, &e);
    (void)gethostname(host, sizeof(host) - 1);
    if (words[0] && defaults_find(o, &machine, &place, &e) < 0) {
        if (defaults_is_later_task(&machine, &place)) {
            usleep(LATER_TASK_US);
            code = EXIT_USAGE;
        } else {
            code = command_line_refuse(o, &e);
        }
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

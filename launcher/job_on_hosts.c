/* SPDX-License-Identifier: MIT */
#include "launcher/job_on_hosts.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "launcher/command_line.h"
#include "launcher/hosts/host_environment.h"
#include "launcher/hosts/hosts.h"
#include "launcher/remote/remote.h"
#include "rendezvous/common/base/log.h"

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

int job_on_hosts_run(const struct options *o, char **argv, const char *const *words)
{
    char folder[PATH_MAX];
    struct hosts h = { .count = 0 };
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
        return command_line_refuse(o, &e);
    }
    job.count = h.count;
    job.environment = host_environment_carried((const char *const *)environ,
                                               o->exports.text);
    if (limit_hosts(o, &job, &e) < 0)
        code = command_line_refuse(o, &e);
    else
        code = run_remote_job(o, &job);
    host_environment_free((char **)job.environment);
    hosts_clear(&h);
    return code;
}

/* SPDX-License-Identifier: MIT */
/*
 * The table of crun's flags, and the setters that check each value by itself.
 * torchrun's flags are all there under their names; those that only mean something to
 * Python are taken and leave a note.
 */
#include "launcher/options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/option_setters.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/opt.h"
#include "rendezvous/base/xalloc.h"

#define GRACE_MS_MAX UINT32_MAX
#define DEFAULT_SIGNALS "SIGTERM,SIGINT,SIGHUP,SIGQUIT"

#define FIELD(name) OPT_FIELD(struct options, name)

/* The order is that of --help; options_print_help names where each group begins. */
const struct opt options_table[] = {
    { .name = "nnodes",
      .arg = "N|MIN:MAX",
      .help = "Number of nodes, or its range. Default: 1.",
      .set = option_set_nnodes },
    { .name = "nproc-per-node",
      .arg = "N|cpu|gpu|auto",
      .help = "Workers on this node; auto: one for each GPU, or else CPU. Default: 1.",
      .set = option_set_nproc },
    { .name = "node-rank",
      .arg = "N",
      .help = "This node's place among the nodes, from 0. Default: 0 with a static "
              "rendezvous, else any free place.",
      .set = opt_set_int,
      FIELD(config.node_rank),
      .min = 0,
      .max = NODES_MAX - 1 },
    { .name = "numa-binding",
      .arg = "node|socket|exclusive|core-complex",
      .help = "Bind workers to CPUs and memory near their GPU.",
      .set = option_set_numa },
    { .name = "virtual-local-rank",
      .help = "Each worker sees one GPU, as device 0, and LOCAL_RANK 0.",
      .set = opt_set_true,
      FIELD(config.virtual_local_rank) },
    { .name = "role",
      .arg = "NAME",
      .help =
          "ROLE_NAME of the node's workers, and in the prefix of --tee; ROLE_RANK and "
          "ROLE_WORLD_SIZE count the workers of all nodes with the same one. "
          "Default: default.",
      .set = opt_set_text,
      FIELD(config.role) },

    { .name = "preflight",
      .help =
          "Before joining, look at the workers' GPUs: with one that is lost, broken "
          "or in use by others, this node is kept out of the job. And before the "
          "workers run, see that nodes reach each other and an all-reduce works: a "
          "node "
          "at fault leaves. For all nodes of a job.",
      .set = opt_set_true,
      FIELD(config.job.preflight) },

    { .name = "standalone",
      .help = "One node with a rendezvous of its own, which is what --nnodes 1 is "
              "anyway unless an address or a port is given.",
      .set = opt_set_true,
      FIELD(standalone) },
    { .name = "master-addr",
      .arg = "HOST",
      .help = "Node rank 0's address: it hosts the rendezvous. Default: 127.0.0.1.",
      .set = option_set_some_text,
      FIELD(master_addr) },
    { .name = "master-port",
      .arg = "PORT",
      .help = "Its port. Default: 29500.",
      .set = opt_set_int,
      FIELD(master_port),
      .min = 0,
      .max = UINT16_MAX },
    { .name = "rdzv-endpoint",
      .arg = "HOST[:PORT]",
      .help =
          "Where the rendezvous is: the node that has this address hosts it, unless "
          "a crund is there already. Port: 29400.",
      .set = option_set_some_text,
      FIELD(endpoint) },
    { .name = "rdzv-backend",
      .arg = "static|c10d",
      .help =
          "Which of the two. Default: c10d with --rdzv-endpoint and no --node-rank, "
          "else static.",
      .set = option_set_backend },
    { .name = "rdzv-id",
      .arg = "NAME",
      .help = "The job's name, the same on all its nodes.",
      .set = option_set_run_id,
      FIELD(run_id) },
    { .name = "rdzv-conf",
      .arg = "KEY=VALUE,...",
      .help = "join_timeout, last_call_timeout, lease, is_host, scale and others: see "
              "the manual.",
      .set = option_set_rdzv_conf },
    { .name = "local-addr",
      .arg = "ADDRESS",
      .help = "How other nodes reach this one. Default: the address it has towards the "
              "rendezvous.",
      .set = option_set_local_addr,
      FIELD(config.local_addr) },
    { .name = "store-port",
      .arg = "PORT",
      .help = "MASTER_PORT where this node has rank 0. Default: any free one.",
      .set = opt_set_int,
      FIELD(config.store_port),
      .min = 0,
      .max = UINT16_MAX },

    { .name = "module",
      .letter = 'm',
      .help = "PROGRAM is a Python module, as in python -m.",
      .set = opt_set_true,
      FIELD(module) },
    { .name = "no-python",
      .help = "Execute PROGRAM itself, even if it is a .py file.",
      .set = opt_set_true,
      FIELD(no_python) },
    { .name = "run-path",
      .help = "Run PROGRAM, a Python file, with runpy.run_path.",
      .set = opt_set_true,
      FIELD(run_path) },
    { .name = "launch-compat",
      .help = "Pass --local-rank=N to PROGRAM, as torch.distributed.launch did.",
      .set = opt_set_true,
      FIELD(launch_compat) },
    { .name = "use-env",
      .help = "Take --launch-compat back: LOCAL_RANK is in the environment only.",
      .set = opt_set_true,
      FIELD(use_env) },
    { .name = "stdin",
      .arg = "none|0|all",
      .help = "Who reads crun's standard input: nobody, local rank 0, or every worker. "
              "Default: 0 on one node, else none.",
      .set = option_set_stdin },
    { .name = "start-method",
      .arg = "spawn|fork|forkserver",
      .help = "Taken for torchrun's sake; no effect.",
      .set = option_ignore_start_method },

    { .name = "log-dir",
      .arg = "DIR",
      .help = "Where the logs are. Default: a new folder below TMPDIR, made when "
              "something is written there.",
      .set = option_set_some_text,
      FIELD(config.log_dir) },
    { .name = "redirects",
      .letter = 'r',
      .arg = "STREAMS",
      .help = "Write to files instead of the console: 1 stdout, 2 stderr, 3 both, or "
              "for each local rank, as in 0:1,1:3.",
      .set = option_set_streams,
      FIELD(redirects) },
    { .name = "tee",
      .letter = 't',
      .arg = "STREAMS",
      .help = "Write to files and to the console, each line with a prefix; as "
              "--redirects.",
      .set = option_set_streams,
      FIELD(tee) },
    { .name = "local-ranks-filter",
      .arg = "RANKS",
      .help = "Only these local ranks write to the console, as in 0,1.",
      .set = option_set_rank_filter,
      FIELD(local_ranks_filter) },
    { .name = "duplicate-stdout-filters",
      .arg = "TEXTS",
      .help = "Lines of standard output that hold one of these texts (a,b; \",,\" is a "
              "comma) also go to one file for the node.",
      .set = opt_set_text,
      FIELD(stdout_filters) },
    { .name = "duplicate-stderr-filters",
      .arg = "TEXTS",
      .help = "The same for standard error.",
      .set = opt_set_text,
      FIELD(stderr_filters) },
    { .name = "log-line-prefix-template",
      .arg = "TEXT",
      .help = "Prefix of --tee, with ${role_name}, ${rank}, ${local_rank} and "
              "${hostname}. Default: [${role_name}${local_rank}]:",
      .set = opt_set_text,
      FIELD(config.prefix_template) },
    { .name = "events-file",
      .arg = "FILE",
      .help = "Append what happens to FILE, a JSON object a line.",
      .set = option_set_some_text,
      FIELD(config.events_file) },
    { .name = "event-log-handler",
      .arg = "console|null",
      .help = "Where else events go. Default: null.",
      .set = option_set_event_handler },
    { .name = "logs-specs",
      .arg = "NAME",
      .help = "Taken for torchrun's sake; no effect.",
      .set = option_ignore_logs_specs },

    { .name = "max-restarts",
      .arg = "N",
      .help = "Start the job's workers again after a failure, at most N times. "
              "Default: 0.",
      .set = opt_set_int,
      FIELD(config.job.max_restarts),
      .min = 0,
      .max = RESTARTS_MAX },
    { .name = "no-restart-on",
      .arg = "CODES",
      .help = "Exit codes that end the job whatever --max-restarts says, as in 2,127; "
              "137 is SIGKILL.",
      .set = option_set_exit_codes },
    { .name = "restart-min-uptime",
      .arg = "SECONDS",
      .help = "A failure sooner than this after the start ends the job. Default: 0.",
      .set = opt_set_seconds,
      FIELD(config.job.restart_min_uptime_ms),
      .min = 0,
      .max = GRACE_MS_MAX },
    { .name = "restart-backoff",
      .arg = "SECONDS",
      .help = "Workers that fail within 5 s of each start are started again at once "
              "twice, then after 1, 2, 4 ... at most this. 0: always at once. "
              "Default: 60.",
      .set = opt_set_seconds,
      FIELD(config.job.restart_backoff_ms),
      .min = 0,
      .max = GRACE_MS_MAX },
    { .name = "spares",
      .arg = "N",
      .help = "Keep at most N nodes above the maximum; the job waits for one when a "
              "node is lost. Default: any number, and it does not.",
      .set = option_set_spares,
      FIELD(config.job.spares),
      .min = 0,
      .max = NODES_MAX },
    { .name = "shutdown-timeout",
      .arg = "SECONDS",
      .help = "Time for the workers to end when the job is ended, before they are "
              "killed. Default: 30.",
      .set = opt_set_seconds,
      FIELD(config.job.shutdown_grace_ms),
      .min = 0,
      .max = GRACE_MS_MAX },
    { .name = "failure-grace",
      .arg = "SECONDS",
      .help = "The same after another worker's failure. Default: 5.",
      .set = opt_set_seconds,
      FIELD(config.job.failure_grace_ms),
      .min = 0,
      .max = GRACE_MS_MAX },
    { .name = "outage-grace",
      .arg = "SECONDS",
      .help = "How long workers go on while the rendezvous cannot be reached. "
              "Default: 300.",
      .set = opt_set_seconds,
      FIELD(config.outage_grace_ms),
      .min = 1,
      .max = GRACE_MS_MAX },
    { .name = "hang-timeout",
      .arg = "SECONDS|auto|0",
      .help = "A worker whose status page (CRUN_PROGRESS) has not changed for so long "
              "hangs, and has failed; ten times as long while it loads, evaluates, "
              "writes a checkpoint or has not written its page yet as another worker "
              "of its node has. auto: ten times its longest step of late, at least "
              "30. Default: 0, never.",
      .set = option_set_hang_timeout },
    { .name = "checkpoint-signal",
      .arg = "NAME",
      .help = "Sent to each worker that is to write a checkpoint before its group is "
              "stopped, as in SIGUSR1. Default: none, the status page says it.",
      .set = option_set_checkpoint_signal },
    { .name = "fence",
      .arg = "grace|strict",
      .help = "strict: end them before the rendezvous may give their ranks to others. "
              "Default: grace.",
      .set = option_set_fence },
    { .name = "signals-to-handle",
      .arg = "NAMES",
      .help = "Signals that are passed on to the workers and end the job. "
              "Default: " DEFAULT_SIGNALS ".",
      .set = option_set_signals,
      FIELD(config.signals_text) },
    { .name = "monitor-interval",
      .arg = "SECONDS",
      .help = "Taken for torchrun's sake; no effect.",
      .set = option_ignore_monitor_interval },

    { .name = "dry-run",
      .help = "Print what would be started, with its environment.",
      .set = opt_set_true,
      FIELD(dry_run) },
    { .name = "print-completion",
      .arg = "bash|zsh",
      .help = "Print a script that completes these flags, and exit.",
      .set = option_set_completion },
    { .name = "verbose",
      .letter = 'v',
      .help = "Say more.",
      .set = opt_set_true,
      FIELD(config.verbose) },
    OPT_VERSION(struct options),
    OPT_HELP(struct options),
    { .name = NULL }
};

static const struct opt *option_row(const char *name)
{
    for (const struct opt *o = options_table; o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

/* torchrun's variable for --shutdown-timeout, weaker than those named after the flag.
 */
static int read_shutdown_timeout(struct options *o, struct err *e)
{
    static const char name[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    const char *value = getenv(name);
    const struct opt *opt = option_row("shutdown-timeout");

    if (!value || !*value)
        return 0;
    return opt->set(o, opt, value, e) < 0 ? err_wrap(e, "%s", name) : 0;
}

static void note_file_timer(struct options *o)
{
    const char *value = getenv("TORCHELASTIC_ENABLE_FILE_TIMER");

    if (value && strcmp(value, "1") == 0)
        o->notes[o->note_count++] =
            "TORCHELASTIC_ENABLE_FILE_TIMER has no effect: crun "
            "has no watchdog by timers in a file";
}

static struct config default_config(void)
{
    return (struct config){
        .job = { .min_nodes = 1,
                 .max_nodes = 1,
                 .restart_backoff_ms = RESTART_BACKOFF_MS_DEFAULT,
                 .shutdown_grace_ms = SHUTDOWN_GRACE_MS_DEFAULT,
                 .failure_grace_ms = FAILURE_GRACE_MS_DEFAULT },
        .is_host = -1,
        .node_rank = -1,
        .role = ROLE_DEFAULT,
        .prefix_template = getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
    };
}

int options_parse(int argc, char **argv, struct options *o, int *first_word,
                  struct err *e)
{
    static const char *const prefixes[] = { "PET", "CRUN", NULL };
    const struct opt_rules rules = { .table = options_table,
                                     .env_prefixes = prefixes,
                                     .stop_at_word = true };

    *o = (struct options){ .nproc_number = 1,
                           .master_port = -1,
                           .redirects = "0",
                           .tee = "0",
                           .local_ranks_filter = "",
                           .stdout_filters = "",
                           .stderr_filters = "",
                           .config = default_config() };
    rdzv_conf_init(&o->conf);
    note_file_timer(o);
    if (option_set_signals(o, option_row("signals-to-handle"), DEFAULT_SIGNALS, e) <
            0 ||
        read_shutdown_timeout(o, e) < 0)
        return -1;
    return opt_parse(&rules, argc, argv, o, first_word, e);
}

/* The rows from first up to, not with, last, as a table of their own. */
static void print_rows(const struct opt *first, const struct opt *last, FILE *out)
{
    size_t count = (size_t)(last - first);
    struct opt *rows = xcalloc(count + 1, sizeof(*rows));

    memcpy(rows, first, count * sizeof(*rows));
    opt_print(rows, out);
    free(rows);
}

void options_print_help(FILE *out)
{
    static const struct {
        const char *title, *first;
    } groups[] = { { "Nodes and workers", "nnodes" },
                   { "Where the rendezvous is", "standalone" },
                   { "The program", "module" },
                   { "What it writes", "log-dir" },
                   { "Failures and the end", "max-restarts" },
                   { "crun itself", "dry-run" } };
    const size_t count = sizeof(groups) / sizeof(groups[0]);

    fputs(
        "usage: crun [flags] [--] PROGRAM [ARGUMENTS]\n\n"
        "Runs a training job: PROGRAM, once for each rank, on this node and others.\n"
        "A .py file runs by Python, anything else as it is. ${local_rank} in\n"
        "ARGUMENTS is replaced. torchrun's flags mean what they mean there. Flags can\n"
        "be given as environment variables too: --max-restarts is CRUN_MAX_RESTARTS,\n"
        "or PET_MAX_RESTARTS.\n",
        out);
    for (size_t i = 0; i < count; i++) {
        const struct opt *end = i + 1 < count ? option_row(groups[i + 1].first)
                                              : option_row("help");

        fprintf(out, "\n%s:\n", groups[i].title);
        print_rows(option_row(groups[i].first), end + (i + 1 == count), out);
    }
}

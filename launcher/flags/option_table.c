/* SPDX-License-Identifier: MIT */
/*
 * The table of crun's flags: all of torchrun under their names, and crun's own. A flag
 * that is stored as it is needs a row here, its member in struct options or struct
 * config, and an item in crun(1); one that is checked, a setter (option_setters.h).
 */
#include <stddef.h>

#include "launcher/flags/limits.h"
#include "launcher/flags/option_setters.h"
#include "launcher/flags/options.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/wire/protocol/limits.h"

#define GRACE_MS_MAX UINT32_MAX
#define LOG_KEEP_MAX 1000000
#define FIELD(name) OPT_FIELD(struct options, name)

/* The order is that of --help; options_print_help names where each group begins. */
const struct opt options_table[] = {
    { .name = "nnodes",
      .arg = "N|MIN:MAX|auto",
      .help = "Number of nodes, or its range. auto: as the variables of Slurm, "
              "Kubernetes, MPI or another scheduler tell. Default: auto if they do, "
              "else 1.",
      .set = option_set_nnodes },
    { .name = "nproc-per-node",
      .arg = "N|cpu|gpu|auto",
      .help = "Workers on this node; auto: one for each GPU, or else CPU. Default: 1.",
      .set = option_set_nproc },
    { .name = "np",
      .letter = 'n',
      .arg = "N",
      .help = "Workers of all nodes together, as with mpirun: they fill the slots of "
              "the hosts in order, or are divided evenly.",
      .one_dash = true,
      .set = opt_set_int,
      FIELD(processes),
      .min = 1,
      .max = (long long)NODES_MAX * WORKERS_PER_NODE_MAX },
    { .name = "ppn",
      .arg = "N",
      .help = "Another name of --nproc-per-node, as is --npernode.",
      .one_dash = true,
      .set = option_set_nproc },
    { .name = "npernode", .arg = "N", .one_dash = true, .set = option_set_nproc },
    { .name = "node-rank",
      .arg = "N",
      .help = "This node's rank, from 0. Default: 0 with a static rendezvous, else the "
              "lowest free rank.",
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
          "ROLE_NAME of this node's workers, also in the prefix of --tee. ROLE_RANK "
          "and ROLE_WORLD_SIZE count the workers of all nodes with the same role. "
          "Default: default.",
      .set = opt_set_text,
      FIELD(config.role) },

    { .name = "preflight",
      .help = "Check the node first. A node does not join with a GPU that is lost, "
              "broken or in use by another program. Before the workers run, every "
              "node connects to every other and an all-reduce runs: the node at fault "
              "leaves. Give it on all nodes of a job.",
      .set = opt_set_true,
      FIELD(config.job.preflight) },

    { .name = "hosts",
      .letter = 'H',
      .arg = "LIST",
      .help =
          "Start the job on these hosts over ssh: a:8,b:8 with the workers of each, "
          "gpu[01-16], ^FILE. The first one has node rank 0.",
      .adds = true,
      .set = option_add_hosts,
      FIELD(hosts.lists) },
    { .name = "host",
      .arg = "LIST",
      .one_dash = true,
      .adds = true,
      .set = option_add_hosts,
      FIELD(hosts.lists) },
    { .name = "hostfile",
      .arg = "FILE",
      .help = "The same of a host file of mpirun, mpiexec, DeepSpeed, PBS or LSF. -: "
              "standard input; auto: the one that a scheduler or operator has written. "
              "If it changes, hosts that are new join the job, those that are gone are "
              "drained.",
      .set = option_set_some_text,
      FIELD(hosts.file) },
    { .name = "env",
      .letter = 'x',
      .arg = "NAME[=VALUE]",
      .help = "A variable for the workers, in addition to PATH, LD_LIBRARY_PATH and "
              "those of Python, CUDA, NCCL and PyTorch, which go to all hosts. Also a "
              "pattern: 'DATA_*'. May be repeated.",
      .adds = true,
      .set = option_add_export,
      FIELD(exports) },
    { .name = "wdir",
      .arg = "DIR",
      .help = "The working directory on the hosts. Default: that of crun.",
      .set = option_set_some_text,
      FIELD(folder) },

    { .name = "rsh",
      .arg = "PROGRAM",
      .help = "Connects to a host instead of ssh: docker exec -i, kubectl exec -i, or "
              "any words, in which {} is the host. sh runs there.",
      .set = option_set_some_text,
      FIELD(rsh) },
    { .name = "ssh-args",
      .arg = "WORDS",
      .help = "More arguments of ssh, as in '-p 2222 -i KEY'.",
      .set = option_set_some_text,
      FIELD(ssh_args) },
    { .name = "host-prefix",
      .help = "Begin each line of output with the name of its host.",
      .set = opt_set_true,
      FIELD(host_prefix) },
    { .name = "detach",
      .help = "Leave the job running on the hosts, and print how to look at it.",
      .set = opt_set_true,
      FIELD(detach) },

    { .name = "standalone",
      .help = "One node with its own rendezvous, which is also the default of "
              "--nnodes 1 without an address or a port.",
      .set = opt_set_true,
      FIELD(standalone) },
    { .name = "master-addr",
      .arg = "HOST",
      .help = "Address of node rank 0, which hosts the rendezvous. Default: 127.0.0.1.",
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
      .help = "Address of the rendezvous. The node that has this address hosts it, "
              "unless a crund listens there. Default port: 29400.",
      .set = option_set_some_text,
      FIELD(endpoint) },
    { .name = "rendezvous-user",
      .arg = "NAME|UID",
      .help = "On this machine, also obey a rendezvous of this user, such as the one "
              "crund runs as. Without it: of yourself or root only.",
      .set = opt_set_user,
      FIELD(config.rendezvous_user) },
    { .name = "rdzv-backend",
      .arg = "static|c10d",
      .help = "Kind of rendezvous. Default: c10d with --rdzv-endpoint and without "
              "--node-rank, else static.",
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
    { .name = "key-file",
      .arg = "FILE",
      .help = "The key that keeps strangers out, the same on all nodes; crunctl keygen "
              "makes it. Default: crun.key in CREDENTIALS_DIRECTORY, or "
              "~/.config/crun/key, if there is one.",
      .set = option_set_some_text,
      FIELD(config.key_file) },
    { .name = "require-key",
      .help = "Do not start without a key, unless all is within this node.",
      .set = opt_set_true,
      FIELD(config.require_key) },
    { .name = "no-key-warning",
      .help = "Do not warn that others can run code through a port that has no key.",
      .set = opt_set_true,
      FIELD(config.no_key_warning) },
    { .name = "local-addr",
      .arg = "ADDRESS",
      .help = "Address at which other nodes reach this one. Default: its address "
              "towards the rendezvous.",
      .set = option_set_local_addr,
      FIELD(config.local_addr) },
    { .name = "store-port",
      .arg = "PORT",
      .help = "MASTER_PORT if this node has rank 0. Default: any free port.",
      .set = opt_set_int,
      FIELD(config.store_port),
      .min = 0,
      .max = UINT16_MAX },

    { .name = "store-auth",
      .arg = "user|address",
      .help = "Which connections of other machines rank 0's store takes: those that "
              "the agent of that machine knows as its own user's, or all from a "
              "member's address. Default: user in a job with a key, else address.",
      .set = option_set_store_auth },
    { .name = "store-tunnel",
      .help = "MASTER_ADDR is 127.0.0.1 on every node, and agents carry the store's "
              "bytes between machines inside TLS. It needs a key.",
      .set = opt_set_true,
      FIELD(config.job.store_tunnel) },

    { .name = "module",
      .letter = 'm',
      .help = "PROGRAM is a Python module, as with python -m.",
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
    { .name = "warm",
      .arg = "MODULES",
      .arg_optional = true,
      .help = "Start Python workers as forks of a process that has imported these "
              "modules, as in torch,transformers. Default: those that the program "
              "imported in its last run, or torch. A worker that cannot be started so "
              "is started as usual. Implies --watch.",
      .set = option_set_warm },
    { .name = "watch",
      .help = "Follow Python programs that use torch: their optimizer steps, phases "
              "and checkpoints, as if they wrote the status page (CRUN_PROGRESS). "
              "Implied by --warm and --hang-timeout.",
      .set = opt_set_true,
      FIELD(watch) },
    { .name = "launch-compat",
      .help = "Pass --local-rank=N to PROGRAM, as torch.distributed.launch did.",
      .set = opt_set_true,
      FIELD(launch_compat) },
    { .name = "use-env",
      .help = "Undo --launch-compat: LOCAL_RANK is in the environment only.",
      .set = opt_set_true,
      FIELD(use_env) },
    { .name = "stdin",
      .arg = "none|0|all",
      .help = "Workers that read crun's standard input: none, local rank 0 or all. "
              "Default: 0 on one node, else none.",
      .set = option_set_stdin },
    { .name = "keep-env",
      .arg = "NAME,...",
      .help = "Pass these variables of Slurm, PMI or MPI on as crun got them, although "
              "they name the place of crun itself and not that of a worker. Also a "
              "pattern: 'PMI_*'. May be repeated.",
      .adds = true,
      .set = opt_add_text,
      FIELD(keep_env) },
    { .name = "start-method",
      .arg = "spawn|fork|forkserver",
      .help = "Accepted for compatibility with torchrun; no effect.",
      .set = option_ignore_start_method },

    { .name = "log-dir",
      .arg = "DIR",
      .help = "Folder of the logs. Default: a new folder below TMPDIR, created when "
              "the first log is written.",
      .set = option_set_some_text,
      FIELD(config.log_dir) },
    { .name = "log-keep",
      .arg = "N",
      .help = "Keep the log files of the first attempt and of the newest N only. "
              "Default: of all.",
      .set = opt_set_int,
      FIELD(config.log_keep),
      .min = 1,
      .max = LOG_KEEP_MAX },
    { .name = "log-max-size",
      .arg = "SIZE",
      .help = "A log file of this size, as 500M or 2G, is renamed to NAME.1, over an "
              "older one, and a new one begins. Default: any size.",
      .set = option_set_size,
      FIELD(config.log_max_size),
      .min = LOG_MAX_SIZE_MIN },
    { .name = "log-mode",
      .arg = "MODE",
      .help =
          "Mode of log files, as in 0640; users who can read the files can read the "
          "folders too. Default: 0600.",
      .set = option_set_log_mode },
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
      .help = "Lines of standard output that contain one of these texts (a,b; \",,\" "
              "is a comma) also go to one file of the node.",
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
    { .name = "ignore-closed-output",
      .help = "Continue a job of one node when its standard output is a pipe that is "
              "closed, as by | head. Without this flag and without log files such a "
              "job ends.",
      .set = opt_set_true,
      FIELD(config.ignore_closed_output) },
    { .name = "events-file",
      .arg = "FILE",
      .help = "Append events to FILE, one JSON object per line.",
      .set = option_set_some_text,
      FIELD(config.events_file) },
    { .name = "metrics-file",
      .arg = "FILE",
      .help = "Write metrics of the job to FILE every 15 s if this node hosts the "
              "rendezvous, for node_exporter's textfile collector, which reads only "
              "names that end in .prom.",
      .set = option_set_some_text,
      FIELD(config.metrics_file) },
    { .name = "http",
      .arg = "[HOST:]PORT",
      .help = "Show the job to browsers, with metrics, over HTTP there, if this node "
              "hosts the rendezvous. Without HOST: to this machine alone. Port 0: any "
              "free one.",
      .set = option_set_page_address,
      FIELD(config.http) },
    { .name = "http-name",
      .arg = "NAME,...",
      .help = "More names by which browsers reach the page of --http.",
      .set = option_set_some_text,
      FIELD(config.http_name) },
    { .name = "on-event",
      .arg = "COMMAND",
      .help =
          "If this node hosts the rendezvous, run COMMAND with sh for each failure, "
          "restart and hang, each lost node and the end of the job: its standard "
          "input and CRUN_EVENT_KIND, CRUN_EVENT_TEXT ... tell the event.",
      .set = option_set_some_text,
      FIELD(config.on_event) },
    { .name = "on-event-kinds",
      .arg = "KIND,...|all",
      .help = "Only events of these kinds for --on-event; crunctl(1) lists the kinds.",
      .set = option_set_event_kinds,
      FIELD(config.event_kinds) },
    { .name = "event-log-handler",
      .arg = "console|null",
      .help = "Second destination of events. Default: null.",
      .set = option_set_event_handler },
    { .name = "logs-specs",
      .arg = "default",
      .help = "Accepted for compatibility with torchrun; no effect.",
      .set = option_check_logs_specs },

    { .name = "max-restarts",
      .arg = "N",
      .help = "Restart the job's workers after a failure, at most N times. "
              "Default: 0.",
      .set = opt_set_int,
      FIELD(config.job.max_restarts),
      .min = 0,
      .max = RESTARTS_MAX },
    { .name = "max-no-progress",
      .arg = "N",
      .help = "End the job with exit code 78 when N restarts in a row have brought no "
              "new step. Steps are those of the status page or --progress-pattern. "
              "Default: 0, never.",
      .set = opt_set_int,
      FIELD(config.job.max_no_progress),
      .min = 0,
      .max = RESTARTS_MAX },
    { .name = "no-restart-on",
      .arg = "CODES",
      .help = "Exit codes that end the job even if restarts are left, as in 2,127; "
              "137 is SIGKILL. A worker's 78 always does.",
      .set = option_set_exit_codes },
    { .name = "restart-min-uptime",
      .arg = "TIME",
      .help = "A failure within this time of the start ends the job. Default: 0.",
      .set = opt_set_seconds,
      FIELD(config.job.restart_min_uptime_ms),
      .min = 0,
      .max = GRACE_MS_MAX },
    { .name = "restart-backoff",
      .arg = "TIME",
      .help = "Limit of the delay between restarts of workers that fail within 5 s of "
              "each start: twice at once, then after 1, 2, 4 ... seconds. 0: no "
              "delay. Default: 60.",
      .set = opt_set_seconds,
      FIELD(config.job.restart_backoff_ms),
      .min = 0,
      .max = GRACE_MS_MAX },
    { .name = "spares",
      .arg = "N",
      .help = "Keep at most N nodes above the maximum, and wait for a spare when a "
              "node is lost. Default: any number, without waiting.",
      .set = option_set_spares,
      FIELD(config.job.spares),
      .min = 0,
      .max = NODES_MAX },
    { .name = "memory-copies",
      .arg = "N",
      .help = "Copies, on other hosts, of the checkpoints that the program keeps in "
              "memory: 0 or 1. Default: 1.",
      .set = opt_set_int,
      FIELD(config.memory_copies),
      .min = 0,
      .max = 1 },
    { .name = "memory-limit",
      .arg = "SIZE|PERCENT",
      .help = "What checkpoints in memory may take on this node, with the copies of "
              "others', as 64G or 40%. Default: what is free, but for a 32nd of the "
              "machine's memory.",
      .set = option_set_memory_limit,
      FIELD(config.memory_limit),
      .min = MEMORY_SIZE_MIN },
    { .name = "memory-copy-rate",
      .arg = "SIZE",
      .help = "Bytes a second that a node sends at most for such copies, as 500M. "
              "Default: any.",
      .set = option_set_size,
      FIELD(config.memory_copy_rate),
      .min = MEMORY_SIZE_MIN },
    { .name = "memory-flush",
      .arg = "TIME",
      .help = "So often, the newest checkpoint in memory is also written to files, "
              "while the ranks train on; 0: at the end of a job that fails or is "
              "stopped only. Default: 0.",
      .set = opt_set_seconds,
      FIELD(config.memory_flush_ms),
      .min = 0,
      .max = GRACE_MS_MAX },
    { .name = "shutdown-timeout",
      .arg = "TIME",
      .help = "Time that workers have to exit when the job is ended, before they are "
              "killed. Default: 25.",
      .set = opt_set_seconds,
      FIELD(config.job.shutdown_grace_ms),
      .min = 0,
      .max = GRACE_MS_MAX },
    { .name = "failure-grace",
      .arg = "TIME",
      .help = "The same after another worker's failure. Default: 0.3 if a restart "
              "follows, but 5 while a worker writes a checkpoint; else 5.",
      .set = option_set_failure_grace },
    { .name = "outage-grace",
      .arg = "TIME",
      .help = "Time that workers continue while the rendezvous cannot be reached. "
              "Default: 300.",
      .set = opt_set_seconds,
      FIELD(config.outage_grace_ms),
      .min = 1,
      .max = GRACE_MS_MAX },
    { .name = "hang-timeout",
      .arg = "TIME|auto|0",
      .help = "A worker whose status page (CRUN_PROGRESS) does not change for this "
              "time hangs, which is a failure. The time is ten times as long while it "
              "loads, evaluates or writes a checkpoint, and before its first write "
              "when another worker of its node has written. auto: ten times its "
              "longest recent step, at least 30. Default: 0, never.",
      .set = option_set_hang_timeout },
    { .name = "silence-warning",
      .arg = "TIME",
      .help =
          "Warn once, with what the ranks do, if nothing moves on any rank for this "
          "time: no output, no step, CPUs and GPUs idle. Default: 300; 0, never.",
      .set = opt_set_seconds,
      FIELD(config.silence_warning_ms),
      .min = 0,
      .max = HANG_TIMEOUT_MS_MAX },
    { .name = "progress-pattern",
      .arg = "REGEX",
      .help = "Read the step of workers that write no status page from their output: "
              "the number in the group of this regular expression, as in "
              "'step[ =]+(\\d+)'.",
      .set = option_set_progress_pattern },
    { .name = "checkpoint-signal",
      .arg = "NAME",
      .help = "Signal that asks each worker for a checkpoint before its group is "
              "stopped, as in SIGUSR1. Default: none, only the status page asks.",
      .set = option_set_checkpoint_signal },
    { .name = "time-limit",
      .arg = "TIME",
      .help =
          "Time of this run: 90, 90s, 15m, 2h, H:M:S or D-H:M:S. Some time before "
          "its end the workers of the whole job are asked for a checkpoint, and the "
          "job ends with exit code 75. Default: until SLURM_JOB_END_TIME if it is "
          "set; 0: none.",
      .set = option_set_time_limit },
    { .name = "time-limit-margin",
      .arg = "TIME",
      .help = "How long before the end of the time the checkpoint is asked for. "
              "Default: enough for a checkpoint and --shutdown-timeout, at most a "
              "quarter of the time.",
      .set = opt_set_seconds,
      FIELD(config.deadline_margin_ms),
      .min = 1,
      .max = GRACE_MS_MAX },
    { .name = "fence",
      .arg = "grace|strict",
      .help = "strict: end the workers before the rendezvous can give their ranks to "
              "another node. Default: grace.",
      .set = option_set_fence },
    { .name = "signals-to-handle",
      .arg = "NAMES",
      .help = "Signals that are forwarded to the workers and end the job. "
              "Default: " SIGNALS_DEFAULT ".",
      .set = option_set_signals,
      FIELD(config.signals_text) },
    { .name = "monitor-interval",
      .arg = "TIME",
      .help = "Accepted for compatibility with torchrun; no effect.",
      .set = option_ignore_monitor_interval },

    { .name = "dry-run",
      .help = "Print the command and environment of each worker, and start nothing.",
      .set = opt_set_true,
      FIELD(dry_run) },
    { .name = "verbose",
      .letter = 'v',
      .help = "Print more messages.",
      .set = opt_set_true,
      FIELD(config.verbose) },
    OPT_VERSION(struct options),
    OPT_SHORT_HELP(struct options),
    { .name = NULL }
};

/* SPDX-License-Identifier: MIT */
#include "launcher/plan/config_build.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/option_lines.h"

static const struct {
    const char *line, *error;
} refused[] = {
    { "--nproc-per-node tow x",
      "--nproc-per-node: \"tow\" is not a number, cpu, gpu or auto" },
    { "--nproc-per-node 2x x", "\"2x\" is not a number" },
    { "--nproc-per-node gpu x",
      "--nproc-per-node: \"gpu\", but this machine has no GPU" },
    { "--nproc-per-node", "--nproc-per-node needs a value" },
    { "--nnodes 2: x", "--nnodes: \"2:\" is not" },
    { "--nnodes :2 x", "--nnodes: \":2\" is not" },
    { "--nnodes 1:2:3 x", "--nnodes: \"1:2:3\" is not" },
    { "--nnodes 3:2 x", "--nnodes: \"3:2\": the minimum is above the maximum" },
    { "--nnodes 4294967297 x", "from 1 to 16384" },
    { "--nnodes 2 --node-rank 2 x",
      "--node-rank: 2 is above the highest rank of 2 nodes" },
    { "--node-rank one x", "--node-rank: \"one\" is not a whole number" },
    { "--standalone --nnodes 2 x", "--standalone is for one node, and --nnodes is 2" },
    { "--master-port http x", "--master-port: \"http\" is not" },
    { "--nnodes 2 --master-port 0 x", "--master-port: 0, any port, is for one node" },
    { "--nnodes 2 --master-addr a:1 x", "--master-addr: \"a:1\" has a port" },
    { "--nnodes 2 --master-addr [::1 x", "--master-addr: \"[::1\" is not" },
    { "--store-port 70000 x", "--store-port: \"70000\" is not" },
    { "--rdzv-backend etcd x", "--rdzv-backend: \"etcd\" is not supported: use c10d" },
    { "--rdzv-backend zeus x", "--rdzv-backend: \"zeus\" is not static or c10d" },
    { "--nnodes 2 --rdzv-endpoint a:0 x", "--rdzv-endpoint: port 0" },
    { "--nnodes 2 --rdzv-endpoint a:x x", "--rdzv-endpoint: \"a:x\": \"x\" is not a" },
    { "--nnodes 2 --rdzv-endpoint :1 x", "--rdzv-endpoint: \":1\" names no host" },
    { "--nnodes 2 --rdzv-endpoint a,,b x", "--rdzv-endpoint: \"\" is not HOST:PORT" },
    { "--rdzv-conf join_timeout x", "--rdzv-conf: \"join_timeout\" is not KEY=VALUE" },
    { "--rdzv-conf join_timeout= x", "--rdzv-conf: join_timeout: a value is missing" },
    { "--rdzv-conf join_timeout=soon x", "--rdzv-conf: join_timeout: \"soon\" is not" },
    { "--rdzv-conf join_timeout=0 x", "--rdzv-conf: join_timeout: \"0\" is not" },
    { "--rdzv-conf =3 x", "--rdzv-conf: \"=3\" is not KEY=VALUE" },
    { "--logs-specs mine x", "--logs-specs: \"mine\" is not default, the only one" },
    { "--rdzv-conf is_host=maybe x", "is_host: \"maybe\" is not true or false" },
    { "--no-restart-on 2,256 x", "\"2,256\" is not a list of exit codes" },
    { "--no-restart-on TERM x", "\"TERM\" is not a list of exit codes" },
    { "--restart-backoff x y", "--restart-backoff: \"x\" is not a time from " },
    { "--rdzv-conf lease=0.1 x", "lease: \"0.1\" is not a time from " },
    { "--rdzv-conf keep_alive_interval=3600,keep_alive_max_attempt=2 x",
      "keep_alive_interval x keep_alive_max_attempt is 7200 s" },
    { "--rdzv-conf keep_alive_interval=0.05 x", "is 0.15 s, which is not from 0.2" },
    { "--numa-binding far x",
      "\"far\" is not node, socket, exclusive or core-complex" },
    { "-r 0:1,1 x", "-r: \"0:1,1\" is not" },
    { "-r 4096:1 x", "-r: \"4096:1\" is not" },
    { "-t 3,3 x", "-t: \"3,3\" is not" },
    { "--local-ranks-filter 0,a x", "--local-ranks-filter: \"0,a\" is not a list" },
    { "--local-ranks-filter ,0 x", "--local-ranks-filter: \",0\" is not a list" },
    { "--log-mode 0700 x", "--log-mode: \"0700\" is not a mode of files" },
    { "--max-restarts many x", "--max-restarts: \"many\" is not" },
    { "--failure-grace soon x", "--failure-grace: \"soon\" is not" },
    { "--time-limit 1:75 x", "--time-limit: \"1:75\" is not a time" },
    { "--fence high x", "--fence: \"high\" is not grace or strict" },
    { "--signals-to-handle SIGFOO x",
      "\"SIGFOO\" is not a signal that can be handled" },
    { "--signals-to-handle SIGTERM,SIGKILL x", "\"SIGKILL\" is not a signal" },
    { "--signals-to-handle SIGTERM, x", "\"\" is not a signal" },
    { "--start-method exec x", "--start-method: \"exec\" is not spawn, fork or" },
    { "--monitor-interval often x", "--monitor-interval: \"often\" is not a time" },
    { "--no-pyton x", "unknown flag --no-pyton; did you mean --no-python?" },
    { "--local x", "--local could be --local-addr or --local-ranks-filter" },
    { "--standalone=yes x", "--standalone takes no value" },
    { "-q x", "unknown flag -q (see --help)" },
};

FIXTURE(option_lines_setup, NULL);

TEST_EACH(a_wrong_value_is_refused_in_one_line_that_names_it, refused)
{
    struct line line;
    struct options o;
    struct config c;
    struct err e;

    ck_assert_msg(read_line(&line, refused[_i].line, &o, &c, &e) < 0, "taken: %s",
                  refused[_i].line);
    ck_assert_msg(strstr(e.text, refused[_i].error), "\"%s\" is not in \"%s\"",
                  refused[_i].error, e.text);
    ck_assert_ptr_null(strchr(e.text, '\n'));
    config_build_release(&c);
}

TEST(without_flags_it_is_as_with_torchrun)
{
    static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, 0 };
    struct options o;
    struct config c;

    accept_line("train --nnodes 7 -v", &o, &c); /* the program's own */
    ck_assert_uint_eq(c.workers, 1);
    ck_assert_uint_eq(c.job.min_nodes, 1);
    ck_assert_uint_eq(c.job.max_nodes, 1);
    ck_assert_uint_eq(c.job.max_restarts, 0);
    ck_assert_uint_eq(c.job.lease_ms, 15000);
    ck_assert_uint_eq(c.job.join_timeout_ms, 600000);
    ck_assert_uint_eq(c.job.last_call_ms, 30000);
    ck_assert_uint_eq(c.job.shutdown_grace_ms, 25000);
    ck_assert_uint_eq(c.job.failure_grace_ms, 5000);
    ck_assert_uint_eq(c.outage_grace_ms, 300000);
    ck_assert_int_eq(c.job.scale, JOB_SCALE_NOW);
    ck_assert_str_eq(c.job.no_restart_on, "");
    ck_assert_uint_eq(c.job.restart_min_uptime_ms, 0);
    ck_assert_uint_eq(c.job.restart_backoff_ms, 60000);
    ck_assert_uint_eq(c.job.quarantine, 3);
    ck_assert(!c.job.limit_spares);
    ck_assert_str_eq(c.job.program, "train");
    ck_assert_str_eq(c.role, "default");
    ck_assert_int_eq(c.is_host, -1);
    ck_assert_uint_eq(c.streams.redirect[0], 0);
    ck_assert_uint_eq(c.streams.tee[0], 0);
    ck_assert(c.streams.shown[0]);
    ck_assert_ptr_null(c.stdout_filters[0]);
    ck_assert_ptr_null(c.log_dir);
    ck_assert_ptr_null(c.prefix_template);
    ck_assert_int_eq(c.stdin_mode, CONFIG_STDIN_FIRST);
    ck_assert_int_eq(c.numa, CONFIG_NUMA_NONE);
    ck_assert_mem_eq(c.signals, signals, sizeof(signals));
    ck_assert_str_eq(c.signals_text, "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    ck_assert(!c.verbose && !c.job.strict_fence && !c.events_console);
    ck_assert_uint_eq(o.note_count, 0);
    config_build_release(&c);
}

TEST(every_flag_reaches_its_place)
{
    struct options o;
    struct config c;

    accept_line(
        "--nnodes=2:4 --nproc_per_node=3 --max-restarts=5 --role=trainer "
        "--shutdown-timeout=1.5 --failure-grace=0 --outage-grace=7 --fence=strict "
        "--numa-binding=core-complex --virtual-local-rank --stdin=all -v "
        "--no-restart-on=2,127 --restart-min-uptime=3 --restart-backoff=0 "
        "--spares=1 --rdzv-conf=lease=2,scale=checkpoint,quarantine=0 train",
        &o, &c);
    ck_assert_uint_eq(c.workers, 3);
    ck_assert_uint_eq(c.job.min_nodes, 2);
    ck_assert_uint_eq(c.job.max_nodes, 4);
    ck_assert_uint_eq(c.job.max_restarts, 5);
    ck_assert_str_eq(c.role, "trainer");
    ck_assert_uint_eq(c.job.shutdown_grace_ms, 1500);
    ck_assert_uint_eq(c.job.failure_grace_ms, 0);
    ck_assert_uint_eq(c.outage_grace_ms, 7000);
    ck_assert(c.job.strict_fence && c.virtual_local_rank && c.verbose);
    ck_assert_int_eq(c.numa, CONFIG_NUMA_CORE_COMPLEX);
    ck_assert_int_eq(c.stdin_mode, CONFIG_STDIN_ALL);
    ck_assert_uint_eq(c.job.lease_ms, 2000);
    ck_assert_int_eq(c.job.scale, JOB_SCALE_CHECKPOINT);
    ck_assert_str_eq(c.job.no_restart_on, "2,127");
    ck_assert_uint_eq(c.job.restart_min_uptime_ms, 3000);
    ck_assert_uint_eq(c.job.restart_backoff_ms, 0);
    ck_assert_uint_eq(c.job.quarantine, 0);
    ck_assert(c.job.limit_spares && c.job.spares == 1);
    config_build_release(&c);
}

TEST(output_goes_where_it_is_sent_rank_by_rank)
{
    static const uint8_t redirect[12] = { 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2 };
    static const uint8_t tee[12] = { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 };
    static const bool shown[12] = { [1] = true, [10] = true };
    struct options o;
    struct config c;

    accept_line(
        "--nproc-per-node 12 -r 0:3,11:2,99:1 --local-ranks-filter 1,10,99 "
        "--log-dir logs --log-mode 640 --events-file e --event-log-handler console "
        "--duplicate-stdout-filters a,,b,c --log-line-prefix-template [$rank] x",
        &o, &c);
    ck_assert_mem_eq(c.streams.shown, shown, sizeof(shown));
    ck_assert_uint_eq(c.streams.redirect[0], 3);
    ck_assert_uint_eq(c.streams.redirect[11], 2);
    ck_assert_str_eq(c.log_dir, "logs");
    ck_assert_uint_eq(c.log_mode, 0640);
    ck_assert_str_eq(c.events_file, "e");
    ck_assert(c.events_console);
    ck_assert_str_eq(c.stdout_filters[0], "a,b");
    ck_assert_str_eq(c.stdout_filters[1], "c");
    ck_assert_ptr_null(c.stdout_filters[2]);
    ck_assert_ptr_null(c.stderr_filters[0]);
    ck_assert_str_eq(c.prefix_template, "[$rank]");
    config_build_release(&c);
    /* a stream that is to be both is on the console */
    accept_line("--nproc-per-node 12 -r 0:3,11:0 -t2 x", &o, &c);
    ck_assert_mem_eq(c.streams.redirect, redirect, 1);
    ck_assert_mem_eq(c.streams.tee, tee, sizeof(tee));
    config_build_release(&c);
}

TEST_LOOP(workers_are_counted_as_the_machine_says, 0, 6)
{
    static const struct {
        const char *flag;
        uint32_t gpus, workers;
    } cases[] = { { "cpu", 4, 6 },  { "gpu", 4, 4 }, { "auto", 4, 4 },
                  { "auto", 0, 6 }, { "12", 4, 12 }, { "0012", 4, 12 } };
    struct options o;
    struct config c;
    char line[64];

    gpus = cases[_i].gpus;
    snprintf(line, sizeof(line), "--nproc-per-node %s x", cases[_i].flag);
    accept_line(line, &o, &c);
    ck_assert_uint_eq(c.workers, cases[_i].workers);
    config_build_release(&c);
}

TEST_LOOP(processes_of_all_nodes_are_divided_among_them, 0, 12)
{
    static const struct {
        const char *line;
        uint32_t workers;
    } cases[] = { { "-np 4 x", 4 },
                  { "-n 4 x", 4 },
                  { "-np 4 --nnodes 2 x", 2 },
                  { "-np=4 --standalone x", 4 },
                  { "-ppn 3 --nnodes 2 x", 3 },
                  { "-npernode 3 x", 3 },
                  { "-np 5 --nnodes 2 x", 0 },
                  { "-np 4 --nnodes 1:2 x", 0 },
                  { "-np 4 -ppn 2 x", 0 },
                  { "-np 4097 x", 0 },
                  { "-np 0 x", 0 },
                  { "-np 16 -H a,b x", 1 } }; /* the hosts' own affair */
    struct line line;
    struct options o;
    struct config c;
    struct err e;
    int rc = read_line(&line, cases[_i].line, &o, &c, &e);

    ck_assert_int_eq(rc, cases[_i].workers ? 0 : -1);
    if (rc == 0)
        ck_assert_uint_eq(c.workers, cases[_i].workers);
    config_build_release(&c);
}

TEST(hosts_and_variables_are_gathered)
{
    struct options o;
    struct config c;

    accept_line("-H a:8,b -x SEED=1 --hosts c --hostfile f -x NCCL_* --wdir d x", &o,
                &c);
    ck_assert_uint_eq(o.hosts.lists.count, 2);
    ck_assert_str_eq(o.hosts.lists.text[1], "c");
    ck_assert_str_eq(o.hosts.file, "f");
    ck_assert_str_eq(o.exports.text[1], "NCCL_*");
    ck_assert_str_eq(o.folder, "d");
    options_forget_hosts(&o);
    ck_assert(!hosts_are_wanted(&o.hosts) && !o.folder && o.exports.count == 0);
    config_build_release(&c);
}

TEST(virtual_local_ranks_need_a_gpu_each)
{
    struct line line;
    struct options o;
    struct config c;
    struct err e;

    machine.cuda_visible_devices = "4,5";
    ck_assert(
        read_line(&line, "--virtual-local-rank --nproc-per-node 3 x", &o, &c, &e) < 0);
    ck_assert_str_eq(e.text, "--virtual-local-rank: 3 workers, and "
                             "CUDA_VISIBLE_DEVICES=4,5 has GPUs for 2");
    config_build_release(&c);
    machine.hip_visible_devices = "1,2,3";
    accept_line("--virtual-local-rank --nproc-per-node 3 x", &o, &c);
    config_build_release(&c);
}

static const struct {
    const char *line;
    int64_t deadline_s;
} time_limits[] = {
    { "x", 5000 },
    { "--time-limit 0 x", 0 },
    { "--time-limit UNLIMITED x", 0 },
    { "--time-limit 90 x", 1090 },
    { "--time-limit 90s x", 1090 },
    { "--time-limit 2m x", 1120 },
    { "--time-limit 1h x", 4600 },
    { "--time-limit 1d x", 87400 },
    { "--time-limit 10:05 x", 1605 },
    { "--time-limit 100:00:01 x", 361001 },
    { "--time-limit 1-00:00:01 x", 87401 },
};

TEST_EACH(the_end_of_its_time_is_given_or_that_of_the_slurm_job, time_limits)
{
    struct options o;
    struct config c;

    machine.now_s = 1000;
    machine.batch.end_time = 5000;
    accept_line(time_limits[_i].line, &o, &c);
    ck_assert_int_eq(c.deadline_s, time_limits[_i].deadline_s);
    ck_assert(!c.under_slurm);
    config_build_release(&c);
    machine.batch.is_slurm_step = true;
    machine.batch.end_time = 999; /* of another job */
    accept_line("x", &o, &c);
    ck_assert_int_eq(c.deadline_s, 0);
    ck_assert(c.under_slurm);
    config_build_release(&c);
}

TEST(the_environment_gives_defaults_and_crun_is_the_stronger)
{
    struct options o;
    struct config c;

    setenv("PET_NNODES", "3", 1);
    setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "9", 1);
    setenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${rank}>", 1);
    accept_line("x", &o, &c);
    ck_assert_uint_eq(c.job.max_nodes, 3);
    ck_assert_uint_eq(c.job.shutdown_grace_ms, 9000);
    ck_assert_str_eq(c.prefix_template, "${rank}>");
    config_build_release(&c);
    setenv("CRUN_NNODES", "4", 1);
    accept_line("--shutdown-timeout 2 x", &o, &c);
    ck_assert_uint_eq(c.job.max_nodes, 4);
    ck_assert_uint_eq(c.job.shutdown_grace_ms, 2000);
    config_build_release(&c);
    accept_line("--nnodes 5 x", &o, &c);
    ck_assert_uint_eq(c.job.max_nodes, 5);
    config_build_release(&c);
}

TEST(a_wrong_variable_is_refused_by_its_name)
{
    struct line line;
    struct options o;
    struct config c;
    struct err e;

    setenv("PET_STANDALONE", "2", 1);
    ck_assert(read_line(&line, "x", &o, &c, &e) < 0);
    ck_assert_str_eq(e.text, "PET_STANDALONE: \"2\" is not 1 or 0");
    setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x", 1);
    ck_assert(read_line(&line, "x", &o, &c, &e) < 0);
    ck_assert_ptr_nonnull(strstr(e.text, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT: \"x\" is"));
}

TEST(flags_for_python_alone_leave_a_note_each)
{
    struct options o;
    struct config c;

    accept_line("--start-method fork --start-method spawn --logs-specs "
                "default --monitor-interval 0.1 --event-log-handler dynamic x",
                &o, &c);
    ck_assert_uint_eq(o.note_count, 3);
    ck_assert_ptr_nonnull(strstr(o.notes[0], "--start-method has no effect"));
    config_build_release(&c);
}

TEST(signals_are_known_by_their_names)
{
    static const int signals[] = { SIGUSR1, SIGTERM, SIGINT, 0 };
    char *argv[] = { "crun", "--signals-to-handle", "SIGUSR1, TERM ,sigint", "x",
                     NULL };
    struct options o;
    struct err e;
    int word;

    ck_assert_int_eq(options_parse(4, argv, &o, &word, &e), 0);
    ck_assert_mem_eq(o.config.signals, signals, sizeof(signals));
    ck_assert_str_eq(o.config.signals_text, "SIGUSR1, TERM ,sigint");
}

TEST(a_job_on_one_node_has_a_name_of_its_own)
{
    char first[RUN_ID_MAX + 1];
    struct options o;
    struct config c;

    accept_line("x", &o, &c);
    memcpy(first, c.run_id, sizeof(first));
    config_build_release(&c);
    accept_line("x", &o, &c);
    ck_assert_str_ne(c.run_id, first);
    ck_assert_uint_eq(strlen(c.run_id), 36);
    config_build_release(&c);
    accept_line("--rdzv-id mine x", &o, &c);
    ck_assert_str_eq(c.run_id, "mine");
    config_build_release(&c);
    accept_line("--nnodes 2 x", &o, &c);
    ck_assert_str_eq(c.run_id, "none");
    config_build_release(&c);
}

/* Whether two command lines are of one job. */
static bool same_job(const char *a, const char *b)
{
    char hash[65];
    struct options o;
    struct config c;
    bool same;

    accept_line(a, &o, &c);
    memcpy(hash, c.job.arguments_hash, sizeof(hash));
    config_build_release(&c);
    accept_line(b, &o, &c);
    ck_assert_str_ne(hash, "");
    same = strcmp(hash, c.job.arguments_hash) == 0;
    config_build_release(&c);
    return same;
}

TEST(the_same_program_with_the_same_arguments_is_one_job)
{
    ck_assert(same_job("train.py --lr 1", "train.py --lr 1"));
    ck_assert(same_job("train.py --lr 1", "--nproc-per-node 2 -v train.py --lr 1"));
    ck_assert(same_job("/a/train.py --lr 1", "b/train.py --lr 1"));
    ck_assert(!same_job("train.py --lr 1", "train.py --lr 2"));
    ck_assert(!same_job("train.py --lr 1", "train.py --lr1"));
    ck_assert(!same_job("train.py --lr 1", "eval.py --lr 1"));
    ck_assert(!same_job("train", "-m train"));
}

TEST(several_nodes_do_not_read_standard_input)
{
    struct options o;
    struct config c;

    accept_line("--nnodes 2 x", &o, &c);
    ck_assert_int_eq(c.stdin_mode, CONFIG_STDIN_NONE);
    config_build_release(&c);
    accept_line("--nnodes 2 --stdin 0 x", &o, &c);
    ck_assert_int_eq(c.stdin_mode, CONFIG_STDIN_FIRST);
    config_build_release(&c);
    accept_line("--stdin none x", &o, &c);
    ck_assert_int_eq(c.stdin_mode, CONFIG_STDIN_NONE);
    config_build_release(&c);
}

TEST(every_flag_is_in_the_help_once)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    options_print_help(out);
    fclose(out);
    for (const struct opt *o = options_table; o->name; o++) {
        const char *after = !o->arg ? "" : o->arg_optional ? "[=" : " ";
        const char *dashes = o->one_dash ? "-" : "--";
        char flag[64], *at;

        if (!o->help)
            continue;
        snprintf(flag, sizeof(flag), "\n      %s%s%s", dashes, o->name, after);
        if (o->letter)
            snprintf(flag, sizeof(flag), "\n  -%c, %s%s", o->letter, dashes, o->name);
        at = strstr(text, flag);
        ck_assert_msg(at, "--%s is not there", o->name);
        ck_assert_msg(!strstr(at + 1, flag), "--%s is there twice", o->name);
    }
    free(text);
}

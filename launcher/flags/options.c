/* SPDX-License-Identifier: MIT */
#include "launcher/flags/options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/flags/habits.h"
#include "launcher/flags/limits.h"
#include "launcher/flags/option_setters.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

static const struct opt *option_row(const char *name)
{
    for (const struct opt *o = options_table; o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

/* Variables of torchrun and of an operator for Kubernetes; those named after the flag
 * win. */
static int read_other_variables(struct options *o, struct err *e)
{
    static const struct {
        const char *name, *flag;
    } others[] = { { "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "shutdown-timeout" },
                   { "PET_N_PROC_PER_NODE", "nproc-per-node" } };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const struct opt *opt = option_row(others[i].flag);
        const char *value = getenv(others[i].name);

        if (value && *value && opt->set(o, opt, value, e) < 0)
            return err_wrap(e, "%s", others[i].name);
    }
    return 0;
}

static struct config default_config(void)
{
    return (struct config){
        .job = { .min_nodes = 1,
                 .max_nodes = 1,
                 .restart_backoff_ms = RESTART_BACKOFF_MS_DEFAULT,
                 .shutdown_grace_ms = SHUTDOWN_GRACE_MS_DEFAULT,
                 .failure_grace_ms = FAILURE_GRACE_MS_DEFAULT },
        .survivor_grace_ms = SURVIVOR_GRACE_MS_DEFAULT,
        .silence_warning_ms = SILENCE_WARNING_MS_DEFAULT,
        .memory_copies = 1,
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
                                     .stop_at_word = true,
                                     .hints = habits_flags };
    const char *timer = getenv("TORCHELASTIC_ENABLE_FILE_TIMER");

    *o = (struct options){ .self = argv[0],
                           .argv = argv,
                           .nproc_number = 1,
                           .master_port = -1,
                           .time_limit_s = -1,
                           .redirects = "0",
                           .tee = "0",
                           .local_ranks_filter = "",
                           .stdout_filters = "",
                           .stderr_filters = "",
                           .config = default_config() };
    rdzv_conf_init(&o->conf);
    if (timer && strcmp(timer, "1") == 0)
        o->notes[o->note_count++] = "TORCHELASTIC_ENABLE_FILE_TIMER has no effect: "
                                    "crun has no file-based timers";
    if (option_set_signals(o, option_row("signals-to-handle"), SIGNALS_DEFAULT, e) <
            0 ||
        read_other_variables(o, e) < 0)
        return -1;
    if (opt_parse(&rules, argc, argv, o, first_word, e) < 0)
        return -1;
    o->flag_words = *first_word;
    return 0;
}

void options_forget_hosts(struct options *o)
{
    o->hosts = (struct hosts_wanted){ .file = NULL };
    o->exports = (struct opt_texts){ .count = 0 };
    o->folder = NULL;
    o->rsh = o->ssh_args = NULL;
    o->detach = false;
    o->processes = 0;
}

void options_print_short_help(FILE *out)
{
    const char *name = log_program();

    fprintf(
        out,
        "usage: %s [flags] PROGRAM [ARGUMENTS]\n\n"
        "Runs a training job: PROGRAM, once for each rank, on this node and others.\n\n"
        "  --nproc-per-node N|gpu|cpu  workers on this node; default: 1\n"
        "  --nnodes N|MIN:MAX          nodes; default: 1, or a scheduler's\n"
        "  --master-addr HOST          node rank 0, with --node-rank N of this node\n"
        "  -H a:8,b:8                  start the job on these hosts over ssh\n"
        "  --max-restarts N            restart the workers after a failure\n"
        "  --warm                      start Python workers in a fraction of a second\n"
        "  --log-dir DIR --tee 3       output also in files, with the rank here\n\n"
        "Examples:\n"
        "  %s --nproc-per-node=4 train.py\n"
        "  srun %s train.py\n"
        "  %s -H node1:8,node2:8 --max-restarts=3 train.py\n\n"
        "%s --help: all flags. Manual: crun(1). Running jobs: crunctl status\n",
        name, name, name, name, name);
}

/* Prints the rows from first up to, but not including, last. */
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
                   { "Hosts over ssh", "hosts" },
                   { "Where the rendezvous is", "standalone" },
                   { "The program", "module" },
                   { "Output", "log-dir" },
                   { "Failures and shutdown", "max-restarts" },
                   { "The launcher itself", "dry-run" } };
    const size_t count = sizeof(groups) / sizeof(groups[0]);

    fprintf(out, "usage: %s [flags] [--] PROGRAM [ARGUMENTS]\n\n", log_program());
    fputs(
        "Runs a training job: PROGRAM, once for each rank, on this node and others.\n"
        "A .py file, and a text that is not executable, is run by Python; any other\n"
        "program is executed. In ARGUMENTS, ${rank}, ${local_rank}, ${world_size},\n"
        "${local_world_size}, ${node_rank}, ${nnodes}, ${master_addr}, "
        "${master_port},\n"
        "${free_port} and ${free_port:NAME} are replaced. Flags of torchrun have the\n"
        "same meaning here.\n"
        "Each flag can also be an environment variable: --max-restarts is\n"
        "CRUN_MAX_RESTARTS or PET_MAX_RESTARTS. A TIME is in seconds, or has units:\n"
        "500ms, 5m, 1h30m.\n",
        out);
    for (size_t i = 0; i < count; i++) {
        const struct opt *end = i + 1 < count ? option_row(groups[i + 1].first)
                                              : option_row("help");

        fprintf(out, "\n%s:\n", groups[i].title);
        print_rows(option_row(groups[i].first), end + (i + 1 == count), out);
    }
}

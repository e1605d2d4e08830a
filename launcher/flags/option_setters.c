/* SPDX-License-Identifier: MIT */
/* The setters of those flags that are not a switch, a text or a number. */
#include "launcher/flags/option_setters.h"
#include "agent/progress/step_pattern.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "launcher/flags/limits.h"
#include "launcher/flags/options.h"
#include "launcher/flags/rank_lists.h"
#include "launcher/hosts/host_environment.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/job/events/notify.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/proto.h"

/* The index of value in the form of the flag's argument, as in "none|0|all", or -1. */
static int find_choice(const struct opt *opt, const char *value, struct err *e)
{
    char list[64] = "";
    const char *at = opt->arg;
    size_t length, used = 0;

    for (int i = 0; *at; i++, at += length + (at[length] == '|')) {
        length = strcspn(at, "|");
        if (strlen(value) == length && memcmp(at, value, length) == 0)
            return i;
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%.*s",
                                 i == 0       ? ""
                                 : at[length] ? ", "
                                              : " or ",
                                 (int)length, at);
    }
    return err_set(e, "\"%s\" is not %s", value, list);
}

static void add_note(struct options *o, const char *note)
{
    for (unsigned i = 0; i < o->note_count; i++)
        if (o->notes[i] == note)
            return;
    o->notes[o->note_count++] = note;
}

/* Reads a whole number from 1 to max at the start of text and sets *end after it.
 * 0: there is none. */
static uint32_t read_positive(const char *text, uint32_t max, const char **end)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long long number = digits && digits < 10 ? strtoull(text, NULL, 10) : 0;

    *end = text + digits;
    return number <= max ? (uint32_t)number : 0;
}

int option_set_nnodes(void *target, const struct opt *opt, const char *value,
                      struct err *e)
{
    struct options *o = target;
    const char *end;
    uint32_t min = read_positive(value, NODES_MAX, &end), max = min;

    o->nnodes_auto = strcmp(value, "auto") == 0;
    o->nnodes_given = !o->nnodes_auto;
    if (o->nnodes_auto) {
        o->config.job.min_nodes = o->config.job.max_nodes = 1;
        return 0;
    }
    if (*end == ':')
        max = read_positive(end + 1, NODES_MAX, &end);
    if (min == 0 || max == 0 || *end != '\0')
        return err_set(e, "\"%s\" is not auto, N or MIN:MAX with numbers from 1 to %d",
                       value, NODES_MAX);
    if (min > max)
        return err_set(e, "\"%s\": the minimum is above the maximum", value);
    o->config.job.min_nodes = min;
    o->config.job.max_nodes = max;
    return 0;
}

int option_set_nproc(void *target, const struct opt *opt, const char *value,
                     struct err *e)
{
    struct options *o = target;
    const char *end;

    o->nproc_given = true;
    o->nproc = strcmp(value, "cpu") == 0    ? NPROC_CPU
               : strcmp(value, "gpu") == 0  ? NPROC_GPU
               : strcmp(value, "auto") == 0 ? NPROC_AUTO
                                            : NPROC_NUMBER;
    if (o->nproc != NPROC_NUMBER)
        return 0;
    o->nproc_number = read_positive(value, WORKERS_PER_NODE_MAX, &end);
    if (end == value || *end != '\0')
        return err_set(e, "\"%s\" is not a number, cpu, gpu or auto", value);
    if (o->nproc_number == 0)
        return err_set(e, "\"%s\" is not from 1 to %d", value, WORKERS_PER_NODE_MAX);
    return 0;
}

int option_add_hosts(void *target, const struct opt *opt, const char *value,
                     struct err *e)
{
    if (!*value)
        return err_set(e, "a value is missing: \"\"");
    return opt_add_text(target, opt, value, e);
}

int option_add_export(void *target, const struct opt *opt, const char *value,
                      struct err *e)
{
    if (host_environment_check(value, e) < 0)
        return -1;
    return opt_add_text(target, opt, value, e);
}

int option_set_spares(void *target, const struct opt *opt, const char *value,
                      struct err *e)
{
    ((struct options *)target)->config.job.limit_spares = true;
    return opt_set_int(target, opt, value, e);
}

int option_set_backend(void *target, const struct opt *opt, const char *value,
                       struct err *e)
{
    struct options *o = target;

    if (strncmp(value, "etcd", 4) == 0)
        return err_set(e,
                       "\"%s\" is not supported: use c10d, and crund if the rendezvous "
                       "must outlive a node",
                       value);
    o->backend = (enum options_backend)(BACKEND_STATIC + find_choice(opt, value, e));
    return o->backend < BACKEND_STATIC ? -1 : 0;
}

int option_set_rdzv_conf(void *target, const struct opt *opt, const char *value,
                         struct err *e)
{
    struct options *o = target;

    rdzv_conf_init(&o->conf); /* a later one replaces an earlier one */
    return rdzv_conf_parse(&o->conf, value, e);
}

int option_set_run_id(void *target, const struct opt *opt, const char *value,
                      struct err *e)
{
    if (!proto_is_name(value) || strlen(value) > RUN_ID_MAX)
        return err_set(e,
                       "\"%s\" is not an id of a job (1 to %d letters, digits and "
                       ". _ : @ %% + -)",
                       value, RUN_ID_MAX);
    return opt_set_text(target, opt, value, e);
}

int option_set_some_text(void *target, const struct opt *opt, const char *value,
                         struct err *e)
{
    if (!*value)
        return err_set(e, "a value is missing: \"\"");
    return opt_set_text(target, opt, value, e);
}

/* A name is looked up later, on the node that opens the page. */
int option_set_page_address(void *target, const struct opt *opt, const char *value,
                            struct err *e)
{
    char text[NET_TEXT_SIZE + HOST_NAME_MAX_BYTES], host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;

    if (!*value)
        return err_set(e, "a value is missing: \"\"");
    snprintf(text, sizeof(text), "%s%s", net_is_port(value) ? ":" : "", value);
    if (net_split(text, -1, host, sizeof(host), &port, e) < 0)
        return -1;
    return opt_set_text(target, opt, value, e);
}

int option_set_event_kinds(void *target, const struct opt *opt, const char *value,
                           struct err *e)
{
    return notify_check_kinds(value, e) < 0 ? -1 : opt_set_text(target, opt, value, e);
}

int option_set_local_addr(void *target, const struct opt *opt, const char *value,
                          struct err *e)
{
    if (!proto_is_name(value) || strlen(value) > ADDRESS_MAX_BYTES)
        return err_set(e, "\"%s\" is not an address (1 to %d letters)", value,
                       ADDRESS_MAX_BYTES);
    return opt_set_text(target, opt, value, e);
}

int option_set_numa(void *target, const struct opt *opt, const char *value,
                    struct err *e)
{
    struct config *c = &((struct options *)target)->config;
    int choice = strcmp(value, "none") == 0 ? -1 : find_choice(opt, value, e);

    c->numa = (enum config_numa)(CONFIG_NUMA_NODE + choice);
    return choice < 0 && strcmp(value, "none") != 0 ? -1 : 0;
}

int option_set_stdin(void *target, const struct opt *opt, const char *value,
                     struct err *e)
{
    int choice = find_choice(opt, value, e);

    ((struct options *)target)->stdin_mode = (enum options_stdin)(STDIN_NONE + choice);
    return choice < 0 ? -1 : 0;
}

int option_set_fence(void *target, const struct opt *opt, const char *value,
                     struct err *e)
{
    int choice = find_choice(opt, value, e);

    ((struct options *)target)->config.job.strict_fence = choice == 1;
    return choice < 0 ? -1 : 0;
}

int option_set_store_auth(void *target, const struct opt *opt, const char *value,
                          struct err *e)
{
    int choice = find_choice(opt, value, e);

    ((struct options *)target)->config.job.store_auth = choice == 0
                                                            ? STORE_AUTH_USER
                                                            : STORE_AUTH_ADDRESS;
    return choice < 0 ? -1 : 0;
}

int option_set_streams(void *target, const struct opt *opt, const char *value,
                       struct err *e)
{
    uint8_t none;

    if (rank_lists_streams(value, &none, 0, e) < 0)
        return -1;
    return opt_set_text(target, opt, value, e);
}

int option_set_rank_filter(void *target, const struct opt *opt, const char *value,
                           struct err *e)
{
    bool none;

    if (rank_lists_shown(value, &none, 0, e) < 0)
        return -1;
    return opt_set_text(target, opt, value, e);
}

int option_set_exit_codes(void *target, const struct opt *opt, const char *value,
                          struct err *e)
{
    struct job_config *job = &((struct options *)target)->config.job;
    const char *at = value;
    uint32_t code = 1;

    while (*at && code > 0) {
        code = read_positive(at, 255, &at);
        if (*at == ',' && at[1])
            at++;
        else if (*at)
            code = 0;
    }
    if (code == 0)
        return err_set(
            e, "\"%s\" is not a list of exit codes from 1 to 255, as in 2,127", value);
    if (strlen(value) > NO_RESTART_ON_MAX_BYTES)
        return err_set(e, "a list of more than %d letters", NO_RESTART_ON_MAX_BYTES);
    memcpy(job->no_restart_on, value, strlen(value) + 1);
    return 0;
}

/* The signal called "SIGTERM" or "TERM"; -1: no signal that a program can handle. */
static int find_signal(const char *name, size_t length)
{
    if (length > 3 && strncasecmp(name, "SIG", 3) == 0) {
        name += 3;
        length -= 3;
    }
    for (int signo = 1; signo < NSIG; signo++) {
        const char *known = text_signal(signo);

        if (known && strlen(known) == length && strncasecmp(known, name, length) == 0)
            return signo == SIGKILL || signo == SIGSTOP || signo == SIGCHLD ? -1
                                                                            : signo;
    }
    return -1;
}

int option_set_log_mode(void *target, const struct opt *opt, const char *value,
                        struct err *e)
{
    unsigned long mode = strtoul(value, NULL, 8);

    if (!*value || strlen(value) > 4 || strspn(value, "01234567") != strlen(value) ||
        (mode & 0600) != 0600 || (mode & ~0666ul))
        return err_set(e, "\"%s\" is not a mode of files between 0600 and 0666", value);
    ((struct options *)target)->config.log_mode = (uint32_t)mode;
    return 0;
}

int option_set_size(void *target, const struct opt *opt, const char *value,
                    struct err *e)
{
    static const char units[] = "KMG";
    const char *end, *unit;
    uint64_t size = read_positive(value, UINT32_MAX, &end);

    unit = *end ? strchr(units, *end) : NULL;
    if (unit)
        size <<= 10 * (unit - units + 1);
    if (size < (uint64_t)opt->min || (*end && (!unit || end[1])))
        return err_set(e, "\"%s\" is not a size of %lldK or more, as 500M or 2G", value,
                       opt->min >> 10);
    memcpy((char *)target + opt->offset, &size, sizeof(size));
    return 0;
}

int option_set_memory_limit(void *target, const struct opt *opt, const char *value,
                            struct err *e)
{
    const char *end;
    uint64_t percent = read_positive(value, 100, &end);

    if (percent == 0 || strcmp(end, "%") != 0)
        return option_set_size(target, opt, value, e);
    ((struct options *)target)->config.memory_limit = (uint64_t)sysconf(
                                                          _SC_PHYS_PAGES) *
                                                      (uint64_t)sysconf(_SC_PAGESIZE) /
                                                      100 * percent;
    return 0;
}

int option_set_signals(void *target, const struct opt *opt, const char *value,
                       struct err *e)
{
    int *signals = ((struct options *)target)->config.signals;
    const char *next = value;
    unsigned count = 0;

    memset(signals, 0, CONFIG_SIGNALS_MAX * sizeof(*signals));
    for (;; next++) {
        size_t blanks = strspn(next, " "), length = strcspn(next + blanks, ", ");
        int signo = find_signal(next + blanks, length);

        if (signo < 0)
            return err_set(e, "\"%.*s\" is not a signal that can be handled",
                           (int)length, next + blanks);
        if (count == CONFIG_SIGNALS_MAX - 1)
            return err_set(e, "more than %d signals", CONFIG_SIGNALS_MAX - 1);
        signals[count++] = signo;
        next += blanks + length;
        next += strspn(next, " ");
        if (*next != ',')
            break;
    }
    if (*next)
        return err_set(e, "\"%s\" is not a list of signals, as in SIGTERM,SIGUSR1",
                       value);
    return opt_set_text(target, opt, value, e);
}

int option_set_checkpoint_signal(void *target, const struct opt *opt, const char *value,
                                 struct err *e)
{
    struct config *c = &((struct options *)target)->config;

    c->checkpoint_signal = find_signal(value, strlen(value));
    return c->checkpoint_signal < 0
               ? err_set(e, "\"%s\" is not a signal that can be handled", value)
               : 0;
}

/* "D-H:M:S", "H:M:S" or "M:S", as Slurm writes it. -1: it is not that. */
static int64_t parse_clock(const char *text)
{
    const char *dash = strchr(text, '-'), *at = dash ? dash + 1 : text;
    int64_t part[3] = { 0 }, days = dash ? strtoll(text, NULL, 10) : 0, seconds = 0;
    size_t count = 0;

    if (dash && strspn(text, "0123456789") != (size_t)(dash - text))
        return -1;
    for (;; at++) {
        size_t digits = strspn(at, "0123456789");

        if (digits == 0 || digits > 6 || count == 3)
            return -1;
        part[count++] = strtoll(at, NULL, 10);
        at += digits;
        if (*at != ':')
            break;
    }
    if (*at || count < 2 || (dash && (count != 3 || part[0] >= 24)))
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && part[i] >= 60)
            return -1;
        seconds = seconds * 60 + part[i];
    }
    return seconds + days * 86400;
}

int option_set_time_limit(void *target, const struct opt *opt, const char *value,
                          struct err *e)
{
    struct options *o = target;
    int64_t ms = clock_parse_duration(value);

    o->time_limit_s = strcmp(value, "UNLIMITED") == 0 ? 0 /* squeue says so */
                      : strchr(value, ':')            ? parse_clock(value)
                      : ms < 0                        ? -1
                                                      : (ms + 999) / 1000;
    if (o->time_limit_s < 0 || o->time_limit_s > TIME_LIMIT_S_MAX)
        return err_set(e,
                       "\"%s\" is not a time of at most %d days: 90, 90s, 15m, 1h30m, "
                       "H:M:S or D-H:M:S",
                       value, TIME_LIMIT_S_MAX / 86400);
    return 0;
}

int option_set_warm(void *target, const struct opt *opt, const char *value,
                    struct err *e)
{
    struct options *o = target;

    value = value ? value : "";
    if (value[strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789_.,")] != '\0')
        return err_set(e, "\"%s\" is not a list of Python modules (a,b.c)", value);
    o->config.warm_modules = value;
    return 0;
}

int option_set_failure_grace(void *target, const struct opt *opt, const char *value,
                             struct err *e)
{
    static const struct opt seconds = { OPT_FIELD(struct config, job.failure_grace_ms),
                                        .max = UINT32_MAX };
    struct config *c = &((struct options *)target)->config;

    if (opt_set_seconds(c, &seconds, value, e) < 0)
        return -1;
    c->survivor_grace_ms = c->job.failure_grace_ms;
    return 0;
}

int option_set_hang_timeout(void *target, const struct opt *opt, const char *value,
                            struct err *e)
{
    static const struct opt seconds = { OPT_FIELD(struct config, hang_timeout_ms),
                                        .max = HANG_TIMEOUT_MS_MAX };
    struct config *c = &((struct options *)target)->config;

    c->hang_timeout_ms = 0;
    c->hang_auto = strcmp(value, "auto") == 0;
    if (c->hang_auto || opt_set_seconds(c, &seconds, value, e) == 0)
        return 0;
    return err_set(
        e, "\"%s\" is not auto, or a time from 0 to %d s, as in 90, 5m or 1h30m", value,
        HANG_TIMEOUT_MS_MAX / 1000);
}

int option_set_event_handler(void *target, const struct opt *opt, const char *value,
                             struct err *e)
{
    struct options *o = target;

    o->config.events_console = strcmp(value, "console") == 0;
    if (!o->config.events_console && strcmp(value, "null") != 0)
        add_note(o,
                 "--event-log-handler: crun loads no Python handlers; it has console, "
                 "null and --events-file");
    return 0;
}

int option_ignore_monitor_interval(void *target, const struct opt *opt,
                                   const char *value, struct err *e)
{
    if (clock_parse_duration(value) < 0)
        return err_set(e, "\"%s\" is not a time, as in 0.1 or 100ms", value);
    add_note(target,
             "--monitor-interval has no effect: crun notices a worker's exit at "
             "once");
    return 0;
}

int option_ignore_start_method(void *target, const struct opt *opt, const char *value,
                               struct err *e)
{
    if (find_choice(opt, value, e) < 0)
        return -1;
    add_note(target,
             "--start-method has no effect: crun executes each worker as a program");
    return 0;
}

int option_check_logs_specs(void *target, const struct opt *opt, const char *value,
                            struct err *e)
{
    if (strcmp(value, "default") != 0)
        return err_set(e,
                       "\"%s\" is not default, the only one: crun loads no Python "
                       "plug-ins",
                       value);
    return 0;
}

int option_set_progress_pattern(void *target, const struct opt *opt, const char *value,
                                struct err *e)
{
    struct options *o = target;
    regex_t regex;

    if (step_pattern_compile(&regex, value, e) < 0)
        return -1;
    regfree(&regex);
    o->config.progress_pattern = value;
    return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * crunctl: shows and controls running jobs. This file finds the command and parses its
 * flags; ctl_target.c finds what a command asks, and cmd_*.c has the commands.
 */
#include <ctype.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launcher/crunctl/ctl_client.h"
#include "launcher/crunctl/ctl_target.h"
#include "launcher/crunctl/ui/screen.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/wire/protocol/own_build.h"
#include "rendezvous/wire/protocol/proto.h"

#define DEFAULT_TIMEOUT_MS 10000

static const struct ctl_command *const ctl_commands[] = {
    &ctl_status, &ctl_top,        &ctl_events, &ctl_logs,  &ctl_stacks, &ctl_page,
    &ctl_report, &ctl_checkpoint, &ctl_stop,   &ctl_drain, &ctl_keygen, NULL
};

static const struct opt common_flags[] = { CTL_COMMON_FLAGS, { .name = NULL } };

/* Of earlier versions. */
static const struct opt_hint removed_flags[] = { { .typed = "print-completion",
                                                   .text = "make install installs it",
                                                   .removed = true },
                                                 { .typed = NULL } };

static void print_commands(void)
{
    printf("usage: %s [flags] COMMAND [flags]\n\n"
           "Shows and controls jobs: yours on this machine, or those of a rendezvous.\n"
           "A JOB is a name, a run id, or the pid of its crun. Also makes keys.\n\n",
           log_program());
    for (const struct ctl_command *const *c = ctl_commands; *c; c++) {
        char form[32];

        snprintf(form, sizeof(form), "%s%s%s%s", (*c)->name,
                 (*c)->takes_job ? " [JOB]" : "", (*c)->words ? " " : "",
                 (*c)->words ? (*c)->words : "");
        printf("  %-22s  %s\n", form, (*c)->summary);
    }
}

static void print_short_help(void)
{
    const char *name = log_program();

    print_commands();
    printf("\nExamples:\n"
           "  %s status\n"
           "  %s -e node1:29400 drain node3\n\n"
           "%s --help: the flags; %s COMMAND -h: those of a command\n",
           name, name, name, name);
}

static const struct ctl_command *find_command(const char *name)
{
    for (const struct ctl_command *const *c = ctl_commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

static int refuse_usage(const char *text)
{
    log_error("%s", text);
    return CTL_EXIT_USAGE;
}

static void refuse_command(const char *typed)
{
    struct opt names[sizeof(ctl_commands) / sizeof(*ctl_commands)] = {
        { .name = NULL }
    };
    const struct opt *nearest;

    for (unsigned i = 0; ctl_commands[i]; i++)
        names[i].name = ctl_commands[i]->name;
    nearest = opt_find_nearest(names, typed, strlen(typed), true);
    if (nearest)
        log_error("\"%s\" is not a command; did you mean %s?", typed, nearest->name);
    else
        log_error("\"%s\" is not a command: use status, top, events, logs, stacks, "
                  "page, report, checkpoint, stop, drain or keygen",
                  typed);
}

/* Checks that the command has its argument, or none if it takes none. */
static int check_words(const struct ctl_command *c, int words, const char *extra,
                       struct err *e)
{
    int most = (c->words ? 1 : 0) + c->takes_job;

    if (c->words && *c->words == '[') /* any number */
        return 0;
    if (words < (c->words ? 1 : 0))
        return err_set(e, "crunctl %s %s: the %s is missing", c->name, c->words,
                       c->words);
    if (words > most)
        return err_set(e, "\"%s\": crunctl %s takes %s", extra, c->name,
                       c->words       ? "one job and one node"
                       : c->takes_job ? "one job"
                                      : "no argument");
    return 0;
}

static bool is_list_of_ranks(const char *word)
{
    return word[strspn(word, "0123456789,-")] == '\0';
}

/* The first word may name the job, as --rdzv-id does. Returns how many words do. */
static int take_job_word(const struct ctl_command *c, struct ctl_options *o, int words)
{
    bool names_job = c->takes_job && words > (c->words && *c->words != '[');

    if (c->ranks_follow && words > 0)
        names_job = !is_list_of_ranks(o->words[0]);
    if (!names_job || (o->run_id && c->ranks_follow))
        return 0;
    o->run_id = o->words[0];
    return 1;
}

static int check_run_id(const struct ctl_options *o, struct err *e)
{
    if (o->run_id && (!proto_is_name(o->run_id) || strlen(o->run_id) > RUN_ID_MAX))
        return err_set(e,
                       "--rdzv-id: \"%s\" is not the name of a job (1 to %d letters, "
                       "digits and . _ : @ %% + -)",
                       o->run_id, RUN_ID_MAX);
    return 0;
}

/* Flushes standard output; the exit code shows if that fails. A reader that has gone,
 * as of "| head -1", has what it wants. */
static int flush_output(int rc)
{
    struct pollfd p = { .fd = STDOUT_FILENO };

    if (fflush(stdout) == 0 && !ferror(stdout))
        return rc;
    if (poll(&p, 1, 0) == 1 && (p.revents & POLLERR))
        return rc;
    log_error("standard output cannot be written");
    return rc == CTL_EXIT_OK ? CTL_EXIT_REFUSED : rc;
}

static char *render_frame(const struct ctl_command *command,
                          const struct ctl_options *o)
{
    struct ctl_options own = *o;
    char *frame = NULL;
    struct err e;
    size_t size;

    own.out = open_memstream(&frame, &size);
    if (!own.out)
        return NULL;
    if (ctl_target_run(command, &own, &e) != CTL_EXIT_OK)
        fprintf(own.out, "%s\n", e.text);
    fclose(own.out);
    return frame;
}

static void repeat_frames(const struct ctl_command *command,
                          const struct ctl_options *o)
{
    const struct timespec pause = { .tv_sec = (time_t)(o->watch_ms / 1000),
                                    .tv_nsec = (long)(o->watch_ms % 1000) * 1000000 };

    do {
        char *frame = render_frame(command, o);

        printf("%s%s", frame ? frame : "", o->json ? "" : "\n");
        free(frame);
    } while (fflush(stdout) == 0 && nanosleep(&pause, NULL) == 0);
}

/* Every o->watch_ms: live on the screen of a terminal, elsewhere one after the other.
 * While the rendezvous cannot be reached, the error is shown. */
static int watch_command(const struct ctl_command *command, const struct ctl_options *o)
{
    struct screen *s = o->json ? NULL : screen_open();

    if (s) {
        ctl_top_show(s, o, ctl_target_run);
        screen_close(s);
        _exit(CTL_EXIT_OK); /* its thread may ask still, of what ends with main */
    }
    repeat_frames(command, o);
    return CTL_EXIT_OK;
}

static int run_command(const struct ctl_command *c, int argc, char **argv,
                       struct ctl_options *o)
{
    const struct opt_rules rules = { .table = c->table };
    struct err e;
    int word, rc;

    o->watch_ms = c->watch_ms;
    if (opt_parse(&rules, argc, argv, o, &word, &e) < 0)
        return refuse_usage(e.text);
    if (o->help || o->short_help) {
        printf("usage: %s %s%s%s%s [flags]\n\n%c%s.\n\n", log_program(), c->name,
               c->takes_job ? " [JOB]" : "", c->words ? " " : "",
               c->words ? c->words : "", toupper(c->summary[0]), c->summary + 1);
        opt_print(c->table, stdout);
        return CTL_EXIT_OK;
    }
    if (check_words(c, argc - word, argv[argc - 1], &e) < 0)
        return refuse_usage(e.text);
    o->words = argv + word;
    o->words += take_job_word(c, o, argc - word);
    if (check_run_id(o, &e) < 0)
        return refuse_usage(e.text);
    if (o->watch_ms)
        return watch_command(c, o);
    rc = ctl_target_run(c, o, &e);
    if (rc != CTL_EXIT_OK)
        log_error("%s", e.text);
    return rc;
}

int main(int argc, char **argv)
{
    static const char *const prefixes[] = { "PET", "CRUN", NULL };
    const struct opt_rules rules = { .table = common_flags,
                                     .hints = removed_flags,
                                     .env_prefixes = prefixes,
                                     .stop_at_word = true };
    struct ctl_options o = { .timeout_ms = DEFAULT_TIMEOUT_MS,
                             .key_access = ACCESS_AGENT,
                             .tail = -1,
                             .out = stdout };
    const struct ctl_command *c;
    struct err e;
    int word;

    log_init(log_name_of(argv[0], "crunctl"), LOG_INFO, LOG_TEXT);
    if (opt_parse(&rules, argc, argv, &o, &word, &e) < 0)
        return refuse_usage(e.text);
    if (o.version || ((o.help || o.short_help) && word == argc)) {
        if (o.version)
            own_build_print(log_program(), "control of training jobs");
        else if (o.help) {
            print_commands();
            printf(
                "\nFlags of every command, which the environment can give too, as in\n"
                "CRUN_RDZV_ENDPOINT:\n\n");
            opt_print(common_flags, stdout);
            printf("\n\"%s COMMAND --help\" shows the flags of that command.\n",
                   log_program());
        } else {
            print_short_help();
        }
        return flush_output(CTL_EXIT_OK);
    }
    if (word == argc)
        return refuse_usage(
            "a command is missing: status, top, events, logs, stacks, "
            "page, report, checkpoint, stop, drain or keygen (crunctl --help)");
    c = find_command(argv[word]);
    if (!c) {
        refuse_command(argv[word]);
        return CTL_EXIT_USAGE;
    }
    return flush_output(run_command(c, argc - word, argv + word, &o));
}

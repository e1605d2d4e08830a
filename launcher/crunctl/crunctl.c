/* SPDX-License-Identifier: MIT */
/*
 * crunctl: shows and controls running jobs. This file finds the command and parses its
 * flags; cmd_*.c has the commands, and ctl_client.c the conversation with a rendezvous.
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
#include "launcher/crunctl/ctl_jobs.h"
#include "launcher/crunctl/ui/screen.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/wire/protocol/job_name.h"
#include "rendezvous/wire/protocol/own_build.h"
#include "rendezvous/wire/protocol/proto.h"

#define DEFAULT_TIMEOUT_MS 10000
#define OTHERS_MS 2000 /* for the greeting of another user's crun */

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

/* Which job of a rendezvous has the name that the user gave. */
struct job_name_search {
    const char *wanted;
    bool has_run_id;
    unsigned named;
    char run_id[RUN_ID_MAX + 1]; /* of the last that has the name */
};

static void note_name(void *arg, const struct msg *m)
{
    const struct msg_job_status *s = &m->job_status;
    struct job_name_search *f = arg;
    char name[JOB_NAME_SIZE];

    if (m->type != MSG_JOB_STATUS)
        return;
    f->has_run_id |= strcmp(s->run_id, f->wanted) == 0;
    if (strcmp(job_name(s->run_id, s->program, name, sizeof(name)), f->wanted) != 0)
        return;
    memcpy(f->run_id, s->run_id, sizeof(f->run_id));
    f->named++;
}

static void note_past_name(void *arg, const struct msg *m)
{
    struct job_name_search *f = arg;

    if (f->named == 0)
        note_name(f, m);
}

/* A name that is no run id there becomes that of the only job which has it. */
static void find_named_job(struct ctl_client *c, struct ctl_options *o,
                           bool may_have_ended, struct job_name_search *f)
{
    struct msg m = { .type = MSG_STATUS }, past = { .type = MSG_SHOW_HISTORY };
    struct err e;

    *f = (struct job_name_search){ .wanted = o->run_id };
    (void)!ctl_client_ask_pages(c, &m, note_name, f, &e);
    if (!f->has_run_id && !f->named && may_have_ended)
        (void)!ctl_client_ask_pages(c, &past, note_past_name, f, &e); /* newest first */
    if (!f->has_run_id && f->named == 1) {
        o->run_id = f->run_id;
        o->job_name = f->wanted;
    }
}

static int run_with_rendezvous(const struct ctl_command *command,
                               const struct ctl_options *o, const char *word,
                               struct err *e)
{
    struct ctl_options own = *o;
    struct job_name_search names;
    struct ctl_client *c;
    int rc;

    if (!own.endpoint)
        own.endpoint = CTL_USUAL_ENDPOINT;
    c = ctl_client_open(&own, command->access, &rc, e);
    if (c && own.run_id)
        find_named_job(c, &own, command->run_ended != NULL, &names);
    if (c)
        rc = command->run(c, &own, word, e);
    ctl_client_close(c);
    return rc;
}

/* A job of this machine, by the socket of its crun. */
static int run_with_job(const struct ctl_command *command, const struct ctl_options *o,
                        const struct ctl_job *job, const char *word, struct err *e)
{
    uint64_t greeting_ms = job->uid == geteuid() || o->timeout_ms < OTHERS_MS
                               ? o->timeout_ms
                               : OTHERS_MS;
    struct ctl_options own = *o;
    int rc;
    struct ctl_client *c = ctl_client_open_job(o, job, greeting_ms, &rc, e);

    own.run_id = job->run_id;
    own.job_name = job->name;
    own.job = job;
    if (c)
        rc = command->run(c, &own, word, e);
    ctl_client_close(c);
    return rc;
}

/* Neither this machine nor a rendezvous at the usual place has a job. */
static int find_nothing(const struct ctl_command *command, const struct ctl_options *o,
                        const struct ctl_jobs *jobs, struct err *e)
{
    const struct ctl_job *job;

    if (!o->run_id && command->run_all) {
        fputs(o->json       ? "[]\n"
              : jobs->count ? "no job runs; name one of those that have ended\n"
                            : "no jobs\n",
              o->out);
        return CTL_EXIT_OK;
    }
    if (o->run_id && ctl_jobs_choose(jobs, o->run_id, true, &job, e) == 0 && job)
        err_set(e, "job \"%s\" has ended already: crunctl status %s", job->name,
                o->run_id);
    else if (o->run_id)
        err_set(e,
                "there is no job \"%s\" on this machine: crunctl status shows yours; "
                "others are at their --rdzv-endpoint",
                o->run_id);
    else if (command->run_ended && jobs->count)
        err_set(e, "no job runs; name one of those that have ended (crunctl status)");
    else
        err_set(e, "no job of yours runs on this machine; say where the crund or the "
                   "job's crun is with --rdzv-endpoint");
    return CTL_EXIT_REFUSED;
}

/* The jobs of this machine come first, then those of a rendezvous at the usual
 * place. */
static int run_here(const struct ctl_command *command, const struct ctl_options *o,
                    const char *word, struct err *e)
{
    struct ctl_jobs jobs;
    const struct ctl_job *job = NULL;
    bool may_have_ended = command->run_ended != NULL;
    int rc;

    ctl_jobs_find(&jobs);
    ctl_jobs_ask_hosts(&jobs, o->run_id);
    if (*jobs.blocked)
        log_warn("%s is not a folder of yours alone: no crun can be found by it; set "
                 "CRUN_RUNTIME_DIR for crun and crunctl",
                 jobs.blocked);
    if (command->run_all && !o->run_id && !o->follow &&
        (command == &ctl_status || command == &ctl_top ? jobs.count : jobs.running) > 0)
        rc = command->run_all(o, &jobs, e);
    else if (ctl_jobs_choose(&jobs, o->run_id, may_have_ended, &job, e) < 0)
        rc = CTL_EXIT_USAGE;
    else if (!job) {
        rc = run_with_rendezvous(command, o, word, e);
        if (rc == CTL_EXIT_UNREACHABLE && e->code == CTL_NOT_THERE)
            rc = find_nothing(command, o, &jobs, e);
    } else if (job->state == CTL_JOB_RUNNING)
        rc = run_with_job(command, o, job, word, e);
    else
        rc = command->run_ended(o, job, e);
    ctl_jobs_release(&jobs);
    return rc;
}

static int run_anywhere(const struct ctl_command *command, const struct ctl_options *o,
                        struct err *e)
{
    const char *word = *o->words ? *o->words : "";

    if (command->is_local)
        return command->run(NULL, o, command->words ? word : "", e);
    if (o->endpoint)
        return run_with_rendezvous(command, o, word, e);
    return run_here(command, o, word, e);
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
    if (run_anywhere(command, &own, &e) != CTL_EXIT_OK)
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
        ctl_top_show(s, o, run_anywhere);
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
    rc = run_anywhere(c, o, &e);
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

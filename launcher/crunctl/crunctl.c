/* SPDX-License-Identifier: MIT */
/*
 * crunctl: shows and controls running jobs. This file finds the command and parses its
 * flags; cmd_*.c has the commands, and ctl_client.c the conversation with a rendezvous.
 */
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/crunctl/ctl_client.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/version.h"
#include "rendezvous/protocol/proto.h"

#define DEFAULT_ENDPOINT "127.0.0.1:29400"
#define DEFAULT_TIMEOUT_MS 10000

static const struct ctl_command *const commands[] = {
    &ctl_status, &ctl_events, &ctl_stop, &ctl_drain, &ctl_stacks, &ctl_keygen, NULL
};

static const struct opt common_flags[] = { CTL_COMMON_FLAGS, { .name = NULL } };

static void print_usage(void)
{
    printf("usage: crunctl [flags] COMMAND [flags]\n\n"
           "Shows and controls the jobs of a rendezvous, and makes keys.\n\n");
    for (const struct ctl_command *const *c = commands; *c; c++) {
        char form[32];

        snprintf(form, sizeof(form), "%s %s", (*c)->name,
                 (*c)->words ? (*c)->words : "");
        printf("  %-12s  %s\n", form, (*c)->summary);
    }
    printf("\nFlags of every command, which the environment can give too, as in\n"
           "CRUN_RDZV_ENDPOINT:\n\n");
    opt_print(common_flags, stdout);
    printf("\n\"crunctl COMMAND --help\" shows the flags of that command.\n");
}

static void print_command_help(const struct ctl_command *c)
{
    printf("usage: crunctl %s%s%s [flags]\n\n%c%s.\n\n", c->name, c->words ? " " : "",
           c->words ? c->words : "", toupper(c->summary[0]), c->summary + 1);
    opt_print(c->table, stdout);
}

static const struct ctl_command *find_command(const char *name)
{
    for (const struct ctl_command *const *c = commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

static int refuse_usage(const char *text)
{
    log_error("%s", text);
    return CTL_EXIT_USAGE;
}

/* Checks that the command has its argument, or none if it takes none. */
static int check_words(const struct ctl_command *c, int words, const char *extra,
                       struct err *e)
{
    if (c->words && *c->words == '[') /* any number */
        return 0;
    if (words < (c->words ? 1 : 0))
        return err_set(e, "crunctl %s %s: the %s is missing", c->name, c->words,
                       c->words);
    if (words > (c->words ? 1 : 0))
        return err_set(e,
                       "\"%s\": crunctl %s takes no argument (a job is named by "
                       "--rdzv-id)",
                       extra, c->name);
    return 0;
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

/* Flushes standard output; the exit code shows if that fails. */
static int flush_output(int rc)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return rc;
    log_error("standard output cannot be written");
    return rc == CTL_EXIT_OK ? CTL_EXIT_REFUSED : rc;
}

static int run_with_rendezvous(const struct ctl_command *command,
                               const struct ctl_options *o, const char *word)
{
    struct ctl_client *c = NULL;
    struct err e;
    int rc;

    if (!command->is_local)
        c = ctl_client_open(o, command->access, &rc, &e);
    if (c || command->is_local)
        rc = command->run(c, o, word, &e);
    if (rc != CTL_EXIT_OK)
        log_error("%s", e.text);
    ctl_client_close(c);
    return rc;
}

static int run_command(const struct ctl_command *c, int argc, char **argv,
                       struct ctl_options *o)
{
    const struct opt_rules rules = { .table = c->table };
    struct err e;
    int word;

    if (opt_parse(&rules, argc, argv, o, &word, &e) < 0)
        return refuse_usage(e.text);
    if (o->help) {
        print_command_help(c);
        return CTL_EXIT_OK;
    }
    if (check_words(c, argc - word, argv[argc - 1], &e) < 0 || check_run_id(o, &e) < 0)
        return refuse_usage(e.text);
    o->words = argv + word;
    return run_with_rendezvous(c, o, c->words && argv[word] ? argv[word] : "");
}

int main(int argc, char **argv)
{
    static const char *const prefixes[] = { "PET", "CRUN", NULL };
    const struct opt_rules rules = { .table = common_flags,
                                     .env_prefixes = prefixes,
                                     .stop_at_word = true };
    struct ctl_options o = { .endpoint = DEFAULT_ENDPOINT,
                             .timeout_ms = DEFAULT_TIMEOUT_MS,
                             .key_access = ACCESS_AGENT };
    const struct ctl_command *c;
    struct err e;
    int word;

    log_init("crunctl", LOG_INFO, LOG_TEXT);
    if (opt_parse(&rules, argc, argv, &o, &word, &e) < 0)
        return refuse_usage(e.text);
    if (o.version || (o.help && word == argc)) {
        if (o.version)
            printf("crunctl " CRUN_VERSION "\n");
        else
            print_usage();
        return flush_output(CTL_EXIT_OK);
    }
    if (word == argc)
        return refuse_usage("a command is missing: status, events, stacks, stop, drain "
                            "or keygen (crunctl --help)");
    c = find_command(argv[word]);
    if (!c) {
        log_error("\"%s\" is not a command: use status, events, stacks, stop, drain or "
                  "keygen",
                  argv[word]);
        return CTL_EXIT_USAGE;
    }
    return flush_output(run_command(c, argc - word, argv + word, &o));
}

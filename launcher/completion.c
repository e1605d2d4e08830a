/* SPDX-License-Identifier: MIT */
/* What crun's own words and values can be: the program, and lists of its flags. */
#include <stdlib.h>
#include <string.h>

#include "launcher/option_setters.h"
#include "launcher/options.h"
#include "launcher/rdzv_conf.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/completion/completion.h"

static void offer_program(struct completion *c, char *const *words, size_t count)
{
    if (count == 0)
        completion_offer_files(c, COMPLETION_PROGRAMS);
}

/* "scale=now" and the like, or "lease=". */
static void offer_rdzv_conf(struct completion *c)
{
    static const char *const values[] = { "is_host=1",        "is_host=0",
                                          "scale=checkpoint", "scale=never",
                                          "scale=now",        NULL };

    completion_begin_list(c);
    for (const struct opt *key = rdzv_conf_keys; key->name; key++) {
        char *text = xasprintf("%s=", key->name);
        bool has_values = false;

        for (const char *const *v = values; *v; v++)
            if (strncmp(*v, text, strlen(text)) == 0) {
                completion_offer(c, *v, "");
                has_values = true;
            }
        if (!has_values)
            completion_offer(c, text, "");
        free(text);
    }
}

static void offer_streams(struct completion *c)
{
    completion_begin_list(c);
    completion_offer(c, "1", "standard output");
    completion_offer(c, "2", "standard error");
    completion_offer(c, "3", "both");
    completion_offer(c, "0:3", "both of local rank 0");
}

static void offer_signals(struct completion *c)
{
    static const char *const names[] = { "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT",
                                         "SIGHUP",  "SIGQUIT", NULL };

    completion_begin_list(c);
    for (const char *const *name = names; *name; name++)
        completion_offer(c, *name, "");
}

static bool offer_crun_value(struct completion *c, const struct opt *opt)
{
    if (opt->set == option_set_rdzv_conf)
        offer_rdzv_conf(c);
    else if (opt->set == option_set_streams)
        offer_streams(c);
    else if (opt->set == option_set_signals || opt->set == option_set_checkpoint_signal)
        offer_signals(c);
    else
        return false;
    return true;
}

bool options_complete(int argc, char **argv, FILE *out)
{
    const struct completion_rules rules = { .table = options_table,
                                            .stop_at_word = true,
                                            .offer_word = offer_program,
                                            .offer_value = offer_crun_value };

    if (argc < 2 || strcmp(argv[1], COMPLETION_QUESTION) != 0)
        return false;
    completion_answer(&rules, argv + 2, (size_t)(argc - 2), out);
    return true;
}

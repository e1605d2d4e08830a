/* SPDX-License-Identifier: MIT */
#include "tests/worlds/option_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

uint32_t cpus, gpus;
struct machine machine;

static uint32_t count_cpus(void)
{
    return cpus;
}

static uint32_t count_gpus(void)
{
    return gpus;
}

void option_lines_setup(void)
{
    static const char *const names[] = { "PET_NNODES", "CRUN_NNODES", "PET_STANDALONE",
                                         "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
                                         "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE" };

    for (int i = 0; i < COUNT(names); i++)
        unsetenv(names[i]);
    cpus = 6;
    gpus = 0;
    machine = (struct machine){ .cpus = count_cpus, .gpus = count_gpus };
}

static void split(struct line *l, const char *text)
{
    char *rest = l->text, *word;

    snprintf(l->text, sizeof(l->text), "crun %s", text);
    l->argc = 0;
    while ((word = strsep(&rest, " ")) != NULL && l->argc < WORDS_MAX)
        if (*word)
            l->argv[l->argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    l->argv[l->argc] = NULL;
}

int read_line(struct line *l, const char *text, struct options *o, struct config *c,
              struct err *e)
{
    int word;

    memset(c, 0, sizeof(*c));
    split(l, text);
    if (options_parse(l->argc, l->argv, o, &word, e) < 0)
        return -1;
    return config_build(o, (const char *const *)l->argv + word, &machine, c, e);
}

void accept_line(const char *text, struct options *o, struct config *c)
{
    static struct line line; /* what is understood points into it */
    struct err e;

    ck_assert_msg(read_line(&line, text, o, c, &e) == 0, "%s: %s", text, e.text);
}

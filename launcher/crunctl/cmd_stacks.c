/* SPDX-License-Identifier: MIT */
#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "launcher/crunctl/ctl_client.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/job/stacks/stack_groups.h"
#include "rendezvous/show/views/job_json.h"
#include "rendezvous/wire/protocol/proto.h"

/* crunctl stacks: what the ranks of a job do now, those that do the same together. */

#define RANKS_LISTED_MAX 1000000
#define LOOK_AGAIN_NS 300000000

struct look {
    struct stack_groups groups;
    bool moves; /* no rank waits for ever */
};

/* -- text ------------------------------------------------------------------------- */

static void print_printable(const char *before, const char *text)
{
    char line[2 * STACKS_BRIEF_MAX_BYTES + 256];

    printf("%s%s\n", before, text_printable(text, line, sizeof(line)));
}

/* "main thread" and its frames, a line each; the heading only of several threads. */
static void print_stacks(const char *text)
{
    char *copy = strdup(text), *rest = copy, *line;
    bool has_threads = strstr(text, "\nthread\n");

    while (rest && (line = strsep(&rest, "\n")))
        if (*line == ' ')
            print_printable("    ", line + 2);
        else if (*line && (has_threads || strcmp(line, "main thread") != 0))
            print_printable("  ", line);
    free(copy);
}

static void print_groups(const struct look *look)
{
    const struct stack_groups *s = &look->groups;
    char culprit[256] = "", line[STACKS_BRIEF_MAX_BYTES + 512];

    for (unsigned i = 0; i < s->count; i++) {
        print_printable("", stack_group_describe(&s->group[i], line, sizeof(line)));
        print_stacks(s->group[i].threads);
    }
    if (!look->moves)
        stack_groups_describe_culprit(s, culprit, sizeof(culprit));
    if (*culprit)
        printf("%s\n", culprit);
    if (s->count == 0)
        printf("no such rank\n");
}

/* -- JSON ------------------------------------------------------------------------- */

static void add_ranks(cJSON *o, const struct rank_ranges *ranks)
{
    cJSON *array = cJSON_AddArrayToObject(o, "ranks");

    if (rank_ranges_size(ranks) > RANKS_LISTED_MAX) /* no job of this version */
        return;
    for (unsigned i = 0; i < ranks->count; i++)
        for (uint64_t r = ranks->range[i].first; r <= ranks->range[i].last; r++)
            cJSON_AddItemToArray(array, cJSON_CreateNumber((double)r));
}

static void print_json(const struct look *look)
{
    const struct stack_groups *s = &look->groups;
    cJSON *array = cJSON_CreateArray();
    unsigned culprit;
    enum stack_culprit why = stack_groups_find_culprit(s, &culprit);

    for (unsigned i = 0; i < s->count; i++) {
        const struct stack_group *g = &s->group[i];
        cJSON *o = cJSON_CreateObject();

        add_ranks(o, &g->ranks);
        cJSON_AddStringToObject(o, "host", g->host);
        cJSON_AddStringToObject(o, "kind", proto_stacks_name(g->kind));
        cJSON_AddBoolToObject(o, "waits", g->waits);
        cJSON_AddStringToObject(o, "brief", g->brief);
        cJSON_AddStringToObject(o, "threads", g->threads);
        cJSON_AddBoolToObject(
            o, "culprit", !look->moves && why != STACK_CULPRIT_NONE && i == culprit);
        cJSON_AddItemToArray(array, o);
    }
    job_json_print(array, false, stdout);
}

/* -- the request ------------------------------------------------------------------ */

static void on_stacks(void *arg, const struct msg *m)
{
    if (m->type == MSG_RANK_STACKS)
        stack_groups_add(arg, &m->stacks);
}

/* The words of the command become one list. */
static int join_ranks(const struct ctl_options *o, char *ranks, size_t size,
                      struct err *e)
{
    struct rank_ranges all = { .count = 0 };
    unsigned printed;

    if (ctl_ranks_parse(o, &all, e) < 0)
        return -1;
    printed = rank_ranges_print(&all, 0, ranks, size);
    if (printed < all.count)
        err_set(e, "too many separate ranks are named");
    rank_ranges_fini(&all);
    return printed < all.count ? -1 : 0;
}

static int take_look(struct ctl_client *c, const struct msg *question,
                     struct stack_groups *groups, struct err *e)
{
    struct msg m = *question;
    int rc = ctl_client_ask(c, &m, on_stacks, groups, NULL, e);

    stack_groups_sort(groups);
    return rc;
}

/* Ranks that wait for each other in different calls do so for ever; those of a job that
 * goes on are a moment later in other calls. */
static int look_again(struct ctl_client *c, const struct msg *question,
                      struct look *look, struct err *e)
{
    const struct timespec pause = { .tv_nsec = LOOK_AGAIN_NS };
    struct stack_groups first = look->groups;
    unsigned before, now;
    int rc;

    if (stack_groups_find_culprit(&first, &before) != STACK_CULPRIT_APART)
        return CTL_EXIT_OK;
    nanosleep(&pause, NULL);
    look->groups = (struct stack_groups){ .count = 0 };
    rc = take_look(c, question, &look->groups, e);
    look->moves = stack_groups_find_culprit(&look->groups, &now) ==
                      STACK_CULPRIT_APART &&
                  strcmp(first.group[before].brief, look->groups.group[now].brief) != 0;
    stack_groups_fini(&first);
    return rc;
}

static int cmd_stacks_run(struct ctl_client *c, const struct ctl_options *o,
                          const char *word, struct err *e)
{
    struct msg m = { .type = MSG_SHOW_STACKS };
    struct look look = { .moves = false };
    int rc;

    if (join_ranks(o, m.show_stacks.ranks, sizeof(m.show_stacks.ranks), e) < 0)
        return CTL_EXIT_USAGE;
    snprintf(m.show_stacks.run_id, sizeof(m.show_stacks.run_id), "%s",
             o->run_id ? o->run_id : "");
    rc = take_look(c, &m, &look.groups, e);
    if (rc == CTL_EXIT_OK)
        rc = look_again(c, &m, &look, e);
    if (rc == CTL_EXIT_OK)
        o->json ? print_json(&look) : print_groups(&look);
    stack_groups_fini(&look.groups);
    return rc;
}

static const struct opt table[] = {
    CTL_JSON_FLAG("Print an array of groups of ranks as JSON."),
    CTL_COMMON_FLAGS,
    { .name = NULL },
};

const struct ctl_command ctl_stacks = {
    .name = "stacks",
    .words = "[RANK...]",
    .takes_job = true,
    .ranks_follow = true,
    .summary = "show what the ranks do now: stacks of Python programs",
    .table = table,
    .access = ACCESS_OPERATE,
    .run = cmd_stacks_run,
};

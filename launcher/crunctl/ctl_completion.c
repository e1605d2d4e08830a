/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ctl_completion.h"

#include <string.h>

#include "launcher/crunctl/local/ctl_jobs.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/completion/completion.h"
#include "rendezvous/protocol/proto.h"

#define NODES_ANSWER_MS 500 /* a person waits for them */

/* -- jobs and nodes --------------------------------------------------------------- */

static void offer_jobs(struct completion *c, bool with_ended)
{
    struct ctl_jobs jobs;

    ctl_jobs_find(&jobs);
    for (size_t i = 0; i < jobs.count && (with_ended || i < jobs.running); i++) {
        const struct ctl_job *job = &jobs.job[i];
        bool is_known = ctl_jobs_is_double(&jobs, job);
        char about[64], pid[16];

        for (size_t j = 0; j < i; j++)
            is_known |= strcmp(jobs.job[j].name, job->name) == 0;
        snprintf(about, sizeof(about), "%s, pid %d",
                 job->state == CTL_JOB_RUNNING ? "runs" : "has ended", (int)job->pid);
        snprintf(pid, sizeof(pid), "%d", (int)job->pid);
        if (!is_known) /* no command takes another name, which a shell might run */
            completion_offer(c, proto_is_name(job->name) ? job->name : pid, about);
    }
    ctl_jobs_release(&jobs);
}

static void on_node_name(void *arg, const struct msg *m)
{
    if (m->type == MSG_NODE_STATUS)
        completion_offer(arg, m->node_status.host, "a node");
}

/* word: as ctl_jobs_choose takes it. */
static void offer_nodes(struct completion *c, const char *word)
{
    struct ctl_options o = { .timeout_ms = NODES_ANSWER_MS };
    struct msg m = { .type = MSG_STATUS };
    const struct ctl_job *job = NULL;
    struct ctl_client *client = NULL;
    struct ctl_jobs jobs;
    uint64_t next = 0;
    struct err e;
    int rc = CTL_EXIT_UNREACHABLE;

    ctl_jobs_find(&jobs);
    if (ctl_jobs_choose(&jobs, word, false, &job, &e) == 0 && job)
        client = ctl_client_greet(&o, job, &e);
    if (client)
        rc = ctl_client_await_welcome(client, clock_ms() + NODES_ANSWER_MS, &e);
    if (rc == CTL_EXIT_OK)
        snprintf(m.status.run_id, sizeof(m.status.run_id), "%s", job->run_id);
    while (rc == CTL_EXIT_OK) {
        m.status.from = (uint32_t)next;
        rc = ctl_client_ask(client, &m, on_node_name, c, &next, &e);
        if (!next)
            break;
    }
    ctl_client_close(client);
    ctl_jobs_release(&jobs);
}

/* -- words of the commands -------------------------------------------------------- */

static void offer_job_word(struct completion *c, char *const *words, size_t count)
{
    if (count == 0)
        offer_jobs(c, false);
}

static void offer_any_job_word(struct completion *c, char *const *words, size_t count)
{
    if (count == 0)
        offer_jobs(c, true);
}

static void offer_drain_word(struct completion *c, char *const *words, size_t count)
{
    if (count > 1)
        return;
    offer_nodes(c, count ? words[0] : NULL);
    if (count == 0)
        offer_jobs(c, false);
}

static void offer_key_word(struct completion *c, char *const *words, size_t count)
{
    if (count == 0)
        completion_offer_files(c, COMPLETION_FILES);
}

static bool offer_job_value(struct completion *c, const struct opt *opt)
{
    if (opt->letter != 'j')
        return false;
    offer_jobs(c, true);
    return true;
}

static void complete_command(const struct ctl_command *command, char *const *words,
                             size_t count, FILE *out)
{
    struct completion_rules rules = { .table = command->table,
                                      .offer_value = offer_job_value };

    if (command->is_local)
        rules.offer_word = offer_key_word;
    else if (command->run_ended)
        rules.offer_word = offer_any_job_word;
    else if (command->takes_job)
        rules.offer_word = command->words && *command->words != '[' ? offer_drain_word
                                                                    : offer_job_word;
    completion_answer(&rules, words, count, out);
}

/* -- commands --------------------------------------------------------------------- */

static const struct ctl_command *const *offered_commands;

static void offer_commands_of_program(struct completion *c, char *const *words,
                                      size_t count)
{
    for (const struct ctl_command *const *o = offered_commands; *o; o++)
        completion_offer(c, (*o)->name, (*o)->summary);
}

void ctl_complete(const struct opt *first_flags,
                  const struct ctl_command *const *commands, char *const *words,
                  size_t count, FILE *out)
{
    const struct completion_rules rules = { .table = first_flags,
                                            .offer_word = offer_commands_of_program,
                                            .offer_value = offer_job_value };
    size_t first = count ? completion_find_word(first_flags, words, count - 1) : 0;

    if (first + 1 >= count) {
        offered_commands = commands;
        completion_answer(&rules, words, count, out);
        return;
    }
    for (const struct ctl_command *const *c = commands; *c; c++)
        if (strcmp((*c)->name, words[first]) == 0)
            complete_command(*c, words + first + 1, count - first - 1, out);
}

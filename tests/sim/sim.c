/* SPDX-License-Identifier: MIT */
#include "tests/sim/seed.h"

#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/job/membership/membership.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/sim/probe.h"
#include "tests/worlds/membership_names.h"

/*
 * crun-sim: runs seeds in several processes, adds up what they report, and tells the
 * story of the first one that violates an invariant.
 */
#define JOBS_RUN_MAX 64
#define SEED_SECONDS_MAX 60
#define STORY_LINES 60
#define EDGES_EXPECTED_FROM 1000 /* seeds, from which no edge may be missing */

struct sim_options {
    long long seeds, from, jobs, seed;
    bool trace, help;
};

/* Shared between the processes. Each writes its own. */
struct worker {
    uint64_t at_seed, done, events, simulated_ms;
    bool violated;
    struct seed_result result;
    uint64_t edges[PROBE_EDGES_MAX];
    uint64_t agent_edges[AGENT_STATE_COUNT][AGENT_EVENT_COUNT];
    uint64_t memory[PROBE_MEMORY_COUNT];
};

static const struct opt table[] = {
    { .name = "seeds",
      .arg = "N",
      .help = "how many seeds to run",
      .set = opt_set_int,
      OPT_FIELD(struct sim_options, seeds),
      .min = 1,
      .max = 1000000000 },
    { .name = "from",
      .arg = "K",
      .help = "the first of them",
      .set = opt_set_int,
      OPT_FIELD(struct sim_options, from),
      .min = 0,
      .max = INT64_MAX },
    { .name = "jobs",
      .letter = 'j',
      .arg = "J",
      .help = "processes to run them in",
      .set = opt_set_int,
      OPT_FIELD(struct sim_options, jobs),
      .min = 1,
      .max = JOBS_RUN_MAX },
    { .name = "seed",
      .arg = "K",
      .help = "run this one alone",
      .set = opt_set_int,
      OPT_FIELD(struct sim_options, seed),
      .min = 0,
      .max = INT64_MAX },
    { .name = "trace",
      .letter = 't',
      .help = "tell what happens in it",
      .set = opt_set_true,
      OPT_FIELD(struct sim_options, trace) },
    OPT_HELP(struct sim_options),
    { 0 },
};

/* -- a seed that failed ----------------------------------------------------- */

static void print_last_lines(const char *text, size_t size, unsigned lines)
{
    const char *at = text + size;

    while (at > text && lines > 0)
        if (*--at == '\n' && at < text + size - 1)
            lines--;
    fwrite(*at == '\n' ? at + 1 : at, 1, (size_t)(text + size - at) - (*at == '\n'),
           stdout);
}

/* Run it once more, and show how it ended. */
static void tell_story(uint64_t seed, const char *invariant)
{
    struct seed_result again;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    seed_run(seed, out, &again);
    fclose(out);
    print_last_lines(text, size, STORY_LINES);
    free(text);
    printf("seed %" PRIu64 " violates: %s\n", seed, invariant);
    if (strcmp(again.invariant, invariant) != 0)
        printf("but the second run says: %s\n",
               again.violated ? again.invariant : "nothing");
    printf("replay: crun-sim --seed %" PRIu64 " --trace\n", seed);
    fflush(stdout);
}

/* -- many ------------------------------------------------------------------- */

static void run_share(struct worker *w, const struct sim_options *o, long long index)
{
    for (long long i = index; i < o->seeds && !w->violated; i += o->jobs) {
        w->at_seed = (uint64_t)(o->from + i);
        alarm(SEED_SECONDS_MAX);
        seed_run(w->at_seed, NULL, &w->result);
        w->violated = w->result.violated;
        w->events += w->result.events;
        w->simulated_ms += w->result.simulated_ms;
        w->done++;
    }
    alarm(0);
    memcpy(w->edges, probe_edges, sizeof(w->edges));
    memcpy(w->agent_edges, probe_agent_edges, sizeof(w->agent_edges));
    memcpy(w->memory, probe_memory, sizeof(w->memory));
    if (w->violated)
        tell_story(w->at_seed, w->result.invariant);
    _exit(w->violated);
}

static bool run_all(struct worker *workers, const struct sim_options *o)
{
    pid_t pids[JOBS_RUN_MAX];
    bool good = true;

    fflush(stdout);
    for (long long i = 0; i < o->jobs; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            run_share(&workers[i], o, i);
    }
    for (long long i = 0; i < o->jobs; i++) {
        int status = 0;

        if (pids[i] < 0 || waitpid(pids[i], &status, 0) < 0)
            return false;
        if (WIFSIGNALED(status))
            printf("seed %" PRIu64 " died of signal %d (%s)\n", workers[i].at_seed,
                   WTERMSIG(status), strsignal(WTERMSIG(status)));
        good = good && status == 0;
    }
    return good;
}

static unsigned print_edges(const uint64_t *edges)
{
    unsigned missing = 0;

    for (unsigned i = 0; i < membership_edge_count; i++) {
        printf("%12" PRIu64 "  %-8s --%s--> %s\n", edges[i],
               proto_state_name(membership_edges[i].from),
               membership_event_name(membership_edges[i].event),
               proto_state_name(membership_edges[i].to));
        missing += edges[i] == 0;
    }
    return missing;
}

/* A group that is told to stop says when it has, and nothing else. And an agent has
 * finished for so short a while that hardly a seed loses its guard then. */
static bool need_not_be_taken(enum agent_state state, enum agent_event event)
{
    return (state == AGENT_ENDING && event == AGENT_EV_ALL_EXITED) ||
           (state == AGENT_STOPPING && event == AGENT_EV_FAILED) ||
           (state == AGENT_FINISHED && event == AGENT_EV_GUARD_LOST);
}

static unsigned print_agent_edges(const struct worker *w)
{
    unsigned missing = 0;

    for (enum agent_state s = 0; s < AGENT_STATE_COUNT; s++)
        for (enum agent_event e = 0; e < AGENT_EVENT_COUNT; e++) {
            struct agent_edge edge = agent_edge(s, e);

            if (edge.act == AGENT_ACT_NONE)
                continue;
            printf("%12" PRIu64 "  agent %-8s --%s--> %s\n", w->agent_edges[s][e],
                   agent_state_name(s), agent_event_name(e), agent_state_name(edge.to));
            missing += w->agent_edges[s][e] == 0 && !need_not_be_taken(s, e);
        }
    return missing;
}

static unsigned print_memory(const uint64_t *counts)
{
    static const char *const what[PROBE_MEMORY_COUNT] = {
        [PROBE_MEMORY_CHOSEN] = "an epoch begins with a set",
        [PROBE_MEMORY_OTHER_WORLD] = "a set is of another world",
        [PROBE_MEMORY_NOT_WHOLE] = "a newer one is not whole",
        [PROBE_MEMORY_FETCHED] = "a part is fetched",
        [PROBE_MEMORY_LACKED] = "a part is nowhere",
    };
    unsigned missing = 0;

    for (unsigned i = 0; i < PROBE_MEMORY_COUNT; i++) {
        printf("%12" PRIu64 "  memory: %s\n", counts[i], what[i]);
        missing += counts[i] == 0;
    }
    return missing;
}

static void add_worker(struct worker *sum, const struct worker *w)
{
    sum->done += w->done;
    sum->events += w->events;
    sum->simulated_ms += w->simulated_ms;
    for (unsigned e = 0; e < PROBE_EDGES_MAX; e++)
        sum->edges[e] += w->edges[e];
    for (unsigned s = 0; s < AGENT_STATE_COUNT; s++)
        for (unsigned e = 0; e < AGENT_EVENT_COUNT; e++)
            sum->agent_edges[s][e] += w->agent_edges[s][e];
    for (unsigned i = 0; i < PROBE_MEMORY_COUNT; i++)
        sum->memory[i] += w->memory[i];
}

static int run_seeds(const struct sim_options *o)
{
    size_t size = JOBS_RUN_MAX * sizeof(struct worker);
    struct worker *workers = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct worker sum = { 0 };
    uint64_t start_ms = clock_ms(), took_ms;
    unsigned missing;
    bool good;

    if (workers == MAP_FAILED)
        return 1;
    good = run_all(workers, o);
    took_ms = clock_ms() - start_ms;
    for (long long i = 0; i < o->jobs; i++)
        add_worker(&sum, &workers[i]);
    missing = print_edges(sum.edges) + print_agent_edges(&sum) +
              print_memory(sum.memory);
    printf("%" PRIu64 " seeds, %" PRIu64 " events, %" PRIu64 " a seed, %.1f simulated "
           "hours, in %.1f s on %lld processes\n",
           sum.done, sum.events, sum.done ? sum.events / sum.done : 0,
           (double)sum.simulated_ms / 3.6e6, (double)took_ms / 1e3, o->jobs);
    if (missing && good && o->seeds >= EDGES_EXPECTED_FROM) {
        printf("%u of these were never taken, or never happened\n", missing);
        good = false;
    }
    return good ? 0 : 1;
}

/* -- one -------------------------------------------------------------------- */

static int run_one(const struct sim_options *o)
{
    struct seed_result result;

    seed_run((uint64_t)o->seed, o->trace ? stdout : NULL, &result);
    printf("seed %lld: %" PRIu64 " events, %.1f simulated s: %s\n", o->seed,
           result.events, (double)result.simulated_ms / 1e3,
           result.violated ? result.invariant : "all invariants hold");
    return result.violated;
}

int main(int argc, char **argv)
{
    const struct opt_rules rules = { .table = table };
    struct sim_options o = { .seeds = 1000,
                             .jobs = sysconf(_SC_NPROCESSORS_ONLN),
                             .seed = -1 };
    struct err e;
    int first;

    if (opt_parse(&rules, argc, argv, &o, &first, &e) < 0 || first < argc) {
        fprintf(stderr, "crun-sim: %s\n", first < argc ? "takes no words" : e.text);
        return 2;
    }
    if (o.help) {
        printf(
            "usage: crun-sim [--seeds N] [--from K] [--jobs J] | --seed K [--trace]\n");
        opt_print(table, stdout);
        return 0;
    }
    if (o.jobs > JOBS_RUN_MAX)
        o.jobs = JOBS_RUN_MAX;
    return o.seed >= 0 ? run_one(&o) : run_seeds(&o);
}

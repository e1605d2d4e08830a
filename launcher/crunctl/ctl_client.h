/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sysexits.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * crunctl: its flags, its commands, and its conversation with a rendezvous. One request
 * at a time; an answer is a list of messages, or an acknowledgement, or a refusal.
 */
struct ctl_job;
struct ctl_jobs;

struct ctl_options {
    const char *endpoint; /* NULL: the jobs of this machine */
    const char *run_id, *key_file;
    const char *output;        /* report: the file; NULL: named after the job */
    const char *job_name;      /* of a job of this machine; NULL: not known */
    const struct ctl_job *job; /* the same, by whose crun this is; NULL: none */
    uid_t rendezvous_user;
    uint64_t timeout_ms;
    uint64_t watch_ms; /* run the command again, so often; 0: once */
    FILE *out;         /* standard output, or the frame of a command that is watched */
    void *answer;      /* of top: where the command puts what it would print; NULL */
    long long since;
    long long tail; /* lines; negative: all */
    bool json, follow, now, require_key, all;
    bool only_stdout, only_stderr;
    enum access key_access; /* keygen: of the new key */
    int64_t key_seconds;    /* keygen: until its end; 0: none */
    bool help, short_help, version;
    char *const *words; /* all of them after the command, NULL-ended */
};

enum ctl_exit {
    CTL_EXIT_OK = 0,
    CTL_EXIT_REFUSED = 1,
    CTL_EXIT_USAGE = 2,
    CTL_EXIT_UNREACHABLE = EX_UNAVAILABLE
};

#define CTL_USUAL_ENDPOINT "127.0.0.1:29400"

/* The code of an error: nothing listens at the endpoint. */
enum { CTL_NOT_THERE = 1 };
#define CTL_WATCH_MS 2000

struct ctl_client;
struct rank_ranges;

struct ctl_command {
    const char *name;
    /* after the name, as shown in --help: "NODE", or "[RANK...]", which may be any
     * number; NULL: none */
    const char *words;
    /* The first word may be a job: always if there is one more than `words` has, and
     * with ranks_follow unless it is a list of ranks. */
    bool takes_job, ranks_follow;
    const char *summary;
    const struct opt *table;
    enum access access; /* the least that it needs at a rendezvous */
    bool is_local;      /* needs no rendezvous: its client is NULL */
    uint64_t watch_ms;  /* it is run again and again, unless a flag says how often */
    int (*run)(struct ctl_client *c, const struct ctl_options *o, const char *word,
               struct err *e);
    /* Without --rdzv-endpoint and a job: for those of this machine. NULL: the command
     * is about one job. */
    int (*run_all)(const struct ctl_options *o, const struct ctl_jobs *jobs,
                   struct err *e);
    /* For a job of this machine that has ended. NULL: it can be none. */
    int (*run_ended)(const struct ctl_options *o, const struct ctl_job *job,
                     struct err *e);
};

/* Runs a command where the options say, and on a job of this machine or another. */
typedef int ctl_run_fn(const struct ctl_command *command, const struct ctl_options *o,
                       struct err *e);

/* crunctl top, on the screen of a terminal. */
struct screen;
void ctl_top_show(struct screen *s, const struct ctl_options *o, ctl_run_fn *run);

extern const struct ctl_command ctl_status, ctl_events, ctl_stop, ctl_drain, ctl_stacks,
    ctl_logs, ctl_page, ctl_keygen, ctl_top, ctl_report, ctl_checkpoint;

/* The flags that every command takes; the last rows of each command's table. */
#define CTL_COMMON_FLAGS                                                               \
    { .name = "rdzv-endpoint",                                                         \
      .letter = 'e',                                                                   \
      .arg = "HOST:PORT",                                                              \
      .help =                                                                          \
          "The rendezvous: of a crund, or of the node that hosts the job. Default: "   \
          "your jobs on this machine, or else 127.0.0.1:29400.",                       \
      .set = opt_set_text,                                                             \
      .offset = offsetof(struct ctl_options, endpoint) },                              \
        { .name = "rendezvous-user",                                                   \
          .arg = "NAME|UID",                                                           \
          .help = "On this machine, also believe a rendezvous of this user. Without "  \
                  "it: of yourself or root only.",                                     \
          .set = opt_set_user,                                                         \
          .offset = offsetof(struct ctl_options, rendezvous_user) },                   \
        { .name = "rdzv-id",                                                           \
          .letter = 'j',                                                               \
          .arg = "ID",                                                                 \
          .help = "The job: its name, its run id, or the pid of its crun on this "     \
                  "machine. Needed only if there are several.",                        \
          .set = opt_set_text,                                                         \
          .offset = offsetof(struct ctl_options, run_id) },                            \
        { .name = "timeout",                                                           \
          .arg = "TIME",                                                               \
          .help = "Wait this long for an answer. Default: 10.",                        \
          .set = opt_set_seconds,                                                      \
          .offset = offsetof(struct ctl_options, timeout_ms),                          \
          .min = 1,                                                                    \
          .max = 3600000 },                                                            \
        { .name = "key-file",                                                          \
          .arg = "FILE",                                                               \
          .help = "The key. Default: crun.key in CREDENTIALS_DIRECTORY, or "           \
                  "~/.config/crun/key, if there is one.",                              \
          .set = opt_set_text,                                                         \
          .offset = offsetof(struct ctl_options, key_file) },                          \
        { .name = "require-key",                                                       \
          .help = "Do nothing without a key.",                                         \
          .set = opt_set_true,                                                         \
          .offset = offsetof(struct ctl_options, require_key) },                       \
        OPT_VERSION(struct ctl_options), OPT_SHORT_HELP(struct ctl_options)

#define CTL_JSON_FLAG(what)                                                            \
    {                                                                                  \
        .name = "json", .help = what, .set = opt_set_true,                             \
        .offset = offsetof(struct ctl_options, json)                                   \
    }

/* The words of the command as ranks: "3", "0-2", "0-2,5"; none is an empty set. On
 * error the set is empty. */
int ctl_ranks_parse(const struct ctl_options *o, struct rank_ranges *ranks,
                    struct err *e) MUST_CHECK;

/* Connect, with the user's key if there is one, which must allow `access`, and exchange
 * HELLO. NULL with e, and the exit code in *rc. */
struct ctl_client *ctl_client_open(const struct ctl_options *o, enum access access,
                                   int *rc, struct err *e) MUST_CHECK;
/* The same with a crun of this machine, by its socket. Two parts, so that several are
 * asked side by side: the second waits for the answer, until a time of clock_ms. */
struct ctl_client *ctl_client_greet(const struct ctl_options *o,
                                    const struct ctl_job *job,
                                    struct err *e) MUST_CHECK;
int ctl_client_await_welcome(struct ctl_client *c, uint64_t until_ms,
                             struct err *e) MUST_CHECK;
/* Both parts. NULL with e, and the exit code in *rc. */
struct ctl_client *ctl_client_open_job(const struct ctl_options *o,
                                       const struct ctl_job *job, uint64_t within_ms,
                                       int *rc, struct err *e) MUST_CHECK;
/* The rendezvous at the usual place of this machine, or NULL, if none answers or it
 * wants another key. */
struct ctl_client *ctl_client_open_usual(const struct ctl_options *o);
void ctl_client_close(struct ctl_client *c); /* NULL is fine */
/* How long further answers may take. */
void ctl_client_set_timeout(struct ctl_client *c, uint64_t ms);

/*
 * Sends a request, and gives every message of the answer to fn (which may be NULL).
 * CTL_EXIT_OK once the answer is complete, with *next from END_OF_LIST if next is not
 * NULL; else another exit code with e.
 */
typedef void ctl_answer_fn(void *arg, const struct msg *m);
int ctl_client_ask(struct ctl_client *c, const struct msg *question, ctl_answer_fn *fn,
                   void *arg, uint64_t *next, struct err *e) MUST_CHECK;

/* The same for all pages of a list: of jobs and nodes, or of jobs that are over. */
int ctl_client_ask_pages(struct ctl_client *c, struct msg *question, ctl_answer_fn *fn,
                         void *arg, struct err *e) MUST_CHECK;

/* The user of this process, for those who are told of an order. Returns buf. */
char *ctl_client_user(char *buf, size_t size);

/* Which version of the protocol both speak, and which messages the rendezvous knows. */
const struct msg_welcome *ctl_client_welcome(const struct ctl_client *c);

/* The same for an order: prints what the acknowledgement has for users, if anything. */
int ctl_client_order(struct ctl_client *c, const struct msg *order,
                     struct err *e) MUST_CHECK;

/* After ctl_client_ask: gives all further messages to fn, until the rendezvous or a
 * signal ends it. */
int ctl_client_listen(struct ctl_client *c, ctl_answer_fn *fn, void *arg,
                      struct err *e) MUST_CHECK;
/* Called by fn when its output is closed: ctl_client_listen returns at once. */
void ctl_client_stop_listening(struct ctl_client *c);

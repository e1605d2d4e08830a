/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/witness_claims.h"
#include "rendezvous/job/registry/event_list.h"
#include "rendezvous/job/registry/job_end_text.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/wire/net/sources.h"

/*
 * Shared by the files of the registry: registry.c (jobs and peers), registry_forget.c
 * (until when jobs are kept), registry_access.c (what a peer may send and see),
 * registry_journal.c (what outlives a crash), registry_step.c (the entry of every
 * decision), registry_actions.c (what the membership has decided), registry_failures.c
 * (what is kept of the failures of a stop), registry_reports.c and registry_events.c
 * (what is reported of a job), registry_join.c and registry_agent.c (messages of
 * agents), registry_crunctl.c (requests of crunctl), node_asks.c (questions to nodes),
 * flush_asks.c (checkpoints in memory to files), stack_asks.c (stacks of the ranks),
 * log_asks.c (their output), store_owner_asks.c (owners of connections to the store),
 * registry_history.c (what is kept of the past), registry_memory.c (checkpoints in the
 * memory of nodes), registry_second_job.c (the same job at another rendezvous).
 */
struct journal;

struct registry {
    struct registry_config config;
    char confinement[CONFINEMENT_MAX_BYTES + 1];
    struct id128 id;         /* of this rendezvous, as long as its journal lives */
    struct id128 instance;   /* of the one job; zero: of no replica */
    struct journal *journal; /* NULL: nothing is kept */
    uint64_t cut_bytes;
    struct event_list *events;
    uint64_t saved_event;        /* the number of the newest one that was saved */
    struct job_archive *archive; /* NULL: none */
    struct job *jobs;
    struct registry_peer *followers;
    struct node_ask *asks;
    uint64_t last_ask;
    uint32_t source;    /* of the last message; SOURCE_NONE: time has passed */
    uint32_t *nodes_of; /* how many have joined from each source; NULL: none has */
    uint64_t now_ms, wall_ms; /* of the call under way */
    struct msg *keepers;      /* KEEPERS, or NULL */
    struct claims claims;     /* of jobs elsewhere, whose witness this is */
};

struct registry_peer {
    struct registry *registry;
    void *conn;
    enum proto_phase phase;
    bool keepers; /* it knows the messages about replicas */
    bool flush;   /* it knows FLUSH */
    char software[sizeof(((struct msg_hello *)0)->software)];
    char address[ADDRESS_MAX_BYTES + 1];
    uid_t uid; /* or PEER_UID_UNKNOWN */
    bool is_own_tool;
    enum access access;
    char key_id[PEER_KEY_ID_MAX + 1]; /* "": none */
    struct job_owner owner;           /* of the jobs that it makes and sees */
    struct job *job;                  /* PROTO_JOINED */
    uint32_t source;                  /* see sources.h */
    uint32_t node;
    bool ended_here;             /* by the rendezvous, with a node that may come back */
    bool following;              /* PROTO_CTL: wants events as they come */
    char run_id[RUN_ID_MAX + 1]; /* of that job alone, or "" */
    struct registry_peer *next_follower;
    struct ctl_list *list; /* that is being sent, or NULL */
    uint64_t log_follower; /* follows the output of a job, by this number; 0: of none */
    struct id128 log_job;  /* the instance of that job */
};

/* The event being stepped, with data that the membership does not need. */
struct registry_step {
    struct registry *registry;
    struct job *job;
    struct registry_peer *peer; /* the sender, or NULL */
    const struct msg *msg;      /* the message, or NULL */
};

/* Carries out an action of the membership. */
typedef void registry_actor(struct registry_step *s, const struct membership_action *a);

/* A list of messages that a crunctl is sent as its connection has room for them. */
struct ctl_list {
    /* Sends messages while there is room. True: there are no more. */
    bool (*send_some)(struct registry *g, struct registry_peer *p, struct ctl_list *l);
    uint64_t sequence; /* of the request */
    char run_id[RUN_ID_MAX + 1];
    struct id128 instance; /* nodes: of their job */
    uint32_t at, page_end; /* jobs and nodes: the next one, and where the page ends */
    uint64_t next;         /* for END_OF_LIST */
    bool follow;           /* events: send new ones too, from the end on */
    char *text;            /* history: all of it, which the list frees; NULL: none */
    size_t sent;           /* of the text */
};

typedef void registry_handler(struct registry *g, struct registry_peer *p,
                              const struct msg *m);

/* A node reports: fills in the event that this becomes. */
typedef void registry_taker(struct registry_peer *p, const struct msg *m,
                            struct membership_event *ev);

/* By message: registry.c, registry_join.c, registry_agent.c, registry_crunctl.c,
 * registry_history.c */
#define REQUEST(number, name, body, phase, access, handler) registry_handler handler;
#include "rendezvous/wire/protocol/message_table.h"

/* registry.c */
/* The job of that name that exists for the peer, or NULL. */
struct job *registry_find(const struct registry *g, const struct registry_peer *p,
                          const char *run_id);
struct job *registry_add(struct registry *g, const char *run_id,
                         const struct job_config *config,
                         const struct job_owner *owner);
/* The node is of that source from now on; SOURCE_NONE: it is gone. */
void registry_count_node(struct registry *g, struct job_node *n, uint32_t source);
/* Fields of m that the peer is not shown are emptied. */
void registry_send(struct registry_peer *p, struct msg *m);
void registry_refuse(struct registry_peer *p, const struct msg *to, enum refusal why,
                     bool retry, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void registry_acknowledge(struct registry_peer *p, const struct msg *to);
/* Bind a peer to a node, in place of its previous one. */
void registry_bind(struct registry_peer *p, struct job *job, uint32_t node);
void registry_unbind(struct registry_peer *p);

/* registry_access.c */
bool registry_is_loopback(const char *address);
/* It has shown no key, and comes from another machine. */
bool registry_is_anonymous(const struct registry_peer *p);
/* What it is shown: less than it may do, if it is anonymous. */
enum access registry_sight(const struct registry_peer *p);

/* registry_events.c */
/* A line for the log, the list of events and its followers. */
void registry_report(struct registry *g, const struct job *job, const char *kind,
                     const char *host, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* registry_report about a failure: of its rank, if it is a worker's. */
void registry_report_failure(struct registry *g, const struct job *job,
                             const char *kind, const struct failure *f,
                             const char *text);
/* registry_report, and a NOTICE to every node of the job. */
void registry_notice(struct registry *g, const struct job *job, const char *kind,
                     const char *host, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
struct msg_event registry_make_event(const struct registry *g, const struct job *job,
                                     const char *kind, const char *host);

/* registry_journal.c */
int registry_open_journal(struct registry *g, struct err *e) MUST_CHECK;

/* registry_show.c */
/* Since the job has its state; of a job that is over, since its end. */
uint64_t registry_state_age_ms(const struct registry *g, const struct job *job);

/* registry_step.c */
/* Steps the membership of the job, and does what that decides. */
enum membership_verdict registry_step(struct registry *g, struct job *job,
                                      const struct membership_event *ev,
                                      struct registry_peer *peer, const struct msg *msg,
                                      uint32_t *node_out);

/* registry_actions.c */
void registry_act(struct registry_step *s, const struct membership_action *a);
void registry_send_done(struct registry_peer *p, struct job *job, bool released);
struct registry_peer *registry_peer_of(const struct registry_step *s, uint32_t node);
/* Of a job that ends: the connected member with the lowest rank, as far as it is known.
 * It is looked for once, not for each of the members that are told of the end. */
uint32_t registry_reporter_of(struct job *job);

/* registry_forget.c */
void registry_forget(struct registry *g, struct job *job);
bool registry_may_forget(const struct registry *g, const struct job *job);
/* For one more job of that source. False: there is none that could be forgotten. */
bool registry_make_room(struct registry *g, uint32_t source);

/* registry_failures.c */
registry_actor registry_keep_root_cause, registry_report_root_cause,
    registry_keep_root_lost, registry_keep_afterwards, registry_report_quarantine;
bool registry_is_unexplained(const struct job *job);

/* registry_reports.c */
registry_actor registry_report_eviction, registry_report_regression,
    registry_report_last_checkpoint, registry_report_resumed, registry_report_state;
/* "restart 4 of 10 in 2 s: rank 1 on ... exited with code 1", or "". Returns buf. */
char *registry_describe_wait(const struct registry *g, const struct job *job, char *buf,
                             size_t size);

/* stack_asks.c */
enum stack_purpose {
    STACKS_FOR_CRUNCTL,
    STACKS_FOR_HANG,
    STACKS_FOR_CAUSE, /* of a consequence */
    STACKS_FOR_SILENCE
};

/* The rendezvous asks all members of the running epoch. */
void registry_ask_stacks(struct registry *g, struct job *job,
                         enum stack_purpose purpose);
/* crunctl asks; refused if the job runs no workers. */
void registry_show_stacks(struct registry *g, struct registry_peer *p,
                          const struct msg *m, struct job *job);
registry_taker registry_take_stacks;
/* A heartbeat has come: asks if all members report silence, once an epoch. */
void registry_note_silence(struct registry *g, struct job *job);

/* log_asks.c */
/* crunctl asks; refused if the job has ended. */
void registry_show_logs(struct registry *g, struct registry_peer *p,
                        const struct msg *m, struct job *job);
registry_taker registry_take_logs;

/* flush_asks.c */
/* The newest set that is whole shall be in files: for crunctl, or a node wants it. */
void registry_flush(struct registry *g, struct registry_peer *p, const struct msg *m,
                    struct job *job);
registry_taker registry_take_flushed;
/* The node is back: unless a flush is under way, it lets go of what it holds. */
void registry_end_old_flush(struct registry_peer *p);

/* node_asks.c */
/* Ends the questions about a job, with the answers that there are: those of the epoch,
 * or all if the job is over. */
void registry_conclude_asks(struct registry *g, const struct job *job, bool is_over);
/* All of them, without an answer. */
void registry_forget_asks(struct registry *g);
/* crunctl is gone. */
void registry_drop_asks(struct registry_peer *p);
/* The nodes of the job whose output it follows expect no more questions. */
void registry_drop_log_follower(struct registry_peer *p);
uint64_t registry_next_ask(const struct registry *g);
void registry_tick_asks(struct registry *g);

/* store_owner_asks.c */
/* The node of rank 0 asks whose connections to its store these are. */
registry_taker registry_ask_owners, registry_take_owners;
/* A node is back: it is asked what it has not answered. */
void registry_ask_owners_again(struct registry_peer *p);

/* registry_keepers.c */
registry_taker registry_take_keeping;
/* It has joined, or is back. */
void registry_send_keepers(struct registry_peer *p);

/* registry_history.c */
/* A heartbeat has come. */
void registry_note_progress(struct registry *g, struct job *job);
/* The membership was stepped: an epoch has formed, with the reason for it as a text;
 * its store may be open; its first step is done; it stops, or the job is over. */
void registry_note_formed(struct registry *g, struct job *job, const char *text);
void registry_note_start(struct registry *g, struct job *job);
void registry_note_first_step(struct registry *g, struct job *job);
void registry_note_end(struct registry *g, struct job *job);
/* Some jobs are written to the archive, if that is due. */
void registry_tick_archive(struct registry *g);
uint64_t registry_next_archive(const struct registry *g, const struct job *job);
/* It is forgotten now. */
void registry_archive_last(struct registry *g, struct job *job);

/* registry_memory.c */
/* A node reports what it holds in memory. False: nothing. */
bool registry_take_memory(struct registry *g, struct job *job, uint32_t node,
                          const char *text);
void registry_forget_memory(struct job *job, uint32_t node);
/* Before the state of a job is saved: the epoch begins with this set, or the job ends
 * with it. */
void registry_choose_memory(struct job *job);
/* Fills in what START says of memory, and sends what comes before. */
void registry_start_memory(struct registry_peer *p, struct msg_start *start);
/* For DONE. */
const char *registry_last_memory(const struct job *job);
/* "resumed at step 1234 from memory", or "" if the workers have restored something
 * else. Returns buf. */
char *registry_describe_memory(const struct job *job, uint64_t restored, char *buf,
                               size_t size);

/* registry_crunctl.c */
bool ctl_list_has_room(const struct registry_peer *p);
void ctl_list_begin(struct registry *g, struct registry_peer *p,
                    const struct ctl_list *list);

void registry_follow_news(struct registry *g, const struct job *job,
                          const struct msg_event *event);
void registry_unfollow(struct registry_peer *p);
void registry_drop_list(struct registry_peer *p);

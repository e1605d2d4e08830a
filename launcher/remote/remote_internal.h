/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/interface/job_record.h"
#include "launcher/remote/host_link.h"
#include "launcher/remote/host_states.h"
#include "launcher/remote/limits.h"
#include "launcher/remote/push.h"
#include "launcher/remote/remote.h"
#include "launcher/remote/remote_order.h"
#include "launcher/remote/remote_output.h"
#include "launcher/remote/remote_report.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/witness_claims.h"
#include "rendezvous/wire/protocol/job_name.h"

/* For remote.c and the files that it is made of. */
struct local_job;
struct remote;
struct socket_relays;
struct tool_lines;

struct remote_host {
    struct remote *remote;
    const struct host *target;
    uint32_t index;
    enum host_state state;
    struct host_link link;
    unsigned attempts;
    bool past_path;    /* the crun at our own path is not of our version */
    bool is_unlisted;  /* it is gone from the list of hosts, or may be tried anew */
    struct host later; /* target, if it came later */
    uint64_t not_before_ms;
    struct loop_timer timer;
    struct remote_hello hello;
    uint16_t port;
    int code; /* of its crun, once it has exited */
    struct remote_failure failure;
    char *said;
    char *log, *reach; /* once it is detached, as in CHANNEL_DETACHED */
    struct console_source *source[REMOTE_STREAMS];
};

struct remote {
    const struct remote_job *job;
    struct loop *loop;
    struct remote_output *output;
    struct own_stdin *input;
    struct push push;
    struct remote_host *host; /* room for those that come later, too */
    size_t count, room;
    struct host_watch *watch;
    char *endpoints;
    uint32_t nodes, max_nodes; /* at the start, and at most */
    struct remote_host *first; /* node rank 0, once started; or, if that is gone from a
                                * job that goes on, another one that runs */
    struct local_job *local;   /* for tools of this machine */
    struct job_reach place;    /* of the job, for them */
    struct tool_lines *tools;
    struct claims claims;           /* this process is the witness of its nodes */
    struct socket_relays *refusals; /* of tools, before there is a job */
    char name[JOB_NAME_SIZE];
    char *key; /* in memory for secrets */
    char run_id[RUN_ID_MAX + 1];
    bool has_terminal, has_started, is_elastic, is_ending, has_lost;
    bool goes_on; /* without this process */
    int code;     /* -1: node rank 0 gives it */
    unsigned interrupts;
    uint64_t begun_ms;
    struct loop_timer connect, ping, waiting, others, suspend;
};

/* host_events.c */
struct host_link_calls remote_host_calls(struct remote_host *h);
void remote_host_on_timer(void *arg);

/* host_loss.c */
void remote_fail_host(struct remote_host *h);
void remote_end_host(struct remote_host *h);
void remote_lose_host(struct remote_host *h);
/* Its node gives the result, and gets what tools and signals ask. */
void remote_lead(struct remote_host *h);
void remote_end_hosts(struct remote *r);

/* host_connect.c */
void remote_host_handle_event(struct remote_host *h, enum host_event event);
void remote_host_note_failure(struct remote_host *h, uint8_t refusal, const char *what,
                              const char *said);
void remote_host_start(struct remote_host *h, int32_t node_rank);
void remote_host_send(struct remote_host *h, enum channel_type type, const void *body,
                      size_t size);
void remote_send_to_all(struct remote *r, enum channel_type type, const void *body,
                        size_t size);
void remote_host_close(struct remote_host *h);
void remote_host_drop(struct remote_host *h);

/* remote_start.c */
void remote_check_progress(struct remote *r);
void remote_on_connect_due(void *arg);
/* late_hosts.c */
void remote_host_init(struct remote *r, size_t index, const struct host *target);
void remote_follow_list(struct remote *r);

/* job_key.c: of a job whose user has no key */
int remote_make_key(struct remote *r, struct err *e) MUST_CHECK;
/* remote_signals.c: this process' own; Ctrl-C, suspension, hangup */
void remote_watch_signals(struct remote *r);
/* remote_exit_code.c */
int remote_exit_code(const struct remote *r);

/* remote_tools.c: tools of this machine, such as crunctl, reach the job */
void remote_open_tools(struct remote *r);
void remote_close_tools(struct remote *r);
/* arg: the struct remote */
void remote_fill_facts(void *arg, struct job_facts *facts);

/* SPDX-License-Identifier: MIT */
/*
 * The controller: turns what occurs on the connections into events of the hosts'
 * table, and performs the acts that it gives.
 */
#include "launcher/remote/remote.h"

#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include "launcher/hosts/host_watch.h"
#include "launcher/remote/channel.h"
#include "launcher/remote/detached_job.h"
#include "launcher/remote/host_link.h"
#include "launcher/remote/limits.h"
#include "launcher/remote/own_stdin.h"
#include "launcher/remote/push.h"
#include "launcher/remote/remote_host.h"
#include "launcher/remote/remote_order.h"
#include "launcher/remote/remote_output.h"
#include "launcher/remote/remote_report.h"
#include "launcher/remote/rsh.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/id128.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/net.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/version.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/keys/key.h"
#include "rendezvous/tls/key_memory.h"

#define WAIT_FIRST_MS 5000 /* of silence, before it says what it waits for */
#define WAIT_AGAIN_MS 30000
#define END_WITHIN_MS 60000 /* for hosts that were told that the launcher ends */
#define KILLS_AT 3          /* the third Ctrl-C */
#define NAMES_SHOWN_MAX 5
#define LINES_MAX 65536 /* numbers of lines of one host */

struct remote;

struct remote_host {
    struct remote *remote;
    const struct remote_target *target;
    uint32_t index;
    enum remote_host_state state;
    struct host_link link;
    unsigned attempts;
    bool past_path;          /* the crun at our own path is not of our version */
    struct remote_host *via; /* its connection is made by this host; NULL: by us */
    bool is_direct;          /* no other host makes it */
    bool is_unlisted; /* it is gone from the list of hosts, or may be tried anew */
    struct remote_target later; /* target, if it came later */
    bool closes_later;          /* once those behind it have ended */
    uint64_t not_before_ms;
    struct loop_timer timer;
    struct remote_hello hello;
    uint16_t port;
    int code; /* of its crun, once it has exited */
    struct remote_failure failure;
    char *said, *log;
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
    struct remote_host *first; /* node rank 0, once started */
    size_t branches;           /* the first hosts, which connect to the others */
    struct detached_job *detached;
    char *key; /* in memory for secrets */
    char run_id[RUN_ID_MAX + 1];
    bool has_terminal, has_started, is_elastic, is_ending, has_lost;
    int code; /* -1: node rank 0 gives it */
    unsigned interrupts;
    uint64_t begun_ms;
    struct loop_timer connect, ping, waiting, others, suspend;
};

static void remote_host_handle_event(struct remote_host *h,
                                     enum remote_host_event event);
static void remote_check_progress(struct remote *r);

/* -- hosts ------------------------------------------------------------------------- */

static void remote_host_send(struct remote_host *h, enum channel_type type,
                             const void *body, size_t size)
{
    struct evbuffer *out = h->link.is_open ? host_link_output(&h->link) : NULL;

    if (out)
        channel_put(out, type, h->index, body, size);
}

static void remote_send_to_all(struct remote *r, enum channel_type type,
                               const void *body, size_t size)
{
    for (size_t i = 0; i < r->count; i++)
        if ((!remote_host_is_over(r->host[i].state) || r->host[i].closes_later) &&
            r->host[i].link.is_greeted)
            remote_host_send(&r->host[i], type, body, size);
}

static bool has_hosts_behind(const struct remote_host *h)
{
    const struct remote *r = h->remote;

    for (size_t i = 0; i < r->count; i++)
        if (r->host[i].via == h && r->host[i].link.is_open)
            return true;
    return false;
}

static void remote_host_close(struct remote_host *h)
{
    loop_timer_cancel(&h->timer);
    h->closes_later = has_hosts_behind(h);
    if (h->closes_later)
        return;
    host_link_shut(&h->link);
    host_link_end(&h->link, REMOTE_CLOSE_MS);
}

/* Nothing may be expected of it any more. */
static void remote_host_drop(struct remote_host *h)
{
    loop_timer_cancel(&h->timer);
    host_link_close(&h->link);
    for (int i = 0; i < REMOTE_STREAMS; i++) {
        if (h->source[i])
            remote_output_remove(h->remote->output, h->source[i]);
        h->source[i] = NULL;
    }
}

static void arm_host_timer(struct remote_host *h, uint64_t ms)
{
    loop_timer_arm(&h->timer, clock_ms() + ms);
}

static void send_command(struct remote_host *h, char *command)
{
    struct evbuffer *out = host_link_output(&h->link);

    if (command && out)
        evbuffer_add(out, command, strlen(command));
    free(command);
}

static void remote_host_note_failure(struct remote_host *h, uint8_t refusal,
                                     const char *what, const char *said)
{
    free(h->said);
    h->said = xstrdup(said);
    h->failure = (struct remote_failure){
        .host = h->target->name, .what = what, .said = h->said, .refusal = refusal
    };
}

/* -- what the connections tell ------------------------------------------------------
 */

static void on_mark(void *arg, enum host_link_mark mark)
{
    if (mark == LINK_ABSENT)
        remote_host_handle_event(arg, HOST_EV_ABSENT);
    else if (mark == LINK_WANTED)
        remote_host_handle_event(arg, HOST_EV_WANTED);
}

static void hear_hello(struct remote_host *h, const struct channel_frame *frame)
{
    struct err e;

    remote_hello_clear(&h->hello);
    if (remote_hello_parse(frame->body, frame->size, &h->hello, &e) < 0) {
        remote_host_note_failure(h, 0, "is not a crun of this version", e.text);
        remote_host_handle_event(h, HOST_EV_OTHER);
    } else if (h->hello.channel != CHANNEL_VERSION ||
               strcmp(h->hello.version, CRUN_VERSION) != 0) {
        remote_host_note_failure(h, 0, "has another version of crun", h->hello.version);
        remote_host_handle_event(h, HOST_EV_OTHER);
    } else {
        remote_host_handle_event(h, HOST_EV_HELLO);
    }
}

static void hear_refused(struct remote_host *h, const struct channel_frame *frame)
{
    char text[sizeof(((struct err *)0)->text)];
    uint8_t code = frame->size ? frame->body[0] : REMOTE_BAD_ORDER;

    snprintf(text, sizeof(text), "%.*s", frame->size ? (int)frame->size - 1 : 0,
             (const char *)frame->body + 1);
    remote_host_note_failure(h, code, remote_report_refusal(code), text);
    remote_host_handle_event(h, HOST_EV_REFUSED);
}

static void hear_listening(struct remote_host *h, const struct channel_frame *frame)
{
    if (frame->size == 2)
        h->port = (uint16_t)(frame->body[0] | frame->body[1] << 8);
    remote_host_handle_event(h, HOST_EV_LISTENING);
}

static void hear_exited(struct remote_host *h, const struct channel_frame *frame)
{
    h->code = frame->size ? frame->body[0] : EXIT_FAILURE;
    if (h->state < HOST_RUNNING)
        remote_host_note_failure(h, 0, "ended before the job began", "");
    remote_host_handle_event(h, HOST_EV_EXITED);
}

static void hear_taken(struct remote_host *h, const struct channel_frame *frame)
{
    if (frame->size == 4 && h->remote->input && h == h->remote->first)
        own_stdin_taken(h->remote->input, bytes_load32(frame->body));
}

static void hear_detached(struct remote_host *h, const struct channel_frame *frame)
{
    free(h->log);
    h->log = xasprintf("%.*s", (int)frame->size, (const char *)frame->body);
    remote_host_handle_event(h, HOST_EV_DETACHED);
}

/* Before the start each host would say the same. */
static bool put_output(struct remote_host *h, int stream,
                       const struct channel_frame *frame)
{
    struct remote *r = h->remote;
    char *prefix;

    if (!r->has_started && h->index > 0)
        return true;
    if (!h->source[stream]) {
        prefix = r->job->host_prefix ? xasprintf("%s: ", h->target->name) : NULL;
        h->source[stream] = remote_output_add(r->output, stream, prefix);
        free(prefix);
    }
    return remote_output_put(r->output, stream, h->source[stream],
                             (const char *)frame->body, frame->size);
}

/* A frame about a connection that this host makes for us. */
static bool hear_relayed(struct remote_host *via, const struct channel_frame *frame)
{
    struct remote *r = via->remote;
    size_t index = frame->host % NODES_MAX;
    struct remote_host *h = index < r->count ? &r->host[index] : NULL;

    /* others are the rest of a connection that was given up */
    if (!h || h->via != via || !h->link.is_open || h->link.line != frame->host)
        return true;
    return host_link_relayed(&h->link, frame);
}

static void on_malformed(void *arg, const char *why)
{
    struct remote_host *h = arg;

    remote_host_note_failure(h, 0, "does not speak as crun does", why);
    remote_host_handle_event(h, HOST_EV_CLOSED);
}

static bool on_frame(void *arg, const struct channel_frame *frame)
{
    static const struct {
        void (*hear)(struct remote_host *, const struct channel_frame *);
        enum remote_host_event event; /* 0: at any time */
    } messages[] = {
        [CHANNEL_HELLO] = { hear_hello, HOST_EV_HELLO },
        [CHANNEL_REFUSED] = { hear_refused, HOST_EV_REFUSED },
        [CHANNEL_LISTENING] = { hear_listening, HOST_EV_LISTENING },
        [CHANNEL_EXITED] = { hear_exited, HOST_EV_EXITED },
        [CHANNEL_STDIN_TAKEN] = { hear_taken, 0 },
        [CHANNEL_DETACHED] = { hear_detached, HOST_EV_DETACHED },
    };
    struct remote_host *h = arg;
    uint8_t type = frame->type;

    if (type == CHANNEL_OUT || type == CHANNEL_ERR)
        return put_output(h, type == CHANNEL_ERR ? REMOTE_ERR : REMOTE_OUT, frame);
    if (type >= CHANNEL_RELAY_OUT && type <= CHANNEL_RELAY_CLOSED)
        return hear_relayed(h, frame);
    if (type >= sizeof(messages) / sizeof(*messages) || !messages[type].hear)
        return true;
    if (!messages[type].event || remote_host_expects(h->state, messages[type].event))
        messages[type].hear(h, frame);
    else if (!remote_host_is_over(h->state))
        on_malformed(h, "a message out of order");
    return true;
}

/* What the other host cannot do, this one may: it has keys, names and routes of its
 * own. A host that does not answer is not asked twice. */
static bool must_connect_directly(struct remote_host *h)
{
    bool busy;
    const char *means = remote_host_explain(h->link.said, &busy);

    if (!h->via || h->link.has_shell || strcmp(means, "did not answer") == 0)
        return false;
    h->is_direct = true;
    return true;
}

/* Only in its first phase a connection says by its end what is wrong. */
static enum remote_host_event event_of_end(struct remote_host *h)
{
    bool busy;

    (void)remote_host_explain(h->link.said, &busy);
    if (h->state == HOST_CONNECTING && must_connect_directly(h))
        return HOST_EV_BUSY;
    if (h->state == HOST_CONNECTING && h->link.has_shell && !h->past_path)
        return HOST_EV_OTHER;
    return h->state == HOST_CONNECTING && busy && h->attempts < REMOTE_ATTEMPTS_MAX
               ? HOST_EV_BUSY
               : HOST_EV_CLOSED;
}

static void cut_hosts_behind(struct remote_host *h)
{
    struct remote *r = h->remote;
    char why[512];

    snprintf(why, sizeof(why), "the connection to %s is lost\n", h->target->name);
    for (size_t i = 0; i < r->count; i++)
        if (r->host[i].via == h)
            host_link_cut(&r->host[i].link, why);
}

static void on_link_closed(void *arg)
{
    struct remote_host *h = arg;
    bool busy;

    if (!h->failure.what)
        remote_host_note_failure(h, 0, remote_host_explain(h->link.said, &busy),
                                 h->link.said);
    cut_hosts_behind(h);
    remote_host_handle_event(h, event_of_end(h));
    if (h->via && h->via->closes_later)
        remote_host_close(h->via);
    remote_check_progress(h->remote);
}

static struct host_link_calls remote_host_calls(struct remote_host *h)
{
    return (struct host_link_calls){ .mark = on_mark,
                                     .frame = on_frame,
                                     .malformed = on_malformed,
                                     .closed = on_link_closed,
                                     .arg = h };
}

static void remote_host_on_timer(void *arg)
{
    struct remote_host *h = arg;

    remote_host_note_failure(h, 0, "did not answer in time", h->link.said);
    remote_host_handle_event(h, HOST_EV_TIMEOUT);
}

/* -- acts -------------------------------------------------------------------------- */

static void connect_host(struct remote_host *h)
{
    struct remote *r = h->remote;
    struct host_link_calls calls = remote_host_calls(h);
    char **argv = rsh_command(r->job->rsh, r->job->ssh_args, h->target->name);
    struct err e;
    int rc = 0;

    if (h->via)
        host_link_open_via(&h->link, &h->via->link,
                           h->index + h->attempts % LINES_MAX * NODES_MAX, argv,
                           &calls);
    else
        rc = host_link_open(&h->link, r->loop, argv, &calls, &e);
    rsh_free(argv);
    h->attempts++;
    h->failure.what = NULL;
    if (rc < 0) {
        remote_host_note_failure(h, REMOTE_BAD_FLAGS, "cannot be reached", e.text);
        remote_host_handle_event(h, HOST_EV_CLOSED);
        return;
    }
    arm_host_timer(h, REMOTE_ANSWER_MS);
    if (h->past_path)
        remote_host_handle_event(h, HOST_EV_ABSENT);
    else
        send_command(h, push_first_command(&r->push));
}

static void search_copy(struct remote_host *h)
{
    struct err e;
    char *command = push_second_command(&h->remote->push, &e);

    if (command) {
        send_command(h, command);
        return;
    }
    remote_host_note_failure(h, 0, "could not get a copy of crun", e.text);
    remote_host_handle_event(h, HOST_EV_CLOSED);
}

static void push_copy(struct remote_host *h)
{
    struct err e;

    log_debug("%s has no crun " CRUN_VERSION ": it gets a copy", h->target->name);
    arm_host_timer(h, REMOTE_PUSH_MS);
    if (push_add_files(&h->remote->push, host_link_output(&h->link), &e) == 0)
        return;
    remote_host_note_failure(h, 0, "could not get a copy of crun", e.text);
    remote_host_handle_event(h, HOST_EV_CLOSED);
}

/* The variables of the job, and the GPUs that the list of hosts selects on this one. */
static char **host_environment(const struct remote_host *h, char **devices)
{
    char *const *common = h->remote->job->environment;
    size_t n = 0;
    char **all;

    while (common[n])
        n++;
    all = xcalloc(n + 2, sizeof(*all));
    memcpy(all, common, n * sizeof(*all));
    *devices = h->target->devices
                   ? xasprintf("CUDA_VISIBLE_DEVICES=%s", h->target->devices)
                   : NULL;
    all[n] = *devices;
    return all;
}

static void send_order(struct remote_host *h)
{
    struct remote *r = h->remote;
    char *devices, **environment = host_environment(h, &devices);
    struct remote_order o = { .argv = (char **)r->job->argv,
                              .environment = environment,
                              .folder = (char *)r->job->folder,
                              .run_id = r->run_id,
                              .key = r->key,
                              .workers = h->target->workers,
                              .detach = r->job->detach,
                              .live = remote_output_is_live(r->output),
                              .one_stream = remote_output_is_one(r->output) };
    struct evbuffer *out = host_link_output(&h->link);

    arm_host_timer(h, REMOTE_READY_MS);
    if (out)
        channel_put_secret(out, CHANNEL_ORDER, h->index, remote_order_format(&o));
    free(environment);
    free(devices);
}

static void reconnect_host(struct remote_host *h)
{
    host_link_close(&h->link);
    loop_timer_cancel(&h->timer);
    h->past_path = true;
    loop_timer_arm(&h->remote->connect, clock_ms());
}

/* The second attempts are spread over as much time again. */
static void retry_host(struct remote_host *h)
{
    struct id128 random = id128_random();
    uint64_t wait = REMOTE_RETRY_MS + random.byte[0] * REMOTE_RETRY_MS / 255;

    loop_timer_cancel(&h->timer);
    h->not_before_ms = clock_ms() + wait;
    loop_timer_arm(&h->remote->connect, h->not_before_ms);
}

static void remote_host_start(struct remote_host *h, int32_t node_rank)
{
    const struct remote *r = h->remote;
    bool elastic = r->is_elastic && r->job->min_nodes < r->nodes;
    struct remote_start s = { .node_rank = node_rank,
                              .nodes = r->nodes,
                              .min_nodes = elastic ? r->job->min_nodes : r->nodes,
                              .max_nodes = r->max_nodes,
                              .host = h == r->first && *r->endpoints,
                              .endpoints = r->endpoints };
    char *text = remote_start_format(&s);

    remote_host_send(h, CHANNEL_START, text, strlen(text));
    free(text);
    remote_host_handle_event(h, HOST_EV_START);
    if (r->job->detach)
        remote_host_send(h, CHANNEL_DETACH, NULL, 0);
}

static void ready_host(struct remote_host *h)
{
    loop_timer_cancel(&h->timer);
    if (h->remote->has_started)
        remote_host_start(h, -1);
}

static void fail_host(struct remote_host *h)
{
    char line[256];

    remote_report_last_line(h->failure.said, line, sizeof(line));
    if (h->remote->has_started && !h->remote->is_ending)
        log_warn("%s %s%s%s: the job goes on without it", h->target->name,
                 h->failure.what, *line ? ": " : "", line);
    else
        log_debug("%s %s: %s", h->target->name, h->failure.what, h->failure.said);
    remote_host_close(h);
}

/* They would come to a job that has ended. */
static void drop_late_hosts(struct remote *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->host[i].state < HOST_RUNNING) {
            remote_host_drop(&r->host[i]);
            r->host[i].state = HOST_FAILED;
        }
}

static void end_host(struct remote_host *h)
{
    struct remote *r = h->remote;

    remote_host_close(h);
    if (h == r->first && h->state == HOST_EXITED) {
        drop_late_hosts(r);
        loop_timer_arm(&r->others, clock_ms() + REMOTE_OTHERS_END_MS);
    }
}

static void remote_end_hosts(struct remote *r);

static void lose_host(struct remote_host *h)
{
    struct remote *r = h->remote;
    uint8_t signo = SIGTERM;
    char line[256];

    remote_report_last_line(h->link.said, line, sizeof(line));
    remote_host_close(h);
    if (r->is_ending)
        return;
    if (r->is_elastic && h != r->first) {
        log_warn("the connection to %s is lost%s%s: the job goes on without it",
                 h->target->name, *line ? ": " : "", line);
        return;
    }
    log_error("the connection to %s is lost%s%s: the job ends", h->target->name,
              *line ? ": " : "", line);
    r->has_lost = true;
    if (h == r->first)
        remote_end_hosts(r);
    else
        remote_host_send(r->first, CHANNEL_SIGNAL, &signo, 1);
    loop_timer_arm(&r->others, clock_ms() + REMOTE_OTHERS_END_MS);
}

static void remote_host_handle_event(struct remote_host *h,
                                     enum remote_host_event event)
{
    static void (*const acts[HOST_ACT_COUNT])(struct remote_host *) = {
        [HOST_ACT_CONNECT] = connect_host,
        [HOST_ACT_SEARCH] = search_copy,
        [HOST_ACT_PUSH] = push_copy,
        [HOST_ACT_ORDER] = send_order,
        [HOST_ACT_RECONNECT] = reconnect_host,
        [HOST_ACT_RETRY] = retry_host,
        [HOST_ACT_READY] = ready_host,
        [HOST_ACT_FAIL] = fail_host,
        [HOST_ACT_END] = end_host,
        [HOST_ACT_LOSE] = lose_host,
    };
    struct remote_host_edge edge = remote_host_edge(h->state, event);

    log_debug("%s: %s -> %s", h->target->name, remote_host_state_name(h->state),
              remote_host_state_name(edge.to));
    h->state = edge.to;
    if (acts[edge.act])
        acts[edge.act](h);
    loop_timer_arm(&h->remote->connect, clock_ms());
}

/* -- all of them ------------------------------------------------------------------- */

static size_t count_hosts(const struct remote *r, bool (*is)(enum remote_host_state))
{
    size_t n = 0;

    for (size_t i = 0; i < r->count; i++)
        n += is(r->host[i].state);
    return n;
}

/* How many connections each path makes now: we, and the hosts that make some for us. */
struct remote_paths {
    unsigned direct, busy[REMOTE_BRANCHES_MAX], behind[REMOTE_BRANCHES_MAX];
    bool is_undecided; /* one of those hosts has not answered yet */
};

static void count_paths(const struct remote *r, struct remote_paths *p)
{
    *p = (struct remote_paths){ .direct = 0 };
    for (size_t i = 0; i < r->count; i++) {
        const struct remote_host *h = &r->host[i];
        bool busy = remote_host_is_connecting(h->state);

        if (!h->via)
            p->direct += busy;
        else {
            p->busy[h->via->index] += busy;
            p->behind[h->via->index]++;
        }
        if (i < r->branches)
            p->is_undecided |= h->state < HOST_CHECKING;
    }
}

/* Finds the path with the fewest hosts behind it. False: none has room now. */
static bool find_path(struct remote *r, struct remote_host *h, struct remote_paths *p)
{
    size_t share = (r->count - 1) / r->branches; /* without itself, rounded up */
    struct remote_host *best = NULL;
    bool is_full = false;

    h->via = NULL;
    if (h->index < r->branches || h->is_direct)
        return p->direct++ < REMOTE_CONNECTING_MAX;
    for (size_t i = 0; i < r->branches; i++) {
        struct remote_host *b = &r->host[i];

        if (!b->link.is_open || !b->link.is_greeted || remote_host_is_over(b->state))
            continue;
        /* its share only, while others may still come */
        if (p->busy[i] >= REMOTE_CONNECTING_MAX ||
            (p->is_undecided && p->behind[i] >= share))
            is_full = true;
        else if (!best || p->behind[i] < p->behind[best->index])
            best = b;
    }
    if (best) {
        p->busy[best->index]++;
        p->behind[best->index]++;
        h->via = best;
        return true;
    }
    if (is_full || p->is_undecided)
        return false;
    return p->direct++ < REMOTE_CONNECTING_MAX;
}

static void connect_hosts(struct remote *r)
{
    uint64_t now = clock_ms(), next = UINT64_MAX;
    struct remote_paths paths;

    count_paths(r, &paths);
    for (size_t i = 0; i < r->count && !r->is_ending; i++) {
        struct remote_host *h = &r->host[i];

        if (h->state != HOST_IDLE)
            continue;
        if (h->not_before_ms > now) {
            next = h->not_before_ms < next ? h->not_before_ms : next;
            continue;
        }
        if (find_path(r, h, &paths))
            remote_host_handle_event(h, HOST_EV_CONNECT);
    }
    if (next != UINT64_MAX)
        loop_timer_arm(&r->connect, next);
}

/* "10.0.0.1:4711,[fd00::1]:4711" */
static char *format_endpoints(const struct remote_host *h)
{
    char *list = xstrdup("");

    for (char **a = h->hello.addresses; *a; a++) {
        struct net_addr number;
        struct err e;
        const char *form = strchr(*a, ':') ? "%s%s[%s]:%u" : "%s%s%s:%u";
        char *more = xasprintf(form, list, *list ? "," : "", *a, h->port);

        if (net_parse_host(*a, h->port, &number, &e) < 0) { /* it is from the network */
            free(more);
            continue;
        }
        free(list);
        list = more;
    }
    return list;
}

static void start_hosts(struct remote *r, uint32_t nodes)
{
    const struct remote_job *job = r->job;
    int32_t node_rank = 0;

    r->nodes = r->max_nodes = nodes;
    if (r->is_elastic && r->watch && job->max_nodes > nodes)
        r->max_nodes = job->max_nodes;
    for (size_t i = 0; i < r->count; i++) {
        struct remote_host *h = &r->host[i];

        if (h->state != HOST_READY)
            continue;
        if (!r->first) {
            r->first = h;
            r->endpoints = r->max_nodes > 1 || job->detach ? format_endpoints(h)
                                                           : xstrdup("");
        }
        remote_host_start(h, node_rank++);
    }
    r->has_started = true;
    if (r->detached)
        detached_job_set_endpoints(r->detached, r->endpoints);
    loop_timer_cancel(&r->waiting);
    if (job->reads_stdin && !job->detach)
        own_stdin_start(r->input);
}

static struct remote_failure *list_failures(const struct remote *r, size_t *count)
{
    struct remote_failure *list = xcalloc(r->count + 1, sizeof(*list));

    *count = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->host[i].state == HOST_FAILED)
            list[(*count)++] = r->host[i].failure;
    return list;
}

/* All hosts have answered, or failed. */
static void decide_start(struct remote *r)
{
    size_t failed, ready;
    struct remote_failure *failures = list_failures(r, &failed);
    uint32_t wanted = r->job->min_nodes ? r->job->min_nodes : (uint32_t)r->count;

    ready = r->count - failed;
    if (failed)
        remote_report_failures(failures, failed, r->count);
    if (ready >= wanted) {
        if (failed)
            log_warn("the job starts with %zu of %zu hosts", ready, r->count);
        start_hosts(r, (uint32_t)ready);
    } else {
        if (ready > 0)
            log_error("the job needs %" PRIu32 " host%s; --nnodes=MIN:MAX starts with "
                      "fewer",
                      wanted, text_plural(wanted));
        r->code = remote_report_code(failures, failed);
        remote_end_hosts(r);
    }
    free(failures);
}

static void remote_check_progress(struct remote *r)
{
    bool all_closed = true;

    if (!r->has_started && !r->is_ending &&
        count_hosts(r, remote_host_has_answered) == r->count)
        decide_start(r);
    for (size_t i = 0; i < r->count; i++)
        all_closed &= remote_host_is_over(r->host[i].state) && !r->host[i].link.is_open;
    if (all_closed)
        loop_stop(r->loop);
}

static void remote_on_connect_due(void *arg)
{
    struct remote *r = arg;

    connect_hosts(r);
    remote_check_progress(r);
}

/* -- hosts that come and go -------------------------------------------------------- */

static void remote_host_init(struct remote *r, size_t index,
                             const struct remote_target *target)
{
    struct remote_host *h = &r->host[index];

    *h = (struct remote_host){ .remote = r,
                               .target = target,
                               .index = (uint32_t)index };
    loop_timer_init(&h->timer, r->loop, remote_host_on_timer, h);
}

static struct remote_host *find_listed_host(const struct remote *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (!r->host[i].is_unlisted && strcmp(r->host[i].target->name, name) == 0)
            return &r->host[i];
    return NULL;
}

static void drain_host(struct remote_host *h)
{
    h->is_unlisted = true;
    if (remote_host_is_over(h->state))
        return;
    if (h == h->remote->first) {
        log_warn("%s is gone from the list of hosts, and stays: the rendezvous of the "
                 "job is "
                 "there",
                 h->target->name);
        h->is_unlisted = false;
    } else if (h->state == HOST_RUNNING) {
        log_info("%s is gone from the list of hosts: its node leaves the job",
                 h->target->name);
        remote_host_send(h, CHANNEL_DRAIN, NULL, 0);
    } else {
        remote_host_note_failure(h, 0, "is gone from the list of hosts", "");
        remote_host_drop(h);
        h->state = HOST_FAILED;
    }
}

static void add_late_host(struct remote *r, const struct host *host)
{
    size_t active = 0;
    struct remote_host *h;

    for (size_t i = 0; i < r->count; i++)
        active += !remote_host_is_over(r->host[i].state) && !r->host[i].is_unlisted;
    if (active >= r->job->max_nodes || r->count == r->room) {
        log_info(
            "%s is new in the list of hosts, and not needed: the job has %zu nodes",
            host->name, active);
        return;
    }
    log_info("%s is new in the list of hosts: its node joins the job", host->name);
    remote_host_init(r, r->count, NULL);
    h = &r->host[r->count++];
    h->later = (struct remote_target){
        .name = xstrdup(host->name),
        .workers = r->job->ignores_slots ? 0 : host->slots,
        .devices = host->devices ? xstrdup(host->devices) : NULL,
    };
    h->target = &h->later;
}

static void on_list_changed(void *arg, const struct hosts *list)
{
    struct remote *r = arg;

    if (r->is_ending || (r->first && remote_host_is_over(r->first->state)))
        return;
    if (!r->is_elastic) {
        log_warn("the list of hosts has changed, and this job has a fixed number of "
                 "nodes; --nnodes=MIN:MAX follows it");
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        bool is_listed = false;

        for (size_t j = 0; j < list->count && !is_listed; j++)
            is_listed = strcmp(list->host[j].name, r->host[i].target->name) == 0;
        if (!is_listed && !r->host[i].is_unlisted)
            drain_host(&r->host[i]);
    }
    for (size_t j = 0; j < list->count; j++)
        if (!find_listed_host(r, list->host[j].name))
            add_late_host(r, &list->host[j]);
    loop_timer_arm(&r->connect, clock_ms());
}

static void on_list_failed(void *arg, const char *why)
{
    (void)arg;
    log_warn("the list of hosts stays as it was: %s", why);
}

static void remote_follow_list(struct remote *r)
{
    const struct host_watch_calls calls = { on_list_changed, on_list_failed, r };

    if (r->job->wanted)
        r->watch = host_watch_create(r->loop, r->job->wanted, r->job->hosts, &calls);
    if (r->watch)
        r->is_elastic |= r->job->min_nodes && r->job->min_nodes < r->job->max_nodes;
}

/* -- time -------------------------------------------------------------------------- */

static void on_ping_due(void *arg)
{
    struct remote *r = arg;

    remote_send_to_all(r, CHANNEL_PING, NULL, 0);
    loop_timer_arm(&r->ping, clock_ms() + REMOTE_PING_MS);
}

static void on_waiting_due(void *arg)
{
    struct remote *r = arg;
    char names[256] = "", since[32];
    size_t n = 0, used = 0;

    for (size_t i = 0; i < r->count; i++) {
        if (remote_host_has_answered(r->host[i].state))
            continue;
        if (n++ < NAMES_SHOWN_MAX && used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     n > 1 ? ", " : "", r->host[i].target->name);
    }
    log_info("waiting for hosts: %zu of %zu have answered (missing: %s%s) · %s",
             r->count - n, r->count, names, n > NAMES_SHOWN_MAX ? " ..." : "",
             clock_format_duration(clock_ms() - r->begun_ms, since, sizeof(since)));
    loop_timer_arm(&r->waiting, clock_ms() + WAIT_AGAIN_MS);
}

/* -- the end ----------------------------------------------------------------------- */

/* Each host reads that this process is gone, and ends its node. */
static void remote_end_hosts(struct remote *r)
{
    r->is_ending = true;
    loop_timer_cancel(&r->waiting);
    for (size_t i = 0; i < r->count; i++) {
        struct remote_host *h = &r->host[i];

        if (remote_host_is_over(h->state))
            continue;
        if (h->state == HOST_RUNNING) {
            host_link_shut(&h->link);
            host_link_end(&h->link, END_WITHIN_MS);
        } else {
            remote_host_drop(h);
            h->state = HOST_FAILED;
        }
    }
    loop_timer_arm(&r->connect, clock_ms());
}

static void on_others_late(void *arg)
{
    remote_end_hosts(arg);
}

static void kill_hosts(struct remote *r)
{
    uint8_t signo = SIGKILL;

    log_error("killing the job on all hosts");
    remote_send_to_all(r, CHANNEL_SIGNAL, &signo, 1);
    r->code = 128 + SIGINT;
    for (size_t i = 0; i < r->count; i++)
        host_link_end(&r->host[i].link, REMOTE_CLOSE_MS);
}

static void on_end_signal_here(void *arg, int signo)
{
    struct remote *r = arg;
    uint8_t byte = (uint8_t)signo;

    r->interrupts += signo == SIGINT;
    if (r->interrupts >= KILLS_AT) {
        kill_hosts(r);
    } else if (r->has_started && r->first->state == HOST_RUNNING) {
        remote_host_send(r->first, CHANNEL_SIGNAL, &byte, 1);
        if (signo != SIGUSR1) /* which waits for checkpoints */
            loop_timer_arm(&r->others,
                           clock_ms() + r->job->grace_ms + REMOTE_OTHERS_END_MS);
    } else if (!r->is_ending) {
        r->code = 128 + signo;
        remote_end_hosts(r);
    }
}

static void on_suspend_here(void *arg, int signo)
{
    struct remote *r = arg;
    uint8_t byte = (uint8_t)signo;

    remote_send_to_all(r, CHANNEL_SIGNAL, &byte, 1);
    if (signo != SIGTSTP)
        return;
    loop_timer_arm(&r->suspend, clock_ms() + REMOTE_SUSPEND_MS);
}

/* The frames have left. */
static void on_suspend_due(void *arg)
{
    (void)arg;
    raise(SIGSTOP);
}

static void on_child_here(void *arg, int signo)
{
    struct remote *r = arg;

    (void)signo;
    for (size_t i = 0; i < r->count; i++)
        host_link_reap(&r->host[i].link);
}

static bool is_ignored_here(int signo)
{
    struct sigaction old;

    return sigaction(signo, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

/* A hangup comes from a terminal that is gone; another SIGHUP asks to read the list
 * again. Hosts that failed are tried again. */
static void on_hangup_here(void *arg, int signo)
{
    struct remote *r = arg;
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);

    if (terminal < 0 && r->has_terminal) {
        on_end_signal_here(r, signo);
        return;
    }
    if (terminal >= 0)
        close(terminal);
    for (size_t i = 0; i < r->count && r->has_started; i++)
        if (r->host[i].state == HOST_FAILED || r->host[i].state == HOST_LOST)
            r->host[i].is_unlisted = true;
    host_watch_reload(r->watch);
}

static void watch_hangup(struct remote *r)
{
    int terminal;

    if (is_ignored_here(SIGHUP))
        return;
    terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    r->has_terminal = terminal >= 0;
    if (terminal >= 0)
        close(terminal);
    loop_on_signal(r->loop, SIGHUP, on_hangup_here, r);
}

static void watch_own_signals(struct remote *r)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 };
    static const int suspends[] = { SIGTSTP, SIGCONT };

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (!is_ignored_here(ends[i]) && !(ends[i] == SIGHUP && r->watch))
            loop_on_signal(r->loop, ends[i], on_end_signal_here, r);
    for (size_t i = 0; i < sizeof(suspends) / sizeof(*suspends); i++)
        if (!is_ignored_here(suspends[i]))
            loop_on_signal(r->loop, suspends[i], on_suspend_here, r);
    if (r->watch)
        watch_hangup(r);
    loop_on_signal(r->loop, SIGCHLD, on_child_here, r);
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
}

/* -- start and end ----------------------------------------------------------------- */

static void on_output_room(void *arg)
{
    struct remote *r = arg;

    /* those behind other hosts first: these go on with what was meant for them */
    for (size_t i = r->count; i > 0; i--)
        host_link_resume(&r->host[i - 1].link);
}

static void on_own_input(void *arg, const void *data, size_t size)
{
    struct remote *r = arg;

    remote_host_send(r->first, CHANNEL_STDIN, data, size);
}

static int make_job_key(struct remote *r, struct err *e)
{
    struct key *key = key_memory_create(sizeof(*key), e);

    r->key = key ? key_memory_create(KEY_TEXT_SIZE, e) : NULL;
    if (!r->key) {
        key_memory_destroy(key, sizeof(*key));
        return -1;
    }
    key_generate(0, key);
    key_format(key, r->key);
    if (r->job->detach)
        r->detached = detached_job_create(r->run_id, key, e);
    key_memory_destroy(key, sizeof(*key));
    return r->job->detach && !r->detached ? -1 : 0;
}

static void name_remote_job(struct remote *r)
{
    struct id128 id = id128_random();
    char hex[ID128_HEX_SIZE];

    if (r->job->run_id)
        snprintf(r->run_id, sizeof(r->run_id), "%s", r->job->run_id);
    else
        snprintf(r->run_id, sizeof(r->run_id), "%.8s", id128_format(&id, hex));
}

/* Three pipes for each host. */
static void raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &limit);
}

/* Of many hosts about the square root; so each makes as many connections as we. */
static size_t count_branches(const struct remote *r)
{
    uint32_t most = r->job->tree_above ? r->job->tree_above : REMOTE_DIRECT_MAX;
    size_t branches = 1;

    if (r->count <= most)
        return r->room;
    while (branches < REMOTE_BRANCHES_MAX && branches * branches < r->count)
        branches++;
    return branches;
}

static void open_remote(struct remote *r)
{
    r->loop = loop_create();
    r->output = remote_output_create(r->loop, on_output_room, r);
    r->input = own_stdin_create(r->loop, on_own_input, r);
    r->begun_ms = clock_ms();
    r->count = r->job->count;
    r->room = r->count + REMOTE_LATE_HOSTS_MAX;
    r->host = xcalloc(r->room, sizeof(*r->host));
    r->branches = count_branches(r);
    for (size_t i = 0; i < r->count; i++)
        remote_host_init(r, i, &r->job->targets[i]);
    loop_timer_init(&r->connect, r->loop, remote_on_connect_due, r);
    loop_timer_init(&r->ping, r->loop, on_ping_due, r);
    loop_timer_init(&r->waiting, r->loop, on_waiting_due, r);
    loop_timer_init(&r->others, r->loop, on_others_late, r);
    loop_timer_init(&r->suspend, r->loop, on_suspend_due, r);
    loop_timer_arm(&r->connect, clock_ms());
    loop_timer_arm(&r->ping, clock_ms() + REMOTE_PING_MS);
    loop_timer_arm(&r->waiting, clock_ms() + WAIT_FIRST_MS);
    remote_follow_list(r);
    watch_own_signals(r);
}

/* Node rank 0's, which is the job's; of a job that has lost it, that of the others. */
static int result_code(const struct remote *r)
{
    int worst = 0;

    if (r->code >= 0)
        return r->code;
    if (r->has_lost)
        return EX_UNAVAILABLE;
    if (r->first && r->first->state == HOST_EXITED)
        return r->first->code;
    for (size_t i = 0; i < r->count; i++)
        if (r->host[i].state == HOST_EXITED && r->host[i].code > worst)
            worst = r->host[i].code;
    return worst;
}

static void print_detached(struct remote *r)
{
    bool runs = false;
    char shown[PATH_MAX];

    for (size_t i = 0; i < r->count; i++)
        runs |= r->host[i].state == HOST_DETACHED;
    if (!runs) {
        if (r->has_started)
            log_info("the job has ended already, with exit code %d", r->code);
        detached_job_forget(r->detached);
        return;
    }
    detached_job_print(r->detached, stdout);
    for (size_t i = 0; i < r->count; i++)
        if (r->host[i].log)
            printf("  output         %s:%s\n", r->host[i].target->name,
                   text_printable(r->host[i].log, shown, sizeof(shown)));
    fflush(stdout);
}

static void close_remote(struct remote *r)
{
    for (size_t i = 0; r->host && i < r->count; i++) {
        struct remote_host *h = &r->host[i];

        remote_host_drop(h);
        free((char *)h->later.name);
        free((char *)h->later.devices);
        loop_timer_fini(&h->timer);
        remote_hello_clear(&h->hello);
        free(h->said);
        free(h->log);
    }
    loop_timer_fini(&r->connect);
    loop_timer_fini(&r->ping);
    loop_timer_fini(&r->waiting);
    loop_timer_fini(&r->others);
    loop_timer_fini(&r->suspend);
    own_stdin_destroy(r->input);
    if (remote_output_destroy(r->output) && r->code == 0)
        r->code = EX_IOERR;
    loop_destroy(r->loop);
    host_watch_destroy(r->watch);
    free(r->endpoints);
    free(r->host);
}

int remote_run(const struct remote_job *job)
{
    struct remote r = { .job = job, .code = -1 };
    struct err e;

    raise_fd_limit();
    name_remote_job(&r);
    r.is_elastic = job->min_nodes && job->min_nodes < job->count;
    if (push_init(&r.push, &e) < 0 || make_job_key(&r, &e) < 0) {
        log_error("%s", e.text);
        r.code = EX_OSERR;
    } else {
        open_remote(&r);
        loop_run(r.loop);
        r.code = result_code(&r);
        if (r.detached)
            print_detached(&r);
        close_remote(&r);
    }
    detached_job_destroy(r.detached);
    key_memory_destroy(r.key, KEY_TEXT_SIZE);
    push_fini(&r.push);
    return r.code;
}

int remote_print(const struct remote_job *job, FILE *out, struct err *e)
{
    struct push push;

    if (push_init(&push, e) < 0)
        return -1;
    fprintf(out, "# %zu host%s, folder %s, %s\n", job->count, text_plural(job->count),
            job->folder, push.self);
    for (size_t i = 0; i < job->count; i++) {
        const struct remote_target *t = &job->targets[i];
        char **argv = rsh_command(job->rsh, job->ssh_args, t->name);

        fprintf(out, "\n# node rank %zu, %s", i, t->name);
        if (t->workers)
            fprintf(out, ", %" PRIu32 " worker%s", t->workers, text_plural(t->workers));
        if (t->devices)
            fprintf(out, ", GPUs %s", t->devices);
        fputc('\n', out);
        for (char **word = argv; *word; word++)
            fprintf(out, "%s%s", word > argv ? " " : "", *word);
        fputc('\n', out);
        rsh_free(argv);
    }
    fputs("\n# variables that travel\n", out);
    for (char *const *v = job->environment; *v; v++)
        fprintf(out, "#   %.*s\n", (int)strcspn(*v, "="), *v);
    push_fini(&push);
    return 0;
}

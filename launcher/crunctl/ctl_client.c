/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ctl_client.h"

#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/crunctl/ctl_jobs.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/wire/net/conn.h"
#include "rendezvous/wire/protocol/frame.h"
#include "rendezvous/wire/protocol/limits.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

#define DEFAULT_PORT 29400
#define ADDRESSES_MAX 16
#define LATE_MS 10
#define REDIRECTS_MAX 3
#define USUAL_MS 1000 /* for a rendezvous that nobody has named */

struct ctl_client {
    struct loop *loop;
    struct conn *conn;
    struct key_ring *keys; /* NULL: plain */
    struct tls_psk psk;
    const char *endpoint;
    char moved[NET_TEXT_SIZE]; /* the endpoint, if the first one has named another */
    char place[128]; /* of a crun of this machine: "train (pid 4711)"; else "" */
    uid_t rendezvous_user;
    uint64_t timeout_ms;
    struct loop_timer timer;
    bool trusted, foreign; /* the user of the rendezvous: may be obeyed, or not */
    bool connected, ended, timed_out, listening, interrupted;
    enum tls_failure refused;
    char why[sizeof(((struct err *)0)->text)]; /* the connection ended */

    struct msg_welcome welcome;
    uint64_t asked; /* the request's sequence number */
    bool answered;
    ctl_answer_fn *fn;
    void *arg;
    struct msg last; /* ACK, REFUSED, WELCOME or END_OF_LIST; KEEPERS: not here */
};

/* Without a key, what a process of another user says is not believed: see client.c. */
static int check_rendezvous_user(struct ctl_client *c, const struct conn *conn,
                                 struct err *e)
{
    enum local_peer kind;
    char why[256];
    uid_t uid = 0;

    if (c->trusted || c->keys)
        return 0;
    kind = conn_local_peer(conn, &uid);
    c->trusted = local_peer_may_serve(kind, uid, c->rendezvous_user, why, sizeof(why));
    c->foreign = !c->trusted;
    return c->trusted ? 0 : err_set(e, "%s", why);
}

static int ctl_on_message(void *arg, struct conn *conn, const struct msg *m,
                          struct err *e)
{
    struct ctl_client *c = arg;

    if (check_rendezvous_user(c, conn, e) < 0)
        return -1;
    if (!c->answered && ((m->type == MSG_KEEPERS && !c->welcome.version) ||
                         (m->sequence == c->asked &&
                          (m->type == MSG_WELCOME || m->type == MSG_ACK ||
                           m->type == MSG_REFUSED || m->type == MSG_END_OF_LIST)))) {
        c->last = *m;
        c->answered = true;
        loop_stop(c->loop);
    } else if (c->fn) {
        c->fn(c->arg, m);
    }
    return 0;
}

static uint32_t ctl_body_max(void *arg, struct conn *conn)
{
    return FRAME_BODY_MAX;
}

static void ctl_on_closed(void *arg, struct conn *conn, const char *why)
{
    struct ctl_client *c = arg;

    c->refused = conn_session(conn) ? tls_failure(conn_session(conn))
                                    : TLS_FAILURE_NONE;
    snprintf(c->why, sizeof(c->why), "%s", *why ? why : "the connection was closed");
    c->conn = NULL;
    c->ended = true;
    loop_stop(c->loop);
}

static void ctl_on_connected(void *arg, struct conn *conn)
{
    struct ctl_client *c = arg;

    c->connected = true;
    loop_stop(c->loop);
}

static void ctl_on_timeout(void *arg)
{
    struct ctl_client *c = arg;

    c->timed_out = true;
    loop_stop(c->loop);
}

void ctl_client_stop_listening(struct ctl_client *c)
{
    c->interrupted = true;
    if (c->listening)
        loop_stop(c->loop);
}

static void ctl_on_interrupt(void *arg, int signo)
{
    ctl_client_stop_listening(arg);
}

/* The rendezvous is there, but one end lacks the other's key. */
static int set_key_error(const struct ctl_client *c, struct err *e)
{
    const char *file = c->keys ? key_ring_path(c->keys) : "";

    if (!c->keys)
        err_set(
            e,
            "the rendezvous at %s has closed the connection without an answer: if it "
            "asks for a key, name the same key file (--key-file); or another program "
            "listens there",
            c->endpoint);
    else if (c->refused == TLS_FAILURE_KEY)
        err_set(
            e,
            "the rendezvous at %s does not accept the key of %s: its key is another, "
            "or this one has been retired or has ended there",
            c->endpoint, file);
    else if (c->refused == TLS_FAILURE_CLOSED)
        err_set(
            e,
            "the rendezvous at %s has closed the connection when it saw TLS: it "
            "seems to have no key, and there is one in %s; or another program listens "
            "there",
            c->endpoint, file);
    else
        err_set(e, "%s: in the TLS handshake: %s; or another program listens there",
                c->endpoint, c->why);
    return CTL_EXIT_UNREACHABLE;
}

static int set_unreachable(struct ctl_client *c, struct err *e, const char *why)
{
    bool unanswered = (c->ended || c->timed_out) && c->connected && !c->welcome.version;

    if (*c->place) {
        err_set(e, "the crun of %s does not answer (%s)", c->place, why);
        return CTL_EXIT_UNREACHABLE;
    }
    if (c->foreign) {
        err_set(e, "%s: %s", c->endpoint, why);
        return CTL_EXIT_UNREACHABLE;
    }
    if (c->refused != TLS_FAILURE_NONE || (unanswered && !c->timed_out && !c->keys))
        return set_key_error(c, e);
    if (unanswered) {
        err_set(e,
                "%s does not answer as a crun rendezvous does (%s): if another program "
                "listens there, is the port of --rdzv-endpoint right?",
                c->endpoint, why);
        return CTL_EXIT_UNREACHABLE;
    }
    err_set(
        e,
        "no rendezvous answers at %s (%s); say where the crund or the job's crun is "
        "with --rdzv-endpoint",
        c->endpoint, why);
    if (!c->connected)
        (void)err_set_code(e, CTL_NOT_THERE, 0);
    return CTL_EXIT_UNREACHABLE;
}

/* Runs the loop until *done, the end of the connection or the timeout. */
static int wait_until(struct ctl_client *c, const bool *done, struct err *e)
{
    if (c->ended)
        return set_unreachable(c, e, c->why);
    c->timed_out = false;
    loop_timer_arm(&c->timer, clock_ms() + c->timeout_ms);
    loop_run(c->loop);
    loop_timer_cancel(&c->timer);
    if (*done)
        return CTL_EXIT_OK;
    return set_unreachable(c, e, c->timed_out ? "it did not answer in time" : c->why);
}

static void ctl_client_send(struct ctl_client *c, const struct msg *question)
{
    struct msg m = *question;

    m.sequence = ++c->asked;
    c->answered = false;
    if (c->ended)
        return;
    conn_send(c->conn, &m);
    conn_flush(c->conn);
}

static int ctl_client_await(struct ctl_client *c, uint64_t *next, struct err *e)
{
    int rc = wait_until(c, &c->answered, e);

    if (rc != CTL_EXIT_OK)
        return rc;
    if (c->last.type == MSG_REFUSED) {
        err_set(e, "%s", c->last.refused.text);
        return CTL_EXIT_REFUSED;
    }
    if (next)
        *next = c->last.type == MSG_END_OF_LIST ? c->last.end_of_list.next : 0;
    return CTL_EXIT_OK;
}

int ctl_client_ask(struct ctl_client *c, const struct msg *question, ctl_answer_fn *fn,
                   void *arg, uint64_t *next, struct err *e)
{
    int rc;

    c->fn = fn;
    c->arg = arg;
    ctl_client_send(c, question);
    rc = ctl_client_await(c, next, e);
    if (rc != CTL_EXIT_OK || question->type != MSG_STATUS || !next || !*next)
        return rc;
    if (*next > question->status.from && *next <= NODES_MAX) /* a list has an end */
        return rc;
    return set_unreachable(c, e, "its list does not end");
}

int ctl_client_ask_pages(struct ctl_client *c, struct msg *question, ctl_answer_fn *fn,
                         void *arg, struct err *e)
{
    uint64_t next = 0;
    int rc;

    do {
        if (question->type == MSG_STATUS)
            question->status.from = (uint32_t)next;
        else
            question->show_history.from = (uint32_t)next;
        rc = ctl_client_ask(c, question, fn, arg, &next, e);
    } while (rc == CTL_EXIT_OK && next);
    return rc;
}

int ctl_client_listen(struct ctl_client *c, ctl_answer_fn *fn, void *arg, struct err *e)
{
    c->fn = fn;
    c->arg = arg;
    loop_on_signal(c->loop, SIGINT, ctl_on_interrupt, c);
    loop_on_signal(c->loop, SIGTERM, ctl_on_interrupt, c);
    c->listening = true;
    if (!c->ended && !c->interrupted)
        loop_run(c->loop);
    return c->interrupted ? CTL_EXIT_OK : set_unreachable(c, e, c->why);
}

char *ctl_client_user(char *buf, size_t size)
{
    const struct passwd *user = getpwuid(getuid());

    if (user)
        snprintf(buf, size, "%s", user->pw_name);
    else
        snprintf(buf, size, "%u", (unsigned)getuid());
    return buf;
}

const struct msg_welcome *ctl_client_welcome(const struct ctl_client *c)
{
    return &c->welcome;
}

int ctl_ranks_parse(const struct ctl_options *o, struct rank_ranges *ranks,
                    struct err *e)
{
    for (char *const *word = o->words; *word; word++)
        if (!rank_ranges_parse(ranks, *word)) {
            rank_ranges_fini(ranks);
            return err_set(e, "\"%s\" is not a rank, or ranks as in 0-3,5", *word);
        }
    return 0;
}

int ctl_client_order(struct ctl_client *c, const struct msg *order, struct err *e)
{
    char text[2 * sizeof(c->last.ack.text)];
    int rc = ctl_client_ask(c, order, NULL, NULL, NULL, e);

    if (rc == CTL_EXIT_OK && c->last.type == MSG_ACK && *c->last.ack.text)
        printf("%s\n", text_printable(c->last.ack.text, text, sizeof(text)));
    return rc;
}

/* A name may have several addresses; the first that accepts the connection is used. */
static int connect_any(struct ctl_client *c, const struct net_addr *list, size_t count,
                       struct err *e)
{
    struct conn_calls calls = { .message = ctl_on_message,
                                .body_max = ctl_body_max,
                                .closed = ctl_on_closed,
                                .arg = c };
    int rc = CTL_EXIT_UNREACHABLE;

    for (size_t i = 0; i < count; i++) {
        c->ended = c->timed_out = false;
        c->refused = TLS_FAILURE_NONE;
        c->conn = conn_connect(c->loop, &list[i], c->keys ? &c->psk : NULL,
                               ctl_on_connected, &calls, e);
        if (!c->conn)
            continue;
        rc = wait_until(c, &c->connected, e);
        if (rc == CTL_EXIT_OK)
            break;
        conn_destroy(c->conn);
        c->conn = NULL;
    }
    return rc;
}

static int resolve_endpoint(const char *endpoint, struct net_addr *list, size_t *count,
                            struct err *e)
{
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;

    if (net_split(endpoint, DEFAULT_PORT, host, sizeof(host), &port, e) < 0 ||
        net_resolve(*host ? host : "127.0.0.1", port, list, ADDRESSES_MAX, count, e) <
            0) {
        err_wrap(e, "--rdzv-endpoint");
        return CTL_EXIT_USAGE;
    }
    return CTL_EXIT_OK;
}

/* A key that allows an operator to view is used as one: a viewer is shown less. */
static int find_ctl_key(struct ctl_client *c, const struct ctl_options *o,
                        enum access access, struct err *e)
{
    if (key_ring_open_own(o->key_file, o->require_key, &c->keys, e) < 0 ||
        (c->keys && key_ring_use(c->keys, ACCESS_OPERATE, &c->psk, e) < 0 &&
         key_ring_use(c->keys, access, &c->psk, e) < 0))
        return CTL_EXIT_USAGE;
    return CTL_EXIT_OK;
}

static const struct msg hello = { .type = MSG_HELLO,
                                  .hello = { .version_min = PROTO_VERSION_MIN,
                                             .version_max = PROTO_VERSION_MAX,
                                             .role = PEER_CTL,
                                             .keepers = true,
                                             .software = "crunctl " CRUN_VERSION } };

static struct ctl_client *ctl_client_create(const struct ctl_options *o)
{
    struct ctl_client *c = xcalloc(1, sizeof(*c));

    c->loop = loop_create();
    c->endpoint = o->endpoint;
    c->rendezvous_user = o->rendezvous_user;
    c->timeout_ms = o->timeout_ms;
    loop_timer_init(&c->timer, c->loop, ctl_on_timeout, c);
    return c;
}

static int ctl_client_reach(struct ctl_client *c, struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    size_t count;
    int rc;

    conn_destroy(c->conn);
    c->conn = NULL;
    c->connected = false;
    rc = resolve_endpoint(c->endpoint, list, &count, e);
    if (rc == CTL_EXIT_OK)
        rc = connect_any(c, list, count, e);
    return rc == CTL_EXIT_OK ? ctl_client_ask(c, &hello, NULL, NULL, NULL, e) : rc;
}

/* To the node that hosts the rendezvous, from one that only keeps its records. */
static int ctl_client_follow(struct ctl_client *c, struct err *e)
{
    int rc = CTL_EXIT_OK;

    for (unsigned i = 0; rc == CTL_EXIT_OK && c->last.type == MSG_KEEPERS; i++) {
        const char *list = c->last.keepers.endpoints;

        if (i == REDIRECTS_MAX)
            return set_unreachable(c, e, "it names another node each time");
        snprintf(c->moved, sizeof(c->moved), "%.*s", (int)strcspn(list, ","), list);
        c->endpoint = c->moved;
        rc = ctl_client_reach(c, e);
    }
    return rc;
}

struct ctl_client *ctl_client_open(const struct ctl_options *o, enum access access,
                                   int *rc, struct err *e)
{
    struct ctl_client *c = ctl_client_create(o);

    *rc = find_ctl_key(c, o, access, e);
    if (*rc == CTL_EXIT_OK)
        *rc = ctl_client_reach(c, e);
    if (*rc == CTL_EXIT_OK)
        *rc = ctl_client_follow(c, e);
    if (*rc == CTL_EXIT_OK) {
        c->welcome = c->last.welcome;
        return c;
    }
    ctl_client_close(c);
    return NULL;
}

struct ctl_client *ctl_client_open_usual(const struct ctl_options *o)
{
    struct ctl_options own = *o;
    struct ctl_client *c;
    struct err e;
    int rc;

    own.endpoint = CTL_USUAL_ENDPOINT;
    own.timeout_ms = o->timeout_ms < USUAL_MS ? o->timeout_ms : USUAL_MS;
    c = ctl_client_open(&own, ACCESS_VIEW, &rc, &e);
    if (c)
        ctl_client_set_timeout(c, o->timeout_ms);
    return c;
}

struct ctl_client *ctl_client_greet(const struct ctl_options *o,
                                    const struct ctl_job *job, struct err *e)
{
    struct conn_calls calls = { .message = ctl_on_message,
                                .body_max = ctl_body_max,
                                .closed = ctl_on_closed };
    int fd = ctl_job_connect(job, e);
    struct ctl_client *c;
    char name[128];

    if (fd < 0)
        return NULL;
    c = ctl_client_create(o);
    snprintf(c->place, sizeof(c->place), "\"%.64s\" (pid %d)",
             text_printable(job->name, name, sizeof(name)), (int)job->pid);
    c->connected = c->trusted = true; /* the kernel has told whose process it is */
    (void)!send(fd, FRAME_PREFACE, FRAME_PREFACE_SIZE, MSG_NOSIGNAL);
    calls.arg = c;
    c->conn = conn_create(c->loop, fd, false, NULL, &calls);
    ctl_client_send(c, &hello);
    return c;
}

int ctl_client_await_welcome(struct ctl_client *c, uint64_t until_ms, struct err *e)
{
    uint64_t now = clock_ms(), timeout_ms = c->timeout_ms;
    int rc;

    /* what has arrived already is read, however late it is */
    c->timeout_ms = until_ms > now + LATE_MS ? until_ms - now : LATE_MS;
    rc = ctl_client_await(c, NULL, e);
    c->timeout_ms = timeout_ms;
    if (rc == CTL_EXIT_OK)
        c->welcome = c->last.welcome;
    return rc;
}

struct ctl_client *ctl_client_open_job(const struct ctl_options *o,
                                       const struct ctl_job *job, uint64_t within_ms,
                                       int *rc, struct err *e)
{
    struct ctl_client *c = ctl_client_greet(o, job, e);

    *rc = c ? ctl_client_await_welcome(c, clock_ms() + within_ms, e)
            : CTL_EXIT_UNREACHABLE;
    if (*rc == CTL_EXIT_OK)
        return c;
    ctl_client_close(c);
    return NULL;
}

void ctl_client_set_timeout(struct ctl_client *c, uint64_t ms)
{
    c->timeout_ms = ms;
}

void ctl_client_close(struct ctl_client *c)
{
    if (!c)
        return;
    if (c->conn)
        conn_hang_up(c->conn); /* the rendezvous sees an end in good order */
    conn_destroy(c->conn);
    loop_timer_fini(&c->timer);
    loop_destroy(c->loop);
    key_ring_close(c->keys);
    explicit_bzero(&c->psk, sizeof(c->psk));
    free(c);
}

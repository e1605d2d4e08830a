/* SPDX-License-Identifier: MIT */
/*
 * How ranks meet among strangers. One rank is played by the test: it knows the token,
 * and says what a stranger could have heard or guessed before it says what is right.
 * A stranger is hung up on, and the rank whose place he wants still gets it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/keyed_hash.h"
#include "rendezvous/common/base/net.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MAGIC 0x63707404u
#define SIZE 3
#define PLAYED 2 /* of the three: it calls ranks 0 and 1 */
#define CROWD 300
#define HANGUPS 4

enum { CALL = 1, CHALLENGE, PROOF, ACCEPT };

struct greeting {
    uint32_t magic, step, from, to;
    struct id128 body;
};

struct proof {
    char label[16];
    uint32_t step, caller, answerer, unused;
    struct id128 meeting, caller_number, answerer_number;
};

struct list {
    struct id128 number;
    char address[SIZE][NET_TEXT_SIZE];
};

/* -- helpers ----------------------------------------------------------------------- */

static int dial(const char *address)
{
    struct net_addr addr;
    struct err e;
    struct pollfd p = { .events = POLLOUT };

    ck_assert_msg(net_parse(address, &addr, &e) == 0, "%s", e.text);
    p.fd = net_connect(&addr, &e);
    ck_assert_int_ge(p.fd, 0);
    ck_assert_int_eq(poll(&p, 1, TEAM_DEADLINE_MS), 1);
    return p.fd;
}

static bool say(int fd, const void *data, size_t size)
{
    return send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* False: it was hung up on. */
static bool hear(int fd, struct greeting *g)
{
    size_t came = 0;

    while (came < sizeof(*g)) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        ssize_t n;

        ck_assert_msg(poll(&p, 1, TEAM_DEADLINE_MS) == 1, "neither words nor an end");
        n = recv(fd, (char *)g + came, sizeof(*g) - came, 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return false;
        ck_assert_int_gt(n, 0);
        came += (size_t)n;
    }
    return true;
}

static void expect_hangup(int fd)
{
    struct greeting g;

    ck_assert(!hear(fd, &g));
    close(fd);
}

static struct greeting greeting(unsigned step, unsigned from, unsigned to)
{
    return (struct greeting){
        .magic = MAGIC, .step = step, .from = from, .to = to, .body = id128_random()
    };
}

static struct proof proof_of(unsigned caller, unsigned answerer,
                             const struct id128 *meeting)
{
    return (struct proof){
        .label = "crun tcp", .caller = caller, .answerer = answerer, .meeting = *meeting
    };
}

static struct id128 tag_of(const struct team *team, struct proof proof, unsigned step)
{
    proof.step = step;
    return keyed_hash_tag(&team->board->token, &proof, sizeof(proof));
}

static void put(struct team_member *m, const char *name, const void *value, size_t size)
{
    char key[64];

    snprintf(key, sizeof(key), "%stcp/%s", m->team.prefix, name);
    ck_assert_int_eq(store_client_set(m->team.store, key, value, size,
                                      clock_ms() + TEAM_DEADLINE_MS, &m->e),
                     CRUN_OK);
}

static void get(struct team_member *m, const char *name, void *value, size_t size)
{
    char key[64];

    snprintf(key, sizeof(key), "%stcp/%s", m->team.prefix, name);
    ck_assert_int_eq(store_client_get(m->team.store, key, value, &size,
                                      clock_ms() + TEAM_DEADLINE_MS, &m->e),
                     CRUN_OK);
}

/* -- the played rank calls --------------------------------------------------------- */

struct caller {
    struct team_member *m;
    const struct list *list;
    unsigned to;
};

/* Calls, and hears the challenge. */
static int begin_call(const struct caller *c, struct proof *proof)
{
    int fd = dial(c->list->address[c->to]);
    struct greeting g = greeting(CALL, PLAYED, c->to);

    *proof = proof_of(PLAYED, c->to, &c->list->number);
    proof->caller_number = g.body;
    ck_assert(say(fd, &g, sizeof(g)));
    ck_assert(hear(fd, &g));
    ck_assert_uint_eq(g.magic, MAGIC);
    ck_assert_uint_eq(g.step, CHALLENGE);
    ck_assert_uint_eq(g.from, c->to);
    ck_assert_uint_eq(g.to, PLAYED);
    proof->answerer_number = g.body;
    return fd;
}

static void give_proof(const struct caller *c, int fd, const struct id128 *tag)
{
    struct greeting g = greeting(PROOF, PLAYED, c->to);

    g.body = *tag;
    ck_assert(say(fd, &g, sizeof(g)));
}

static void call_wrongly(const struct caller *c)
{
    const struct greeting wrong[] = {
        { .magic = MAGIC + 1, .step = CALL, .from = PLAYED, .to = c->to },
        { .magic = MAGIC, .step = CHALLENGE, .from = PLAYED, .to = c->to },
        { .magic = MAGIC, .step = PROOF, .from = PLAYED, .to = c->to },
        { .magic = MAGIC, .step = ACCEPT, .from = PLAYED, .to = c->to },
        { .magic = MAGIC, .step = CALL, .from = PLAYED, .to = !c->to },
        { .magic = MAGIC, .step = CALL, .from = PLAYED, .to = PLAYED },
        { .magic = MAGIC, .step = CALL, .from = 0, .to = c->to },
        { .magic = MAGIC, .step = CALL, .from = c->to, .to = c->to },
        { .magic = MAGIC, .step = CALL, .from = SIZE, .to = c->to },
        { .magic = MAGIC, .step = CALL, .from = UINT32_MAX, .to = c->to },
    };

    for (size_t i = 0; i < COUNT(wrong); i++) {
        int fd = dial(c->list->address[c->to]);

        ck_assert(say(fd, &wrong[i], sizeof(wrong[i])));
        expect_hangup(fd);
    }
}

/* A proof that was right on another connection. */
static void replay(const struct caller *c)
{
    struct proof first, second;
    int fd = begin_call(c, &first);
    struct id128 tag = tag_of(&c->m->team, first, PROOF);

    close(fd);
    fd = begin_call(c, &second);
    give_proof(c, fd, &tag);
    expect_hangup(fd);
}

static void prove_wrongly(const struct caller *c)
{
    for (unsigned i = 0; i < 9; i++) {
        struct team_member other = { .board.token = id128_random() };
        struct team stranger = { .board = &other.board };
        struct proof proof;
        int fd = begin_call(c, &proof);
        struct id128 tags[9] = { id128_random(), proof.answerer_number,
                                 proof.caller_number };
        struct proof p = proof;

        tags[3] = tag_of(&c->m->team, proof, ACCEPT);
        tags[4] = tag_of(&stranger, proof, PROOF);
        p.caller = proof.answerer;
        p.answerer = proof.caller;
        tags[5] = tag_of(&c->m->team, p, PROOF);
        p = proof;
        p.caller_number = proof.answerer_number;
        p.answerer_number = proof.caller_number;
        tags[6] = tag_of(&c->m->team, p, PROOF);
        p = proof;
        p.meeting = id128_random();
        tags[7] = tag_of(&c->m->team, p, PROOF);
        p = proof;
        p.answerer = !c->to;
        tags[8] = tag_of(&c->m->team, p, PROOF);
        give_proof(c, fd, &tags[i]);
        expect_hangup(fd);
    }
}

static void flip_each_bit(const struct caller *c)
{
    for (unsigned i = 0; i < 8 * sizeof(struct greeting); i++) {
        struct greeting g = greeting(PROOF, PLAYED, c->to);
        struct proof proof;
        int fd = begin_call(c, &proof);

        g.body = tag_of(&c->m->team, proof, PROOF);
        ((uint8_t *)&g)[i / 8] ^= (uint8_t)(1u << i % 8);
        ck_assert(say(fd, &g, sizeof(g)));
        expect_hangup(fd);
    }
}

/* The right words, up to some byte. */
static void cut(const struct caller *c)
{
    for (size_t cut = 0; cut < 2 * sizeof(struct greeting); cut++) {
        struct greeting g = greeting(CALL, PLAYED, c->to);
        struct proof proof;
        int fd;

        if (cut < sizeof(g)) {
            fd = dial(c->list->address[c->to]);
            ck_assert(say(fd, &g, cut));
        } else {
            fd = begin_call(c, &proof);
            g = greeting(PROOF, PLAYED, c->to);
            g.body = tag_of(&c->m->team, proof, PROOF);
            ck_assert(say(fd, &g, cut - sizeof(g)));
        }
        ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
        expect_hangup(fd);
    }
}

/* The right words, a byte at a time. False: it was hung up on. */
static bool call_slowly(const struct caller *c)
{
    struct greeting g = greeting(CALL, PLAYED, c->to);
    struct proof proof = proof_of(PLAYED, c->to, &c->list->number);
    int fd = dial(c->list->address[c->to]);
    struct id128 tag;

    proof.caller_number = g.body;
    for (size_t i = 0; i < sizeof(g); i++) {
        (void)say(fd, (char *)&g + i, 1);
        usleep(1000);
    }
    if (!hear(fd, &g)) {
        close(fd);
        return false;
    }
    proof.answerer_number = g.body;
    g = greeting(PROOF, PLAYED, c->to);
    g.body = tag_of(&c->m->team, proof, PROOF);
    for (size_t i = 0; i < sizeof(g); i++) {
        (void)say(fd, (char *)&g + i, 1);
        usleep(1000);
    }
    if (!hear(fd, &g)) {
        close(fd);
        return false;
    }
    tag = tag_of(&c->m->team, proof, ACCEPT);
    ck_assert_uint_eq(g.step, ACCEPT);
    ck_assert(keyed_hash_tag_equal(&g.body, &tag));
    return true;
}

static int crowd[CROWD];

/* They say nothing, and stay. */
static void crowd_in(const struct caller *c)
{
    for (unsigned i = 0; i < CROWD; i++)
        crowd[i] = dial(c->list->address[c->to]);
}

static void call_after_silent_ones(const struct caller *c)
{
    crowd_in(c);
    while (!call_slowly(c))
        usleep(1000);
    for (unsigned i = 0; i < CROWD; i++)
        close(crowd[i]);
}

static void (*const strangers[])(const struct caller *c) = {
    call_wrongly, replay, prove_wrongly, flip_each_bit, cut,
};

static void play_caller(struct team_member *m)
{
    struct list list;
    struct caller c = { .m = m, .list = &list };

    put(m, "at/2", "127.0.0.1:1", sizeof("127.0.0.1:1"));
    get(m, "all/0", &list, sizeof(list));
    for (c.to = 0; c.to < PLAYED; c.to++)
        for (size_t i = 0; i < COUNT(strangers); i++)
            strangers[i](&c);
    for (c.to = 0; c.to < PLAYED; c.to++)
        call_after_silent_ones(&c);
}

static crun_status open_all_but_played(struct backend **b, const struct team *team,
                                       uint64_t deadline_ms, struct err *e)
{
    *b = NULL;
    return team->rank == PLAYED ? CRUN_OK : backend_tcp.open(b, team, deadline_ms, e);
}

static void play_last_rank(struct team_member *m)
{
    if (m->team.rank == PLAYED)
        play_caller(m);
}

TEST(a_stranger_does_not_get_the_place_of_a_rank_that_calls)
{
    struct backend_calls calls = backend_tcp;

    calls.open = open_all_but_played;
    team_run(
        &(struct team_plan){ .calls = &calls, .size = SIZE, .body = play_last_rank });
}

/* -- the played rank is called ----------------------------------------------------- */

/* What a stranger says instead of an answer. */
typedef void lie_fn(struct greeting *answer, const struct greeting *heard);

static void echo(struct greeting *answer, const struct greeting *heard)
{
    *answer = *heard;
}

static void reflect_proof(struct greeting *answer, const struct greeting *heard)
{
    answer->body = heard->body;
}

static void wrong_rank(struct greeting *answer, const struct greeting *heard)
{
    answer->from = 1;
}

static void wrong_magic(struct greeting *answer, const struct greeting *heard)
{
    answer->magic++;
}

static void accept_unproved(struct greeting *answer, const struct greeting *heard)
{
    answer->body = id128_random();
}

static const struct {
    unsigned step;
    lie_fn *lie;
} lies[] = {
    { CHALLENGE, echo },         { CHALLENGE, wrong_rank },
    { CHALLENGE, wrong_magic },  { ACCEPT, echo },
    { ACCEPT, reflect_proof },   { ACCEPT, wrong_rank },
    { ACCEPT, accept_unproved },
};

/* The answer of rank 0 at this step; false: it hangs up instead. */
static bool answer_call(struct team_member *m, int fd, unsigned step, int lie,
                        const struct id128 *meeting, struct proof *proof)
{
    struct greeting heard, answer;
    struct id128 tag;

    if (!hear(fd, &heard))
        return false;
    ck_assert_uint_eq(heard.step, step - 1);
    ck_assert_uint_eq(heard.from, 1);
    ck_assert_uint_eq(heard.to, 0);
    answer = greeting(step, 0, 1);
    if (step == CHALLENGE) {
        *proof = proof_of(1, 0, meeting);
        proof->caller_number = heard.body;
        proof->answerer_number = answer.body;
    } else {
        tag = tag_of(&m->team, *proof, PROOF);
        ck_assert(keyed_hash_tag_equal(&tag, &heard.body));
        answer.body = tag_of(&m->team, *proof, ACCEPT);
    }
    if (lie >= 0 && lies[lie].step == step)
        lies[lie].lie(&answer, &heard);
    return say(fd, &answer, sizeof(answer));
}

static int accept_call(int listener)
{
    struct pollfd p = { .fd = listener, .events = POLLIN };
    struct net_addr peer;

    ck_assert_int_eq(poll(&p, 1, TEAM_DEADLINE_MS), 1);
    return net_accept(listener, &peer);
}

struct answerer {
    int lie;          /* -1: none */
    unsigned hangups; /* first, after as many greetings */
};

static void play_answerer(struct team_member *m, const struct answerer *a)
{
    struct net_addr here;
    struct list list = { .number = id128_random() };
    struct proof proof;
    int listener, fd;

    ck_assert_int_eq(net_parse("127.0.0.1:1", &here, &m->e), 0);
    net_set_port(&here, 0);
    listener = net_listen(&here, 8, &m->e);
    ck_assert_int_ge(listener, 0);
    ck_assert_int_eq(net_local_addr(listener, &here), 0);
    get(m, "at/1", list.address[1], NET_TEXT_SIZE);
    net_format(&here, list.address[0], NET_TEXT_SIZE);
    put(m, "all/0", &list, sizeof(list) - NET_TEXT_SIZE);
    for (unsigned i = 0; i < a->hangups; i++) {
        fd = accept_call(listener);
        if (i % 2)
            ck_assert(answer_call(m, fd, CHALLENGE, -1, &list.number, &proof));
        close(fd);
    }
    fd = accept_call(listener);
    if (answer_call(m, fd, CHALLENGE, a->lie, &list.number, &proof))
        (void)answer_call(m, fd, ACCEPT, a->lie, &list.number, &proof);
    /* until the other end has read it */
    rank_threads_sync();
    close(fd);
    close(listener);
}

static crun_status open_all_but_first(struct backend **b, const struct team *team,
                                      uint64_t deadline_ms, struct err *e)
{
    *b = NULL;
    return team->rank == 0 ? CRUN_OK : backend_tcp.open(b, team, deadline_ms, e);
}

static void play_first_rank(struct team_member *m)
{
    const struct answerer *a = m->arg;

    if (m->team.rank == 0) {
        play_answerer(m, a);
        return;
    }
    rank_threads_sync();
    if (a->lie < 0)
        ck_assert_msg(m->opened == CRUN_OK, "%s", m->e.text);
    else
        ck_assert_msg(m->opened == CRUN_PEER_LOST && strstr(m->e.text, "is not rank 0"),
                      "%s: %s", crun_status_name(m->opened), m->e.text);
}

static void meet_answerer(struct answerer a)
{
    struct backend_calls calls = backend_tcp;

    calls.open = open_all_but_first;
    team_run(&(struct team_plan){ .calls = &calls,
                                  .size = 2,
                                  .body = play_first_rank,
                                  .arg = &a,
                                  .may_not_open = true });
}

TEST_EACH(a_stranger_who_answers_is_not_taken_for_a_rank, lies)
{
    meet_answerer((struct answerer){ .lie = _i });
}

TEST_LOOP(a_rank_that_is_hung_up_on_calls_again, 0, HANGUPS)
{
    meet_answerer((struct answerer){ .lie = -1, .hangups = (unsigned)_i });
}

/* -- the list of addresses --------------------------------------------------------- */

static const struct {
    const char *first, *own; /* addresses; own NULL: as published */
    size_t size;
    crun_status status;
    const char *words;
} lists[] = {
    { "127.0.0.1:1", NULL, 0, CRUN_MISMATCH, "a different number of ranks" },
    { "127.0.0.1:1", NULL, 1, CRUN_MISMATCH, "a different number of ranks" },
    { "127.0.0.1:1", NULL, sizeof(struct list) - NET_TEXT_SIZE - 1, CRUN_MISMATCH,
      "a different number of ranks" },
    { "127.0.0.1:1", NULL, sizeof(struct list), CRUN_MISMATCH, "there is room for" },
    { "127.0.0.1:1", "127.0.0.1:1", SIZE_MAX, CRUN_MISMATCH, "another address" },
    { "127.0.0.1:1", "", SIZE_MAX, CRUN_MISMATCH, "another address" },
    { "", NULL, SIZE_MAX, CRUN_MISMATCH, "no valid address of rank 0" },
    { "localhost:1", NULL, SIZE_MAX, CRUN_MISMATCH, "no valid address of rank 0" },
    { "127.0.0.1", NULL, SIZE_MAX, CRUN_MISMATCH, "no valid address of rank 0" },
    { "\x1b]0;x\a:1", NULL, SIZE_MAX, CRUN_MISMATCH, "no valid address of rank 0" },
    { "127.0.0.1:1"
      "0000000000000000000000000000000000000000000000000000000000000000000000000000",
      NULL, SIZE_MAX, CRUN_MISMATCH, "no valid address of rank 0" },
    { "127.0.0.1:1", NULL, SIZE_MAX, CRUN_PEER_LOST, "cannot connect to rank 0" },
};

/* A long one has no NUL. */
static void fill_address(char *address, const char *text)
{
    size_t length = strlen(text) + 1;

    memcpy(address, text, length < NET_TEXT_SIZE ? length : NET_TEXT_SIZE);
}

static void publish_wrong_list(struct team_member *m)
{
    int which = *(int *)m->arg;
    size_t size = lists[which].size;
    struct list list = { .number = id128_random() };

    if (m->team.rank == 0) {
        get(m, "at/1", list.address[1], NET_TEXT_SIZE);
        fill_address(list.address[0], lists[which].first);
        if (lists[which].own)
            fill_address(list.address[1], lists[which].own);
        put(m, "all/0", &list, size == SIZE_MAX ? sizeof(list) - NET_TEXT_SIZE : size);
        return;
    }
    ck_assert_msg(m->opened == lists[which].status &&
                      strstr(m->e.text, lists[which].words),
                  "%s: %s", crun_status_name(m->opened), m->e.text);
}

TEST_EACH(a_wrong_list_of_addresses_is_refused, lists)
{
    struct backend_calls calls = backend_tcp;
    int which = _i;

    calls.open = open_all_but_first;
    team_run(&(struct team_plan){ .calls = &calls,
                                  .size = 2,
                                  .body = publish_wrong_list,
                                  .arg = &which,
                                  .may_not_open = true });
}

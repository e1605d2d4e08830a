/* SPDX-License-Identifier: MIT */
#include "launcher/remote/host_states.h"

#include <stddef.h>
#include <string.h>

/* Pairs that are not here change nothing. */
#define TO(state, act)                                                                 \
    {                                                                                  \
        .set = true, .edge = { state, act }                                            \
    }
static const struct {
    bool set;
    struct host_edge edge;
} edges[HOST_STATE_COUNT][HOST_EVENT_COUNT] = {
    [HOST_IDLE] = {
        [HOST_EV_CONNECT] = TO(HOST_CONNECTING, HOST_ACT_CONNECT),
    },
    [HOST_CONNECTING] = {
        [HOST_EV_ABSENT] = TO(HOST_SEARCHING, HOST_ACT_SEARCH),
        [HOST_EV_HELLO] = TO(HOST_CHECKING, HOST_ACT_ORDER),
        [HOST_EV_OTHER] = TO(HOST_IDLE, HOST_ACT_RECONNECT),
        [HOST_EV_BUSY] = TO(HOST_IDLE, HOST_ACT_RETRY),
        [HOST_EV_CLOSED] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_TIMEOUT] = TO(HOST_FAILED, HOST_ACT_FAIL),
    },
    [HOST_SEARCHING] = {
        [HOST_EV_WANTED] = TO(HOST_PUSHING, HOST_ACT_PUSH),
        [HOST_EV_HELLO] = TO(HOST_CHECKING, HOST_ACT_ORDER),
        [HOST_EV_OTHER] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_BUSY] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_CLOSED] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_TIMEOUT] = TO(HOST_FAILED, HOST_ACT_FAIL),
    },
    [HOST_PUSHING] = {
        [HOST_EV_HELLO] = TO(HOST_CHECKING, HOST_ACT_ORDER),
        [HOST_EV_OTHER] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_BUSY] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_CLOSED] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_TIMEOUT] = TO(HOST_FAILED, HOST_ACT_FAIL),
    },
    [HOST_CHECKING] = {
        [HOST_EV_LISTENING] = TO(HOST_READY, HOST_ACT_READY),
        [HOST_EV_REFUSED] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_EXITED] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_BUSY] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_CLOSED] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_TIMEOUT] = TO(HOST_FAILED, HOST_ACT_FAIL),
    },
    [HOST_READY] = {
        [HOST_EV_START] = TO(HOST_RUNNING, HOST_ACT_START),
        [HOST_EV_EXITED] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_BUSY] = TO(HOST_FAILED, HOST_ACT_FAIL),
        [HOST_EV_CLOSED] = TO(HOST_FAILED, HOST_ACT_FAIL),
    },
    [HOST_RUNNING] = {
        [HOST_EV_EXITED] = TO(HOST_EXITED, HOST_ACT_END),
        [HOST_EV_DETACHED] = TO(HOST_DETACHED, HOST_ACT_END),
        [HOST_EV_BUSY] = TO(HOST_LOST, HOST_ACT_LOSE),
        [HOST_EV_CLOSED] = TO(HOST_LOST, HOST_ACT_LOSE),
    },
};
#undef TO

struct host_edge host_state_edge(enum host_state state, enum host_event event)
{
    if (edges[state][event].set)
        return edges[state][event].edge;
    return (struct host_edge){ state, HOST_ACT_NONE };
}

bool host_state_expects(enum host_state state, enum host_event event)
{
    return edges[state][event].set;
}

const char *host_state_name(enum host_state state)
{
    static const char *const names[HOST_STATE_COUNT] = {
        [HOST_IDLE] = "idle",           [HOST_CONNECTING] = "connecting",
        [HOST_SEARCHING] = "searching", [HOST_PUSHING] = "pushing",
        [HOST_CHECKING] = "checking",   [HOST_READY] = "ready",
        [HOST_RUNNING] = "running",     [HOST_DETACHED] = "detached",
        [HOST_EXITED] = "exited",       [HOST_FAILED] = "failed",
        [HOST_LOST] = "lost",
    };

    return names[state];
}

bool host_state_has_answered(enum host_state state)
{
    return state >= HOST_READY;
}

bool host_state_is_over(enum host_state state)
{
    return state >= HOST_DETACHED;
}

bool host_state_is_connecting(enum host_state state)
{
    return state >= HOST_CONNECTING && state <= HOST_PUSHING;
}

const char *ssh_failure_explain(const char *said, bool *busy)
{
    static const struct {
        const char *words, *means;
        bool busy;
    } known[] = {
        { "kex_exchange_identification", "closed the connection", true },
        { "ssh_exchange_identification", "closed the connection", true },
        { "Exceeded MaxStartups", "closed the connection", true },
        { "REMOTE HOST IDENTIFICATION HAS CHANGED", "another host key", false },
        { "Host key verification failed",
          "unknown host key (\"ssh HOST\" once, or ssh-keyscan HOST >> "
          "~/.ssh/known_hosts)",
          false },
        { "Permission denied (", "refused the key", false },
        { "Too many authentication failures", "refused the key", false },
        { "Could not resolve hostname", "no known address", false },
        { "Connection refused", "did not answer", false },
        { "timed out", "did not answer", false },
        { "No route to host", "did not answer", false },
        { "Network is unreachable", "did not answer", false },
        { "Connection reset by peer", "closed the connection", true },
        { "Connection closed by", "closed the connection", true },
        { "No space left on device", "no space left", false },
        { "Disk quota exceeded", "no space left", false },
        { "error while loading shared libraries", "cannot run this crun", false },
        { "GLIBC_", "cannot run this crun", false },
        { "Exec format error", "cannot run this crun", false },
        { "is not yours alone", "cannot use its copy of crun", false },
        { "could not be copied", "did not take a copy of crun", false },
    };

    *busy = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strstr(said, known[i].words)) {
            *busy = known[i].busy;
            return known[i].means;
        }
    return "could not be started";
}

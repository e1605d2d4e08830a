/* SPDX-License-Identifier: MIT */
#include "launcher/remote/host_states.h"

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

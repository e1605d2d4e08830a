/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/*
 * The life of a host, as the launcher sees it: one table. The launcher turns all that
 * occurs into events, and performs the act that the table gives.
 */
enum host_state {
    HOST_IDLE,       /* its turn has not come, or it waits for a second attempt */
    HOST_CONNECTING, /* ssh runs; the first command is sent */
    HOST_SEARCHING,  /* the second command is sent */
    HOST_PUSHING,    /* the files are sent */
    HOST_CHECKING,   /* the far side has the order */
    HOST_READY,      /* it listens; it waits for the others */
    HOST_RUNNING,
    HOST_DETACHED, /* the job goes on there without this process */
    HOST_EXITED,   /* its crun has ended */
    HOST_FAILED,   /* it takes no part */
    HOST_LOST,     /* the connection ended before its crun did */
    HOST_STATE_COUNT
};

enum host_event {
    HOST_EV_CONNECT = 1,
    HOST_EV_ABSENT,  /* no crun at the launcher's path */
    HOST_EV_WANTED,  /* none in the cache folder */
    HOST_EV_HELLO,   /* a far side of this version */
    HOST_EV_OTHER,   /* a far side of another version, or another program's crun */
    HOST_EV_REFUSED, /* the far side cannot carry out the order */
    HOST_EV_LISTENING,
    HOST_EV_START, /* all hosts have been decided on */
    HOST_EV_EXITED,
    HOST_EV_DETACHED,
    HOST_EV_BUSY,   /* sshd had too many connections; it may be tried again */
    HOST_EV_CLOSED, /* the connection has ended */
    HOST_EV_TIMEOUT,
    HOST_EVENT_COUNT
};

enum host_act {
    HOST_ACT_NONE,
    HOST_ACT_CONNECT,
    HOST_ACT_SEARCH,
    HOST_ACT_PUSH,
    HOST_ACT_ORDER,
    HOST_ACT_RECONNECT, /* at once, past the crun at the launcher's path */
    HOST_ACT_RETRY,     /* later */
    HOST_ACT_READY,
    HOST_ACT_START,
    HOST_ACT_FAIL,
    HOST_ACT_END,
    HOST_ACT_LOSE,
    HOST_ACT_COUNT
};

struct host_edge {
    enum host_state to;
    enum host_act act;
};

struct host_edge host_state_edge(enum host_state state, enum host_event event);
/* Whether the table has the pair: a message that a host cannot have sent then is an
 * error of the host. */
bool host_state_expects(enum host_state state, enum host_event event);
const char *host_state_name(enum host_state state);

/* Whether it is decided if the host takes part. */
bool host_state_has_answered(enum host_state state);
/* Whether nothing more is expected of it. */
bool host_state_is_over(enum host_state state);
/* Whether it counts among the connections that are being made. */
bool host_state_is_connecting(enum host_state state);

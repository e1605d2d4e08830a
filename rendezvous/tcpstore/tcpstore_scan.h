/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"

/*
 * The grammar of the requests of PyTorch's TCPStore (2.2 and newer). A request is one
 * byte of operation and its arguments; numbers are little-endian, keys and values have
 * a length of eight bytes in front, lists a count of eight. The first request of a
 * client is VALIDATE. A scan finds the end of a request and checks each length against
 * its limit first. It remembers where it stopped: a request in many pieces costs no
 * more than one in one piece.
 */
enum tcpstore_op {
    TCPSTORE_VALIDATE,
    TCPSTORE_SET,
    TCPSTORE_COMPARE_SET,
    TCPSTORE_GET,
    TCPSTORE_ADD,
    TCPSTORE_CHECK,
    TCPSTORE_WAIT,
    TCPSTORE_GETNUMKEYS,
    TCPSTORE_DELETE_KEY,
    TCPSTORE_APPEND,
    TCPSTORE_MULTI_GET,
    TCPSTORE_MULTI_SET,
    TCPSTORE_CANCEL_WAIT,
    TCPSTORE_PING,
    TCPSTORE_QUEUE_PUSH,
    TCPSTORE_QUEUE_POP,
    TCPSTORE_QUEUE_LEN,
    TCPSTORE_LIST_KEYS,
    TCPSTORE_BARRIER,
    TCPSTORE_OP_COUNT
};

/* answers to CHECK, and to WAIT and CANCEL_WAIT */
enum { TCPSTORE_READY = 0, TCPSTORE_NOT_READY = 1 };
enum { TCPSTORE_STOP_WAITING = 0, TCPSTORE_WAIT_CANCELED = 1 };

#define TCPSTORE_MAGIC 0x3C85F7CEu
#define TCPSTORE_HELLO_SIZE 5 /* VALIDATE and the magic */

const char *tcpstore_op_name(unsigned op);

struct tcpstore_scan {
    size_t at;     /* bytes that have been checked */
    size_t need;   /* bytes of the request that the scan needs to continue */
    uint64_t left; /* items of the list still to come */
    uint8_t op, arg;
    bool counted; /* the list's length is known */
    struct {
        size_t at, size;
    } part[3]; /* where the arguments are; a list begins with its count */
};

void tcpstore_scan_begin(struct tcpstore_scan *scan);

/*
 * Continue with a request of which `size` > 0 bytes are at data. 1: it is complete and
 * ends at scan->at; 0: the scan needs scan->need bytes; -1: it breaks a limit.
 */
int tcpstore_scan(struct tcpstore_scan *scan, const uint8_t *data, size_t size,
                  struct err *e) MUST_CHECK;

/* The first bytes of a client, at most TCPSTORE_HELLO_SIZE: 1, 0 and -1 as above. */
int tcpstore_scan_hello(const uint8_t *hello, size_t size, struct err *e) MUST_CHECK;

/* SPDX-License-Identifier: MIT */
#include "rendezvous/tcpstore/tcpstore_scan.h"

#include <inttypes.h>

#include "rendezvous/common/base/bytes.h"
#include "rendezvous/tcpstore/limits.h"

#define OLD_OP_MAX 11 /* the last operation of PyTorch 2.1 */

/*
 * Arguments: k a key, v a value, 4 and 8 a number of so many bytes, K a list of keys,
 * P a list of pairs of key and value.
 */
static const struct {
    const char *name, *args;
} ops[TCPSTORE_OP_COUNT] = {
    [TCPSTORE_VALIDATE] = { "VALIDATE", "4" },
    [TCPSTORE_SET] = { "SET", "kv" },
    [TCPSTORE_COMPARE_SET] = { "COMPARE_SET", "kvv" },
    [TCPSTORE_GET] = { "GET", "k" },
    [TCPSTORE_ADD] = { "ADD", "k8" },
    [TCPSTORE_CHECK] = { "CHECK", "K" },
    [TCPSTORE_WAIT] = { "WAIT", "K" },
    [TCPSTORE_GETNUMKEYS] = { "GETNUMKEYS", "" },
    [TCPSTORE_DELETE_KEY] = { "DELETE_KEY", "k" },
    [TCPSTORE_APPEND] = { "APPEND", "kv" },
    [TCPSTORE_MULTI_GET] = { "MULTI_GET", "K" },
    [TCPSTORE_MULTI_SET] = { "MULTI_SET", "P" },
    [TCPSTORE_CANCEL_WAIT] = { "CANCEL_WAIT", "" },
    [TCPSTORE_PING] = { "PING", "4" },
    [TCPSTORE_QUEUE_PUSH] = { "QUEUE_PUSH", "kv" },
    [TCPSTORE_QUEUE_POP] = { "QUEUE_POP", "k" },
    [TCPSTORE_QUEUE_LEN] = { "QUEUE_LEN", "k" },
    [TCPSTORE_LIST_KEYS] = { "LIST_KEYS", "" },
    [TCPSTORE_BARRIER] = { "BARRIER", "k8" },
};

const char *tcpstore_op_name(unsigned op)
{
    return op < TCPSTORE_OP_COUNT ? ops[op].name : "unknown";
}

/* The functions below return 1, 0 and -1 as tcpstore_scan. */

static int scan_want(struct tcpstore_scan *scan, size_t size, uint64_t more)
{
    scan->need = scan->at + (size_t)more;
    return size >= scan->need;
}

static int scan_fixed(struct tcpstore_scan *scan, size_t size, unsigned width)
{
    if (!scan_want(scan, size, width))
        return 0;
    scan->part[scan->arg].at = scan->at;
    scan->part[scan->arg].size = width;
    scan->at += width;
    return 1;
}

/* A key or a value. */
static int scan_bytes(struct tcpstore_scan *scan, const uint8_t *data, size_t size,
                      bool is_key, struct err *e)
{
    uint64_t max = is_key ? STORE_KEY_MAX : STORE_VALUE_MAX, n;

    if (!scan_want(scan, size, 8))
        return 0;
    n = bytes_load64(data + scan->at);
    if (n > max)
        return err_set(e, "%s: a %s of %" PRIu64 " bytes, at most %" PRIu64,
                       ops[scan->op].name, is_key ? "key" : "value", n, max);
    if (!scan_want(scan, size, 8 + n))
        return 0;
    scan->at = scan->need;
    scan->part[scan->arg].at = scan->at - (size_t)n;
    scan->part[scan->arg].size = (size_t)n;
    return 1;
}

static int scan_count(struct tcpstore_scan *scan, const uint8_t *data, size_t size,
                      struct err *e)
{
    uint64_t n;

    if (!scan_want(scan, size, 8))
        return 0;
    n = bytes_load64(data + scan->at);
    if (n > STORE_KEYS_PER_OP_MAX)
        return err_set(e, "%s: %" PRIu64 " keys, at most %u", ops[scan->op].name, n,
                       STORE_KEYS_PER_OP_MAX);
    scan->at += 8;
    scan->left = n;
    scan->counted = true;
    return 1;
}

static int scan_list(struct tcpstore_scan *scan, const uint8_t *data, size_t size,
                     bool pairs, struct err *e)
{
    int r;

    if (!scan->counted) {
        r = scan_count(scan, data, size, e);
        if (r <= 0)
            return r;
        scan->left *= pairs ? 2 : 1;
    }
    for (; scan->left > 0; scan->left--) {
        r = scan_bytes(scan, data, size, !pairs || scan->left % 2 == 0, e);
        if (r <= 0)
            return r;
    }
    /* operations on lists begin with the count, right after the byte of operation */
    scan->part[scan->arg].at = 1;
    return 1;
}

static int scan_arg(struct tcpstore_scan *scan, char kind, const uint8_t *data,
                    size_t size, struct err *e)
{
    switch (kind) {
    case 'k':
    case 'v':
        return scan_bytes(scan, data, size, kind == 'k', e);
    case '4':
    case '8':
        return scan_fixed(scan, size, (unsigned)(kind - '0'));
    default:
        return scan_list(scan, data, size, kind == 'P', e);
    }
}

void tcpstore_scan_begin(struct tcpstore_scan *scan)
{
    scan->at = 0;
    scan->arg = 0;
    scan->counted = false;
}

int tcpstore_scan(struct tcpstore_scan *scan, const uint8_t *data, size_t size,
                  struct err *e)
{
    const char *args;

    if (scan->at == 0) {
        scan->op = data[0];
        scan->at = 1;
        if (scan->op >= TCPSTORE_OP_COUNT)
            return err_set(e, "unknown operation %u", scan->op);
    }
    for (args = ops[scan->op].args; args[scan->arg]; scan->arg++) {
        int r = scan_arg(scan, args[scan->arg], data, size, e);

        if (r <= 0)
            return r;
    }
    return 1;
}

static int not_a_client(const uint8_t *hello, struct err *e)
{
    return err_set(e, "not a client of PyTorch's store (first byte %02x)", hello[0]);
}

static int refuse_hello(const uint8_t *hello, struct err *e)
{
    if (hello[0] == TCPSTORE_VALIDATE &&
        bytes_load32(hello + 1) > STORE_KEYS_PER_OP_MAX)
        return err_set(e, "wrong magic number %08" PRIx32, bytes_load32(hello + 1));
    if (bytes_load32(hello + 1) > STORE_KEYS_PER_OP_MAX)
        return not_a_client(hello, e);
    /* an operation and the low half of a length: the first bytes of clients older than
     * VALIDATE */
    return err_set(e, "client of PyTorch 2.1 or older; crun needs 2.2 or newer");
}

int tcpstore_scan_hello(const uint8_t *hello, size_t size, struct err *e)
{
    if (size > 0 && hello[0] > OLD_OP_MAX)
        return not_a_client(hello, e);
    if (size < TCPSTORE_HELLO_SIZE)
        return 0;
    if (hello[0] != TCPSTORE_VALIDATE || bytes_load32(hello + 1) != TCPSTORE_MAGIC)
        return refuse_hello(hello, e);
    return 1;
}

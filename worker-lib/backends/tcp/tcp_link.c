/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/tcp/tcp_link.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define FRAME_MAGIC 0xc2a7
#define PROBES_UNANSWERED 3

static_assert(sizeof(struct tcp_frame) == 8 && sizeof(struct op_header) == 24,
              "wire format");
static_assert(sizeof(struct tcp_frame) + sizeof(struct abort_notice) < LINK_IN_BYTES,
              "all but data is looked at in the buffer");

bool tcp_link_init(struct tcp_link *l)
{
    *l = (struct tcp_link){ .fd = -1, .in = malloc(LINK_IN_BYTES) };
    return l->in != NULL;
}

void tcp_link_hang_up(struct tcp_link *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

void tcp_link_fini(struct tcp_link *l)
{
    tcp_link_hang_up(l);
    free(l->in);
    l->in = NULL;
}

static void put_header(struct tcp_link *l, enum frame_kind kind, unsigned stream,
                       size_t bytes)
{
    struct tcp_frame f = { .kind = (uint8_t)kind,
                           .stream = (uint8_t)stream,
                           .magic = FRAME_MAGIC,
                           .bytes = (uint32_t)bytes };

    assert(l->body_left == 0 && l->head_end + sizeof(f) <= sizeof(l->head));
    memcpy(l->head + l->head_end, &f, sizeof(f));
    l->head_end += sizeof(f);
}

void tcp_link_put_op(struct tcp_link *l, const struct op_header *w)
{
    put_header(l, FRAME_OP, 0, sizeof(*w));
    memcpy(l->head + l->head_end, w, sizeof(*w));
    l->head_end += sizeof(*w);
}

void tcp_link_put_data(struct tcp_link *l, unsigned stream, const void *data,
                       size_t bytes)
{
    put_header(l, FRAME_DATA, stream, bytes);
    l->body = data;
    l->body_left = bytes;
}

bool tcp_link_is_sending(const struct tcp_link *l)
{
    return l->head_at < l->head_end || l->body_left > 0;
}

static void note_sent(struct tcp_link *l, size_t bytes)
{
    size_t head = l->head_end - l->head_at;

    if (bytes < head) {
        l->head_at += (unsigned)bytes;
        return;
    }
    l->head_at = l->head_end = 0;
    l->body += bytes - head;
    l->body_left -= bytes - head;
}

bool tcp_link_push(struct tcp_link *l)
{
    struct iovec part[2] = {
        { l->head + l->head_at, l->head_end - l->head_at },
        { (void *)(uintptr_t)l->body, l->body_left },
    };
    struct msghdr message = { .msg_iov = part, .msg_iovlen = l->body_left ? 2 : 1 };
    ssize_t n;

    if (l->mute || !tcp_link_is_sending(l))
        return false;
    n = sendmsg(l->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
        l->mute = true; /* data that it sent earlier must still be read */
    if (n <= 0)
        return l->mute;
    note_sent(l, (size_t)n);
    return true;
}

void tcp_link_put_last(struct tcp_link *l, enum frame_kind kind,
                       const struct abort_notice *n)
{
    struct {
        struct tcp_frame frame;
        struct abort_notice notice;
    } last = { .frame = { .kind = (uint8_t)kind,
                          .magic = FRAME_MAGIC,
                          .bytes = n ? sizeof(*n) : 0 } };

    if (n)
        last.notice = *n;
    if (!l->mute && !tcp_link_is_sending(l))
        (void)!send(l->fd, &last, sizeof(last.frame) + last.frame.bytes,
                    MSG_DONTWAIT | MSG_NOSIGNAL);
    l->mute = true;
    (void)shutdown(l->fd, SHUT_WR);
}

/* Takes the result of recv or readv. True unless there is nothing to read now. */
static bool note_read(struct tcp_link *l, ssize_t n)
{
    if (n > 0)
        return true;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    l->ended = true;
    l->error = n < 0 ? errno : 0;
    return true;
}

static size_t held_bytes(const struct tcp_link *l)
{
    return l->in_end - l->in_at;
}

bool tcp_link_fill(struct tcp_link *l)
{
    ssize_t n;

    if (l->ended)
        return false;
    memmove(l->in, l->in + l->in_at, held_bytes(l));
    l->in_end = held_bytes(l);
    l->in_at = 0;
    if (l->in_end == LINK_IN_BYTES)
        return false;
    n = recv(l->fd, l->in + l->in_end, LINK_IN_BYTES - l->in_end, MSG_DONTWAIT);
    if (n > 0)
        l->in_end += (size_t)n;
    return note_read(l, n);
}

static size_t size_in_buffer(const struct tcp_frame *f)
{
    return sizeof(*f) + (f->kind == FRAME_DATA ? 0 : f->bytes);
}

static bool is_ours(const struct tcp_frame *f)
{
    static const size_t size[] = { [FRAME_OP] = sizeof(struct op_header),
                                   [FRAME_FAIL] = sizeof(struct abort_notice),
                                   [FRAME_BYE] = 0 };

    if (f->magic != FRAME_MAGIC || f->kind < FRAME_OP || f->kind > FRAME_BYE)
        return false;
    return f->kind == FRAME_DATA || f->bytes == size[f->kind];
}

const struct tcp_frame *tcp_link_peek(struct tcp_link *l)
{
    const struct tcp_frame *f;

    assert(l->left == 0);
    if (held_bytes(l) < sizeof(*f))
        return NULL;
    /* Frames of all sizes follow each other, so the next one may have to be moved to be
     * aligned. */
    if (l->in_at % sizeof(uint64_t) != 0) {
        memmove(l->in, l->in + l->in_at, held_bytes(l));
        l->in_end = held_bytes(l);
        l->in_at = 0;
    }
    f = (const void *)(l->in + l->in_at);
    if (!is_ours(f)) {
        l->ended = true;
        l->error = EPROTO;
        return NULL;
    }
    return held_bytes(l) < size_in_buffer(f) ? NULL : f;
}

void tcp_link_skip(struct tcp_link *l)
{
    l->in_at += size_in_buffer((const void *)(l->in + l->in_at));
}

void tcp_link_take(struct tcp_link *l, void *into)
{
    l->left = ((const struct tcp_frame *)(const void *)(l->in + l->in_at))->bytes;
    l->into = into;
    tcp_link_skip(l);
}

static void note_arrival(struct tcp_link *l, size_t bytes)
{
    l->left -= bytes;
    if (l->into)
        l->into += bytes;
}

/* Takes the bytes that are in the buffer already. */
static bool read_buffer(struct tcp_link *l)
{
    size_t bytes = held_bytes(l) < l->left ? held_bytes(l) : l->left;

    if (bytes == 0)
        return false;
    if (l->into)
        memcpy(l->into, l->in + l->in_at, bytes);
    l->in_at += bytes;
    note_arrival(l, bytes);
    return true;
}

bool tcp_link_read(struct tcp_link *l)
{
    struct iovec part[2] = { { l->into, 0 }, { l->in, LINK_IN_BYTES } };
    struct msghdr message = { .msg_iov = part, .msg_iovlen = 2 };
    size_t direct;
    ssize_t n;

    if (read_buffer(l))
        return true;
    if (l->ended)
        return false;
    l->in_at = l->in_end = 0;
    if (!l->into)
        return tcp_link_fill(l);
    part[0] = (struct iovec){ l->into, l->left };
    n = recvmsg(l->fd, &message, MSG_DONTWAIT);
    if (n > 0) {
        direct = (size_t)n < l->left ? (size_t)n : l->left;
        l->in_end = (size_t)n - direct;
        note_arrival(l, direct);
    }
    return note_read(l, n);
}

/*
 * The kernel tries for a quarter of an hour to reach a disconnected host.
 * TCP_USER_TIMEOUT must not be used to make it give up earlier: it also ends
 * connections to a rank that is busy and does not read for a while, though its kernel
 * acknowledges.
 */
bool tcp_link_is_dead(const struct tcp_link *l, unsigned dead_ms)
{
    struct tcp_info info;
    socklen_t size = sizeof(info);

    if (l->fd < 0 || getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
        return false;
    return (info.tcpi_retransmits > 0 || info.tcpi_probes >= PROBES_UNANSWERED) &&
           info.tcpi_last_ack_recv > dead_ms;
}

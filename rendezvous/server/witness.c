/* SPDX-License-Identifier: MIT */
#include "rendezvous/server/witness.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/witness_claims.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/server/server_keeping.h"
#include "rendezvous/server/witness_crund.h"
#include "rendezvous/wire/protocol/limits.h"

#define NAME_SIZE (WITNESS_MAX_BYTES + 128)
#define LINE_ANSWER_MS 5000
#define CLAIM_BYTES 17 /* of the replica that has it: 16 digits and a line's end */

/* Shared with its thread, as a directory on a network may take long; the last of them
 * to release it frees it. */
struct witness {
    struct witness_crund *crund; /* asked without a thread; NULL: it is none */
    atomic_int users, answer;
    char directory[WITNESS_MAX_BYTES + 1], job[ID128_HEX_SIZE];
    int line;
    struct pair_claim claim;
    struct err e;
};

static void witness_release(struct witness *w)
{
    if (atomic_fetch_sub(&w->users, 1) == 1)
        free(w);
}

bool witness_is_crund(const char *where)
{
    return *where && *where != '/' && strcmp(where, WITNESS_LAUNCHER) != 0;
}

int witness_check(const struct server *s, const char *directory, bool expected,
                  struct err *e)
{
    char name[NAME_SIZE], text[ID128_HEX_SIZE];
    int fd;

    if (*directory != '/')
        return s->config.witness_fd || witness_is_crund(directory)
                   ? 0
                   : err_set(e, "the witness is a crun -H, which has not started "
                                "this node");
    id128_format(server_instance(s), text);
    snprintf(name, sizeof(name), "%s/crun-%s", directory, text);
    fd = open(name, O_WRONLY | O_CLOEXEC | (expected ? 0 : O_CREAT), 0600);
    if (fd >= 0)
        close(fd);
    else if (expected && errno == ENOENT && access(directory, F_OK) == 0)
        return err_set(e,
                       "%s is not the directory of that name on the other node, "
                       "which has left a file there",
                       directory);
    else
        return err_set_errno(e, errno, "%s", directory);
    return 0;
}

/* Its content is there before its name is. */
static int write_claim(const struct witness *w, const char *name, struct err *e)
{
    char text[CLAIM_BYTES + 1];
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool written;

    if (fd < 0)
        return err_set_errno(e, errno, "%s", name);
    snprintf(text, sizeof(text), "%016" PRIx64 "\n", w->claim.self);
    written = write(fd, text, CLAIM_BYTES) == CLAIM_BYTES && fsync(fd) == 0;
    if (close(fd) < 0 || !written)
        return err_set_errno(e, errno, "%s", name);
    return 0;
}

/* link() is atomic on NFS as well, but its answer may be lost there: what the claim
 * says is what counts. */
static int claim_in_directory(const struct witness *w, bool *is_own, struct err *e)
{
    char own[NAME_SIZE], claim[NAME_SIZE], text[CLAIM_BYTES + 1] = "";
    uint64_t holder = 0;
    ssize_t n = -1;
    int fd, rc;

    snprintf(claim, sizeof(claim), "%s/crun-%s-%016" PRIx64, w->directory, w->job,
             w->claim.pair);
    snprintf(own, sizeof(own), "%s-%016" PRIx64, claim, w->claim.self);
    rc = write_claim(w, own, e);
    if (rc == 0 && link(own, claim) < 0 && errno != EEXIST)
        (void)err_set_errno(e, errno, "%s", claim);
    unlink(own);
    fd = rc == 0 ? open(claim, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        n = read(fd, text, CLAIM_BYTES);
        close(fd);
    }
    if (n < 0)
        return *e->text ? -1 : err_set_errno(e, errno, "%s", claim);
    if (n != CLAIM_BYTES || sscanf(text, "%16" SCNx64 "\n", &holder) != 1)
        return err_set(e, "%s is not a claim", claim);
    *is_own = holder == w->claim.self;
    return 0;
}

/* An answer to an earlier claim may still come before it. */
static int claim_by_line(const struct witness *w, bool *is_own, struct err *e)
{
    struct pair_claim c = w->claim, answer;
    struct pollfd readable = { .fd = w->line, .events = POLLIN };

    c.pair = htole64(c.pair); /* the other node's order may be another */
    if (send(w->line, &c, sizeof(c), MSG_NOSIGNAL) < 0)
        return err_set_errno(e, errno, "crun -H");
    while (poll(&readable, 1, LINE_ANSWER_MS) > 0) {
        ssize_t n = recv(w->line, &answer, sizeof(answer), MSG_DONTWAIT);

        if (n == 0)
            return err_set(e, "crun -H is gone");
        if (n == sizeof(answer) &&
            memcmp(&answer, &c, offsetof(struct pair_claim, holder)) == 0) {
            *is_own = answer.holder == c.self;
            return 0;
        }
    }
    return err_set(e, "crun -H does not answer");
}

static void *witness_run(void *arg)
{
    struct witness *w = arg;
    bool is_own = false;
    int rc = (*w->directory == '/' ? claim_in_directory : claim_by_line)(w, &is_own,
                                                                         &w->e);

    atomic_store(&w->answer, rc < 0   ? WITNESS_FAILED
                             : is_own ? WITNESS_YES
                                      : WITNESS_NO);
    witness_release(w);
    return NULL;
}

struct witness *witness_ask(struct server *s, const char *where, const struct id128 *id,
                            uint64_t pair, uint64_t self)
{
    struct witness *w = xcalloc(1, sizeof(*w));
    pthread_t thread;
    int errnum;

    atomic_init(&w->users, 2);
    atomic_init(&w->answer, WITNESS_WAITS);
    snprintf(w->directory, sizeof(w->directory), "%s", where);
    w->line = s->config.witness_fd;
    w->claim = (struct pair_claim){ .job = *server_instance(s),
                                    .pair = pair,
                                    .self = self };
    if (witness_is_crund(where)) {
        w->crund = witness_crund_ask(s, where, id, &w->claim);
        return w;
    }
    id128_format(&w->claim.job, w->job);
    errnum = thread_start(&thread, witness_run, w);
    if (errnum == 0) {
        pthread_detach(thread);
        return w;
    }
    (void)err_set_errno(&w->e, errnum, "pthread_create");
    atomic_store(&w->answer, WITNESS_FAILED);
    witness_release(w);
    return w;
}

enum witness_answer witness_answer(struct witness *w, const char **why,
                                   struct id128 *id)
{
    if (w->crund)
        return witness_crund_answer(w->crund, why, id);
    *why = w->e.text;
    return (enum witness_answer)atomic_load(&w->answer);
}

void witness_forget(struct witness *w)
{
    if (!w)
        return;
    witness_crund_forget(w->crund);
    if (w->crund)
        free(w);
    else
        witness_release(w);
}

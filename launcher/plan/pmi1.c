/* SPDX-License-Identifier: MIT */
#include "launcher/plan/pmi1.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/net.h"

#define LINE_MAX_BYTES 2048
#define NAME_MAX_BYTES 255
#define KEY "crun-rendezvous"
#define BACKLOG 4096
#define WAIT_MS 600000 /* as for the nodes of a job */

/* -- lines ------------------------------------------------------------------------- */

static int pmi1_refuse(const char *line, const char *answer, struct err *e)
{
    return err_set(e, "PMI_FD: \"%.*s\" was answered with \"%.200s\"",
                   (int)strcspn(line, "\n"), line, answer);
}

/* Reads up to the end of the line, which is cut off. */
static int pmi1_read_line(int fd, char *line, struct err *e)
{
    size_t used = 0;

    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready = poll(&p, 1, WAIT_MS);
        ssize_t n = ready > 0 ? read(fd, line + used, 1) : 0;

        if (ready < 0 || n < 0) {
            if (errno == EINTR || errno == EAGAIN)
                continue;
            return err_set_errno(e, errno, "PMI_FD");
        }
        if (n == 0)
            return err_set(e, ready ? "PMI_FD: the launcher has closed it"
                                    : "PMI_FD: no answer for 600 s: not all processes "
                                      "of the job are there");
        if (line[used] == '\n')
            break;
        if (++used == LINE_MAX_BYTES)
            return err_set(e, "PMI_FD: a line of more than %d bytes", LINE_MAX_BYTES);
    }
    line[used] = '\0';
    return 0;
}

/* Copies the value of " name=" in a line. -1: there is none, or it does not fit. */
static int pmi1_field(const char *line, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);

    for (; line; line = strchr(line, ' ')) {
        line += strspn(line, " ");
        if (strncmp(line, name, length) == 0 && line[length] == '=') {
            size_t bytes = strcspn(line += length + 1, " ");

            if (bytes >= size)
                return -1;
            memcpy(value, line, bytes);
            value[bytes] = '\0';
            return 0;
        }
    }
    return -1;
}

/* Sends a line, and reads the answer, whose command is `expected`. */
static int pmi1_ask(int fd, const char *line, const char *expected, char *answer,
                    struct err *e)
{
    size_t left = strlen(line);
    char word[64];
    int errnum = fd_write_all(fd, line, &left);

    if (errnum)
        return err_set_errno(e, errnum, "PMI_FD");
    if (pmi1_read_line(fd, answer, e) < 0)
        return -1;
    if (pmi1_field(answer, "cmd", word, sizeof(word)) < 0 ||
        strcmp(word, expected) != 0 ||
        (pmi1_field(answer, "rc", word, sizeof(word)) == 0 && strcmp(word, "0") != 0))
        return pmi1_refuse(line, answer, e);
    return 0;
}

/* -- rank 0's addresses ------------------------------------------------------------ */

/* All addresses but loopback, which is of use only if it is the only one. */
static int pmi1_name_endpoints(struct pmi1_meeting *m, struct err *e)
{
    char own[512], *rest = own, *one;
    struct net_addr addr;
    size_t used = 0, room = sizeof(m->endpoints);
    uint16_t port;

    if (net_local_addr(m->listener, &addr) < 0)
        return err_set_errno(e, errno, "a socket");
    port = net_port(&addr);
    net_list_own(own, sizeof(own));
    while ((one = strsep(&rest, ",")) != NULL) {
        one += strspn(one, " ");
        if (used + strlen(one) + 16 < room && net_parse_host(one, port, &addr, e) == 0)
            used += (size_t)snprintf(m->endpoints + used, room - used,
                                     strchr(one, ':') ? "%s[%s]:%u" : "%s%s:%u",
                                     used ? "," : "", one, port);
    }
    if (used == 0)
        snprintf(m->endpoints, room, "127.0.0.1:%u", port);
    return 0;
}

/* -- the meeting ------------------------------------------------------------------- */

static int pmi1_begin(int fd, char *name, size_t size, struct err *e)
{
    char answer[LINE_MAX_BYTES];
    static const char ask_name[] = "cmd=get_my_kvsname\n";

    if (pmi1_ask(fd, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init",
                 answer, e) < 0 ||
        pmi1_ask(fd, ask_name, "my_kvsname", answer, e) < 0)
        return -1;
    return pmi1_field(answer, "kvsname", name, size) < 0
               ? pmi1_refuse(ask_name, answer, e)
               : 0;
}

static int pmi1_put(int fd, const char *name, const char *value, struct err *e)
{
    char line[LINE_MAX_BYTES], answer[LINE_MAX_BYTES];

    snprintf(line, sizeof(line), "cmd=put kvsname=%s key=" KEY " value=%s\n", name,
             value);
    return pmi1_ask(fd, line, "put_result", answer, e);
}

static int pmi1_get(int fd, const char *name, char *value, size_t size, struct err *e)
{
    char line[LINE_MAX_BYTES], answer[LINE_MAX_BYTES];

    snprintf(line, sizeof(line), "cmd=get kvsname=%s key=" KEY "\n", name);
    if (pmi1_ask(fd, line, "get_result", answer, e) < 0)
        return -1;
    return pmi1_field(answer, "value", value, size) < 0 ? pmi1_refuse(line, answer, e)
                                                        : 0;
}

static int pmi1_exchange(int fd, struct pmi1_meeting *m, struct err *e)
{
    char name[NAME_MAX_BYTES + 1], answer[LINE_MAX_BYTES];

    if (pmi1_begin(fd, name, sizeof(name), e) < 0 ||
        (m->rank == 0 && pmi1_put(fd, name, m->endpoints, e) < 0) ||
        pmi1_ask(fd, "cmd=barrier_in\n", "barrier_out", answer, e) < 0 ||
        (m->rank > 0 &&
         pmi1_get(fd, name, m->endpoints, sizeof(m->endpoints), e) < 0) ||
        pmi1_ask(fd, "cmd=finalize\n", "finalize_ack", answer, e) < 0)
        return -1;
    snprintf(m->job, sizeof(m->job), "%s", name);
    /* a job's id has fewer letters */
    for (char *c = m->job; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
              (*c >= '0' && *c <= '9') || strchr("._:@%+-", *c)))
            *c = '-';
    return 0;
}

int pmi1_meet(struct pmi1_meeting *m, struct err *e)
{
    const char *text = getenv("PMI_FD");
    int fd = text && *text && !text[strspn(text, "0123456789")] ? atoi(text) : -1, rc;

    if (fd < 0)
        return err_set(e, "PMI_FD is \"%.64s\": it must be a descriptor",
                       text ? text : "");
    if (m->rank == 0) {
        m->listener = net_listen_everywhere(0, BACKLOG, e);
        if (m->listener < 0 || pmi1_name_endpoints(m, e) < 0)
            return -1;
    }
    rc = pmi1_exchange(fd, m, e);
    close(fd);
    return rc;
}

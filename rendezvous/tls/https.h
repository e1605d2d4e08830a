/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_TLS_HTTPS_H
#define RENDEZVOUS_TLS_HTTPS_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/base/err.h"

/*
 * One request to a web server. Over TLS 1.2 or later the certificate must be the
 * server's by the authorities in a file, or by those of the system. It blocks, for
 * HTTPS_PATIENCE_MS at most at each step, so it is for a thread or a process of its
 * own.
 */
#define HTTPS_PATIENCE_MS 5000
#define HTTPS_NAME_MAX 255
#define HTTPS_PATH_MAX 1023
#define HTTPS_TOKEN_SIZE 16384

struct https_url {
    char host[HTTPS_NAME_MAX + 1]; /* a name, or an address without brackets */
    uint16_t port;
    char path[HTTPS_PATH_MAX + 1];
    bool plain; /* without TLS */
};

/* "https://HOST[:PORT][/PATH]" */
int https_url_parse(const char *text, struct https_url *url, struct err *e) MUST_CHECK;
/* The same, or "http://...". */
int https_url_parse_any(const char *text, struct https_url *url,
                        struct err *e) MUST_CHECK;

struct https_request {
    const char *json;        /* the body of a POST; NULL: a GET */
    const char *token;       /* the bearer's; NULL: none */
    const char *authorities; /* a file; NULL: the system's */
};

/* Returns the status of the answer, or -1. The token is in no error. */
int https_send(const struct https_url *url, const struct https_request *r,
               struct err *e) MUST_CHECK;

/* The token in a file, which may be a new one each time, without the blanks at its
 * end. */
int https_read_token(const char *path, char token[HTTPS_TOKEN_SIZE],
                     struct err *e) MUST_CHECK;

#endif

/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_TLS_HTTPS_H
#define RENDEZVOUS_TLS_HTTPS_H

#include <stdint.h>

#include "rendezvous/base/err.h"

/*
 * One request to an HTTPS server: TLS 1.2 or later, and a certificate that is the
 * server's by the authorities in a file. It blocks, for HTTPS_PATIENCE_MS at most at
 * each step, so it is for a thread of its own.
 */
#define HTTPS_PATIENCE_MS 5000
#define HTTPS_NAME_MAX 255
#define HTTPS_PATH_MAX 1023

struct https_url {
    char host[HTTPS_NAME_MAX + 1]; /* a name, or an address without brackets */
    uint16_t port;
    char path[HTTPS_PATH_MAX + 1];
};

/* "https://HOST[:PORT][/PATH]" */
int https_url_parse(const char *text, struct https_url *url, struct err *e) MUST_CHECK;

/* Sends a POST of JSON with the bearer's token. Returns the status of the answer, or
 * -1. The token is in no error. */
int https_post(const struct https_url *url, const char *authorities, const char *token,
               const char *json, struct err *e) MUST_CHECK;

#endif

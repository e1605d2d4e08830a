/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/foreign_server.h"

#include <string.h>
#include <strings.h>

static const struct foreign_beginning {
    const char *bytes, *name;
} beginnings[] = {
    { "HTTP", "an HTTP server" },
    { "<!DO",
      "an HTTP server" }, /* the page that says what is wrong, without a header */
    { "<htm", "an HTTP server" },
    { "SSH-", "an ssh server" },
    { "\x15\x03\x01", "a TLS server" }, /* an alert */
    { "\x15\x03\x03", "a TLS server" },
    { "\x16\x03\x03", "a TLS server" },
    { "220 ", "a mail or FTP server" },
    { "220-", "a mail or FTP server" },
};

const char *foreign_server_name(const void *data, size_t size)
{
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++) {
        size_t length = strlen(beginnings[i].bytes);

        if (size >= length && strncasecmp(data, beginnings[i].bytes, length) == 0)
            return beginnings[i].name;
    }
    return NULL;
}

/* VALIDATE with its magic number, and PING. The answer is the nonce. For an HTTP
 * server, a line that it complains of; for a store, the beginning of another PING. */
#define PING_QUESTION "\x00\xce\xf7\x85\x3c\x0d" FOREIGN_NONCE "\r\n\r\n"

/*
 * A hello of TLS 1.3 and 1.2 without a share of a key: a server with a certificate asks
 * for one, or goes on with 1.2. Either answer is a handshake record.
 */
#define HELLO_EXTENSIONS                                                               \
    "\x00\x2b\x00\x05\x04\x03\x04\x03\x03"     /* versions */                          \
    "\x00\x0a\x00\x06\x00\x04\x00\x1d\x00\x17" /* groups */                            \
    "\x00\x0b\x00\x02\x01\x00"                 /* formats of points */                 \
    "\x00\x0d\x00\x10\x00\x0e\x04\x03\x05\x03\x06\x03\x08\x04\x08\x05\x04\x01\x05\x01" \
    "\x00\x33\x00\x02\x00\x00" /* no shares */
#define HELLO_QUESTION                                                                 \
    "\x16\x03\x01\x00\x72\x01\x00\x00\x6e\x03\x03"                                     \
    "is there a rendezvous of a crun?"                                                 \
    "\x00\x00\x12\x13\x01\x13\x02\xc0\x2f\xc0\x30\xc0\x2b\xc0\x2c\x00\x9c\x00\x2f"     \
    "\x00\x35\x01\x00\x00\x33" HELLO_EXTENSIONS

#define QUESTION(text) (const uint8_t *)(text), sizeof(text) - 1

const struct foreign_question foreign_questions[FOREIGN_QUESTIONS] = {
    { QUESTION(PING_QUESTION), "a store of PyTorch's (TCPStore, as of torchrun)",
      QUESTION(FOREIGN_NONCE) },
    { QUESTION(HELLO_QUESTION), "a TLS server", QUESTION("\x16\x03") },
};

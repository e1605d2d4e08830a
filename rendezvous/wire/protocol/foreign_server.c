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

/* SPDX-License-Identifier: MIT */
#include "worker-lib/meeting/store_token.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/progress_page.h"

static bool is_text(const char *text, size_t size)
{
    return *text && memchr(text, '\0', size);
}

bool store_token_read(struct store_token *out)
{
    const char *path = getenv(PROGRESS_ENV);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct progress_page page;
    bool found = fd >= 0 && read(fd, &page, sizeof(page)) == (ssize_t)sizeof(page) &&
                 page.magic == PROGRESS_MAGIC && page.version == PROGRESS_VERSION &&
                 page.store.version == PROGRESS_STORE_VERSION && page.store.port > 0 &&
                 page.store.port <= UINT16_MAX &&
                 is_text(page.store.host, sizeof(page.store.host)) &&
                 is_text(page.store.identity, sizeof(page.store.identity));

    _Static_assert(sizeof(out->host) == sizeof(page.store.host), "host");
    _Static_assert(sizeof(out->psk.identity) == sizeof(page.store.identity),
                   "identity");
    _Static_assert(sizeof(out->psk.secret) == sizeof(page.store.secret), "secret");
    if (fd >= 0)
        close(fd);
    if (found) {
        memcpy(out->host, page.store.host, sizeof(out->host));
        out->port = (uint16_t)page.store.port;
        memcpy(out->psk.identity, page.store.identity, sizeof(out->psk.identity));
        memcpy(out->psk.secret, page.store.secret, sizeof(out->psk.secret));
    }
    explicit_bzero(&page.store, sizeof(page.store));
    return found;
}

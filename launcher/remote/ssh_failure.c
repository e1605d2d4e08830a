/* SPDX-License-Identifier: MIT */
#include "launcher/remote/ssh_failure.h"

#include <stddef.h>
#include <string.h>

const char *ssh_failure_explain(const char *said, bool *busy)
{
    static const struct {
        const char *words, *means;
        bool busy;
    } known[] = {
        { "kex_exchange_identification", "closed the connection", true },
        { "ssh_exchange_identification", "closed the connection", true },
        { "Exceeded MaxStartups", "closed the connection", true },
        { "REMOTE HOST IDENTIFICATION HAS CHANGED", "another host key", false },
        { "Host key verification failed",
          "unknown host key (\"ssh HOST\" once, or ssh-keyscan HOST >> "
          "~/.ssh/known_hosts)",
          false },
        { "Permission denied (", "refused the key", false },
        { "Too many authentication failures", "refused the key", false },
        { "Could not resolve hostname", "no known address", false },
        { "Connection refused", "did not answer", false },
        { "timed out", "did not answer", false },
        { "No route to host", "did not answer", false },
        { "Network is unreachable", "did not answer", false },
        { "Connection reset by peer", "closed the connection", true },
        { "Connection closed by", "closed the connection", true },
        { "No space left on device", "no space left", false },
        { "Disk quota exceeded", "no space left", false },
        { "error while loading shared libraries", "cannot run this crun", false },
        { "GLIBC_", "cannot run this crun", false },
        { "Exec format error", "cannot run this crun", false },
        { "is not yours alone", "cannot use its copy of crun", false },
        { "could not be copied", "did not take a copy of crun", false },
    };

    *busy = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strstr(said, known[i].words)) {
            *busy = known[i].busy;
            return known[i].means;
        }
    return "could not be started";
}

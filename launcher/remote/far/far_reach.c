/* SPDX-License-Identifier: MIT */
#include "launcher/remote/far/far_reach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/remote/channel.h"
#include "launcher/remote/far/far_socket.h"
#include "launcher/remote/push.h"
#include "rendezvous/common/base/xalloc.h"

bool far_side_end_file(const char *log, char path[PATH_MAX + 8])
{
    char real[PATH_MAX];
    size_t length;

    if (!realpath(log, real))
        return false;
    length = strlen(real);
    if (length < 4 || strcmp(real + length - 4, ".log") != 0)
        return false;
    snprintf(path, PATH_MAX + 8, "%.*s.json", (int)length - 4, real);
    return true;
}

char *far_reach_command(pid_t pid, const char *log)
{
    const char *libraries = getenv("LD_LIBRARY_PATH");
    char self[PATH_MAX], end[PATH_MAX + 8], *command, *words[3];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length <= 0 || !far_side_end_file(log, end))
        return NULL;
    self[length] = '\0';
    words[0] = push_quote(self);
    words[1] = push_quote(end);
    words[2] = push_quote(libraries ? libraries : "");
    /* The record of the end comes first, as another crun may have the pid since. The
     * socket is there a moment after the start, and until the record is. */
    command = xasprintf(
        "end() { if test -e %s; then echo; echo " FAR_REACH_ENDED
        "; cat %s; exit; fi; }; "
        "for i in 1 2 3 4 5 6 7 8; do end; LD_LIBRARY_PATH=%s " FAR_SOCKET_VARIABLE
        "=%d " FAR_SOCKET_SAYS "=1 %s " CHANNEL_SOCKET_FLAG " 2>/dev/null && exit; "
        "kill -0 %d 2>/dev/null || break; sleep 0.3; done; end; "
        "kill -0 %d 2>/dev/null || { echo; echo " FAR_REACH_GONE "; }; exit\n",
        words[1], words[1], words[2], (int)pid, words[0], (int)pid, (int)pid);
    for (unsigned i = 0; i < 3; i++)
        free(words[i]);
    return command;
}

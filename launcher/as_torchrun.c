/* SPDX-License-Identifier: MIT */
#include "launcher/as_torchrun.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/command_line.h"
#include "launcher/plan/bootstrap.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

/* What crun/as_torchrun.py needs in the environment. */
static int prepare_environment(void)
{
    char own[PATH_MAX], folder[PATH_MAX];
    const char *rest = getenv("PYTHONPATH");
    char *shim = bootstrap_installed(command_line_own_folder(folder, sizeof(folder)),
                                     "shim");

    if (!shim || strchr(shim, ':') || !realpath("/proc/self/exe", own)) {
        log_error("as-torchrun: PYTHONPATH cannot contain %s",
                  shim ? shim : "lib/crun/python/shim, which is not installed");
        free(shim);
        return -1;
    }
    setenv("CRUN_AS_TORCHRUN", own, 1);
    if (rest && *rest) {
        char *path = xasprintf("%s:%s", shim, rest);

        setenv("PYTHONPATH", path, 1);
        free(path);
    } else
        setenv("PYTHONPATH", shim, 1);
    free(shim);
    return 0;
}

void as_torchrun_main_if_asked(int argc, char **argv)
{
    int error;

    if (argc < 2 || strcmp(argv[1], "as-torchrun") != 0)
        return;
    fd_keep_std();
    log_init("crun", LOG_INFO, LOG_TEXT);
    if (argc < 3) {
        log_error(
            "as-torchrun: no command is given (crun as-torchrun accelerate launch "
            "train.py)");
        exit(EXIT_USAGE);
    }
    if (argv[2][0] == '-') {
        log_error(
            "as-torchrun: the command comes first, not %s; crun's flags are variables: "
            "CRUN_WARM=1 crun as-torchrun ...",
            argv[2]);
        exit(EXIT_USAGE);
    }
    if (prepare_environment() < 0)
        exit(EXIT_FAILURE);
    execvp(argv[2], argv + 2);
    error = errno;
    log_error("%s: %s", argv[2], strerror(error));
    exit(error == ENOENT ? 127 : 126);
}

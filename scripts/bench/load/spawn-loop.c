/* SPDX-License-Identifier: MIT */
/*
 * The minimum that a launcher must do: start N copies of a program with posix_spawn,
 * wait for all of them, and exit with 1 if any of them failed.
 *
 *   spawn-loop N PROGRAM [ARGUMENT...]
 */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

int main(int argc, char **argv)
{
    long copies = argc > 2 ? strtol(argv[1], NULL, 10) : 0;
    if (copies < 1) {
        fprintf(stderr, "usage: spawn-loop N PROGRAM [ARGUMENT...]\n");
        return EXIT_USAGE;
    }
    for (long i = 0; i < copies; i++) {
        int error = posix_spawnp(NULL, argv[2], NULL, NULL, argv + 2, environ);
        if (error) {
            fprintf(stderr, "spawn-loop: %s: %s\n", argv[2], strerror(error));
            return EXIT_FAILURE;
        }
    }
    int result = EXIT_SUCCESS;
    int status;
    while (wait(&status) > 0)
        if (status)
            result = EXIT_FAILURE;
    return result;
}

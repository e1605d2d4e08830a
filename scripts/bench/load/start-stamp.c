/* SPDX-License-Identifier: MIT */
/*
 * A worker that reports its start time and then waits to be killed: one line "RANK PID
 * NANOSECONDS" (CLOCK_MONOTONIC) into the fifo that is its argument.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (argc != 2) {
        fprintf(stderr, "usage: start-stamp FIFO\n");
        return 2;
    }
    const char *rank = getenv("RANK");
    char line[64];
    int length = snprintf(line, sizeof(line), "%s %d %llu\n", rank ? rank : "-",
                          getpid(), now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec);
    int fd = open(argv[1], O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, line, (size_t)length) != length) {
        perror(argv[1]);
        return 1;
    }
    close(fd);
    for (;;)
        pause();
}

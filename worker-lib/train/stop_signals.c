/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/stop_signals.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t received;

static void on_sigterm_or_sigint(int number)
{
    if (received && number == SIGINT)
        _exit(128 + number);
    received = number;
}

void stop_signals_watch(void)
{
    struct sigaction stop = { .sa_handler = on_sigterm_or_sigint,
                              .sa_flags = SA_RESTART };

    sigfillset(&stop.sa_mask);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
}

int stop_signals_received(void)
{
    return received;
}

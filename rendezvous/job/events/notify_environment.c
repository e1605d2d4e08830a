/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/events/notify_environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/text.h"

/* Settings of the program, which may be secret, and the doors to its secrets. */
static bool is_kept_back(const char *variable)
{
    static const char *const begins[] = { "CRUN_",
                                          "CRUND_",
                                          "PET_",
                                          "LISTEN_",
                                          "NOTIFY_SOCKET=",
                                          "WATCHDOG_",
                                          "CREDENTIALS_DIRECTORY=" };

    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static void drop_variables(void)
{
    char **to = environ;

    for (char **at = environ; at && *at; at++)
        if (!is_kept_back(*at))
            *to++ = *at;
    if (to)
        *to = NULL;
}

static void set_number(const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    setenv(name, text, 1);
}

static void set_printable(const char *name, const char *value)
{
    char text[4 * sizeof(((struct msg_event *)0)->text)];

    setenv(name, text_printable(value, text, sizeof(text)), 1);
}

void notify_environment_set(const struct msg_event *event)
{
    char time[64], instance[ID128_HEX_SIZE];

    drop_variables();
    set_printable("CRUN_EVENT_KIND", event->kind);
    set_printable("CRUN_EVENT_RUN_ID", event->run_id);
    set_printable("CRUN_EVENT_NAME", *event->name ? event->name : event->run_id);
    set_printable("CRUN_EVENT_TEXT", event->text);
    set_printable("CRUN_EVENT_NODE", event->host);
    set_number("CRUN_EVENT_EPOCH", event->epoch);
    set_number("CRUN_EVENT_SEQUENCE", event->number);
    setenv("CRUN_EVENT_INSTANCE", id128_format(&event->instance, instance), 1);
    setenv("CRUN_EVENT_TIME", clock_format_rfc3339(event->wall_ms, time, sizeof(time)),
           1);
    if (event->of_rank)
        set_number("CRUN_EVENT_RANK", event->rank);
    else
        setenv("CRUN_EVENT_RANK", "", 1);
}

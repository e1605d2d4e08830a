/* SPDX-License-Identifier: MIT */
/*
 * When the reader of standard output is gone: a job whose output nothing else keeps
 * ends, as a program that SIGPIPE kills.
 */
#include "agent/logs/logs_internal.h"

bool logs_need_reader(const struct config *c)
{
    return c->rendezvous == CONFIG_LOCAL && !c->ignore_closed_output && !c->log_dir &&
           !log_routing_needs_files(c);
}

void logs_report_closed_output(struct logs *l)
{
    struct console *c = l->sink[l->sinks.same ? LOG_ERR : LOG_OUT].console;
    void (*closed)(void *) = l->closed;

    if (!closed || !c || !outlet_is_dead(console_outlet(c)))
        return;
    l->closed = NULL;
    closed(l->closed_arg);
}

/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/order_filter.h"

bool order_filter_take(struct order_filter *o, const struct msg *order)
{
    if (o->done)
        return false;
    if (order->type == MSG_DONE)
        return o->done = true;
    if (order->epoch < o->epoch)
        return false;
    o->epoch = order->epoch;
    if (order->type == MSG_START) {
        if (o->started == o->epoch || o->stopped == o->epoch)
            return false;
        o->started = o->epoch;
        o->live = true;
    } else if (order->type == MSG_STOP) { /* a repeat may leave less time than before */
        if (o->stopped == o->epoch && order->stop.grace_ms >= o->stop_grace_ms)
            return false;
        o->stopped = o->epoch;
        o->stop_grace_ms = order->stop.grace_ms;
    }
    return true;
}

void order_filter_reported(struct order_filter *o, const struct msg *report)
{
    bool end = report->type == MSG_STOPPED || report->type == MSG_FINISHED;

    if (end && report->epoch == o->started)
        o->live = false;
}

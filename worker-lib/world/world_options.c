/* SPDX-License-Identifier: MIT */
/* How long a world waits: crun_options, CRUN_TIMEOUT and what holds without them. */
#include "worker-lib/world/world_internal.h"

#include <math.h>
#include <stdlib.h>

#include "rendezvous/common/base/clock.h"
#include "worker-lib/compute/device.h"

#define TIMEOUT_S 1800
#define INIT_TIMEOUT_S 300
#define TIMEOUT_S_MAX 1e9
#define GPU_MORE_MS 10000

static bool is_time(double seconds)
{
    return seconds > 0 && seconds <= TIMEOUT_S_MAX;
}

static crun_status read_timeout(double option, double *seconds, struct err *e)
{
    const char *text = getenv("CRUN_TIMEOUT");

    *seconds = option != 0 ? option : TIMEOUT_S;
    if (option == 0 && text && *text) {
        *seconds = (double)clock_parse_duration(text) / 1000;
        if (!is_time(*seconds)) {
            err_set(e, "CRUN_TIMEOUT is \"%s\": it must be a time, as in 90 or 5m",
                    text);
            return CRUN_BAD_ENVIRONMENT;
        }
    }
    return CRUN_OK;
}

crun_status world_read_options(crun_world *w, const crun_options *o, struct err *e)
{
    double timeout_s = 0,
           init_s = o && o->init_timeout_s != 0 ? o->init_timeout_s : INIT_TIMEOUT_S;
    crun_status s = read_timeout(o ? o->timeout_s : 0, &timeout_s, e);

    if (s != CRUN_OK)
        return s;
    if (!is_time(timeout_s) || !is_time(init_s)) {
        err_set(e, "crun_init: a timeout must be a positive number of seconds");
        return CRUN_BAD_ARGUMENT;
    }
    w->timeout_ms = (uint64_t)ceil(timeout_s * 1000);
    w->init_ms = (uint64_t)ceil(init_s * 1000);
    w->init_deadline_ms = clock_ms() + w->init_ms;
    /* behind a collective that hangs, and its abort */
    device_limit_waits(2 * w->timeout_ms + GPU_MORE_MS);
    return CRUN_OK;
}

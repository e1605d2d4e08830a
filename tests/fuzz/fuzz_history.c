/* SPDX-License-Identifier: MIT */
/*
 * The past of a job as found in a file, which another version may have written, or a
 * power failure torn. What is read stays in its bounds, and is the same when it is
 * written and read again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/job/history/history_json.h"
#include "rendezvous/wire/protocol/json_strict.h"
#include "rendezvous/wire/protocol/limits.h"

static void check_history(int holds)
{
    if (!holds)
        abort();
}

static struct job_history *read_history(const char *text, size_t size)
{
    struct job_history *h = NULL;
    struct err e;
    cJSON *o;

    if (json_check(text, size, JSON_DEPTH_MAX, &e) < 0)
        return NULL;
    o = cJSON_ParseWithLength(text, size);
    if (o)
        h = history_from_json(o);
    cJSON_Delete(o);
    return h;
}

static char *print_history(const struct job_history *h)
{
    static const struct history_reader all = { .run_id = "job", .instance = "1d" };
    cJSON *o = history_json(h, &all);
    char *text = cJSON_PrintUnformatted(o);

    cJSON_Delete(o);
    check_history(text != NULL);
    return text;
}

static void check_bounds(const struct job_history *h)
{
    check_history(h->curve.count < CURVE_POINTS_MAX);
    check_history(h->epochs.count <= EPOCHS_KEPT);
    check_history(h->events <= JOB_EVENTS_KEPT);
    check_history(job_history_size(h) < 96u << 10);
    for (unsigned i = 1; i < h->curve.count; i++)
        check_history(h->curve.point[i - 1].wall_ms <= h->curve.point[i].wall_ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job_history *h = read_history((const char *)data, size), *again;
    char *text, *same;

    if (!h)
        return 0;
    check_bounds(h);
    text = print_history(h);
    again = read_history(text, strlen(text));
    check_history(again != NULL);
    same = print_history(again);
    check_history(strcmp(text, same) == 0);
    free(text);
    free(same);
    job_history_destroy(h);
    job_history_destroy(again);
    return 0;
}

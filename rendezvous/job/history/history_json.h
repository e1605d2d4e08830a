/* SPDX-License-Identifier: MIT */
#pragma once

#include <cjson/cJSON.h>

#include "rendezvous/job/history/job_history.h"

/*
 * The past of a job as JSON, as crunctl(1) describes it: in the job object, in files,
 * and in HISTORY messages.
 */
struct history_reader {
    /* Whether the reader is shown the texts of that kind of event; NULL: of all. */
    bool (*sees_text)(void *arg, const char *kind);
    void *arg;
    /* Of the job, for each event. run_id NULL: events have only what job_history keeps;
     * instance NULL: they do not tell it. */
    const char *run_id, *instance;
};

cJSON *history_json(const struct job_history *h, const struct history_reader *reader);

/* The history that history_json has made; NULL: it makes no sense. Its owner may have
 * been another, so that each value is checked. */
struct job_history *history_from_json(const cJSON *o);

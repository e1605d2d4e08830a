/* SPDX-License-Identifier: MIT */
#include <event2/buffer.h>
#include <event2/http.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/version.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/show/web/page.h"
#include "rendezvous/show/web/web_internal.h"

/* -- jobs ------------------------------------------------------------------------- */

const struct job *web_next_job(const struct job *job, const struct web_viewer *viewer)
{
    while (job && !job_owner_admits(&job->owner, &viewer->owner))
        job = job->next;
    return job;
}

const struct job *web_find_job(const struct web *w, const struct web_viewer *viewer,
                               const char *run_id)
{
    const struct job *job = web_next_job(registry_jobs(w->config.registry), viewer);

    while (job && strcmp(job->run_id, run_id) != 0)
        job = web_next_job(job->next, viewer);
    return job;
}

void web_look(struct web *w)
{
    uint64_t now = clock_ms(), offset = clock_wall_ms() - now;
    int64_t moved = (int64_t)(offset - w->wall_offset_ms);

    if (moved > WEB_CLOCK_STEP_MS || moved < -WEB_CLOCK_STEP_MS)
        w->wall_offset_ms = offset;
    w->wall_ms = now + w->wall_offset_ms;
    registry_set_time(w->config.registry, now, w->wall_ms);
}

/* -- answers ---------------------------------------------------------------------- */

static void answer_page(struct web *w, struct web_request *r)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = w->page ? NULL : open_memstream(&text, &size);

    if (out) {
        page_write(out);
        fclose(out);
        w->page = evbuffer_new();
        evbuffer_add(w->page, text, size);
        free(text);
    }
    web_answer_buffer(r->http, WEB_TYPE_HTML, w->page);
}

static bool has_several_jobs(const struct web *w, const struct web_viewer *viewer)
{
    const struct job *job = web_next_job(registry_jobs(w->config.registry), viewer);

    return w->config.standalone || (job && web_next_job(job->next, viewer));
}

/* What the page must know beside its object. */
static void answer_viewer(struct web *w, struct web_request *r)
{
    cJSON *o = cJSON_CreateObject();
    struct evbuffer *text;

    web_look(w);
    cJSON_AddStringToObject(o, "version", CRUN_VERSION);
    cJSON_AddNumberToObject(o, "now_ms", (double)w->wall_ms);
    cJSON_AddItemToObject(o, "server",
                          *w->config.endpoint ? cJSON_CreateString(w->config.endpoint)
                                              : cJSON_CreateNull());
    cJSON_AddBoolToObject(o, "sees_output", r->sees_output);
    cJSON_AddBoolToObject(o, "has_list", has_several_jobs(w, &r->viewer));
    text = web_line(text_printable_json(cJSON_PrintUnformatted(o)));
    web_answer_buffer(r->http, WEB_TYPE_JSON, text);
    evbuffer_free(text);
    cJSON_Delete(o);
}

static void answer_readiness(struct web *w, struct web_request *r)
{
    const struct job *job = registry_jobs(w->config.registry);

    if (w->config.standalone || (job && job->membership.state == JOB_RUNNING))
        web_answer_line(r->http, HTTP_OK, "ready");
    else
        web_answer_line(r->http, HTTP_SERVUNAVAIL, "the job does not run");
}

void web_pages_answer(struct web *w, struct web_request *r)
{
    const struct job *job = web_find_job(w, &r->viewer, r->route.run_id);
    const char *leader;

    if (r->route.page != WEB_HEALTH && r->route.page != WEB_METRICS &&
        w->config.stands_by(w->config.arg, &leader)) {
        web_answer_line(r->http, HTTP_SERVUNAVAIL,
                        leader ? "this rendezvous stands by: ask the page of %s"
                               : "this rendezvous stands by%s",
                        leader ? leader : "");
        return;
    }

    if (*r->route.run_id && !job &&
        !registry_has_past_job(w->config.registry, r->route.run_id, &r->viewer.owner)) {
        web_answer_line(r->http, HTTP_NOTFOUND, "there is no job \"%s\" here",
                        r->route.run_id);
        return;
    }
    switch (r->route.page) {
    case WEB_NOTHING:
        web_answer_line(r->http, HTTP_NOTFOUND, "there is no such page");
        break;
    case WEB_READY:
        answer_readiness(w, r);
        break;
    case WEB_HEALTH:
        web_answer_line(r->http, HTTP_OK, "alive");
        break;
    case WEB_PAGE:
        answer_page(w, r);
        break;
    case WEB_API_VIEWER:
        answer_viewer(w, r);
        break;
    case WEB_API_LIVE:
        web_live_begin(w, r, job);
        break;
    case WEB_API_LOGS:
    case WEB_API_STACKS:
        web_rank_begin(w, r, job);
        break;
    default:
        web_object_answer(w, r, job);
        break;
    }
}

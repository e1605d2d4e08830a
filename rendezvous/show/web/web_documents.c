/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/web/web_documents.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

/* -- one of them ------------------------------------------------------------------ */

struct web_document *web_document_create(const char *key, char *text, size_t size)
{
    struct web_document *d = xcalloc(1, sizeof(*d) + strlen(key) + 1);

    strcpy(d->key, key);
    d->text = text;
    d->size = size;
    d->users = 1;
    return d;
}

void web_document_release(struct web_document *d)
{
    if (!d || --d->users > 0)
        return;
    free(d->text);
    free(d);
}

static void on_text_sent(const void *text, size_t size, void *arg)
{
    web_document_release(arg);
}

void web_document_add_to(struct web_document *d, struct evbuffer *buffer)
{
    if (d->size == 0)
        return;
    d->users++;
    if (evbuffer_add_reference(buffer, d->text, d->size, on_text_sent, d) < 0)
        d->users--;
}

/* -- all of them ------------------------------------------------------------------ */

void web_documents_init(struct web_documents *s, uint64_t now_ms)
{
    *s = (struct web_documents){ .budget_us = WEB_RENDER_BURST_US,
                                 .budget_at_ms = now_ms };
}

void web_documents_fini(struct web_documents *s)
{
    for (unsigned i = 0; i < WEB_SHARED_MAX; i++)
        web_document_release(s->document[i]);
}

struct web_document *web_documents_find(const struct web_documents *s, const char *key,
                                        uint64_t now_ms)
{
    for (unsigned i = 0; i < WEB_SHARED_MAX; i++)
        if (s->document[i] && s->document[i]->until_ms > now_ms &&
            strcmp(s->document[i]->key, key) == 0)
            return s->document[i];
    return NULL;
}

struct web_document *web_documents_add(struct web_documents *s, const char *key,
                                       char *text, size_t size, uint64_t now_ms)
{
    struct web_document **at = &s->document[s->next++ % WEB_SHARED_MAX];

    web_document_release(*at);
    *at = web_document_create(key, text, size);
    (*at)->until_ms = now_ms + WEB_SHARED_MS;
    return *at;
}

/* -- what rendering costs --------------------------------------------------------- */

bool web_budget_allows(struct web_documents *s, uint64_t now_ms)
{
    s->budget_us += (int64_t)(now_ms - s->budget_at_ms) * 10 * WEB_RENDER_PERCENT;
    s->budget_at_ms = now_ms;
    if (s->budget_us > WEB_RENDER_BURST_US)
        s->budget_us = WEB_RENDER_BURST_US;
    return s->budget_us > 0;
}

void web_budget_spend(struct web_documents *s, uint64_t us)
{
    s->budget_us -= (int64_t)us;
}

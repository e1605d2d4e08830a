/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_WEB_WEB_DOCUMENTS_H
#define RENDEZVOUS_SHOW_WEB_WEB_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/show/web/limits.h"

struct evbuffer;

/*
 * Texts that several connections send at the same time, and that count for all viewers
 * of the same sight for a moment. A text is kept until its last reader has it.
 */
struct web_document {
    unsigned users;
    char *text;
    size_t size;
    uint64_t until_ms;
    char key[];
};

/* Takes over the text. It has one user. */
struct web_document *web_document_create(const char *key, char *text, size_t size);
void web_document_release(struct web_document *d); /* NULL is fine */
/* Without a copy: the buffer is one more user. */
void web_document_add_to(struct web_document *d, struct evbuffer *buffer);

struct web_documents {
    struct web_document *document[WEB_SHARED_MAX];
    unsigned next;
    /* what rendering may still cost now: see limits.h */
    int64_t budget_us;
    uint64_t budget_at_ms;
};

void web_documents_init(struct web_documents *s, uint64_t now_ms);
void web_documents_fini(struct web_documents *s);
/* NULL: there is none that still counts. Not to be released. */
struct web_document *web_documents_find(const struct web_documents *s, const char *key,
                                        uint64_t now_ms);
/* It counts from now on. Takes over the text. Not to be released. */
struct web_document *web_documents_add(struct web_documents *s, const char *key,
                                       char *text, size_t size, uint64_t now_ms);

/* Whether something may be rendered now, and what it has cost. */
bool web_budget_allows(struct web_documents *s, uint64_t now_ms);
void web_budget_spend(struct web_documents *s, uint64_t us);

#endif

/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_PAGE_PAGE_ASSETS_H
#define RENDEZVOUS_SHOW_PAGE_PAGE_ASSETS_H

#include <stddef.h>

/* page.css and page.js as they are in this folder. They contain no "</". */
struct page_asset {
    const char *text;
    size_t size;
};

struct page_asset page_style(void);
struct page_asset page_script(void);

/* The Content-Security-Policy of a report: the style alone. */
const char *page_report_policy(void);

#endif

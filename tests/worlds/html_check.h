/* SPDX-License-Identifier: MIT */
#ifndef TESTS_WORLDS_HTML_CHECK_H
#define TESTS_WORLDS_HTML_CHECK_H

/*
 * Whether HTML is as the page promises: each element is closed in order, each attribute
 * is quoted, entities are known, ids are unique, texts are UTF-8, links lead to nowhere
 * else, and there is no script but that of the page: no "on..." and no "style"
 * attribute. Returns NULL, or what is wrong; *at is then the place.
 */
const char *html_check_document(const char *html, const char **at);

/* The same for one element with this id, which has no script in it. */
const char *html_check_element(const char *html, const char *id, const char **at);

#endif

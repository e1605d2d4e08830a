/* SPDX-License-Identifier: MIT */
/*
 * key_file_parse and key_identity_parse, with what a file may have or a peer may send.
 * A key that is read reads the same when it is written, what it derives stays within
 * what it allows, its identity is one, and a message names no secret.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_file.h"

#define FUZZED_KEYS_MAX 4

static void check_key(int holds)
{
    if (!holds)
        abort();
}

static void check_written(const struct key *k)
{
    char text[KEY_TEXT_SIZE];
    struct key again;
    struct err e;

    key_format(k, text);
    check_key(key_parse(text, strlen(text) - 1, &again, &e) == 0);
    check_key(strcmp(again.id, k->id) == 0 && again.access == k->access &&
              again.expires == k->expires &&
              memcmp(again.secret, k->secret, sizeof(k->secret)) == 0);
}

static void check_identity(const struct key *k)
{
    struct key_identity identity;
    char date[KEY_DATE_SIZE];
    struct tls_psk psk;

    key_psk(k, &psk);
    check_key(key_identity_parse(psk.identity, &identity));
    check_key(strcmp(identity.id, k->id) == 0 && identity.access == k->access &&
              identity.expires == k->expires);
    check_key(strlen(key_format_date(k->expires, date)) < sizeof(date));
}

static void check_derived(const struct key *k)
{
    struct key less;
    struct err e;

    for (int access = ACCESS_VIEW; access <= ACCESS_AGENT; access++)
        if (key_derive(k, (enum access)access, k->expires, &less, &e) == 0)
            check_key((int)less.access <= (int)k->access && less.expires == k->expires);
    if (k->expires)
        check_key(key_derive(k, ACCESS_VIEW, 0, &less, &e) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct key keys[FUZZED_KEYS_MAX];
    struct key_identity identity;
    char *text = xmalloc(size + 1);
    struct err e = { .text = "" };
    int count;

    memcpy(text, data, size);
    text[size] = '\0';
    (void)key_identity_parse(text, &identity);
    text = xrealloc(text, size ? size : 1); /* no NUL behind it, as in a file */
    count = key_file_parse("key", text, size, keys, FUZZED_KEYS_MAX, &e);
    check_key(count == -1 || (count > 0 && count <= FUZZED_KEYS_MAX));
    check_key((count == -1) == (*e.text != '\0') || count > 0);
    for (int i = 0; i < count; i++) {
        check_written(&keys[i]);
        check_identity(&keys[i]);
        check_derived(&keys[i]);
    }
    free(text);
    return 0;
}

/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_internal.h"

#include "rendezvous/common/security/key.h"
#include "rendezvous/common/security/key_memory.h"

int remote_make_key(struct remote *r, struct err *e)
{
    struct key *key = key_memory_create(sizeof(*key), e);

    r->key = key ? key_memory_create(KEY_TEXT_SIZE, e) : NULL;
    if (!r->key) {
        key_memory_destroy(key, sizeof(*key));
        return -1;
    }
    key_generate(0, key);
    key_format(key, r->key);
    key_memory_destroy(key, sizeof(*key));
    return 0;
}

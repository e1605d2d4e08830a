/* SPDX-License-Identifier: MIT */
#include "agent/hosting/store_token.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/security/key_memory.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/wire/protocol/limits.h"

/* The key of that id, or the first one, whose id is filled in. */
static int derive_token(const struct store_epoch *of, char key_id[KEY_ID_SIZE],
                        uint8_t secret[TLS_SECRET_BYTES], struct err *e)
{
    uint8_t context[sizeof(of->instance.byte) + 8];

    memcpy(context, of->instance.byte, sizeof(of->instance.byte));
    for (unsigned i = 0; i < 8; i++)
        context[sizeof(of->instance.byte) + i] = (uint8_t)(of->epoch >> (8 * i));
    return key_ring_derive(of->keys, key_id, "crun store", context, sizeof(context),
                           secret, e);
}

int store_token_make(const struct store_epoch *of, struct tls_psk *psk, struct err *e)
{
    char key_id[KEY_ID_SIZE] = "";

    if (derive_token(of, key_id, psk->secret, e) < 0)
        return -1;
    snprintf(psk->identity, sizeof(psk->identity), STORE_IDENTITY "%" PRIx64 ":%s",
             of->epoch, key_id);
    return 0;
}

void store_token_begin(struct store_epoch *of)
{
    struct err e;

    of->known = key_memory_create(STORE_KEYS_KEPT * sizeof(*of->known), &e);
    if (of->known && store_token_make(of, &of->known[0], &e) == 0)
        of->kept = 1;
}

void store_token_wipe(struct store_epoch *of)
{
    of->kept = 0;
    key_memory_destroy(of->known, STORE_KEYS_KEPT * sizeof(*of->known));
    of->known = NULL;
}

bool store_token_find(void *of, const char *identity, uint8_t secret[TLS_SECRET_BYTES])
{
    struct store_epoch *epoch = of;
    char prefix[64], key_id[KEY_ID_SIZE];
    size_t size;
    struct err e;

    for (unsigned i = 0; i < epoch->kept; i++)
        if (strcmp(epoch->known[i].identity, identity) == 0) {
            memcpy(secret, epoch->known[i].secret, TLS_SECRET_BYTES);
            return true;
        }
    size = (size_t)snprintf(prefix, sizeof(prefix), STORE_IDENTITY "%" PRIx64 ":",
                            epoch->epoch);
    if (strncmp(identity, prefix, size) != 0 ||
        strlen(identity + size) != sizeof(key_id) - 1)
        return false;
    memcpy(key_id, identity + size, sizeof(key_id));
    if (derive_token(epoch, key_id, secret, &e) < 0)
        return false;
    if (epoch->known && epoch->kept < STORE_KEYS_KEPT) {
        struct tls_psk *kept = &epoch->known[epoch->kept++];

        snprintf(kept->identity, sizeof(kept->identity), "%s", identity);
        memcpy(kept->secret, secret, TLS_SECRET_BYTES);
    }
    return true;
}

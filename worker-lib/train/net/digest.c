/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/net/digest.h"

#include <openssl/evp.h>
#include <stdio.h>

static bool add_parameters(EVP_MD_CTX *context, const struct net *n)
{
    for (unsigned i = 0; i < net_parameters(n); i++) {
        const struct parameter *p = net_parameter(n, i);

        if (!EVP_DigestUpdate(context, p->value, p->count * sizeof(*p->value)))
            return false;
    }
    return true;
}

int digest_parameters(const struct net *n, char text[DIGEST_TEXT_SIZE])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    bool ok = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) &&
              add_parameters(context, n) &&
              EVP_DigestFinal_ex(context, digest, &size) &&
              2 * size + 1 == DIGEST_TEXT_SIZE;

    EVP_MD_CTX_free(context);
    for (unsigned i = 0; ok && i < size; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return ok ? 0 : -1;
}

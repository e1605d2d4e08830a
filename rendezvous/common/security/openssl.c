/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/openssl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/common/security/tls.h"

#define OPENSSL_NEEDED "keys need OpenSSL 1.1.1 or later"

struct openssl openssl;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

static int openssl_find(struct openssl *o, void *library, const char *name,
                        struct err *e)
{
    static const struct {
        const char *name;
        size_t at;
    } functions[] = {
#define OPENSSL_ROW(function) { #function, offsetof(struct openssl, function) },
        OPENSSL_FUNCTIONS(OPENSSL_ROW)
#undef OPENSSL_ROW
    };

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = dlsym(library, functions[i].name);

        if (!function)
            return err_set(e, "%s is too old (it has no %s): " OPENSSL_NEEDED, name,
                           functions[i].name);
        memcpy((char *)o + functions[i].at, &function, sizeof(function));
    }
    return 0;
}

int openssl_open(struct openssl *o, const char *const *libraries, struct err *e)
{
    void *library = NULL;
    const char *name = *libraries, *text;
    char why[256] = "";

    for (; !library && *libraries; libraries++) {
        name = *libraries;
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        text = dlerror();
        if (!library && !why[0])
            snprintf(why, sizeof(why), "%s", text ? text : "no reason given");
    }
    if (!library)
        return err_set(e,
                       "cannot load OpenSSL (%s): " OPENSSL_NEEDED
                       ", Debian's package is libssl3",
                       why);
    return openssl_find(o, library, name, e);
}

static int openssl_load(struct err *e)
{
    static const char *const libraries[] = { "libssl.so.3", "libssl.so.4",
                                             "libssl.so.1.1", NULL };
    /* no configuration of the machine changes what is spoken */
    const uint64_t options = OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT;

    if (openssl_open(&openssl, libraries, e) < 0)
        return -1;
    if (openssl.OPENSSL_init_ssl(options, NULL) != 1)
        return err_set(e, "OpenSSL cannot start: %s", openssl_reason("no memory"));
    return 0;
}

int tls_load(struct err *e)
{
    int rc;

    pthread_mutex_lock(&lock);
    loaded = loaded || openssl_load(e) == 0;
    rc = loaded ? 0 : -1;
    pthread_mutex_unlock(&lock);
    return rc;
}

const char *openssl_reason(const char *otherwise)
{
    unsigned long code = openssl.ERR_peek_error();
    const char *text = code ? openssl.ERR_reason_error_string(code) : NULL;

    return text ? text : otherwise;
}

/* SPDX-License-Identifier: MIT */
/*
 * A list of hosts as a host file has it, up to a NUL: it is refused in one line, or its
 * names are fit for the command line of ssh, none is there twice, and slots are within
 * their limits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/hosts/hosts.h"
#include "rendezvous/common/base/xalloc.h"

static void check_hosts(bool holds)
{
    if (!holds)
        abort();
}

static void check_refused(const struct err *e)
{
    check_hosts(memchr(e->text, '\0', sizeof(e->text)) && *e->text);
}

static void check_host(const struct host *host)
{
    check_hosts(*host->name && *host->name != '-');
    check_hosts(strcspn(host->name, " \t\r\n,=#[]/;&|$`'\"<>()*?~!") ==
                strlen(host->name));
    check_hosts(host->slots <= HOSTS_SLOTS_MAX);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void check_all(const struct hosts *h)
{
    char **name = xcalloc(h->count + 1, sizeof(*name));

    for (size_t i = 0; i < h->count; i++) {
        check_host(&h->host[i]);
        name[i] = h->host[i].name;
    }
    qsort(name, h->count, sizeof(*name), compare_texts);
    for (size_t i = 1; i < h->count; i++)
        check_hosts(strcmp(name[i - 1], name[i]) != 0);
    free(name);
}

static void share_workers(struct hosts *h, uint32_t total)
{
    uint64_t sum = 0;
    struct err e;

    if (hosts_share_workers(h, total, 0, &e) < 0) {
        check_refused(&e);
        return;
    }
    for (size_t i = 0; i < h->count; i++)
        sum += h->host[i].slots;
    check_hosts(total == 0 || sum == total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hosts h = { .count = 0 };
    char *text;
    struct err e;

    if (size > 4096)
        return 0;
    text = xcalloc(size + 2, 1);
    memcpy(text, data, size);
    if (hosts_parse(text, size % 2 ? "file:" : "--hosts", &h, &e) < 0) {
        check_refused(&e);
        check_hosts(h.count == 0);
    } else if (h.count) {
        check_all(&h);
        share_workers(&h, (uint32_t)size);
    }
    hosts_clear(&h);
    free(text);
    return 0;
}

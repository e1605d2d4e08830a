/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/host_watch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"

#define WATCH_TICK_MS 500

/* What tells two versions of a file apart. */
struct file_version {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct host_watch {
    const struct hosts_wanted *wanted;
    struct host_watch_calls calls;
    struct loop_timer tick;
    struct file_version read, seen;
    char *known; /* the list that was reported last */
    bool has_failed;
};

static struct file_version find_version(const char *path)
{
    struct file_version v;
    struct stat st;

    memset(&v, 0, sizeof(v)); /* versions are compared as bytes */
    if (stat(path, &st) < 0)
        return v;
    v.device = st.st_dev;
    v.inode = st.st_ino;
    v.size = st.st_size;
    v.changed.tv_sec = st.st_mtim.tv_sec;
    v.changed.tv_nsec = st.st_mtim.tv_nsec;
    return v;
}

static bool is_same_version(const struct file_version *a, const struct file_version *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* A text that is equal for equal lists; the order counts too. */
static char *print_hosts(const struct hosts *h)
{
    size_t size = 1;
    char *text, *out;

    for (size_t i = 0; i < h->count; i++)
        size += strlen(h->host[i].name) + 1;
    out = text = xmalloc(size);
    for (size_t i = 0; i < h->count; i++)
        out = stpcpy(stpcpy(out, h->host[i].name), "\n");
    *out = '\0';
    return text;
}

static void report_hosts(struct host_watch *watch)
{
    struct hosts h = { .count = 0 };
    struct err e;
    char *text;

    if (hosts_read(watch->wanted, &h, &e) < 0) {
        if (!watch->has_failed)
            watch->calls.failed(watch->calls.arg, e.text);
        watch->has_failed = true;
    } else {
        watch->has_failed = false;
        text = print_hosts(&h);
        if (strcmp(text, watch->known) != 0) {
            free(watch->known);
            watch->known = xstrdup(text);
            watch->calls.changed(watch->calls.arg, &h);
        }
        free(text);
    }
    hosts_clear(&h);
}

/* A file is read once it has not changed for a tick, so that no half of it is. */
static void check_file(struct host_watch *watch)
{
    struct file_version now = find_version(watch->wanted->file);

    if (is_same_version(&now, &watch->seen) && !is_same_version(&now, &watch->read)) {
        watch->read = now;
        report_hosts(watch);
    }
    watch->seen = now;
}

static void on_watch_tick(void *arg)
{
    struct host_watch *watch = arg;

    loop_timer_arm(&watch->tick, clock_ms() + WATCH_TICK_MS);
    check_file(watch);
}

struct host_watch *host_watch_create(struct loop *loop, const struct hosts_wanted *w,
                                     const struct hosts *now,
                                     const struct host_watch_calls *calls)
{
    struct host_watch *watch;

    if (!w->file || strcmp(w->file, "-") == 0 || strcmp(w->file, "auto") == 0)
        return NULL;
    watch = xcalloc(1, sizeof(*watch));
    watch->wanted = w;
    watch->calls = *calls;
    watch->known = print_hosts(now);
    /* it may have changed since it was read: it is read again */
    watch->seen = find_version(w->file);
    loop_timer_init(&watch->tick, loop, on_watch_tick, watch);
    loop_timer_arm(&watch->tick, clock_ms() + WATCH_TICK_MS);
    return watch;
}

void host_watch_destroy(struct host_watch *watch)
{
    if (!watch)
        return;
    loop_timer_fini(&watch->tick);
    free(watch->known);
    free(watch);
}

void host_watch_reload(struct host_watch *watch)
{
    watch->read = watch->seen = find_version(watch->wanted->file);
    *watch->known = '\0';
    report_hosts(watch);
}

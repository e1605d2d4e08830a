/* SPDX-License-Identifier: MIT */
#include "tests/worlds/written.h"

#include <check.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/logs/log_writer.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"

static struct loop *loop;
static struct log_writer *writer;
static int fd;
static char text[8 << 20];

static void on_news(void *arg)
{
}

struct outlet *written_begin(void)
{
    struct log_writer_calls calls = { .news = on_news };
    struct outlet_options options = { .queue_max = sizeof(text), .name = "test" };

    fd = options.fd = memfd_create("written", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    loop = loop_create();
    writer = log_writer_create(loop, &calls);
    return outlet_create(writer, &options);
}

const char *written_end(void)
{
    ssize_t n;

    log_writer_destroy(writer, clock_ms() + 60000);
    loop_destroy(loop);
    n = pread(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    close(fd);
    return text;
}

/* SPDX-License-Identifier: MIT */
/*
 * The last output of a worker that failed: failure_origin_read. The first two bytes say
 * how it ended, and what is known beside its output.
 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/workers/failure_origin.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define ENDED_MS 100000

static void check_origin(int holds)
{
    if (!holds)
        abort();
}

/* The whole must be printable: it is shown to users as it is. */
static void check_error(const struct failure *f)
{
    size_t length = strnlen(f->error, sizeof(f->error)), n;

    check_origin(length < sizeof(f->error));
    for (const char *at = f->error; *at; at += n) {
        n = text_printable_size(at, (size_t)(f->error + length - at));
        check_origin(n > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int32_t codes[] = { 1, 128 + SIGPIPE, SIGABRT, SIGPIPE };
    struct failure f = { .rank = 1, .at_ms = ENDED_MS };
    struct failure_output output;
    char *text;

    if (size < 2)
        return 0;
    text = xmalloc(size - 1);
    memcpy(text, data + 2, size - 2);
    text[size - 2] = '\0';
    f.kind = data[0] & 1 ? FAILURE_SIGNAL : FAILURE_EXIT;
    f.code = codes[data[0] >> 1 & 3];
    output = (struct failure_output){ .text = text,
                                      .summary = data[1] & 1 ? strchr(text, '\n')
                                                             : NULL,
                                      .written_ms = data[1] & 2 ? ENDED_MS : 0,
                                      .traceback_ms = data[1] & 4 ? ENDED_MS - 10 : 0 };
    failure_origin_read(&f, &output);
    check_error(&f);
    check_origin(f.origin < FAILURE_ORIGIN_COUNT && f.at_ms <= ENDED_MS);
    free(text);
    return 0;
}

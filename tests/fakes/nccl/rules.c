/* SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakes/cuda/fault.h"
#include "tests/fakes/nccl/standin.h"

/* The last one may be read while another thread writes the next ones. */
#define WARNINGS 64
static char warnings[WARNINGS][256];
static _Atomic unsigned written;
static _Atomic(const char *) last_warning = "";

int standin_version(void)
{
    return standin_number("CRUN_STANDIN_VERSION", STANDIN_VERSION);
}

void standin_warn(const char *format, ...)
{
    char *warning = warnings[atomic_fetch_add(&written, 1) % WARNINGS];
    va_list args;

    va_start(args, format);
    vsnprintf(warning, sizeof(warnings[0]), format, args);
    va_end(args);
    atomic_store(&last_warning, warning);
}

const char *standin_last_warning(void)
{
    return atomic_load(&last_warning);
}

void standin_refuse(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("nccl-standin: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

bool rule_message_returns_early(int version)
{
    return version < 22403;
}

bool rule_window_returns_early(int version)
{
    return version >= 22803;
}

bool rule_versions_compared(int version)
{
    return version >= 22304;
}

bool rule_gpus_compared_by_uuid(int version)
{
    return version >= 23003;
}

bool rule_connects_lazily(int version)
{
    return version >= 22203;
}

bool rule_has_windows(int version)
{
    return version >= 22703;
}

bool rule_window_needs_one_node(int version)
{
    return version >= 22902;
}

bool rule_symmetric_is_deaf(int version)
{
    return version < 22907;
}

bool rule_has_revoke(int version)
{
    return version >= 22807;
}

bool rule_has_copy_engines(int version)
{
    return version >= 22902;
}

bool rule_null_handle_refused(int version)
{
    return version < 22304;
}

/* SPDX-License-Identifier: MIT */
/*
 * What a worker has written where faulthandler writes its stacks: python_stack_parse.
 * If there is a stack in it, there is a brief of it, which never is too long.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/progress/python_stack.h"
#include "rendezvous/common/base/xalloc.h"

static struct python_stack stack;

static void check_stack(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = size ? xmemdup(data, size) : NULL; /* a read behind it is seen */
    bool found;

    memset(&stack, 0xff, sizeof(stack));
    found = python_stack_parse(bytes, size, &stack);
    if (found)
        python_stack_add_children(bytes, size, &stack);
    check_stack(strnlen(stack.brief, sizeof(stack.brief)) < sizeof(stack.brief));
    check_stack(strnlen(stack.threads, sizeof(stack.threads)) < sizeof(stack.threads));
    check_stack(found == (*stack.threads != '\0'));
    check_stack(found || !*stack.brief);
    check_stack(found || !stack.waits);
    free(bytes);
    return 0;
}

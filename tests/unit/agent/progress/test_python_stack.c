/* SPDX-License-Identifier: MIT */
/* What is made of faulthandler's text: the line of the program, who waits, bad bytes.
 */
#include "agent/progress/python_stack.h"

#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

#define LIB "/usr/lib/python3.11/"
#define SITE LIB "site-packages/"
#define FRAME(file, line, function)                                                    \
    "  File \"" file "\", line " line " in " function "\n"
#define CURRENT "Current thread 0x00007f11 (most recent call first):\n"
#define THREAD "Thread 0x00007f22 [name] (most recent call first):\n"
#define TRAIN FRAME("/home/u/train.py", "91", "backward")
#define MODULE FRAME("/home/u/train.py", "130", "<module>")

static struct python_stack stack;

static bool parse(const char *text)
{
    return python_stack_parse(text, strlen(text), &stack);
}

static const struct {
    const char *dump, *brief;
    bool waits;
} dumps[] = {
    { CURRENT FRAME("/home/u/data.py", "40", "load_image") MODULE,
      "load_image (data.py:40)", false },
    { CURRENT MODULE, "train.py:130", false },
    { CURRENT FRAME(SITE "torch/distributed/distributed_c10d.py", "2806", "all_reduce")
          FRAME(SITE "torch/distributed/c10d_logger.py", "81", "wrapper") TRAIN MODULE,
      "all_reduce (train.py:91, in backward)", true },
    { CURRENT FRAME(SITE "torch/distributed/distributed_c10d.py", "2806", "barrier")
          FRAME(SITE "torch/distributed/c10d_logger.py", "81", "wrapper") MODULE,
      "barrier (train.py:130)", true },
    { CURRENT FRAME(SITE "torch/autograd/graph.py", "824", "_engine_run_backward")
          FRAME(SITE "torch/autograd/__init__.py", "347", "backward")
              FRAME(SITE "torch/_tensor.py", "581", "backward") TRAIN,
      "backward (train.py:91, in backward)", true },
    { CURRENT FRAME(SITE "jax/_src/array.py", "631", "_value")
          FRAME(SITE "jax/_src/array.py", "294", "__float__") TRAIN,
      "__float__ (train.py:91, in backward)", true },
    { CURRENT FRAME(SITE "jax/_src/distributed.py", "199", "shutdown")
          FRAME(SITE "jax/_src/api.py", "2582", "clean_up"),
      "JAX's clean-up after the program's exit (distributed.py:199)", false },
    { CURRENT FRAME(LIB "threading.py", "331", "wait")
          FRAME(SITE "torch/utils/data/dataloader.py", "1480", "_try_get_data")
              FRAME(SITE "torch/utils/data/dataloader.py", "700", "__next__") TRAIN,
      "the data loader (train.py:91, in backward)", false },
    /* the program's own code that a library calls does not wait */
    { CURRENT FRAME("/home/u/hook.py", "7", "hook") FRAME(
          SITE "torch/distributed/distributed_c10d.py", "2806", "all_reduce") TRAIN,
      "hook (hook.py:7)", false },
    { CURRENT FRAME(LIB "socket.py", "706", "readinto") TRAIN,
      "readinto (train.py:91, in backward)", false },
    { CURRENT FRAME(SITE "tool/run.py", "7", "main"), "main (run.py:7)", false },
    { CURRENT "  <no Python frame>\n", "no Python function", false },
    /* the main thread is the oldest one, which comes last */
    { CURRENT FRAME("/home/u/b.py", "2", "update_b")
          FRAME(LIB "threading.py", "982", "run") "\n" THREAD FRAME("/home/u/a.py", "1",
                                                                    "update_a"),
      "update_a (a.py:1), a thread in update_b (b.py:2)", false },
    /* unless there are too many */
    { THREAD FRAME(LIB "queue.py", "2", "get") "\n" CURRENT FRAME(
          "/home/u/a.py", "1", "update_a") "\n" THREAD FRAME("/home/u/c.py", "3",
                                                             "other") "...\n",
      "update_a (a.py:1), a thread in other (c.py:3)", false },
    /* a quote in the name of a file, and no number */
    { CURRENT FRAME("/a\", line 5 in b/x.py", "12", "f"), "f (x.py:12)", false },
    { CURRENT FRAME("x.py", "???", "f"), "no Python function", false },
};

TEST_LOOP(what_matters_is_found, 0, sizeof(dumps) / sizeof(*dumps))
{
    ck_assert(parse(dumps[_i].dump));
    ck_assert_str_eq(stack.brief, dumps[_i].brief);
    ck_assert_int_eq(stack.waits, dumps[_i].waits);
}

TEST(all_threads_are_shown_the_main_one_first)
{
    ck_assert(parse(THREAD FRAME(LIB "queue.py", "171", "get")
                        FRAME(LIB "threading.py", "982", "run") "\n" CURRENT FRAME(
                            SITE "torch/x.py", "3", "f") MODULE));
    ck_assert_str_eq(stack.threads, "main thread\n"
                                    "  f (torch/x.py:3)\n"
                                    "  <module> (/home/u/train.py:130)\n"
                                    "thread\n"
                                    "  get (queue.py:171)\n");
}

/* faulthandler writes up to 100 threads of up to 100 frames, and the main thread last.
 */
TEST(the_main_thread_is_found_behind_many_deep_ones)
{
    char *dump = malloc(1 << 20), *at = dump;

    for (int thread = 0; thread < 60; thread++) {
        at = stpcpy(at, THREAD);
        for (int frame = 0; frame < 90; frame++)
            at = stpcpy(at, FRAME(LIB "queue.py", "171", "get"));
    }
    stpcpy(stpcpy(at, CURRENT), TRAIN);
    ck_assert(parse(dump));
    ck_assert_str_eq(stack.brief, "backward (train.py:91)");
    free(dump);
}

TEST(no_stack_is_none)
{
    ck_assert(!parse(""));
    ck_assert(!parse("\n\n"));
    ck_assert(!parse(TRAIN));
    ck_assert(!parse("Fatal Python error: no\n"));
}

/* Whatever is cut off or changed, what is made of it ends with a NUL. */
TEST(any_bytes_are_read)
{
    static const char dump[] = CURRENT TRAIN MODULE "\n" THREAD TRAIN;
    char bytes[sizeof(dump)], *large = malloc(1 << 20);

    for (size_t cut = 0; cut < sizeof(dump); cut++)
        for (int change = 0; change < 256; change += 15) {
            memcpy(bytes, dump, sizeof(dump));
            bytes[cut] = (char)change;
            python_stack_parse(bytes, sizeof(bytes), &stack);
            python_stack_parse(bytes, cut, &stack);
        }
    for (size_t i = 0; i + sizeof(TRAIN) < 1 << 20; i += sizeof(TRAIN) - 1)
        memcpy(large + i, i ? TRAIN : CURRENT, sizeof(TRAIN) - 1);
    python_stack_parse(large, (1 << 20) - sizeof(TRAIN), &stack);
    ck_assert_uint_lt(strlen(stack.threads), sizeof(stack.threads));
    memset(large, 'x', 1 << 20);
    ck_assert(!python_stack_parse(large, 1 << 20, &stack));
    free(large);
}

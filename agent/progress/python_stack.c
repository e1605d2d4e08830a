/* SPDX-License-Identifier: MIT */
#include "agent/progress/python_stack.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/stacks/stack_groups.h"

#define THREADS_MAX 100                /* faulthandler writes no more */
#define FRAMES_MAX (100 * THREADS_MAX) /* and of a thread no more than 100 */
#define FRAMES_SHOWN 40                /* of a thread */
#define THREADS_IN_BRIEF 2

/* A piece of the bytes. */
struct piece {
    const char *at;
    int length;
};

struct python_frame {
    struct piece file, function;
    int line;
};

/* Innermost frame first. */
struct python_thread {
    bool is_current;
    unsigned first, count;
};

struct python_threads {
    struct python_thread thread[THREADS_MAX];
    unsigned threads, frames;
    bool cut; /* there are more threads */
    struct python_frame frame[FRAMES_MAX];
};

/* -- reading -------------------------------------------------------------------- */

static bool piece_starts(struct piece p, const char *text)
{
    return (size_t)p.length >= strlen(text) && memcmp(p.at, text, strlen(text)) == 0;
}

static bool piece_ends(struct piece p, const char *text)
{
    size_t length = strlen(text);

    return (size_t)p.length >= length &&
           memcmp(p.at + p.length - length, text, length) == 0;
}

/* Behind the last occurrence of text, or NULL. */
static const char *piece_after_last(struct piece p, const char *text)
{
    size_t length = strlen(text);

    for (int i = p.length - (int)length; i >= 0; i--)
        if (memcmp(p.at + i, text, length) == 0)
            return p.at + i + length;
    return NULL;
}

/* `  File "train.py", line 91 in backward` */
static bool parse_frame(struct piece line, struct python_frame *f)
{
    static const char begin[] = "  File \"", middle[] = "\", line ";
    const char *end = line.at + line.length, *at;
    int number = 0;

    if (!piece_starts(line, begin) || !(at = piece_after_last(line, middle)))
        return false;
    f->file.at = line.at + sizeof(begin) - 1;
    f->file.length = (int)(at - (sizeof(middle) - 1) - f->file.at);
    if (f->file.length < 0)
        return false;
    for (; at < end && *at >= '0' && *at <= '9' && number < 100000000; at++)
        number = 10 * number + (*at - '0');
    f->line = number;
    if (end - at < 4 || memcmp(at, " in ", 4) != 0)
        return false;
    f->function = (struct piece){ at + 4, (int)(end - at - 4) };
    return true;
}

static void read_stack_line(struct python_threads *t, struct piece line)
{
    bool is_current = piece_starts(line, "Current thread 0x");
    struct python_frame f;

    if (is_current || piece_starts(line, "Thread 0x")) {
        t->cut |= t->threads == THREADS_MAX;
        if (t->threads < THREADS_MAX)
            t->thread[t->threads++] = (struct python_thread){ is_current, t->frames,
                                                              0 };
    } else if (t->threads > 0 && t->frames < FRAMES_MAX && parse_frame(line, &f)) {
        t->frame[t->frames++] = f;
        t->thread[t->threads - 1].count++;
    } else if (piece_starts(line, "...")) {
        t->cut = true;
    }
}

static void read_threads(struct python_threads *t, const char *bytes, size_t size)
{
    t->threads = t->frames = 0;
    t->cut = false;
    while (size > 0) {
        const char *newline = memchr(bytes, '\n', size);
        size_t length = newline ? (size_t)(newline - bytes) : size;

        if (length < 4096)
            read_stack_line(t, (struct piece){ bytes, (int)length });
        length += newline != NULL;
        bytes += length;
        size -= length;
    }
}

/* Python lists the newest thread first, so the main thread is the last one. */
static unsigned find_main_thread(const struct python_threads *t)
{
    for (unsigned i = 0; t->cut && i < t->threads; i++)
        if (t->thread[i].is_current)
            return i;
    return t->threads - 1;
}

/* -- what matters --------------------------------------------------------------- */

/*
 * Functions in which ranks spend their time, outermost first wins: its name is shown.
 * If one of them waits for other ranks, so does the thread.
 */
static const struct known_function {
    const char *file;     /* how it ends, or with a / at its end what it contains */
    const char *function; /* NULL: any */
    const char *shown;    /* NULL: the function's name */
    bool waits;
} known_functions[] = {
    { "torch/distributed/distributed_c10d.py", NULL, NULL, true },
    { "torch/distributed/c10d_logger.py", NULL, NULL, true },
    { "torch/nn/parallel/distributed.py", "forward", "DistributedDataParallel", true },
    { "torch/nn/parallel/distributed.py", NULL, NULL, true },
    { "torch/_tensor.py", "backward", NULL, true },
    { "torch/autograd/__init__.py", NULL, NULL, true },
    { "torch/autograd/graph.py", "_engine_run_backward", "backward", true },
    { "torch/cuda/__init__.py", "synchronize", "cuda.synchronize", true },
    { "torch/cuda/streams.py", "synchronize", "cuda.synchronize", true },
    { "torch/distributed/checkpoint/", NULL, NULL, false },
    { "torch/distributed/elastic/", NULL, NULL, false },
    { "torch/distributed/", NULL, NULL, true },
    { "jax/_src/distributed.py", "initialize", NULL, true },
    { "jax/_src/api.py", "clean_up", "JAX's clean-up after the program's exit", false },
    { "jax/_src/array.py", NULL, NULL, true }, /* for a device, which may wait */
    { "jax/experimental/multihost_utils.py", NULL, NULL, true },
    { "horovod/torch/mpi_ops.py", NULL, NULL, true },
    { "torch/utils/data/dataloader.py", "__next__", "the data loader", false },
    { "torch/serialization.py", "save", "torch.save", false },
    { "torch/serialization.py", "load", "torch.load", false },
};

static bool is_known(const struct known_function *k, const struct python_frame *f)
{
    size_t length = strlen(k->file);

    if (k->function && ((size_t)f->function.length != strlen(k->function) ||
                        memcmp(f->function.at, k->function, strlen(k->function)) != 0))
        return false;
    if (k->file[length - 1] == '/')
        return memmem(f->file.at, (size_t)f->file.length, k->file, length);
    return piece_ends(f->file, k->file);
}

static const struct known_function *find_known(const struct python_frame *f)
{
    for (size_t i = 0; i < sizeof(known_functions) / sizeof(*known_functions); i++)
        if (is_known(&known_functions[i], f))
            return &known_functions[i];
    return NULL;
}

static const char *const library_folders[] = { "/site-packages/", "/dist-packages/" };

/* Where the name within a library begins, or NULL: a file of the program. */
static const char *library_name(struct piece file)
{
    static const char python[] = "/lib/python3.", crun[] = "/crun/python/";
    const char *at;

    for (size_t i = 0; i < sizeof(library_folders) / sizeof(*library_folders); i++)
        if ((at = piece_after_last(file, library_folders[i])))
            return at;
    if ((at = piece_after_last(file, crun)))
        return at;
    if ((at = piece_after_last(file, python)) &&
        (at = memchr(at, '/', (size_t)(file.at + file.length - at))))
        return at + 1;
    return piece_starts(file, "<frozen") ? file.at : NULL;
}

static struct piece base_name(struct piece file)
{
    const char *at = piece_after_last(file, "/");

    return at ? (struct piece){ at, (int)(file.at + file.length - at) } : file;
}

/* The innermost frame of the program itself, an index from `first`; or count. */
static unsigned find_own_frame(const struct python_frame *frame, unsigned count)
{
    unsigned i = 0;

    while (i < count && library_name(frame[i].file))
        i++;
    return i;
}

/* -- writing -------------------------------------------------------------------- */

struct stack_text {
    char *text;
    size_t used, size;
};

static void put_text(struct stack_text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void put_text(struct stack_text *t, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(t->text + t->used, t->size - t->used, fmt, args);
    va_end(args);
    t->used += strlen(t->text + t->used);
}

static bool is_module_level(const struct python_frame *f)
{
    return f->function.length == 8 && memcmp(f->function.at, "<module>", 8) == 0;
}

/* "all_reduce (train.py:91, in backward)". True: it waits for other ranks. */
static bool put_place(struct stack_text *t, const struct python_frame *frame,
                      unsigned count)
{
    unsigned own = find_own_frame(frame, count);
    const struct python_frame *at = &frame[own < count ? own : 0];
    struct piece file = base_name(at->file), shown = frame[0].function;
    bool waits = false, is_named = false;

    for (unsigned i = own; i-- > 0;) {
        const struct known_function *k = find_known(&frame[i]);

        if (!k)
            continue;
        if (!is_named && !piece_ends(frame[i].file, "c10d_logger.py")) {
            shown = k->shown ? (struct piece){ k->shown, (int)strlen(k->shown) }
                             : frame[i].function;
            is_named = true;
        }
        waits |= k->waits;
    }
    if (is_module_level(at) && at == &frame[0])
        put_text(t, "%.*s:%d", file.length, file.at, at->line);
    else
        put_text(t, "%.*s (%.*s:%d", shown.length, shown.at, file.length, file.at,
                 at->line);
    if (at != &frame[0] && !is_module_level(at))
        put_text(t, ", in %.*s", at->function.length, at->function.at);
    if (!is_module_level(at) || at != &frame[0])
        put_text(t, ")");
    return waits;
}

/* A thread's last frames are those with which threading starts it. */
static unsigned count_without_start(const struct python_frame *frame, unsigned count)
{
    while (count > 1 && piece_ends(frame[count - 1].file, "/threading.py"))
        count--;
    return count;
}

static void put_thread(struct stack_text *t, const char *name,
                       const struct python_frame *frame, unsigned count)
{
    count = count_without_start(frame, count);
    put_text(t, "%s\n", name);
    for (unsigned i = 0; i < count && i < FRAMES_SHOWN; i++) {
        struct piece file = frame[i].file;
        const char *in_library = library_name(file);

        if (in_library)
            file = (struct piece){ in_library,
                                   (int)(file.at + file.length - in_library) };
        put_text(t, "  %.*s (%.*s:%d)\n", frame[i].function.length,
                 frame[i].function.at, file.length, file.at, frame[i].line);
    }
    if (count > FRAMES_SHOWN)
        put_text(t, "  and %u more\n", count - FRAMES_SHOWN);
}

/* Bytes that are no characters are replaced when the text is sent; a NUL ends it. */
static void describe_threads(const struct python_threads *t, struct python_stack *s)
{
    struct stack_text brief = { s->brief, 0, sizeof(s->brief) };
    struct stack_text text = { s->threads, 0, sizeof(s->threads) };
    unsigned main = find_main_thread(t), own = 0;
    const struct python_thread *th = &t->thread[main];

    s->waits = th->count && put_place(&brief, &t->frame[th->first], th->count);
    if (!th->count)
        put_text(&brief, STACKS_NO_FUNCTION);
    put_thread(&text, "main thread", &t->frame[th->first], th->count);
    for (unsigned i = t->threads; i-- > 0;) {
        th = &t->thread[i];
        if (i == main || th->count == 0)
            continue;
        put_thread(&text, "thread", &t->frame[th->first], th->count);
        if (find_own_frame(&t->frame[th->first], th->count) < th->count &&
            own++ < THREADS_IN_BRIEF) {
            put_text(&brief, ", a thread in ");
            (void)put_place(&brief, &t->frame[th->first], th->count);
        }
    }
}

bool python_stack_parse(const char *bytes, size_t size, struct python_stack *s)
{
    struct python_threads *t = xmalloc(sizeof(*t));
    bool found;

    memset(s, 0, sizeof(*s));
    read_threads(t, bytes, size);
    found = t->threads > 0;
    if (found)
        describe_threads(t, s);
    free(t);
    return found;
}

/* What a process does since multiprocessing has started it; its other frames are those
 * of its parent at that time. 0: it is none. */
static unsigned count_of_child(const struct python_frame *frame, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (piece_ends(frame[i].file, "/multiprocessing/process.py"))
            return i;
    return 0;
}

void python_stack_add_children(const char *bytes, size_t size, struct python_stack *s)
{
    struct python_threads *t = xmalloc(sizeof(*t));
    struct stack_text brief = { s->brief, strlen(s->brief), sizeof(s->brief) };
    struct stack_text text = { s->threads, strlen(s->threads), sizeof(s->threads) };
    unsigned shown = 0;

    read_threads(t, bytes, size);
    for (unsigned i = 0; i < t->threads; i++) {
        const struct python_frame *frame = &t->frame[t->thread[i].first];
        unsigned count = count_of_child(frame, t->thread[i].count);

        if (find_own_frame(frame, count) == count) /* it waits for work */
            continue;
        put_thread(&text, "child process", frame, count);
        if (shown++ < THREADS_IN_BRIEF) {
            put_text(&brief, ", a child in ");
            (void)put_place(&brief, frame, count);
        }
    }
    free(t);
}

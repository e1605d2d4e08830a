/* SPDX-License-Identifier: MIT */
#include "agent/progress/stacks.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/guard/status_pages.h"
#include "agent/progress/limits.h"
#include "agent/progress/proc_state.h"
#include "agent/progress/python_stack.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/proc.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/stacks/stack_groups.h"

#define SIGNAL_BIT (UINT64_C(1) << (PROGRESS_STACKS_SIGNAL - 1))
#define POLL_MS_MAX 20
#define CHILDREN_MAX 8 /* of a worker, which are asked for their stacks after it */

struct stack_worker {
    bool asked;      /* by this question */
    bool writing;    /* it was signalled, and may not be done yet */
    bool blocks;     /* its main thread could not take the signal: another one writes */
    off_t size;      /* of its file when it was last looked at */
    pid_t asked_pid; /* the worker, or one of its children, which writes now */
    off_t begun;     /* the size when that was asked */
    off_t own_size;  /* what the worker itself has written; 0: it is not done */
    pid_t child[CHILDREN_MAX];
    unsigned children; /* that are still to be asked */
};

struct stacks {
    uint32_t workers;
    struct stacks_calls calls;
    struct loop_timer timer;

    /* of the epoch; group is NULL between epochs */
    struct group *group;
    const struct status_pages *pages;
    uint32_t first_rank;

    struct msg_ask_stacks queue[STACKS_QUEUE_MAX];
    unsigned queued; /* the first one is being answered */
    uint64_t until_ms, poll_ms;
    struct stack_worker *worker;
};

/* -- one worker ----------------------------------------------------------------- */

static bool is_file_of_worker(const struct stacks *s, uint32_t i, pid_t pid)
{
    struct stat ours, theirs;
    char path[64];
    int fd = group_stack_file(s->group, i);

    snprintf(path, sizeof(path), "/proc/%d/fd/%" PRId32, (int)pid,
             s->pages->page[i]->stacks_fd);
    return fd >= 0 && fstat(fd, &ours) == 0 && stat(path, &theirs) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static bool has_handler(const struct stacks *s, uint32_t i, pid_t pid)
{
    struct proc_signals signals;

    return pid && (s->pages->page[i]->flags & PROGRESS_STACKS) &&
           is_file_of_worker(s, i, pid) && proc_state_read_signals(pid, &signals) &&
           (signals.caught & SIGNAL_BIT);
}

bool stacks_has_handler(const struct stacks *s, uint32_t local_rank)
{
    return has_handler(s, local_rank, s->group ? group_pid(s->group, local_rank) : 0);
}

static unsigned list_children(pid_t pid, pid_t *child)
{
    unsigned count = 0;
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    f = fopen(path, "re");
    while (f && count < CHILDREN_MAX && fscanf(f, "%d", &child[count]) == 1)
        count++;
    if (f)
        fclose(f);
    return count;
}

/* A thread that can run the handler while the main thread waits in the kernel, as for a
 * file system that hangs; 0: none. */
static pid_t find_other_thread(pid_t pid)
{
    struct proc_signals signals;
    struct proc_stat stat;
    struct dirent *entry;
    pid_t found = 0;
    char path[64];
    DIR *threads;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads && !found && (entry = readdir(threads))) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (tid > 0 && tid != pid && proc_state_read_signals(tid, &signals) &&
            !(signals.blocked & SIGNAL_BIT) && proc_read_stat(tid, &stat) &&
            stat.state != 'D')
            found = tid;
    }
    if (threads)
        closedir(threads);
    return found;
}

/* process: -1 if the kernel has no pidfd. thread: 0, or the one that is to write. */
static bool send_stacks_signal(pid_t pid, pid_t thread, int process)
{
    if (thread)
        return syscall(SYS_tgkill, pid, thread, PROGRESS_STACKS_SIGNAL) == 0;
    if (process < 0)
        return kill(pid, PROGRESS_STACKS_SIGNAL) == 0;
    return syscall(SYS_pidfd_send_signal, process, PROGRESS_STACKS_SIGNAL, NULL, 0u) ==
           0;
}

/* Signals the worker or its child, if it has a handler and can run it. True: it is to
 * write. */
static bool signal_if_handled(struct stacks *s, uint32_t i, pid_t pid, int process)
{
    struct stack_worker *w = &s->worker[i];
    struct proc_signals signals;
    struct proc_stat stat;
    pid_t thread;

    if (!has_handler(s, i, pid) || *proc_state_of_halted(pid) ||
        !proc_state_read_signals(pid, &signals) || !proc_read_stat(pid, &stat))
        return false;
    thread = stat.state == 'D' ? find_other_thread(pid) : 0;
    w->blocks = thread || (signals.blocked & SIGNAL_BIT);
    w->asked_pid = pid;
    w->begun = w->size;
    if (signals.pending & SIGNAL_BIT) /* of a question that it has not answered yet */
        return true;
    return ftruncate(group_stack_file(s->group, i), w->begun) == 0 &&
           send_stacks_signal(pid, thread, process);
}

/* A process that ends now may be reaped, so its pid may be that of another process
 * after the checks: the pidfd from before them stays its own. */
static bool ask_process(struct stacks *s, uint32_t i, pid_t pid)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0u);
    bool asked = signal_if_handled(s, i, pid, process);

    if (process >= 0)
        close(process);
    return asked;
}

static void start_worker(struct stacks *s, uint32_t i)
{
    struct stack_worker *w = &s->worker[i];
    pid_t pid = w->asked ? group_pid(s->group, i) : 0;

    w->size = w->own_size = 0;
    w->children = 0;
    w->writing = pid && ask_process(s, i, pid);
    if (w->writing)
        w->children = list_children(pid, w->child);
}

/* The handler runs with the signal blocked, so its end can be seen in /proc. */
static bool has_process_written(struct stacks *s, uint32_t i)
{
    struct stack_worker *w = &s->worker[i];
    pid_t pid = w->asked_pid;
    struct proc_signals signals;
    struct stat st;
    off_t before = w->size;

    if (!pid || !proc_state_read_signals(pid, &signals))
        return true;
    if (fstat(group_stack_file(s->group, i), &st) < 0)
        return true;
    w->size = st.st_size;
    if ((signals.pending & SIGNAL_BIT) || st.st_size <= w->begun)
        return false;
    return w->blocks ? st.st_size == before : !(signals.blocked & SIGNAL_BIT);
}

/* The worker has, and then its children one after the other. */
static bool has_written(struct stacks *s, uint32_t i)
{
    struct stack_worker *w = &s->worker[i];

    if (!has_process_written(s, i))
        return false;
    if (!w->own_size)
        w->own_size = w->size;
    while (w->children > 0)
        if (ask_process(s, i, w->child[--w->children]))
            return false;
    return true;
}

/* -- what it does --------------------------------------------------------------- */

/* The worker writes the page: any bytes, and perhaps at this moment. */
static void read_where(const struct progress_page *page, char *buf, size_t size)
{
    memcpy(buf, page->where, size < sizeof(page->where) ? size : sizeof(page->where));
    buf[(size < sizeof(page->where) ? size : sizeof(page->where)) - 1] = '\0';
}

static void describe_by_page(const struct stacks *s, uint32_t i, pid_t pid,
                             struct msg_stacks *m)
{
    const struct progress_page *page = s->pages->page[i];
    struct page_values p = { .written = false };
    char state[128], where[PROGRESS_WHERE_BYTES];

    page_reader_read(&p, page);
    read_where(page, where, sizeof(where));
    proc_state_describe_briefly(pid, state, sizeof(state));
    m->kind = STACKS_PAGE;
    m->waits = p.written && p.phase == PROGRESS_COMMUNICATING;
    if (*where && !(page->flags & PROGRESS_WATCHED)) {
        m->waits = true; /* in an operation of the worker library */
        snprintf(m->brief, sizeof(m->brief), "in %s; process %s", where, state);
    } else if (p.written) {
        snprintf(m->brief, sizeof(m->brief), "step %" PRIu64 ", %s; process %s", p.step,
                 progress_phase_name(p.phase), state);
    } else {
        snprintf(m->brief, sizeof(m->brief), "process %s", state);
    }
    proc_state_describe(pid, m->threads, sizeof(m->threads));
}

/* "frozen; it began loading at train.py:91 (main)" */
static void describe_silent(const struct stacks *s, uint32_t i, const char *state,
                            struct msg_stacks *m)
{
    const struct progress_page *page = s->pages->page[i];
    struct page_values p = { .written = false };
    char where[PROGRESS_WHERE_BYTES];
    size_t used;

    page_reader_read(&p, page);
    read_where(page, where, sizeof(where));
    m->kind = STACKS_SILENT;
    used = (size_t)snprintf(m->brief, sizeof(m->brief), "%s", state);
    if (p.written && *where)
        snprintf(m->brief + used, sizeof(m->brief) - used, "; it began %s at %s",
                 progress_phase_name(p.phase), where);
    else if (p.written)
        snprintf(m->brief + used, sizeof(m->brief) - used,
                 "; it was %s at step %" PRIu64, progress_phase_name(p.phase), p.step);
}

/* The program itself: a hook of --watch sees backward, and not what is called there. */
static bool program_reports_waiting(const struct stacks *s, uint32_t i)
{
    struct page_values p = { .written = false };

    page_reader_read(&p, s->pages->page[i]);
    return p.written && !p.watched && p.phase == PROGRESS_COMMUNICATING;
}

static bool read_stack(const struct stacks *s, uint32_t i, struct python_stack *stack)
{
    char *bytes = xmalloc(STACKS_BYTES_MAX);
    ssize_t size = pread(group_stack_file(s->group, i), bytes, STACKS_BYTES_MAX, 0);
    off_t own = s->worker[i].own_size;
    bool found;

    if (own == 0 || own > size)
        own = size;
    found = own > 0 && python_stack_parse(bytes, (size_t)own, stack);
    if (found)
        python_stack_add_children(bytes + own, (size_t)(size - own), stack);
    free(bytes);
    return found;
}

/* After the worker has written, or not. */
static void describe_worker(const struct stacks *s, uint32_t i, struct msg_stacks *m)
{
    pid_t pid = group_pid(s->group, i);
    char state[128];
    struct python_stack stack;

    snprintf(m->ranks, sizeof(m->ranks), "%" PRIu32, s->first_rank + i);
    snprintf(m->log, sizeof(m->log), "%s", group_log_file(s->group, i));
    m->pid = (uint32_t)pid;
    snprintf(state, sizeof(state), "%s", pid ? proc_state_of_halted(pid) : "");
    if (!pid) {
        m->kind = STACKS_ENDED;
    } else if (*state) {
        describe_silent(s, i, state, m);
    } else if (s->worker[i].writing && read_stack(s, i, &stack)) {
        m->kind = STACKS_PYTHON;
        m->waits = stack.waits || program_reports_waiting(s, i);
        memcpy(m->brief, stack.brief, sizeof(m->brief));
        memcpy(m->threads, stack.threads, sizeof(m->threads));
    } else if (s->worker[i].writing) {
        describe_silent(s, i, proc_state_describe_briefly(pid, state, sizeof(state)),
                        m);
    } else {
        describe_by_page(s, i, pid, m);
    }
}

/* -- answers -------------------------------------------------------------------- */

static void send_group(const struct stacks *s, const struct stack_group *g)
{
    struct msg m = { .type = MSG_STACKS,
                     .stacks = {
                         .ask = s->queue[0].ask, .kind = g->kind, .waits = g->waits } };

    snprintf(m.stacks.brief, sizeof(m.stacks.brief), "%s", g->brief);
    snprintf(m.stacks.threads, sizeof(m.stacks.threads), "%s", g->threads);
    m.stacks.pid = g->pid;
    snprintf(m.stacks.log, sizeof(m.stacks.log), "%s", g->log);
    for (unsigned from = 0; from < g->ranks.count;) {
        from = rank_ranges_print(&g->ranks, from, m.stacks.ranks,
                                 sizeof(m.stacks.ranks));
        s->calls.answer(s->calls.arg, &m);
        m.stacks.pid = 0;
        *m.stacks.log = '\0';
    }
}

static void send_answer(const struct stacks *s)
{
    struct msg last = { .type = MSG_STACKS,
                        .stacks = { .ask = s->queue[0].ask, .last = true } };
    struct stack_groups groups = { .count = 0 };

    for (uint32_t i = 0; i < s->workers; i++) {
        struct msg_stacks m = { .ask = 0 };

        if (!s->worker[i].asked)
            continue;
        describe_worker(s, i, &m);
        stack_groups_add(&groups, &m);
    }
    for (unsigned i = 0; i < groups.count; i++)
        send_group(s, &groups.group[i]);
    stack_groups_fini(&groups);
    s->calls.answer(s->calls.arg, &last);
}

static void start_question(struct stacks *s)
{
    struct rank_ranges ranks = { .count = 0 };
    bool some = rank_ranges_parse(&ranks, s->queue[0].ranks);

    for (uint32_t i = 0; i < s->workers; i++) {
        s->worker[i].asked = !some || rank_ranges_have(&ranks, s->first_rank + i);
        start_worker(s, i);
    }
    rank_ranges_fini(&ranks);
    s->until_ms = clock_ms() + STACKS_TAKE_MS;
    s->poll_ms = 1;
    loop_timer_arm(&s->timer, clock_ms() + s->poll_ms);
}

static void finish_question(struct stacks *s)
{
    send_answer(s);
    memmove(s->queue, s->queue + 1, --s->queued * sizeof(s->queue[0]));
}

static bool all_have_written(struct stacks *s)
{
    for (uint32_t i = 0; i < s->workers; i++)
        if (s->worker[i].writing && !has_written(s, i))
            return false;
    return true;
}

/* On a busy machine a worker may wait for a CPU for long. */
static bool any_is_runnable(struct stacks *s)
{
    struct proc_stat stat;

    for (uint32_t i = 0; i < s->workers; i++)
        if (s->worker[i].writing && !has_written(s, i) &&
            proc_read_stat(s->worker[i].asked_pid, &stat) && stat.state == 'R')
            return true;
    return false;
}

static bool must_wait(struct stacks *s)
{
    uint64_t now = clock_ms();

    if (now < s->until_ms)
        return !all_have_written(s);
    return now < s->until_ms + STACKS_MORE_MS && any_is_runnable(s);
}

static void on_poll(void *arg)
{
    struct stacks *s = arg;

    if (must_wait(s)) {
        s->poll_ms = s->poll_ms < POLL_MS_MAX / 2 ? 2 * s->poll_ms : POLL_MS_MAX;
        loop_timer_arm(&s->timer, clock_ms() + s->poll_ms);
        return;
    }
    finish_question(s);
    if (s->queued)
        start_question(s);
    else
        s->calls.idle(s->calls.arg);
}

void stacks_ask(struct stacks *s, const struct msg_ask_stacks *ask)
{
    struct msg none = { .type = MSG_STACKS,
                        .stacks = { .ask = ask->ask, .last = true } };

    if (!s->group || s->queued == STACKS_QUEUE_MAX) {
        s->calls.answer(s->calls.arg, &none);
        return;
    }
    s->queue[s->queued++] = *ask;
    if (s->queued == 1)
        start_question(s);
}

bool stacks_are_asked(const struct stacks *s)
{
    return s->queued > 0;
}

/* -- the whole ------------------------------------------------------------------ */

struct stacks *stacks_create(struct loop *loop, uint32_t workers,
                             const struct stacks_calls *calls)
{
    struct stacks *s = xcalloc(1, sizeof(*s));

    s->workers = workers;
    s->calls = *calls;
    s->worker = xcalloc(workers, sizeof(*s->worker));
    loop_timer_init(&s->timer, loop, on_poll, s);
    return s;
}

void stacks_destroy(struct stacks *s)
{
    if (!s)
        return;
    loop_timer_fini(&s->timer);
    free(s->worker);
    free(s);
}

void stacks_begin(struct stacks *s, struct group *group,
                  const struct status_pages *pages, uint32_t first_rank)
{
    s->group = group;
    s->pages = pages;
    s->first_rank = first_rank;
}

void stacks_end(struct stacks *s)
{
    loop_timer_cancel(&s->timer);
    while (s->queued)
        finish_question(s);
    s->group = NULL;
}

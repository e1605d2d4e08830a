/* SPDX-License-Identifier: MIT */
#include "agent/memory/keeper_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

#define WORDS_MAX (MEMORY_COMMAND_BYTES / 2)
#define VARIABLES 8
#define LOOK_MS 20

struct memory_flush {
    struct memory_keeper *keeper;
    struct memory_set set;
    uint64_t number; /* 0: at the end */
    uint32_t grace_ms;
    int out;                               /* what the command prints */
    char *word[VARIABLES + WORDS_MAX + 2]; /* env, variables, those of command */
    char command[MEMORY_COMMAND_BYTES];
    int *fd; /* of the parts */
    size_t count;
    char *parts, *copies; /* CRUN_MEMORY_PARTS, CRUN_MEMORY_COPIES */
    bool has_first;       /* the part of rank 0, so this node's command completes it */
};

static void flush_add(struct memory_flush *t, const struct memory_file *f, char **list,
                      bool with_shared)
{
    int fd = memory_file_reader(f);
    char *before = *list;

    if (fd < 0)
        return;
    t->fd = xrealloc(t->fd, (t->count + 1) * sizeof(*t->fd));
    t->fd[t->count] = fd;
    *list = xasprintf("%s%s%u:/proc/self/fd/%d%s", before, *before ? " " : "",
                      f->header.rank, fd, with_shared ? ":shared" : "");
    t->count++;
    free(before);
}

/*
 * Each part is to be written by one node: the one whose worker has made it, and the
 * shared section by that with rank 0's. Whatever else is here is for a command that
 * misses parts of nodes that are gone. False: files have the set, or it is not here.
 */
static bool flush_fill(struct memory_flush *t)
{
    const struct memory_file *f;
    bool is_newer = false;

    t->parts = xstrdup("");
    t->copies = xstrdup("");
    TAILQ_FOREACH(f, &t->keeper->table.files, entry)
        t->has_first |= f->origin == MEMORY_OWN &&
                        memory_file_has(f, &t->set, 0, false);
    TAILQ_FOREACH(f, &t->keeper->table.files, entry) {
        const struct memory_header *h = &f->header;

        if (t->set.world == 0 || !memory_set_equal(&h->set, &t->set))
            continue;
        is_newer |= h->set.step > h->files_step;
        if (f->origin == MEMORY_OWN)
            flush_add(t, f, &t->parts, t->has_first && h->shared_bytes);
        if (f->origin != MEMORY_OWN || (!t->has_first && h->shared_bytes))
            flush_add(t, f, &t->copies, h->shared_bytes > 0);
    }
    return is_newer;
}

static void flush_fill_words(struct memory_flush *t)
{
    struct id128 job = memory_keeper_job(t->keeper);
    char self[PATH_MAX] = "", *slash;
    char hex[ID128_HEX_SIZE], *end = t->command + sizeof(t->command) - 1;
    size_t n = 0;

    /* a program of crun's is the one beside this */
    (void)!readlink("/proc/self/exe", self, sizeof(self) - 1);
    slash = strrchr(self, '/');
    t->word[n++] = xstrdup("env");
    t->word[n++] = xasprintf("PATH=%.*s:%s", slash ? (int)(slash - self) : 0, self,
                             getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    t->word[n++] = xasprintf("CRUN_MEMORY_STEP=%" PRIu64, t->set.step);
    t->word[n++] = xasprintf("CRUN_MEMORY_EPOCH=%" PRIu64, t->set.epoch);
    t->word[n++] = xasprintf("CRUN_MEMORY_WORLD=%" PRIu32, t->set.world);
    t->word[n++] = xasprintf("CRUN_MEMORY_PARTS=%s", t->parts);
    t->word[n++] = xasprintf("CRUN_MEMORY_COPIES=%s", t->copies);
    t->word[n++] = xasprintf("CRUN_MEMORY_JOB=%s", id128_format(&job, hex));
    t->word[n++] = xasprintf("CRUN_MEMORY_FLUSH=%" PRIx64, t->number);
    *end = '\0';
    for (char *w = t->command; w < end && *w && n <= VARIABLES + WORDS_MAX;
         w += strlen(w) + 1)
        t->word[n++] = xstrdup(w);
}

/* In the child of a process with threads: system calls only. */
static _Noreturn void become_command(const struct memory_flush *t, int null)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* with the thread that waits for it */
    setpgid(0, 0);
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, STDIN_FILENO);
    dup2(t->out, STDOUT_FILENO);
    dup2(t->out, STDERR_FILENO);
    for (size_t i = 0; i < t->count; i++)
        (void)fcntl(t->fd[i], F_SETFD, 0);
    execvp(t->word[0], t->word);
    _exit(127);
}

/* With the lock: it has ended, or may be killed. */
static bool flush_is_let_go(const struct memory_flush *t)
{
    return t->keeper->stop || (t->number && t->number != t->keeper->flush);
}

static pid_t flush_spawn(struct memory_flush *t)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    pid_t child = -1;

    t->out = memfd_create("crun-flush", MFD_CLOEXEC);
    pthread_mutex_lock(&t->keeper->lock);
    if (!flush_is_let_go(t))
        child = fork();
    if (child == 0)
        become_command(t, null);
    if (child > 0)
        setpgid(child, child); /* it may be killed before it does so itself */
    if (child > 0 && t->number)
        t->keeper->flush_child = child;
    pthread_mutex_unlock(&t->keeper->lock);
    close(null);
    return child;
}

/* The status as of waitpid; -1: not in time. */
static int flush_wait(const struct memory_flush *t, pid_t child)
{
    uint64_t until_ms = t->number ? UINT64_MAX : clock_ms() + t->grace_ms;
    struct memory_keeper *k = t->keeper;
    int status;
    pid_t ended;

    for (;;) {
        pthread_mutex_lock(&k->lock); /* who kills it sees it alive */
        ended = waitpid(child, &status, WNOHANG);
        if (ended != 0 && k->flush_child == child)
            k->flush_child = 0;
        pthread_mutex_unlock(&k->lock);
        if (ended != 0)
            return ended > 0 ? status : -1;
        if (clock_ms() >= until_ms || k->stop) {
            kill(-child, SIGKILL);
            waitpid(child, &status, 0);
            return -1;
        }
        poll(NULL, 0, LOOK_MS);
    }
}

/* The last line that the command has printed, after its exit code. */
static void flush_read_line(const struct memory_flush *t, char *line, size_t size)
{
    char text[4096] = "", *last;
    off_t end = lseek(t->out, 0, SEEK_END), at = end - (off_t)sizeof(text) + 1;
    ssize_t n = end > 0 ? pread(t->out, text, sizeof(text) - 1, at > 0 ? at : 0) : 0;

    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    text[n > 0 ? n : 0] = '\0';
    last = strrchr(text, '\n');
    snprintf(line, size, "%s%.300s", *text ? ": " : "", last ? last + 1 : text);
}

static void flush_explain(const struct memory_flush *t, pid_t child, int status,
                          const char *took, char *why, size_t size)
{
    char line[320];
    bool is_let_go;

    pthread_mutex_lock(&t->keeper->lock);
    is_let_go = flush_is_let_go(t);
    pthread_mutex_unlock(&t->keeper->lock);
    flush_read_line(t, line, sizeof(line));
    if (is_let_go && t->number)
        snprintf(why, size, "the workers were stopped meanwhile");
    else if (child < 0)
        snprintf(why, size, "%s",
                 *t->command ? strerror(errno) : "the program names no command for it");
    else if (status < 0)
        snprintf(why, size, "it took longer than %s", took);
    else if (WIFSIGNALED(status))
        snprintf(why, size, "signal %d%s", WTERMSIG(status), line);
    else if (WEXITSTATUS(status) == 127 && strncmp(line, ": env:", 6) == 0)
        snprintf(why, size, "%s is neither beside crun nor in PATH",
                 t->word[VARIABLES + 1]);
    else
        snprintf(why, size, "exit code %d%s", WEXITSTATUS(status), line);
}

/* The command's folder, as the program has named it. */
static const char *flush_folder(const struct memory_flush *t)
{
    const char *folder = t->word[VARIABLES + 1 + MEMORY_COMMAND_FOLDER];

    return folder && *folder == '/' ? folder : "";
}

static struct memory_note flush_run(struct memory_flush *t)
{
    struct memory_note note = { .kind = NOTE_FLUSHED, .code = 1, .flush = t->number };
    uint64_t began_ms = clock_ms();
    pid_t child = *t->command ? flush_spawn(t) : -1;
    int status = child > 0 ? flush_wait(t, child) : -1;
    char took[32], why[400];

    clock_format_duration(clock_ms() - began_ms, took, sizeof(took));
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == MEMORY_EXIT_IN_FILES)
        note.code = -1;
    else if (child > 0 && status == 0)
        note.code = 0;
    if (note.code <= 0) {
        if (t->number)
            snprintf(note.text, sizeof(note.text), "%s", flush_folder(t));
        else if (note.code == 0)
            snprintf(note.text, sizeof(note.text),
                     "%sstep %" PRIu64
                     ", which was in memory, was written to files in %s",
                     t->has_first ? "" : "this node's part of ", t->set.step, took);
    } else {
        flush_explain(t, child, status, took, why, sizeof(why));
        if (t->number)
            snprintf(note.text, sizeof(note.text), "%s", why);
        else
            snprintf(note.text, sizeof(note.text),
                     "step %" PRIu64
                     ", which was in memory, was not written to files: %s",
                     t->set.step, why);
    }
    return note;
}

void memory_flush_let_go(struct memory_keeper *k)
{
    struct memory_file *f;

    if (k->flush_child > 0)
        kill(-k->flush_child, SIGKILL); /* before a worker may write to its parts */
    TAILQ_FOREACH(f, &k->table.files, entry)
        if (f->origin == MEMORY_OWN && k->held_until_ms)
            memory_file_set_held(f, false);
    k->held_until_ms = k->flush = 0;
}

static void flush_parts(void *arg)
{
    struct memory_flush *t = arg;
    struct memory_keeper *k = t->keeper;
    struct memory_note note = { .kind = NOTE_FLUSHED, .code = -1, .flush = t->number };
    bool has_parts;

    pthread_mutex_lock(&k->lock);
    memory_table_look(&k->table);
    has_parts = flush_fill(t);
    memcpy(t->command, k->command, sizeof(t->command));
    pthread_mutex_unlock(&k->lock);
    flush_fill_words(t);
    if (has_parts)
        note = flush_run(t);
    else if (t->number && t->count == 0) {
        note.code = 1;
        snprintf(note.text, sizeof(note.text), "its parts are not in memory any more");
    }
    for (size_t i = 0; i < t->count; i++)
        close(t->fd[i]);
    for (size_t i = 0; t->word[i]; i++)
        free(t->word[i]);
    free(t->fd);
    free(t->parts);
    free(t->copies);
    if (t->out >= 0)
        close(t->out);
    pthread_mutex_lock(&k->lock);
    if (t->number && t->number == k->flush)
        memory_flush_let_go(k);
    memory_keeper_note(k, note); /* what follows may be held at once */
    free(t);
}

bool memory_flush_start(struct memory_keeper *k, const struct memory_set *set,
                        uint64_t number, uint32_t grace_ms)
{
    struct memory_flush flush = {
        .keeper = k, .set = *set, .number = number, .grace_ms = grace_ms, .out = -1
    };
    struct memory_flush *t = xmemdup(&flush, sizeof(flush));
    bool starts;

    pthread_mutex_lock(&k->lock);
    starts = set->world > 0 && !TAILQ_EMPTY(&k->table.files) &&
             (!number || (k->held_until_ms && !k->flush)) &&
             memory_keeper_spawn(k, MEMORY_FLUSHER, flush_parts, t) == 0;
    if (starts && number)
        k->flush = number;
    pthread_mutex_unlock(&k->lock);
    if (!starts)
        free(t);
    return starts;
}

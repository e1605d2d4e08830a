/* SPDX-License-Identifier: MIT */
/*
 * Ranks that save and load, for the oracle of checkpoints
 * (tests/lib/checkpoint_model.py). It reads lines: one "life", which is a program that
 * is started on some ranks, its operations, and "go"; it then runs them, prints what
 * each rank saw in each operation, and "done". Each rank is a process. All numbers of
 * the state tell which save they are of, of which name, and their place: the answers
 * are the save that was found.
 *
 *   checkpoint-ranks PORT FOLDER        PORT: of a store
 *
 *   life JOB SIZE SHARD OPTIM ORDER MODEL NAMES SEED OWN KEEP
 *                        SHARD: 0, 1, or 2 for share_step; OPTIM: 0 none, 1 SGD, 2 with
 *                        momentum, 3 Adam, 4 AdamW; ORDER, MODEL, NAMES: tables below;
 *                        SEED: of the sampler, 0: none; OWN 1: a folder for each rank
 *   open H FOLDER BLOCKING      FOLDER: 0 or 1, a folder below the one of the program
 *   save H STEP SAVE K WHAT     the state becomes that of save SAVE, after K steps
 *                               without gradients; WHAT: the sum of WITHOUT_OPTIM,
 *                               WITHOUT_SAMPLER, and OTHER_STEP on the last rank
 *   wait H
 *   load H SAVE WHAT            SAVE 0: the newest
 *   die RANK CALLS              it is killed in the CALLSth call of the file system
 *   end HOW                     0: everything is closed; 1: at once
 *   damage SAVE PLACE           between lives: a byte of its file, PLACE of 1000
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/programs/checkpoint_state.h"

#define HANDLES 6
#define OPS_MAX 64
#define PATIENCE_S 30

enum { WITHOUT_OPTIM = 1, WITHOUT_SAMPLER = 2, OTHER_STEP = 4 };

struct op {
    char kind[8];
    int a, b, c, d, e;
};

static const char *port, *base;
static struct op op[OPS_MAX];
static int ops;

/* -- deaths ----------------------------------------------------------------- */

static _Atomic int calls_left;

static void maybe_die(void)
{
    if (calls_left > 0 && --calls_left == 0)
        raise(SIGKILL);
}

/* The linker gives the library's calls to these. */
#define WRAPPED(type, name, parameters, arguments)                                     \
    type __real_##name parameters;                                                     \
    type __wrap_##name parameters;                                                     \
    type __wrap_##name parameters                                                      \
    {                                                                                  \
        maybe_die();                                                                   \
        return __real_##name arguments;                                                \
    }
WRAPPED(ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))
WRAPPED(ssize_t, pwrite, (int fd, const void *bytes, size_t size, off_t at),
        (fd, bytes, size, at))
WRAPPED(int, fsync, (int fd), (fd))
WRAPPED(int, renameat, (int from, const char *old, int to, const char *name),
        (from, old, to, name))
WRAPPED(int, unlinkat, (int at, const char *name, int flags), (at, name, flags))
WRAPPED(int, openat, (int at, const char *name, int flags, mode_t mode),
        (at, name, flags, mode))

/* -- folders ---------------------------------------------------------------- */

#define SETS_MAX 64

struct handle {
    crun_checkpoints *checkpoints;
    char folder[256];
    bool blocking;
    int pending; /* saves that were not waited for */
    int last;    /* save */
    uint64_t before[SETS_MAX];
    int befores;
} handle[HANDLES];

/* Of a checkpoint of which all parts are there; 0: they are not. */
static uint64_t stamp_of(const char *folder, const char *first, unsigned parts)
{
    const char *end = strrchr(first, '-');
    uint64_t stamp = 1;
    char path[768];
    struct stat st;

    for (unsigned p = 1; p <= parts; p++) {
        snprintf(path, sizeof(path), "%s/%.*s-%uof%u.safetensors", folder,
                 (int)(end - first), first, p, parts);
        if (stat(path, &st) < 0)
            return 0;
        stamp = stamp * 1000003 + (uint64_t)st.st_ino;
        stamp = stamp * 1000003 + (uint64_t)st.st_mtim.tv_nsec;
    }
    return stamp;
}

/* Calls it for each complete checkpoint of the folder. */
static int list_complete(struct handle *h, uint64_t stamps[SETS_MAX],
                         char files[SETS_MAX][512])
{
    DIR *d = opendir(h->folder);
    struct dirent *entry;
    int count = 0;

    while (d && (entry = readdir(d))) {
        const char *end = strrchr(entry->d_name, '-');
        unsigned part, parts;
        char more;

        if (count == SETS_MAX || !end ||
            sscanf(end, "-%uof%u.safetensor%c", &part, &parts, &more) != 3 ||
            part != 1 || strchr(end, '.') != strstr(end, ".safetensors") ||
            strcmp(strchr(end, '.'), ".safetensors") != 0)
            continue;
        stamps[count] = stamp_of(h->folder, entry->d_name, parts);
        if (files)
            snprintf(files[count], 512, "%s/%s", h->folder, entry->d_name);
        count += stamps[count] != 0;
    }
    if (d)
        closedir(d);
    return count;
}

/* How many complete checkpoints there are since the save began; if it is one, its file
 * is noted. */
static void report_new(struct handle *h)
{
    uint64_t stamps[SETS_MAX];
    char files[SETS_MAX][512];
    int count = list_complete(h, stamps, files), new = 0, which = 0;

    for (int i = 0; i < count; i++) {
        bool is_new = true;

        for (int k = 0; k < h->befores; k++)
            is_new = is_new && stamps[i] != h->before[k];
        new += is_new;
        which = is_new ? i : which;
    }
    report(" new=%d sets=%d", new, count);
    if (rank == 0 && new == 1 && h->pending == 1)
        snprintf(shared->file[h->last], sizeof(shared->file[0]), "%s", files[which]);
}

/* -- operations ------------------------------------------------------------- */

static bool report_status(crun_status s)
{
    char name[32];

    snprintf(name, sizeof(name), "%s", crun_status_name(s));
    for (char *c = name; *c; c++)
        *c = *c == ' ' ? '_' : *c;
    report(" %s", name);
    return s != CRUN_PEER_LOST && s != CRUN_ABORTED && s != CRUN_TIMEOUT;
}

static bool do_open_op(const struct op *o)
{
    struct handle *h = &handle[o->a];
    crun_checkpoint_options options = { .directory = h->folder,
                                        .keep = life.keep,
                                        .blocking = o->c };

    *h = (struct handle){ .blocking = o->c };
    snprintf(h->folder, sizeof(h->folder), "%s/%d", base, o->b);
    if (life.own && rank > 0)
        snprintf(h->folder, sizeof(h->folder), "%s/%d-%d", base, o->b, rank);
    return report_status(crun_checkpoints_open(&h->checkpoints, world, &options));
}

static bool look_before(struct handle *h)
{
    if (crun_barrier(world, NULL) != CRUN_OK)
        return false;
    if (!h->pending)
        h->befores = list_complete(h, h->before, NULL);
    return crun_barrier(world, NULL) == CRUN_OK;
}

static bool do_save_op(const struct op *o)
{
    struct handle *h = &handle[o->a];
    bool other = o->e & OTHER_STEP && rank > 0 && rank == life.size - 1;
    crun_status s = put_save(o->c, o->d);
    bool goes_on;

    if (s != CRUN_OK || !look_before(h))
        return report_status(s == CRUN_OK ? CRUN_PEER_LOST : s);
    s = crun_checkpoint_save(h->checkpoints, (uint64_t)o->b + other, ddp,
                             o->e & WITHOUT_OPTIM ? NULL : optim,
                             o->e & WITHOUT_SAMPLER ? NULL : sampler, &extra, 1);
    h->pending++;
    h->last = o->c;
    goes_on = report_status(s);
    if (h->blocking && s == CRUN_OK && (!life.own || rank == 0))
        report_new(h);
    if (h->blocking)
        h->pending = 0;
    put_values(JUNK); /* it was copied */
    return goes_on;
}

static bool do_wait_op(const struct op *o)
{
    struct handle *h = &handle[o->a];
    crun_status s = crun_checkpoint_wait(h->checkpoints);
    bool goes_on = report_status(s);

    if (s == CRUN_OK && h->pending && (!life.own || rank == 0))
        report_new(h);
    h->pending = 0;
    return goes_on;
}

static bool do_load_op(const struct op *o)
{
    struct handle *h = &handle[o->a];
    uint64_t step = 999999;
    crun_status s = crun_barrier(world, NULL);
    char file[512];

    snprintf(file, sizeof(file), "%s", o->b ? shared->file[o->b] : "");
    if (s == CRUN_OK)
        s = crun_barrier(world, NULL); /* rank 0 may note another one */
    if (s != CRUN_OK)
        return report_status(s);
    if (o->b && !*file) {
        report(" unknown");
        return true;
    }
    s = crun_checkpoint_load(h->checkpoints, file, &step, ddp,
                             o->c & WITHOUT_OPTIM ? NULL : optim,
                             o->c & WITHOUT_SAMPLER ? NULL : sampler, &extra, 1);
    if (!report_status(s))
        return false;
    report(" step=%llu", (unsigned long long)step);
    s = report_state();
    return s == CRUN_OK || (report(" then"), report_status(s));
}

static bool do_close_op(const struct op *o)
{
    crun_checkpoints_close(handle[o->a].checkpoints);
    handle[o->a].checkpoints = NULL;
    report(" ok");
    return true;
}

static bool do_die_op(const struct op *o)
{
    if (rank == o->a)
        calls_left = o->b;
    report(" ok");
    return true;
}

static const struct {
    const char *kind;
    bool (*run)(const struct op *o);
} kinds[] = {
    { "open", do_open_op }, { "save", do_save_op },   { "wait", do_wait_op },
    { "load", do_load_op }, { "close", do_close_op }, { "die", do_die_op },
};

/* -- a rank's life ---------------------------------------------------------- */

static void put_number(const char *name, const char *format, int number)
{
    char text[32];

    snprintf(text, sizeof(text), format, number);
    setenv(name, text, 1);
}

static crun_status join(void)
{
    crun_options options = { .backend = life.size > 1 ? "shm" : NULL,
                             .timeout_s = PATIENCE_S,
                             .init_timeout_s = PATIENCE_S };

    put_number("RANK", "%d", rank);
    put_number("LOCAL_RANK", "%d", rank);
    put_number("WORLD_SIZE", "%d", life.size);
    put_number("LOCAL_WORLD_SIZE", "%d", life.size);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TORCHELASTIC_RUN_ID", life.job, 1);
    return crun_init(&world, &options);
}

static crun_status build(void)
{
    crun_ddp_options options = { .shard = life.shard == 1,
                                 .share_step = life.shard == 2 };
    crun_sampler_options samples = {
        .samples = 1000, .seed = (uint64_t)life.seed, .rank = rank, .size = life.size
    };
    crun_status s = crun_ddp_create(&ddp, world, &options);

    for (int i = 0; s == CRUN_OK && i < PARAMETERS; i++) {
        int n = orders[life.order][i];

        if (life.names == EXCHANGED && rank % 2 == 1 && (n == 1 || n == 2))
            n = 3 - n;
        parameter[n] = crun_ddp_parameter(
            ddp, n == 0 && life.model == 2 ? "a2" : names[life.names][n], count_of(n));
        s = parameter[n] < 0 ? CRUN_BAD_ARGUMENT : CRUN_OK;
    }
    buffer = life.model == 3 ? -1 : crun_ddp_buffer(ddp, "running", BUFFER_COUNT);
    if (s == CRUN_OK)
        s = crun_ddp_seal(ddp);
    if (s == CRUN_OK && life.seed)
        s = crun_sampler_create(&sampler, &samples);
    return s == CRUN_OK ? put_save(1, 0) : s;
}

static void leave_life(void)
{
    for (int h = 0; h < HANDLES; h++)
        crun_checkpoints_close(handle[h].checkpoints);
    crun_sampler_destroy(sampler);
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
    crun_finalize(world);
}

static bool run_operation(const struct op *o)
{
    bool uses = strcmp(o->kind, "open") != 0 && strcmp(o->kind, "die") != 0;

    if (uses && !handle[o->a].checkpoints) {
        report(" closed");
        return true;
    }
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
        if (strcmp(o->kind, kinds[k].kind) == 0)
            return kinds[k].run(o);
    report(" unknown_operation");
    return false;
}

static void live_as_rank(void)
{
    bool goes_on = true;
    crun_status s;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(2 * PATIENCE_S);
    s = join();
    if (s == CRUN_OK)
        s = build();
    report("%d begin", rank);
    goes_on = report_status(s) && s == CRUN_OK;
    report("\n");
    for (int i = 0; goes_on && i < ops; i++) {
        if (strcmp(op[i].kind, "end") == 0 && op[i].a)
            _exit(0);
        if (strcmp(op[i].kind, "end") == 0)
            break;
        report("%d %d", rank, i);
        goes_on = run_operation(&op[i]);
        report("\n");
    }
    leave_life();
    report("%d left\n", rank);
    _exit(0);
}

/* -- lives ------------------------------------------------------------------ */

static void run_life(void)
{
    pid_t pid[RANKS_MAX];
    int status;

    for (rank = 0; rank < life.size; rank++) {
        shared->said[rank].used = 0;
        pid[rank] = fork();
        if (pid[rank] == 0)
            live_as_rank();
        if (pid[rank] < 0)
            abort();
    }
    for (rank = 0; rank < life.size; rank++) {
        waitpid(pid[rank], &status, 0);
        fwrite(shared->said[rank].text, 1, shared->said[rank].used, stdout);
        if (WIFSIGNALED(status))
            printf("\n%d killed %d\n", rank, WTERMSIG(status));
    }
    puts("done");
    fflush(stdout);
}

static void damage_file(int save, int place)
{
    int fd = *shared->file[save] ? open(shared->file[save], O_RDWR | O_CLOEXEC) : -1;
    struct stat st;
    char byte;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
        off_t at = st.st_size * place / 1000;

        if (pread(fd, &byte, 1, at) == 1) {
            byte ^= 4;
            puts(pwrite(fd, &byte, 1, at) == 1 ? "damaged" : "no");
        }
    } else {
        puts("no");
    }
    fflush(stdout);
    if (fd >= 0)
        close(fd);
}

static void take_line(const char *line)
{
    struct op *o = &op[ops];
    int save, place;

    if (sscanf(line, "life %63s %d %d %d %d %d %d %d %d %d", life.job, &life.size,
               &life.shard, &life.optim, &life.order, &life.model, &life.names,
               &life.seed, &life.own, &life.keep) == 10) {
        ops = 0;
        return;
    }
    if (strcmp(line, "new\n") == 0)
        memset(shared, 0, sizeof(*shared));
    else if (strcmp(line, "go\n") == 0)
        run_life();
    else if (sscanf(line, "damage %d %d", &save, &place) == 2)
        damage_file(save, place);
    else if (ops < OPS_MAX) {
        *o = (struct op){ .a = 0 };
        ops += sscanf(line, "%7s %d %d %d %d %d", o->kind, &o->a, &o->b, &o->c, &o->d,
                      &o->e) >= 1;
    }
}

int main(int argc, char **argv)
{
    char line[256];

    if (argc != 3)
        return 2;
    port = argv[1];
    base = argv[2];
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    while (fgets(line, sizeof(line), stdin))
        take_line(line);
    return 0;
}

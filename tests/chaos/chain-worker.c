/* SPDX-License-Identifier: MIT */
/*
 * A worker of the chain (chain.h). Every step is an all-gather over the store at
 * MASTER_ADDR:MASTER_PORT: rank 0 collects everybody's value, compares, and tells the
 * others; every so many steps it commits a checkpoint.
 *
 *   chain-worker FOLDER PACE_MS STEPS_PER_CHECKPOINT exit|stay
 *
 * The last word says what it does when the store is gone: fail at once, as PyTorch
 * does, or hang, as a collective does.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rendezvous/common/base/progress_page.h"
#include "tests/chaos/chain-store.h"
#include "tests/chaos/chain.h"

#define CONNECT_S 30
#define STALE 9 /* exit code of a world that is not the newest any more */

static struct {
    const char *node;
    uint64_t rank, local_rank, world, epoch;
    unsigned pace_ms, interval;
    bool stay;
} my;

static struct chain chain;
static struct progress_page *page; /* NULL: no crun has started us */

static uint64_t number(const char *name)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : 0;
}

static void lose_store(void)
{
    while (my.stay)
        pause();
    exit(1);
}

/* -- the status page -------------------------------------------------------- */

static void find_page(void)
{
    const char *path = getenv(PROGRESS_ENV);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p = mmap(NULL, PROGRESS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                   0);

    page = p == MAP_FAILED ? NULL : p;
    if (fd >= 0)
        close(fd);
}

static void write_page(enum progress_phase phase)
{
    if (!page)
        return;
    __atomic_add_fetch(&page->writing, 1, __ATOMIC_SEQ_CST);
    page->phase = phase;
    page->step = chain.step;
    __atomic_add_fetch(&page->writing, 1, __ATOMIC_SEQ_CST);
}

/* -- who else lives on this node -------------------------------------------- */

static int lock(int fd, int command, short type)
{
    struct flock whole = { .l_type = type, .l_whence = SEEK_SET };

    return fcntl(fd, command, &whole) < 0 ? -1 : whole.l_type;
}

/* Only asks: those that look at the same time do not see each other. */
static void look_at(const char *name)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "alive/%s", name);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && lock(fd, F_OFD_GETLK, F_WRLCK) != F_UNLCK)
        chain_violation("rank %" PRIu64 " of epoch %" PRIu64 " begins while %s lives",
                        my.rank, my.epoch, name);
    if (fd >= 0)
        close(fd);
}

/*
 * The lock is held by every process that has the descriptor, children of any age too,
 * and goes with the last of them.
 */
static void appear(void)
{
    char path[300], end;
    DIR *dir = opendir("alive");
    struct dirent *entry;
    int fd;

    snprintf(path, sizeof(path), "alive/%s.%" PRIu64, my.node, my.epoch);
    fd = open(path, O_RDWR | O_CREAT, 0644); /* kept, and passed on */
    if (fd < 0 || lock(fd, F_OFD_SETLK, F_RDLCK) < 0)
        exit(1);
    while (dir && (entry = readdir(dir))) {
        const char *dot = strrchr(entry->d_name, '.');
        uint64_t epoch;

        if (dot && strncmp(entry->d_name, my.node, strlen(my.node)) == 0 &&
            sscanf(dot, ".%" SCNu64 "%c", &epoch, &end) == 1 && epoch < my.epoch)
            look_at(entry->d_name);
    }
    if (dir)
        closedir(dir);
    chain_note("starts", "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %s", my.node,
               my.epoch, my.rank, my.world, getpid(),
               getenv("TORCHELASTIC_RESTART_COUNT"));
}

/* -- steps ------------------------------------------------------------------ */

static void set(const char *key, const char *value)
{
    if (!chain_store_set(key, value))
        lose_store();
}

static void get(const char *key, char value[128])
{
    if (!chain_store_get(key, value, 128))
        lose_store();
}

static void begin(void)
{
    char text[128];

    if (my.rank == 0) {
        if (!chain_claim(my.epoch)) {
            chain_note("stale", "%" PRIu64 " begins too late", my.epoch);
            exit(STALE);
        }
        chain_load(&chain, my.epoch);
        chain_note("begins", "%" PRIu64 " %" PRIu64 " %" PRIu64, my.epoch, chain.step,
                   my.world);
        snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, chain.step, chain.value);
        set("begin", text);
        return;
    }
    get("begin", text);
    sscanf(text, "%" SCNu64 " %" SCNu64, &chain.step, &chain.value);
    chain.epoch = my.epoch;
}

static void compare(const char *who, const char *theirs)
{
    uint64_t value = strtoull(theirs, NULL, 10);

    if (value != chain.value)
        chain_violation("epoch %" PRIu64 " step %" PRIu64 ": %s has %" PRIu64
                        ", rank %" PRIu64 " has %" PRIu64,
                        my.epoch, chain.step, who, value, my.rank, chain.value);
}

/* Rank 0's part of the all-gather. Returns whether this was the last step. */
static bool lead(void)
{
    bool last = access("finish", F_OK) == 0;
    char key[64], text[128];

    for (uint64_t r = 1; r < my.world; r++) {
        snprintf(key, sizeof(key), "%" PRIu64 "/%" PRIu64, chain.step, r);
        get(key, text);
        compare(key, text);
        if (!chain_store_delete(key))
            lose_store();
    }
    chain_note("steps", "%" PRIu64 " %" PRIu64 " %" PRIu64, my.epoch, chain.step,
               my.world);
    if ((last || chain.step % my.interval == 0) && !chain_commit(&chain)) {
        chain_note("stale", "%" PRIu64 " refused at %" PRIu64, my.epoch, chain.step);
        exit(STALE);
    }
    snprintf(key, sizeof(key), "%" PRIu64 "/all", chain.step);
    snprintf(text, sizeof(text), "%" PRIu64 " %s", chain.value, last ? "last" : "");
    set(key, text);
    return last;
}

static bool follow(void)
{
    char key[64], text[128];

    snprintf(key, sizeof(key), "%" PRIu64 "/%" PRIu64, chain.step, my.rank);
    snprintf(text, sizeof(text), "%" PRIu64, chain.value);
    set(key, text);
    snprintf(key, sizeof(key), "%" PRIu64 "/all", chain.step);
    get(key, text);
    compare("rank 0", text);
    return strstr(text, "last");
}

static void train(void)
{
    bool last = false;

    while (!last) {
        usleep(my.pace_ms * 1000);
        chain_obey(my.node, (unsigned)my.local_rank);
        chain.step++;
        chain.value = chain_next(chain.value, chain.step, my.epoch);
        last = my.rank == 0 ? lead() : follow();
        write_page(PROGRESS_TRAINING);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5 || chdir(argv[1]) < 0) {
        fprintf(stderr, "usage: chain-worker FOLDER PACE_MS STEPS exit|stay\n");
        return 2;
    }
    my.node = getenv("CHAOS_NODE") ? getenv("CHAOS_NODE") : "node";
    my.rank = number("RANK");
    my.local_rank = number("LOCAL_RANK");
    my.world = number("WORLD_SIZE");
    my.epoch = number("CRUN_EPOCH");
    my.pace_ms = (unsigned)atoi(argv[2]);
    my.interval = (unsigned)atoi(argv[3]);
    my.stay = strcmp(argv[4], "stay") == 0;
    find_page();
    write_page(PROGRESS_LOADING); /* who hangs before its first step is seen too */
    appear();
    if (!chain_store_connect(getenv("MASTER_ADDR"), getenv("MASTER_PORT"), CONNECT_S))
        lose_store();
    begin();
    train();
    return 0;
}

/* SPDX-License-Identifier: MIT */
#include "tests/chaos/chain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"

#define NAME_SIZE 64
#define DISK "disk/" /* only checkpoints are there: it may be full */

uint64_t chain_next(uint64_t value, uint64_t step, uint64_t epoch)
{
    uint64_t z = value ^ (step * 0x9e3779b97f4a7c15u) ^ (epoch << 40);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void note(const char *file, const char *format, va_list args)
{
    char line[512];
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int n = snprintf(line, sizeof(line), "%" PRIu64 " ", clock_us());

    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        fprintf(stderr, "chain-worker: %s: %s\n", file, strerror(errno));
    if (fd >= 0)
        close(fd);
}

void chain_note(const char *file, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    note(file, format, args);
    va_end(args);
}

void chain_violation(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    note("violations", format, args);
    va_end(args);
}

/* -- generations ------------------------------------------------------------ */

bool chain_superseded(uint64_t epoch)
{
    DIR *dir = opendir(".");
    struct dirent *entry;
    uint64_t other;
    bool newer = false;

    while (dir && (entry = readdir(dir)))
        if (sscanf(entry->d_name, "generation-%" SCNu64, &other) == 1 && other > epoch)
            newer = true;
    if (dir)
        closedir(dir);
    return newer;
}

bool chain_claim(uint64_t epoch)
{
    char name[NAME_SIZE];
    int fd;

    snprintf(name, sizeof(name), "generation-%" PRIu64, epoch);
    fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST)
        chain_violation("epoch %" PRIu64 " has begun twice", epoch);
    if (fd >= 0)
        close(fd);
    return fd >= 0 && !chain_superseded(epoch);
}

/* -- checkpoints ------------------------------------------------------------ */

static uint64_t checksum(const struct chain *c)
{
    uint64_t s = chain_next(c->value, c->step, c->parts);

    for (unsigned i = 0; i < c->parts; i++)
        s = chain_next(s, c->lineage[i].step, c->lineage[i].epoch);
    return s;
}

static bool write_checkpoint(const struct chain *c, const char *name)
{
    FILE *f = fopen(name, "we");
    bool ok;

    if (!f)
        return false;
    fprintf(f, "%" PRIu64 " %" PRIu64 " %u\n", c->step, c->value, c->parts);
    for (unsigned i = 0; i < c->parts; i++)
        fprintf(f, "%" PRIu64 " %" PRIu64 "\n", c->lineage[i].epoch,
                c->lineage[i].step);
    fprintf(f, "%" PRIu64 "\n", checksum(c));
    ok = fflush(f) == 0 && fsync(fileno(f)) == 0;
    return fclose(f) == 0 && ok;
}

bool chain_commit(const struct chain *c)
{
    char name[NAME_SIZE], temp[NAME_SIZE + 8];

    if (chain_superseded(c->epoch))
        return false;
    snprintf(name, sizeof(name), DISK "checkpoint-%" PRIu64 "-%" PRIu64, c->epoch,
             c->step);
    snprintf(temp, sizeof(temp), "%s.temp", name);
    if (!write_checkpoint(c, temp) || rename(temp, name) < 0) {
        chain_note("missed", "%" PRIu64 " %s", c->step, strerror(errno));
        unlink(temp);
        return true;
    }
    /* who claims a generation after this finds the checkpoint */
    if (chain_superseded(c->epoch)) {
        unlink(name);
        return false;
    }
    chain_note("commits", "%" PRIu64 " %" PRIu64 " %" PRIu64, c->epoch, c->step,
               c->value);
    return true;
}

static bool read_checkpoint(struct chain *c, const char *name)
{
    FILE *f = fopen(name, "re");
    uint64_t sum = 0;
    bool ok = f &&
              fscanf(f, "%" SCNu64 " %" SCNu64 " %u", &c->step, &c->value, &c->parts) ==
                  3 &&
              c->parts < CHAIN_LINEAGE_MAX;

    for (unsigned i = 0; ok && i < c->parts; i++)
        ok = fscanf(f, "%" SCNu64 " %" SCNu64, &c->lineage[i].epoch,
                    &c->lineage[i].step) == 2;
    ok = ok && fscanf(f, "%" SCNu64, &sum) == 1 && sum == checksum(c);
    if (f)
        fclose(f);
    return ok;
}

/* The newest by generation, then by step. */
static bool find_newest(char newest[NAME_SIZE])
{
    DIR *dir = opendir(DISK);
    struct dirent *entry;
    uint64_t epoch, step, best_epoch = 0, best_step = 0;
    char end;

    while (dir && (entry = readdir(dir))) {
        if (sscanf(entry->d_name, "checkpoint-%" SCNu64 "-%" SCNu64 "%c", &epoch, &step,
                   &end) != 2 ||
            epoch < best_epoch || (epoch == best_epoch && step <= best_step))
            continue;
        best_epoch = epoch;
        best_step = step;
    }
    if (dir)
        closedir(dir);
    snprintf(newest, NAME_SIZE, DISK "checkpoint-%" PRIu64 "-%" PRIu64, best_epoch,
             best_step);
    return best_epoch > 0;
}

void chain_load(struct chain *c, uint64_t epoch)
{
    char newest[NAME_SIZE];

    c->value = 1, c->step = 0, c->parts = 0;
    if (find_newest(newest) && !read_checkpoint(c, newest))
        chain_violation("%s is damaged", newest);
    c->epoch = epoch;
    c->lineage[c->parts++] = (struct chain_part){ epoch, c->step };
}

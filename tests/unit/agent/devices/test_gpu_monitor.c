/* SPDX-License-Identifier: MIT */
/* takes: 11 s */
/*
 * The care of GPUs, with its probe as a real process, and the stand-in for the driver's
 * library, which reads how the GPUs are from a file.
 */
#include "agent/devices/gpu_monitor.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/devices/gpu_probe.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/wire/protocol/proto.h"
#include "tests/fakes/nvml/nvml.h"
#include "tests/worlds/check_main.h"

#define WAIT_MS 60000

static struct loop *loop;
static struct gpu_monitor *care;
static struct config config;
static char state[] = "/tmp/gpu-care-XXXXXX";
static char remarks[4096];
static unsigned remark_count;
static struct msg_heartbeat beat;

/* -- helpers ---------------------------------------------------------------- */

static void on_remark(void *arg, enum note_kind kind, const char *text)
{
    size_t used = strlen(remarks);

    remark_count++;
    snprintf(remarks + used, sizeof(remarks) - used, "%s: %s\n", proto_note_name(kind),
             text);
}

/* How the GPUs are from now on; in one step, as the other side reads all the time. */
static void set_state(const char *text)
{
    char fresh[64];
    FILE *out;

    snprintf(fresh, sizeof(fresh), "%s.new", state);
    out = fopen(fresh, "w");
    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    fclose(out);
    ck_assert_int_eq(rename(fresh, state), 0);
}

static void begin_job(uint32_t first_rank)
{
    struct msg_start start = { .first_rank = first_rank, .workers = config.workers };

    gpu_monitor_begin(care, &start);
}

static void create_monitor(const char *gpus, uint32_t workers, const char *text)
{
    struct gpu_monitor_calls calls = { .remark = on_remark };

    setenv("NVML_GPUS", gpus, 1);
    set_state(text);
    config.workers = workers;
    care = gpu_monitor_create(loop, &config, &calls);
    ck_assert_ptr_nonnull(care);
    begin_job(4);
}

static void turn_once(void)
{
    beat = (struct msg_heartbeat){ .step = 0 };
    gpu_monitor_fill_heartbeat(care, &beat);
    loop_turn(loop, 10);
}

#define UNTIL(condition)                                                               \
    do {                                                                               \
        for (uint64_t end = clock_ms() + WAIT_MS; !(condition);) {                     \
            ck_assert_msg(clock_ms() < end, "%s; note \"%s\", remarks:\n%s",           \
                          #condition, beat.note, remarks);                             \
            turn_once();                                                               \
        }                                                                              \
    } while (0)

static void until_remark(const char *text)
{
    UNTIL(strstr(remarks, text));
}

static void setup(void)
{
    int fd = mkstemp(state);

    ck_assert_int_ge(fd, 0);
    close(fd);
    setenv("NVML_STATE", state, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    loop = loop_create();
}

static void teardown(void)
{
    gpu_monitor_destroy(care);
    loop_destroy(loop);
    unlink(state);
}

#define TWO "1b:GPU-a 5e:GPU-b"
#define PARTS "1b:GPU-a MIG-1 MIG-2 5e:GPU-b"
#define WELL "GPU-a percent=90\nGPU-b percent=90\n"

/* -- cases ------------------------------------------------------------------ */

__attribute__((constructor)) static void begin_program(int argc, char **argv)
{
    nvml_stand_in();
    gpu_probe_main_if_asked(argc, argv);
}

FIXTURE(setup, teardown);

TEST(a_heartbeat_says_how_the_gpus_are)
{
    create_monitor(
        TWO, 2,
        "GPU-a percent=90 used=1000 total=81920 celsius=50 watts=300\n"
        "GPU-b percent=100 used=71000 total=81920 celsius=88 watts=310 slowed=64\n");
    UNTIL(beat.gpus.count == 2);
    ck_assert_int_eq(beat.gpus.percent, 95);
    ck_assert_uint_eq(beat.gpus.used_mib, 71000);
    ck_assert_uint_eq(beat.gpus.total_mib, 81920);
    ck_assert_uint_eq(beat.gpus.celsius, 88);
    ck_assert_uint_eq(beat.gpus.watts, 610);
    ck_assert_str_eq(beat.gpus.each, "0:90 1:100");
    ck_assert_str_eq(beat.note, "GPU 1 hot");
    ck_assert_str_eq(remarks, "");
    set_state("GPU-a percent=20\nGPU-b percent=40\n");
    UNTIL(beat.gpus.percent == 30);
    ck_assert_str_eq(beat.note, "");
}

TEST(a_note_goes_before_the_one_that_is_there)
{
    create_monitor(TWO, 2, "GPU-a slowed=32\nGPU-b percent=1\n");
    UNTIL(*beat.note);
    beat = (struct msg_heartbeat){ .note = "rank 4 lags" };
    gpu_monitor_fill_heartbeat(care, &beat);
    ck_assert_str_eq(beat.note, "GPU 0 hot; rank 4 lags");
    memset(beat.note, 'x', sizeof(beat.note) - 1);
    gpu_monitor_fill_heartbeat(care, &beat);
    ck_assert_uint_eq(strlen(beat.note), sizeof(beat.note) - 1);
}

TEST(only_the_gpus_of_the_workers_count)
{
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    create_monitor(TWO, 3, "GPU-a percent=10\nGPU-b percent=80 xid=31\n");
    until_remark("xid: ranks 4, 5, 6: GPU 1 (0000:5e:00.0) had XID 31: ");
    UNTIL(beat.gpus.count == 1);
    ck_assert_int_eq(beat.gpus.percent, 80);
}

TEST(an_xid_is_told_once_an_epoch)
{
    create_monitor(TWO, 2, WELL);
    UNTIL(beat.gpus.count == 2);
    set_state("GPU-b xid=79\n");
    until_remark("xid: rank 5: GPU 1 (0000:5e:00.0) had XID 79: "
                 "it has fallen off the bus\n");
    UNTIL(beat.xid == 79 && beat.xids == 1);
    set_state("GPU-b xid=13\n");
    until_remark("XID 13");
    UNTIL(beat.xid == 13 && beat.xids == 2);
    set_state("GPU-b xid=79\n");
    set_state("GPU-b xid=79\nGPU-a xid=999\n");
    until_remark("xid: rank 4: GPU 0 (0000:1b:00.0) had XID 999\n");
    ck_assert_uint_eq(remark_count, 3);
    UNTIL(strcmp(beat.note, "GPU 0 XID 999, GPU 1 XID 79") == 0);
    begin_job(0);
    turn_once();
    ck_assert_str_eq(beat.note, "");
    set_state("GPU-b xid=13\n");
    until_remark("xid: rank 1: GPU 1 (0000:5e:00.0) had XID 13");
}

TEST(memory_errors_are_told_as_they_come)
{
    create_monitor(TWO, 2, "GPU-a errors=7\nGPU-b errors=0\n");
    UNTIL(beat.gpus.count == 2);
    set_state("GPU-a errors=7\nGPU-b errors=2 rows=1 recovery=1\n");
    /* in no certain order: a look under way may have seen half of it */
    until_remark("ecc: rank 5: GPU 1 (0000:5e:00.0) had 2 uncorrected memory errors\n");
    until_remark("ecc: rank 5: GPU 1 (0000:5e:00.0) has faulty memory that waits to be "
                 "remapped: it needs a reset\n");
    until_remark("gpu: rank 5: GPU 1 (0000:5e:00.0) needs a reset\n");
    ck_assert_uint_eq(remark_count, 3);
    UNTIL(strcmp(beat.note, "GPU 1 ECC") == 0);
    set_state("GPU-a errors=8\nGPU-b errors=2 rows=1 recovery=1\n");
    until_remark("rank 4: GPU 0 (0000:1b:00.0) had 1 uncorrected memory error\n");
    ck_assert_uint_eq(remark_count, 4);
}

TEST(a_part_is_judged_alone)
{
    setenv("CUDA_VISIBLE_DEVICES", "MIG-2", 1);
    create_monitor(PARTS, 1,
                   "GPU-a used=9000 total=10000 celsius=50\n"
                   "MIG-1 used=5000 total=5000\nMIG-2 used=1000 total=5000\n");
    UNTIL(beat.gpus.count == 1);
    ck_assert_uint_eq(beat.gpus.used_mib, 1000);
    ck_assert_uint_eq(beat.gpus.total_mib, 5000);
    ck_assert_uint_eq(beat.gpus.celsius, 50);
    ck_assert_int_eq(beat.gpus.percent, -1);
    set_state("GPU-a xid=31 instance=1\n"); /* another job's */
    for (int turn = 0; turn < 20; turn++)
        turn_once();
    set_state("GPU-a xid=13 instance=2\n");
    until_remark("xid: rank 4: MIG-2 of GPU 0 (0000:1b:00.0) had XID 13");
    set_state("GPU-a xid=79\n");
    until_remark("rank 4: MIG-2 of GPU 0 (0000:1b:00.0) had XID 79");
    ck_assert_uint_eq(remark_count, 2);
}

TEST(a_gpu_that_is_lost_is_told_once)
{
    create_monitor(TWO, 2, WELL);
    UNTIL(beat.gpus.count == 2);
    set_state("GPU-a percent=50\nGPU-b lost=1\n");
    until_remark("gpu: rank 5: GPU 1 (0000:5e:00.0) does not answer\n");
    UNTIL(beat.gpus.percent == 50 && strcmp(beat.note, "GPU 1 lost") == 0);
    ck_assert_uint_eq(remark_count, 1);
}

/* XIDs come all the same: they may be the reason. */
TEST(a_driver_that_hangs_holds_up_nothing)
{
    uint64_t longest = 0;

    create_monitor(TWO, 2, WELL);
    UNTIL(beat.gpus.count == 2);
    set_state("GPU-a hang=1\nGPU-b xid=119\n");
    until_remark("rank 5: GPU 1 (0000:5e:00.0) had XID 119");
    while (remark_count < 2) {
        uint64_t before = clock_ms(), took;

        beat = (struct msg_heartbeat){ .step = 0 };
        gpu_monitor_fill_heartbeat(care, &beat);
        took = clock_ms() - before;
        longest = took > longest ? took : longest;
        loop_turn(loop, 10);
    }
    ck_assert_msg(longest < 2000, "%" PRIu64 " ms", longest);
    ck_assert_ptr_nonnull(
        strstr(remarks, "gpu: the driver of this node's GPUs does not answer\n"));
    turn_once();
    ck_assert_uint_eq(beat.gpus.count, 0);
    ck_assert_str_eq(beat.note, "GPU driver does not answer");
    set_state(WELL);
    UNTIL(beat.gpus.count == 2);
}

/* The only child of this process. */
static pid_t probe_pid(void)
{
    char path[64];
    int pid = 0;
    FILE *in;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    ck_assert_int_eq(fscanf(in, "%d", &pid), 1);
    fclose(in);
    return pid;
}

TEST(a_library_that_crashes_ends_nothing_else)
{
    create_monitor(TWO, 2, WELL);
    UNTIL(beat.gpus.count == 2);
    ck_assert_int_eq(kill(probe_pid(), SIGKILL), 0);
    until_remark("gpu: the process that monitors this node's GPUs has died\n");
    turn_once();
    ck_assert_uint_eq(beat.gpus.count, 0);
}

TEST(the_probe_ends_with_its_agent)
{
    int status;

    create_monitor(TWO, 2, WELL);
    UNTIL(beat.gpus.count == 2);
    gpu_monitor_destroy(care);
    care = NULL;
    ck_assert_int_gt(waitpid(-1, &status, 0), 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(without_a_gpu_there_is_nothing_to_say)
{
    create_monitor("", 2, "");
    while (waitpid(-1, NULL, WNOHANG) == 0)
        turn_once();
    turn_once();
    turn_once();
    ck_assert_uint_eq(beat.gpus.count, 0);
    ck_assert_str_eq(beat.note, "");
    ck_assert_str_eq(remarks, "");
}

TEST(a_failure_names_the_xid_before_it)
{
    struct failure f = { .kind = FAILURE_SIGNAL, .rank = 5, .local_rank = 1 },
                   other = { .kind = FAILURE_EXIT, .rank = 4, .what = "exit code 1" },
                   late = { .kind = FAILURE_EXIT, .local_rank = 1, .what = "it" },
                   hang = { .kind = FAILURE_HANG, .local_rank = 1 };

    create_monitor(TWO, 2, WELL);
    UNTIL(beat.gpus.count == 2);
    set_state("GPU-b xid=79\n");
    until_remark("XID 79");
    strcpy(f.what, "killed by SIGABRT");
    f.at_ms = other.at_ms = clock_ms();
    gpu_monitor_explain(care, &f);
    ck_assert_ptr_nonnull(
        strstr(f.what, "killed by SIGABRT; GPU 1 (0000:5e:00.0) had XID 79 "));
    ck_assert_ptr_nonnull(strstr(f.what, " s before: it has fallen off the bus"));
    gpu_monitor_explain(care, &other);
    ck_assert_str_eq(other.what, "exit code 1");
    hang.at_ms = late.at_ms = f.at_ms + 3600000;
    gpu_monitor_explain(care, &late);
    ck_assert_str_eq(late.what, "it");
    gpu_monitor_explain(care, &hang);
    ck_assert_ptr_nonnull(strstr(hang.what, "had XID 79 "));
}

static char verdict[512];
static unsigned verdicts;

static void on_checked(void *arg, const char *unfit)
{
    verdicts++;
    snprintf(verdict, sizeof(verdict), "%s", unfit);
}

static const struct {
    const char *gpus, *state, *unfit;
} checks[] = {
    { TWO, WELL, "" },
    { TWO, "GPU-b mode=3", "" },
    { TWO, "GPU-b used=1000 total=10000 processes=1", "" },
    { "", "", "" },
    { "1b:?", "", "GPU 0 does not answer" },
    { TWO, "GPU-b lost=1", "GPU 1 (0000:5e:00.0) does not answer" },
    { TWO, "GPU-a recovery=2", "GPU 0 (0000:1b:00.0) needs a reboot of the machine" },
    { TWO, "GPU-a recovery=77",
      "GPU 0 (0000:1b:00.0) needs to be recovered (nvidia-smi -q shows how)" },
    { TWO, "GPU-a rows=1",
      "GPU 0 (0000:1b:00.0) has faulty memory that waits to be remapped: it needs a "
      "reset" },
    { TWO, "GPU-a failed=1",
      "GPU 0 (0000:1b:00.0) has memory that can no longer be repaired" },
    { TWO, "GPU-a mode=2", "GPU 0 (0000:1b:00.0) is in compute mode prohibited" },
    { TWO, "GPU-a mode=3 processes=1",
      "GPU 0 (0000:1b:00.0) is in compute mode exclusive, and another process has it" },
    { TWO, "GPU-b used=5000 total=10000 processes=2",
      "GPU 1 (0000:5e:00.0) has 5000 of its 10000 MiB in use already (2 processes)" },
    /* memory that is the host's */
    { TWO, "GPU-a unified=1\nGPU-b unified=1", "" },
    { TWO, "GPU-b unified=1 lost=1", "GPU 1 (0000:5e:00.0) does not answer" },
    { TWO, "GPU-b unified=1 recovery=1", "GPU 1 (0000:5e:00.0) needs a reset" },
    /* parts: the first is used, the second is another job's */
    { PARTS, "GPU-a used=9000 total=10000\nMIG-2 used=5000 total=5000 processes=3",
      "" },
    { PARTS, "GPU-a private=1\nMIG-1 total=5000", "" },
    { PARTS, "MIG-1 used=4000 total=5000 processes=1",
      "MIG-1 of GPU 0 (0000:1b:00.0) has 4000 of its 5000 MiB in use already "
      "(1 process)" },
    { PARTS, "GPU-a lost=1", "MIG-1 of GPU 0 (0000:1b:00.0) does not answer" },
};

TEST_EACH(a_check_finds_what_is_unfit, checks)
{
    create_monitor(checks[_i].gpus, 2, checks[_i].state);
    gpu_monitor_check(care, on_checked, NULL);
    UNTIL(verdicts);
    ck_assert_str_eq(verdict, checks[_i].unfit);
    verdicts = 0; /* what is known is said at once */
    gpu_monitor_check(care, on_checked, NULL);
    ck_assert_uint_eq(verdicts, 1);
}

TEST(a_driver_that_is_not_there_is_unfit)
{
    create_monitor(TWO, 2, "GPU-a hang=1");
    gpu_monitor_check(care, on_checked, NULL);
    loop_turn(loop, 10);
    ck_assert_uint_eq(verdicts, 0);
    ck_assert_int_eq(kill(probe_pid(), SIGKILL), 0);
    UNTIL(verdicts);
    ck_assert_str_eq(verdict, "the driver of its GPUs does not answer");
    gpu_monitor_check(NULL, on_checked, NULL);
    ck_assert_str_eq(verdict, "");
}

/* -- suite ------------------------------------------------------------------ */

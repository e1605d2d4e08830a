/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/loop.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "tests/worlds/check_main.h"

/* What happened, a letter each, in order. */
static struct {
    struct loop *loop;
    char happened[64];
    struct loop_timer timer;
    uint64_t fired_ms;
} t;

static void note_letter(char letter)
{
    size_t n = strlen(t.happened);

    ck_assert_uint_lt(n, sizeof(t.happened) - 1);
    t.happened[n] = letter;
}

/* arg is the letter; also a destroy function and a turn's end work */
static void note_arg(void *arg)
{
    note_letter(*(const char *)arg);
}

/* The same pointer for the same letter, as loop_off_turn_end compares them. */
static void *letter(char c)
{
    static char letters[128];

    letters[(unsigned char)c] = c;
    return &letters[(unsigned char)c];
}

static void setup(void)
{
    memset(&t, 0, sizeof(t));
    t.loop = loop_create();
}

static void teardown(void)
{
    loop_destroy(t.loop);
}

static void stop_and_note(void *arg)
{
    note_arg(arg);
    t.fired_ms = clock_ms();
    loop_stop(t.loop);
}

FIXTURE(setup, teardown);

TEST(a_timer_fires_once_and_never_early)
{
    uint64_t at_ms = clock_ms() + 30;

    loop_timer_init(&t.timer, t.loop, stop_and_note, letter('t'));
    loop_timer_arm(&t.timer, at_ms);
    ck_assert(t.timer.armed);
    loop_run(t.loop);
    ck_assert_uint_ge(t.fired_ms, at_ms);
    ck_assert(!t.timer.armed);
    loop_turn(t.loop, 20);
    ck_assert_str_eq(t.happened, "t");
    loop_timer_fini(&t.timer);
}

TEST(a_time_in_the_past_fires_in_the_next_turn)
{
    loop_timer_init(&t.timer, t.loop, note_arg, letter('t'));
    loop_timer_arm(&t.timer, 0);
    ck_assert_str_eq(t.happened, "");
    loop_turn(t.loop, 1000);
    ck_assert_str_eq(t.happened, "t");
    loop_timer_fini(&t.timer);
}

TEST(arming_again_moves_a_timer_both_ways)
{
    uint64_t start_ms = clock_ms();

    loop_timer_init(&t.timer, t.loop, stop_and_note, letter('t'));
    loop_timer_arm(&t.timer, start_ms + 60000);
    loop_timer_arm(&t.timer, start_ms + 10);
    loop_run(t.loop);
    ck_assert_uint_lt(t.fired_ms, start_ms + 60000);
    loop_timer_arm(&t.timer, 0);
    loop_timer_arm(&t.timer, clock_ms() + 60000);
    loop_turn(t.loop, 5);
    ck_assert_str_eq(t.happened, "t");
    loop_timer_fini(&t.timer);
}

TEST(a_cancelled_timer_does_not_fire)
{
    loop_timer_init(&t.timer, t.loop, note_arg, letter('t'));
    loop_timer_cancel(&t.timer);
    loop_timer_arm(&t.timer, 0);
    loop_timer_cancel(&t.timer);
    ck_assert(!t.timer.armed);
    loop_turn(t.loop, 5);
    ck_assert_str_eq(t.happened, "");
    loop_timer_fini(&t.timer);
    loop_timer_fini(&t.timer);
}

static void arm_three_times(void *arg)
{
    note_arg(arg);
    if (strlen(t.happened) < 3)
        loop_timer_arm(&t.timer, clock_ms() + 1);
    else
        loop_stop(t.loop);
}

TEST(a_timer_may_arm_itself_again)
{
    loop_timer_init(&t.timer, t.loop, arm_three_times, letter('t'));
    loop_timer_arm(&t.timer, 0);
    loop_run(t.loop);
    ck_assert_str_eq(t.happened, "ttt");
    loop_timer_fini(&t.timer);
}

static void free_timer(void *arg)
{
    loop_timer_fini(arg);
    free(arg);
    loop_stop(t.loop);
}

TEST(a_timer_may_be_freed_by_its_own_callback)
{
    struct loop_timer *timer = malloc(sizeof(*timer));

    loop_timer_init(timer, t.loop, free_timer, timer);
    loop_timer_arm(timer, 0);
    loop_run(t.loop);
}

static void defer_from_callback(void *arg)
{
    loop_defer(t.loop, note_arg, letter('d'));
    note_letter('c');
}

TEST(a_turn_is_callbacks_then_work_in_order_then_deferred_frees)
{
    loop_on_turn_end(t.loop, note_arg, letter('1'));
    loop_on_turn_end(t.loop, note_arg, letter('2'));
    loop_timer_init(&t.timer, t.loop, defer_from_callback, NULL);
    loop_turn(t.loop, 0);
    memset(t.happened, 0, sizeof(t.happened));
    loop_timer_arm(&t.timer, 0);
    loop_turn(t.loop, 1000);
    ck_assert_str_eq(t.happened, "12c12d");
    loop_timer_fini(&t.timer);
}

static void take_out_both(void *arg)
{
    note_arg(arg);
    loop_off_turn_end(t.loop, take_out_both, arg);
    loop_off_turn_end(t.loop, note_arg, letter('2'));
    loop_on_turn_end(t.loop, note_arg, letter('3'));
}

TEST(work_may_take_out_itself_and_others_and_add)
{
    loop_on_turn_end(t.loop, take_out_both, letter('1'));
    loop_on_turn_end(t.loop, note_arg, letter('2'));
    loop_turn(t.loop, 0);
    loop_turn(t.loop, 0);
    ck_assert_str_eq(t.happened, "13333");
}

static void defer_one_more(void *arg)
{
    note_arg(arg);
    loop_defer(t.loop, note_arg, letter('e'));
}

TEST(what_a_destroyed_object_defers_goes_in_the_same_turn)
{
    loop_defer(t.loop, defer_one_more, letter('d'));
    loop_turn(t.loop, 0);
    ck_assert_str_eq(t.happened, "de");
}

TEST(destroying_a_loop_destroys_what_was_deferred)
{
    /* the sanitizers and valgrind see what is left */
    loop_defer(t.loop, free, malloc(100));
    loop_defer(t.loop, note_arg, letter('d'));
    loop_destroy(t.loop);
    ck_assert_str_eq(t.happened, "d");
    loop_destroy(NULL);
    t.loop = NULL;
}

TEST(what_is_left_to_do_before_the_first_turn_is_done_before_it_waits)
{
    uint64_t start_ms = clock_ms();

    loop_on_turn_end(t.loop, stop_and_note, letter('w'));
    loop_run(t.loop);
    ck_assert_str_eq(t.happened, "w");
    ck_assert_uint_lt(clock_ms() - start_ms, 60000);
}

TEST(a_loop_can_be_stopped_before_it_runs_and_run_again)
{
    loop_timer_init(&t.timer, t.loop, stop_and_note, letter('t'));
    loop_timer_arm(&t.timer, 0);
    loop_stop(t.loop);
    loop_run(t.loop);
    ck_assert_str_eq(t.happened, "");
    loop_run(t.loop);
    ck_assert_str_eq(t.happened, "t");
    loop_timer_fini(&t.timer);
}

TEST(a_turn_ends_after_its_wait_though_nothing_happened)
{
    uint64_t start_ms = clock_ms();

    loop_turn(t.loop, 30);
    /* libevent's clock is a coarse one */
    ck_assert_uint_ge(clock_ms() - start_ms, 20);
    start_ms = clock_ms();
    loop_turn(t.loop, 0);
    ck_assert_uint_lt(clock_ms() - start_ms, 60000);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    char byte;

    ck_assert_int_eq(read(fd, &byte, 1), 1);
    note_arg(arg);
}

TEST(events_of_libevent_run_on_the_same_loop)
{
    struct event *event;
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    event = event_new(loop_base(t.loop), ends[0], EV_READ | EV_PERSIST, on_readable,
                      letter('r'));
    event_add(event, NULL);
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    loop_turn(t.loop, 1000);
    ck_assert_str_eq(t.happened, "r");
    event_free(event);
    close(ends[0]);
    close(ends[1]);
}

static void on_usr(void *arg, int signo)
{
    note_arg(arg);
    ck_assert(signo == SIGUSR1 || signo == SIGUSR2);
}

TEST(a_signal_reaches_its_latest_handler_in_a_turn)
{
    loop_on_signal(t.loop, SIGUSR1, on_usr, letter('0'));
    loop_on_signal(t.loop, SIGUSR1, on_usr, letter('1'));
    loop_on_signal(t.loop, SIGUSR2, on_usr, letter('2'));
    raise(SIGUSR1);
    ck_assert_str_eq(t.happened, "");
    loop_turn(t.loop, 1000);
    ck_assert_str_eq(t.happened, "1");
    raise(SIGUSR2);
    loop_turn(t.loop, 1000);
    ck_assert_str_eq(t.happened, "12");
}

static void on_stop_or_go(void *arg, int signo)
{
    note_letter(signo == SIGCONT ? 'c' : 't');
}

TEST(a_stop_and_an_order_to_go_on_discard_each_other)
{
    loop_on_signal(t.loop, SIGTSTP, on_stop_or_go, NULL);
    loop_on_signal(t.loop, SIGCONT, on_stop_or_go, NULL);
    raise(SIGTSTP);
    raise(SIGCONT);
    ck_assert(loop_signal_waits(SIGCONT) && !loop_signal_waits(SIGTSTP));
    loop_turn(t.loop, 1000);
    ck_assert(!loop_signal_waits(SIGCONT));
    raise(SIGCONT);
    raise(SIGTSTP);
    loop_turn(t.loop, 1000);
    ck_assert_str_eq(t.happened, "ct");
}

static void on_sent(void *arg, int signo)
{
    *(struct signal_sender *)arg = loop_signal_sender(signo);
}

TEST(a_handler_learns_who_has_sent_the_signal)
{
    const struct itimerval soon = { .it_value.tv_usec = 1000 };
    struct signal_sender sender = { .is_process = false };
    pid_t child;

    loop_on_signal(t.loop, SIGUSR1, on_sent, &sender);
    child = fork();
    if (child == 0) {
        kill(getppid(), SIGUSR1);
        _exit(0);
    }
    loop_turn(t.loop, 10000);
    waitpid(child, NULL, 0);
    ck_assert(sender.is_process);
    ck_assert_int_eq(sender.pid, child);
    ck_assert_uint_eq(sender.uid, getuid());
    loop_on_signal(t.loop, SIGALRM, on_sent, &sender);
    setitimer(ITIMER_REAL, &soon, NULL);
    loop_turn(t.loop, 10000);
    ck_assert(!sender.is_process);
}

TEST(a_broken_pipe_is_an_error_and_no_signal)
{
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    ck_assert_int_eq(write(ends[1], "x", 1), -1);
    close(ends[1]);
}

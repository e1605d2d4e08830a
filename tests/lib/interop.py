# SPDX-License-Identifier: MIT
"""
Real PyTorch clients against the store server.

Every check runs twice with the same code: against PyTorch's own server, which proves
the check itself, and against ours. What it asserts must hold and what it returns must
be equal on both. Each run has a fresh server, so key counts and lists are exact.

Stores are handed out behind a recorder. At the end, a public method of this version's
TCPStore or PrefixStore that no check has called is a failure: a method that a new
version adds cannot be overlooked.

Started by scripts/checks/interop with the Python of that version's environment:
    interop.py STORE_SERVER
"""

import concurrent.futures
import datetime
import faulthandler
import multiprocessing
import os
import sys
import time
import traceback

from interop_stores import (HOST, PATIENCE, Connections, OurServer, Recorded, TorchServer,
                            assert_blocks, called, error_type, outcome, seconds_of)
import torch
import torch.distributed as dist

HANG_S = 90  # a check that takes longer ends the run, with the stack of every thread
SHORT = datetime.timedelta(milliseconds=100)  # for what has to time out
RANKS = 4


# -- checks ----------------------------------------------------------------------------

BOTH = ("TCPStore", "PrefixStore")
checks = []


def check(*needs, kinds=BOTH):
    """A check that uses the named methods and is skipped by versions without them."""

    def register(function):
        checks.append((function, needs, kinds))
        return function

    return register


@check()
def set_and_get(connect):
    store, other = connect(), connect()
    values = ["v", "", "ä€😀", "with\0nul", "x" * 1439, "x" * 1440, "x" * 1441]
    keys = ["k", "", "a/b", "/", "ä€😀", "spaces and\nlines", "k" * 8000]
    for key in keys:
        for value in values:
            store.set(key, value)
            assert store.get(key) == value.encode()
    # SET has no reply: on another connection it is seen when ours has answered
    return [other.get(key) for key in keys]


@check()
def big_values(connect):
    store, other = connect(), connect()
    sizes = [65536, 1 << 20, (8 << 20) - 1, 8 << 20]
    for size in sizes:
        value = "0123456789abcdef" * (size // 16) + "x" * (size % 16)
        store.set("big", value)
        assert store.get("big") == value.encode()
    return [len(other.get("big")), other.get("big")[-3:]]


@check()
def a_value_over_the_limit_ends_the_connection(connect):
    store, other = connect(), connect()
    other.set("k", "v")
    store.set("k", "kept")
    assert store.get("k") == b"kept"
    error = error_type(lambda: (store.set("k", "x" * ((8 << 20) + 1)), store.num_keys()))
    return [error, other.get("k")]


@check()
def add(connect):
    store, other = connect(), connect()
    results = [store.add("n", delta) for delta in (1, 1, -5, 0, 1 << 40, -(1 << 62))]
    results.append(other.get("n"))
    for text in ("41", "-7", " 12", "+3", "12abc", "007"):
        other.set("text", text)
        results += [other.get("text"), other.add("text", 1), other.get("text")]
    return results


@check()
def add_to_no_number_ends_the_connection(connect):
    store, other = connect(), connect()
    store.set("text", "no number")
    return [store.get("text"), error_type(store.add, "text", 1), other.get("text")]


@check("check")
def check_keys(connect):
    store = connect()
    store.set("a", "1")
    store.add("b", 1)
    lists = [["a"], ["b"], ["c"], ["a", "b"], ["a", "c"], ["c", "a"], [], ["a"] * 1000]
    return [store.check(keys) for keys in lists]


@check()
def compare_set(connect):
    store = connect()
    steps = [
        ("new", "", "first"),
        ("new", "", "second"),
        ("new", "wrong", "third"),
        ("new", "first", "fourth"),
        ("new", "fourth", ""),
        ("new", "", "fifth"),
        ("missing", "expected", "desired"),
    ]
    results = [store.compare_set(*step) for step in steps]
    return results + [store.get("new"), store.check(["missing"])]


@check()
def delete_key(connect):
    store = connect()
    store.set("k", "v")
    results = [store.delete_key("k"), store.check(["k"]), store.delete_key("k")]
    store.set("k", "again")
    return results + [store.get("k"), store.delete_key("never")]


@check()
def num_keys(connect):
    store = connect()
    results = [store.num_keys()]
    for step in (
        lambda: store.set("a", ""),
        lambda: store.set("a", "1"),
        lambda: store.add("b", 0),
        lambda: store.append("c", "x"),
        lambda: store.compare_set("d", "", "x"),
        lambda: store.compare_set("e", "x", "y"),
        lambda: store.delete_key("a"),
        lambda: store.check(["f"]),
    ):
        step()
        results.append(store.num_keys())
    return results


@check("append")
def append(connect):
    store = connect()
    for text in ("a", "", "bc", "ä", "x" * 100000):
        store.append("k", text)
    store.set("k2", "set")
    store.append("k2", "+more")
    store.append("n", "4")
    return [len(store.get("k")), store.get("k")[:6], store.get("k2"), store.add("n", 1)]


@check("multi_set", "multi_get")
def multi_set_and_multi_get(connect):
    store = connect()
    keys = [f"k{i}" for i in range(3000)]
    values = [str(i) * (i % 50) for i in range(3000)]
    store.multi_set(keys, values)
    assert store.multi_get(keys) == [value.encode() for value in values]
    assert store.get("k7") == b"7777777"
    store.set("k1", "set again")
    return [
        store.multi_get(["k1", "k2", "k1"]),
        store.multi_get([]),
        store.num_keys(),
        error_type(store.multi_set, ["a", "b"], ["only one"]),
        outcome(store.multi_get, ["k1", "k2"]),
    ]


@check()
def wait_for_keys_that_are_there(connect):
    store = connect()
    store.set("a", "1")
    store.set("b", "2")
    return [store.wait(keys) for keys in ([], ["a"], ["a", "b"], ["a", "a"], ["b"] * 500)] + [
        store.wait(["a"], SHORT),
        store.get("a"),
    ]


@check()
def a_wait_is_woken_by_every_write(connect):
    writer = connect()
    writers = {
        "set": lambda key: writer.set(key, "v"),
        "add": lambda key: writer.add(key, 1),
        "append": lambda key: writer.append(key, "v"),
        "compare_set": lambda key: writer.compare_set(key, "", "v"),
        "multi_set": lambda key: writer.multi_set([key, key + "2"], ["v", "w"]),
    }
    stores = {name: connect() for name in writers}
    with concurrent.futures.ThreadPoolExecutor(len(writers)) as pool:
        waits = {n: pool.submit(stores[n].wait, [n, "common"], PATIENCE) for n in writers}
        assert_blocks(waits.values())
        for name, write in writers.items():
            write(name)
        assert_blocks(waits.values())
        writer.set("common", "")
        for wait in waits.values():
            wait.result()
    return [stores[name].get(name) for name in writers]


@check()
def get_waits_for_the_key(connect):
    store, writer = connect(), connect()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        get = pool.submit(store.get, "late")
        assert_blocks([get])
        writer.set("late", "value")
        assert get.result() == b"value"
        multi = pool.submit(store.multi_get, ["late", "later"])
        assert_blocks([multi])
        writer.set("later", "more")
        return multi.result()


@check()
def a_timeout_leaves_the_connection_usable(connect):
    store, writer = connect(timeout=SHORT), connect()
    results = []
    for _ in range(3):
        took = seconds_of(store.wait, ["never"], SHORT)
        assert took > 0.08, f"a wait of 0.1 s took {took} s"
        results += [outcome(store.wait, ["never"], SHORT), outcome(store.get, "never")]
        store.set("k", "v")
        results += [store.get("k"), store.add("n", 1)]
    writer.set("never", "now")
    assert writer.get("never") == b"now"
    return results + [store.get("never"), outcome(store.wait, ["never", "ever"], SHORT)]


@check()
def a_key_that_comes_as_the_wait_times_out(connect):
    store, writer = connect(), connect()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for turn in range(100):
            key = f"k{turn}"
            limit = datetime.timedelta(milliseconds=2)
            wait = pool.submit(outcome, store.wait, [key], limit)
            time.sleep(0.002)
            writer.set(key, str(turn))
            wait.result()
            assert store.get(key) == str(turn).encode()
    return store.num_keys()


@check("set_timeout")
def timeout_and_set_timeout(connect):
    store = connect()
    results = [store.timeout]
    store.set_timeout(SHORT)
    return results + [store.timeout, outcome(store.get, "never")]


@check()
def what_a_store_says_of_itself(connect):
    store = connect()
    if connect.kind == "TCPStore":
        assert store.port == connect.server.port
        return [store.host, store.libuvBackend, store.has_extended_api()]
    inner = [store.underlying_store, store._underlying_non_prefix_store]
    assert all(isinstance(i, dist.TCPStore) for i in inner)
    assert inner[0].port == connect.server.port
    return [store.has_extended_api()]


@check()
def prefixes(connect):
    plain, store = connect.tcp(), connect()
    inner = Recorded(dist.PrefixStore("inner", store._store))
    store.set("k", "outer")
    inner.set("k", "inner")
    plain.set("k", "plain")
    results = [s.get("k") for s in (store, inner, plain)]
    for s in (store, inner, plain):
        results += [s.add("n", 1), s.delete_key("k"), s.check(["k"]), s.num_keys()]
    return results


@check("clone")
def clone(connect):
    store = connect()
    twin = store.clone()
    store.set("k", "v")
    assert store.get("k") == b"v"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        wait = pool.submit(store.wait, ["from the twin"])
        assert_blocks([wait])
        twin.set("from the twin", "v")
        wait.result()
    return [twin.get("k"), twin.timeout, twin.num_keys(), type(twin._store).__name__]


@check("queue_push", "queue_pop", "queue_len")
def queues(connect):
    store, other = connect(), connect()
    results = [store.queue_len("q"), outcome(store.queue_pop, "q", False)]
    for value in ("first", "", "third", "x" * 100000):
        store.queue_push("q", value)
    results += [store.queue_len("q"), store.check(["q"]), store.num_keys()]
    results += [other.queue_pop("q"), store.queue_pop("q", False), store.queue_len("q")]
    results += [len(store.queue_pop("q")), len(store.queue_pop("q")), store.queue_len("q")]
    store.set("q", "a key of that name")
    store.queue_push("q", "beside it")
    results += [store.get("q"), store.queue_pop("q"), store.num_keys()]
    store.queue_push("gone", "v")
    return results + [store.delete_key("gone"), store.queue_len("gone")]


@check("queue_push", "queue_pop", "queue_len")
def queue_pop_waits(connect):
    poppers, store = [connect() for _ in range(3)], connect()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        pops = [pool.submit(popper.queue_pop, "q") for popper in poppers]
        assert_blocks(pops)
        for value in ("a", "b", "c"):
            store.queue_push("q", value)
        results = sorted(pop.result() for pop in pops)
    hasty = connect(timeout=SHORT)
    results += [outcome(hasty.queue_pop, "q"), hasty.queue_len("q")]
    store.queue_push("q", "after the timeout")
    assert store.queue_len("q") == 1
    return results + [hasty.queue_pop("q"), store.queue_len("q")]


@check("queue_push", "queue_pop")
def push_passes_those_who_wait_for_more(connect):
    both, popper, store = connect(), connect(), connect()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wait = pool.submit(both.wait, ["q", "other"])
        assert_blocks([wait])
        pop = pool.submit(popper.queue_pop, "q")
        assert_blocks([wait, pop])
        store.queue_push("q", "v")
        results = [pop.result()]
        assert_blocks([wait])
        store.set("other", "")
        wait.result()
    return results + [store.queue_len("q")]


@check("list_keys")
def list_keys(connect):
    store, plain = connect(), connect.tcp()
    results = [store.list_keys()]
    store.set("a", "1")
    store.set("b/c", "2")
    store.add("n", 1)
    store.delete_key("a")
    store.multi_set([f"k{i}" for i in range(1000)], ["v"] * 1000)
    plain.set("outside", "v")
    assert plain.get("outside") == b"v"
    return results + [sorted(store.list_keys()), sorted(plain.list_keys())]


@check("barrier")
def barrier(connect):
    stores = [connect() for _ in range(RANKS)]
    with concurrent.futures.ThreadPoolExecutor(RANKS) as pool:
        for turn in range(3):
            arrivals = [
                pool.submit(s.barrier, f"b{turn}", RANKS, PATIENCE) for s in stores[1:]
            ]
            assert_blocks(arrivals)
            stores[0].barrier(f"b{turn}", RANKS, PATIENCE)
            for arrival in arrivals:
                arrival.result()
    alone = [outcome(stores[0].barrier, "alone", 2, SHORT), stores[0].num_keys()]
    stores[1].barrier("alone", 2, PATIENCE)
    return alone + [stores[0].num_keys(), stores[0].add("n", 1)]


@check(kinds=("TCPStore",))
def world_size_counts_the_clients(connect):
    stores = [connect(world_size=RANKS) for _ in range(RANKS)]
    return [store.num_keys() for store in stores]


@check(kinds=("TCPStore",))
def many_clients(connect):
    stores = [connect() for _ in range(300)]
    for i, store in enumerate(stores):
        store.set(f"k{i}", str(i))
    # the last one to write is the first to read
    for i, store in enumerate(reversed(stores)):
        assert store.get(f"k{i}") == str(i).encode()
    return stores[0].num_keys()


@check()
def many_threads_add_to_one_number(connect):
    threads, turns = 16, 100
    stores = [connect() for _ in range(threads)]

    def work(store):
        return [store.add("n", 1) for _ in range(turns)]

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        seen = sorted(n for values in pool.map(work, stores) for n in values)
    assert seen == list(range(1, threads * turns + 1))
    return stores[0].get("n")


@check()
def a_server_that_ends_is_an_error(connect):
    store = connect()
    store.set("k", "v")
    assert store.get("k") == b"v"
    connect.server.stop()
    return error_type(lambda: [store.get("k") for _ in range(3)])


# -- process groups --------------------------------------------------------------------


def rank_main(rank, port, done):
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(RANKS),
        LOCAL_RANK=str(rank),
        MASTER_ADDR=HOST,
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT="0",
        GLOO_SOCKET_IFNAME="lo",
    )
    try:
        use_process_group(rank)
        done.put((rank, None))
    except Exception:
        done.put((rank, traceback.format_exc()))


def use_process_group(rank):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    assert (dist.get_rank(), dist.get_world_size()) == (rank, RANKS)
    tensor = torch.tensor([float(rank + 1)])
    dist.all_reduce(tensor)
    assert tensor.item() == sum(range(1, RANKS + 1))

    even = dist.new_group([0, 2])
    odd = dist.new_group([1, 3])
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=odd if rank % 2 else even)
    assert tensor.item() == (4.0 if rank % 2 else 2.0)

    gathered = [None] * RANKS
    dist.all_gather_object(gathered, {"rank": rank})
    assert [g["rank"] for g in gathered] == list(range(RANKS))
    tensor = torch.full((1000,), float(rank))
    dist.broadcast(tensor, src=3)
    assert tensor.eq(3.0).all()
    dist.monitored_barrier()
    dist.barrier()
    dist.destroy_process_group()


def gloo_with_four_ranks(server):
    # forked, so that torch is imported once; nothing here has started a thread yet
    context = multiprocessing.get_context("fork")
    done = context.Queue()
    ranks = [
        context.Process(target=rank_main, args=(rank, server.port, done), daemon=True)
        for rank in range(RANKS)
    ]
    for process in ranks:
        process.start()
    errors = [done.get(timeout=90) for _ in ranks]
    for process in ranks:
        process.join()
    failed = [f"rank {rank}: {error}" for rank, error in sorted(errors) if error]
    assert not failed, "\n".join(failed)


# -- running ---------------------------------------------------------------------------


class Score:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def ok(self, what, seconds):
        self.passed += 1
        print(f"ok    {what}  ({seconds:.1f} s)", flush=True)

    def fail(self, what, why):
        self.failed += 1
        print(f"FAIL  {what}: {why}", flush=True)

    def skip(self, what, why):
        self.skipped += 1
        print(f"skip  {what}: {why}", flush=True)


def run_on(make_server, kind, function):
    server = make_server()
    try:
        return function(Connections(server, kind))
    finally:
        server.stop()


def run_check(score, program, kind, function):
    what = f"{kind}: {function.__name__.replace('_', ' ')}"
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    start = time.monotonic()
    try:
        expected = run_on(TorchServer, kind, function)
    except Exception as error:
        return score.fail(what, f"the check does not hold with PyTorch's server: {error!r}")
    try:
        seen = run_on(lambda: OurServer(program), kind, function)
    except Exception:
        return score.fail(what, traceback.format_exc())
    if seen != expected:
        return score.fail(what, f"\n  expected {expected!r}\n  seen     {seen!r}")
    return score.ok(what, time.monotonic() - start)


def run_gloo(score, program):
    what = f"env:// with the agent's store: gloo with {RANKS} ranks"
    faulthandler.dump_traceback_later(2 * HANG_S, exit=True)
    start = time.monotonic()
    server = OurServer(program)
    try:
        gloo_with_four_ranks(server)
        score.ok(what, time.monotonic() - start)
    except Exception:
        score.fail(what, traceback.format_exc())
    finally:
        server.stop()


def run_coverage(score):
    for kind in BOTH:
        public = {name for name in dir(getattr(dist, kind)) if not name.startswith("_")}
        unknown = sorted(public - called[kind])
        what = f"{kind}: all {len(public)} public methods were called"
        if unknown:
            score.fail(what, f"but not {', '.join(unknown)}")
        else:
            score.ok(what, 0)


def main():
    program = sys.argv[1]
    score = Score()
    run_gloo(score, program)
    for function, needs, kinds in checks:
        for kind in kinds:
            lacking = [n for n in needs if not hasattr(getattr(dist, kind), n)]
            if lacking:
                score.skip(
                    f"{kind}: {function.__name__.replace('_', ' ')}",
                    f"torch {torch.__version__} has no {', '.join(lacking)}",
                )
            else:
                run_check(score, program, kind, function)
    run_coverage(score)
    print(f"{score.passed} passed, {score.failed} failed, {score.skipped} skipped")
    return 1 if score.failed else 0


if __name__ == "__main__":
    sys.exit(main())

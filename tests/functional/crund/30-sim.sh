#!/bin/bash
# SPDX-License-Identifier: MIT
# takes: 12 s
# A short run of the simulator, and that a seed always takes the same course: the trace
# of a seed is the same, byte for byte, whatever ran before it in the same process.
set -u
sim=${BUILD:-build}/bin/crun-sim
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAIL: $*"
    exit 1
}

a_seed_takes_one_course() {
    for seed in 1 7 23; do
        "$sim" --seed "$seed" --trace >"$dir/first" || fail "seed $seed: $(tail -1 "$dir/first")"
        "$sim" --seed "$seed" --trace >"$dir/second"
        cmp "$dir/first" "$dir/second" || fail "seed $seed takes two courses"
    done

    "$sim" --seeds 50 --jobs 1 >"$dir/one" && "$sim" --seeds 50 --jobs 3 >"$dir/three" ||
        fail "50 seeds"
    [[ $(grep -c -- '--' "$dir/one") -gt 0 ]] || fail "no edges are shown"
    diff <(grep -- '--' "$dir/one") <(grep -- '--' "$dir/three") ||
        fail "what happens depends on the number of processes"
}

# A sanitizer looks for what each event may do wrong, which few seeds do, too; that a seed takes
# one course it finds no better than the plain build.
courses=1 seeds=500 replica_seeds=60
case ${BUILD:-} in *-asan | *-tsan) courses=0 seeds=60 replica_seeds=12 ;; esac
"$sim" --seeds $seeds --jobs 2 >"$dir/run" 2>&1 || {
    cat "$dir/run"
    fail "an invariant does not hold"
}
grep -q "^$seeds seeds, " "$dir/run" || fail "the report is missing: $(tail -1 "$dir/run")"

[ $courses = 0 ] || a_seed_takes_one_course

# the same for a job whose own nodes keep the rendezvous
"${sim%crun-sim}crun-replicas-sim" 1 $replica_seeds >"$dir/run" 2>&1
code=$?
((code == 0 || code == 77)) || {
    cat "$dir/run"
    fail "replicas: an invariant does not hold"
}

for bad in --seeds=0 --jobs=x --seed=-1 word; do
    "$sim" "$bad" >"$dir/out" 2>&1
    (($? == 2)) || fail "$bad is accepted"
done
"$sim" --help | grep -q -- --trace || fail "--help does not list the flags"

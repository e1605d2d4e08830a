#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# sanitizers: no, it runs fake tests
#
# scripts/run-tests gives a test that failed beside others a second try, alone; and tells.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# fake NAME: its text comes from the standard input; $tried is a file that outlives one run
fake()
{
    local file=$place/$1
    mkdir -p "${file%/*}"
    { printf '#!/bin/sh\ntried=%q.tried\n' "$file" && cat; } >"$file"
    chmod +x "$file"
}

# start_over: no test has been tried
start_over()
{
    find "$place" -name '*.tried' -delete
}

# run_fakes RC FLAGS...: what run-tests prints goes to $place/out
run_fakes()
{
    local wanted=$1 rc=0
    shift
    start_over
    "$place/scripts/run-tests" --build "$place/build" "$@" >"$place/out" 2>&1 || rc=$?
    [ $rc = "$wanted" ] || fail "$*: exit code $rc, not $wanted"
}

fail()
{
    echo "FAIL: $*"
    cat "$place/out"
    exit 1
}

# says TEXT: as a whole line
says()
{
    grep -qxF -- "$1" "$place/out" || fail "no line \"$1\""
}

ends_with()
{
    [ "$(tail -n 1 "$place/out")" = "$1" ] || fail "the last line is not \"$1\""
}

mkdir -p "$place/scripts" "$place/tests/unit" "$place/build/tests"
cp "$root/scripts/run-tests" "$place/scripts"
fake tests/functional/a/10-fine.sh <<<'exit 0'
fake tests/functional/a/11-loaded.sh <<'END'
[ -e "$tried" ] || { touch "$tried"; echo 'late by one second'; exit 3; }
END
fake tests/functional/a/12-skips.sh <<<'[ -e "$tried" ] && exit 77; touch "$tried"; exit 1'
echo '/* its cases */' >"$place/tests/unit/test_cases.c"
fake build/tests/test_cases <<'END'
[ -e "$tried" ] && echo '100%: Checks: 4, Failures: 0, Errors: 0' && exit
touch "$tried"
echo '50%: Checks: 4, Failures: 1, Errors: 1'
exit 1
END

# a case that says so is skipped
echo '/* its cases */' >"$place/tests/unit/test_rights.c"
fake build/tests/test_rights <<'END'
printf 'skipped: no right\nskipped: no right\nskipped: no luck\n100%%: Checks: 7, Failures: 0, Errors: 0\n'
END
run_fakes 0 --match test_rights
says '  SKIPPED  cases                   2  no right'
says '  SKIPPED  cases                   1  no luck'
ends_with '4 passed, 0 failed, 3 skipped'
rm "$place/tests/unit/test_rights.c"

run_fakes 0
says 'failed beside others, run again alone:'
for name in 11-loaded.sh 12-skips.sh test_cases; do
    says "passed alone, failed beside others: $name; its output when it failed:"
done
[ "$(grep -cxF '        | late by one second' "$place/out")" = 2 ] || fail 'the output is not twice there'
ends_with '6 passed, 0 failed, 1 skipped'

# who looks for such failures gets them
run_fakes 1 --busy
ends_with '3 passed, 4 failed, 0 skipped'
run_fakes 1 --jobs 1
ends_with '3 passed, 4 failed, 0 skipped'
run_fakes 1 --match loaded
ends_with '0 passed, 1 failed, 0 skipped'

# what fails twice has failed, and so has what a sanitizer found once
fake tests/functional/a/13-broken.sh <<<'exit 1'
fake tests/functional/a/14-overflow.sh <<'END'
[ -e "$tried" ] || { touch "$tried"; echo '==7==ERROR: AddressSanitizer: stack-buffer-overflow'; exit 1; }
END
run_fakes 1
ends_with '6 passed, 2 failed, 1 skipped'
! grep -E '^passed alone.* 1[34]-' "$place/out" || fail 'broken tests passed'

# many failures are no matter of load
for number in 15 16; do
    fake tests/functional/a/$number-broken.sh <<<'exit 1'
done
run_fakes 1
ends_with '3 passed, 8 failed, 0 skipped'
! grep -E '^passed alone' "$place/out" || fail 'one of many passed'

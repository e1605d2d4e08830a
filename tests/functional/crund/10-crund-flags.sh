#!/bin/bash
# SPDX-License-Identifier: MIT
# Every flag of crund, every wrong value, and everything that keeps it from starting:
# one line that says what, and the exit code.
set -u
crund=${BUILD:-build}/bin/crund
dir=$(mktemp -d)
failed=0

# shellcheck disable=SC2317
cleanup() {
    jobs -pr | xargs -r kill -9
    wait
    chmod -R u+rwx "$dir"
    rm -rf "$dir"
}
trap cleanup EXIT

fail() {
    echo "FAIL: $*"
    failed=1
}

# refuses CODE "words that must be in the one line" command...
refuses() {
    local code=$1 words=$2 got word
    shift 2
    timeout 90 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    ((got == code)) || fail "$*: exit code $got, not $code: $(cat "$dir/err")"
    (($(wc -l <"$dir/err") == 1)) || fail "$*: not one line: $(cat "$dir/err")"
    [[ -s $dir/out ]] && fail "$*: writes to standard output"
    for word in $words; do
        grep -qF -e "$word" "$dir/err" || fail "$*: \"$word\" not in: $(cat "$dir/err")"
    done
}

# Start crund with the arguments on any port; sets pid and port.
start() {
    : >"$dir/log"
    "$crund" --listen 127.0.0.1:0 "$@" 2>"$dir/log" </dev/null &
    pid=$!
    for ((i = 0; i < 9000; i++)); do
        port=$(sed -n 's/.*listening on 127.0.0.1:\([0-9]*\).*/\1/p' "$dir/log")
        [[ $port ]] && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.01
    done
    fail "crund $* does not start: $(cat "$dir/log")"
}

# stop SIGNAL: it must end with 0
stop() {
    kill -"$1" "$pid"
    wait "$pid"
    local code=$?
    ((code == 0)) || fail "exit code $code after SIG$1: $(cat "$dir/log")"
}

# -- wrong flags
refuses 2 "--lisen --listen" "$crund" --lisen 127.0.0.1:0
refuses 2 "--listen" "$crund" --listen
refuses 2 "--listen" "$crund" --listen ''
refuses 2 "--listen 127.0.0.1:http" "$crund" --listen 127.0.0.1:http
refuses 2 "--listen 65536" "$crund" --listen 127.0.0.1:65536
refuses 2 "--listen -1" "$crund" --listen 127.0.0.1:-1
refuses 2 "--listen 127.0.0.1:" "$crund" --listen 127.0.0.1:
refuses 2 "--listen" "$crund" --listen '[::1:0'
refuses 2 "--listen no..host" "$crund" --listen no..host:0
refuses 2 "--max-connections many" "$crund" --max-connections many
refuses 2 "--max-connections 0 40000" "$crund" --max-connections 0
refuses 2 "--max-connections -5" "$crund" --max-connections=-5
refuses 2 "--max-connections 40001 40000" "$crund" --max-connections 40001
refuses 2 "--max-connections 99999999999999999999" "$crund" --max-connections 99999999999999999999
refuses 2 "--log-format xml text json" "$crund" --log-format xml
refuses 2 "--state-dir" "$crund" --state-dir
refuses 2 "--state-dir" "$crund" --state-dir ''
refuses 2 "--verbose" "$crund" --verbose=7
refuses 2 "--webhook is gone --on-event curl" "$crund" --webhook=http://a
refuses 2 "CRUND_HEARTBEAT_URL is gone /healthz" env CRUND_HEARTBEAT_URL=http://a "$crund"
refuses 2 "--on-event-kinds falied failed?" "$crund" --on-event true --on-event-kinds done,falied
refuses 2 "--on-event-kinds needs --on-event" "$crund" --on-event-kinds done
refuses 2 "serve" "$crund" serve
refuses 2 "CRUND_MAX_CONNECTIONS" env CRUND_MAX_CONNECTIONS=x "$crund"

# -- what cannot be had
start
refuses 1 "port $port in use $pid" "$crund" --listen "127.0.0.1:$port"
stop TERM
refuses 1 "192.0.2.1" "$crund" --listen 192.0.2.1:0

# -- the state directory
state=$dir/state
start --state-dir "$state"
grep -qF "$state" "$dir/log" || fail "does not say where its state is: $(cat "$dir/log")"
[[ $(stat -c %a "$state") == 700 ]] || fail "mode of the state directory: $(stat -c %a "$state")"
refuses 1 "$state" "$crund" --listen 127.0.0.1:0 --state-dir "$state"
stop TERM
start --state-dir "$state" # again, on what it left
stop TERM
: >"$dir/file"
refuses 1 "$dir/file directory" "$crund" --listen 127.0.0.1:0 --state-dir "$dir/file"
refuses 1 "$dir/no/such" "$crund" --listen 127.0.0.1:0 --state-dir "$dir/no/such"
refuses 1 "/proc/crund" "$crund" --listen 127.0.0.1:0 --state-dir /proc/crund
mkdir "$dir/damaged"
head -c 4096 /dev/urandom >"$dir/damaged/journal"
refuses 1 "$dir/damaged" "$crund" --listen 127.0.0.1:0 --state-dir "$dir/damaged"
if ((EUID != 0)); then
    mkdir -m 500 "$dir/readonly"
    refuses 1 "$dir/readonly denied" "$crund" --listen 127.0.0.1:0 --state-dir "$dir/readonly"
fi

# -- what is said, and how it ends
[[ $("$crund" --version) == crund\ [0-9]*.[0-9]*.[0-9]* ]] || fail "--version: $("$crund" --version)"
"$crund" --help >"$dir/help" 2>&1 || fail "--help: exit code $?"
for flag in listen state-dir max-connections log-format verbose version help; do
    grep -q -e "--$flag" "$dir/help" || fail "--help does not list --$flag"
    sed 's/\\-/-/g' "${0%/*}/../../../launcher/man/crund.8" | grep -q -e "-$flag" ||
        fail "the manual does not list --$flag"
done
"$crund" --help >/dev/full 2>/dev/null && fail "--help into a full disk: exit code 0"
for signal in TERM INT HUP; do
    start
    stop $signal
done
start --log-format json -v
stop TERM
while read -r line; do
    python3 -c 'import json,sys; json.loads(sys.argv[1])' "$line" || fail "not JSON: $line"
done <"$dir/log"
CRUND_LOG_FORMAT=json start --log-format=text
stop TERM
grep -q '^crund: ' "$dir/log" || fail "a flag does not win over the environment"

# there is no key: said once, and only beyond loopback
: >"$dir/log"
start
stop TERM
grep -q 'can run code' "$dir/log" && fail "warns about loopback"
"$crund" --listen :0 2>"$dir/log" </dev/null &
pid=$!
for ((i = 0; i < 9000; i++)); do
    grep -q 'can run code' "$dir/log" && break
    sleep 0.01
done
stop TERM
(($(grep -c 'can run code as the user' "$dir/log") == 1)) || fail "does not warn once: $(cat "$dir/log")"
grep 'can run code' "$dir/log" | grep -q 'crunctl keygen' || fail "does not say why"

# started with no descriptors at all, a socket does not become standard error
"$crund" --listen 127.0.0.1:0 --state-dir "$state" <&- >&- 2>&- &
pid=$!
for ((i = 0; i < 9000; i++)); do
    [[ $(readlink "/proc/$pid/fd/2") && -e /proc/$pid/fd/6 ]] && break
    sleep 0.01
done
for fd in 0 1 2; do
    [[ $(readlink "/proc/$pid/fd/$fd") == /dev/null ]] || fail "descriptor $fd: $(readlink "/proc/$pid/fd/$fd")"
done
stop TERM
exit $failed

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 15 s
# sanitizers: no, they would be installed
#
# The wheel of the build tree, installed into an environment without a network: what is found
# in it, which Python runs programs, programs in C, and that nothing of it is left.
set -euo pipefail
build=${BUILD:-$PWD/build}
root=$(cd "$(dirname "$0")/../../.." && pwd)
skip()
{
    echo "SKIPPED: $*"
    exit 77
}
fail()
{
    echo "FAIL: $*"
    exit 1
}
case $(basename "$build") in build-*) skip "not a build that is installed" ;; esac
python3 -c 'import ensurepip, venv' 2>/dev/null || skip "this Python makes no environments"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
tree=$(realpath --relative-to="$root" "$build")
export SOURCE_DATE_EPOCH=1700000000 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INDEX=1
env=$place/env
"$root/scripts/wheel" --build "$tree" --output "$place" >"$place/out" 2>&1 || { cat "$place/out" && fail scripts/wheel; }
wheel=("$place"/*.whl)
[ "$(stat -c %s "${wheel[0]}")" -le 5242880 ] || fail "it has more than 5 MiB: $(cat "$place/out")"

# files: what is there, without what Python writes when it runs
files()
{
    find "$env" ! -type d ! -name '*.pyc' | sort
}

# a pip of 22.3 installs into other environments
pip=(python3 -m pip --python "$env/bin/python")
python3 -m venv --without-pip "$env"
if ! "${pip[@]}" --version >/dev/null 2>&1; then
    python3 -m venv "$env"
    pip=("$env/bin/python" -m pip)
fi
files >"$place/before"
"${pip[@]}" install -q "${wheel[0]}" >"$place/out" 2>&1 || { cat "$place/out" && fail "pip install"; }
for file in bin/{crun,crund,crunctl,crun-preflight,train,coll-bench} share/man/man1/crun.1 share/bash-completion/completions/crun; do
    [ -e "$env/$file" ] || fail "there is no $file"
done

# The Python beside crun runs programs, whatever PATH says, and finds the package.
cat >"$place/program.py" <<'END'
import os, sys, crun
print(sys.prefix, os.environ["LOCAL_RANK"], crun.is_present())
END
# runs_in_environment COMMAND...
runs_in_environment()
{
    [ "$("$@" "$place/program.py" 2>&1)" = "$env 0 True" ] || { "$@" "$place/program.py" || true; fail "$*"; }
}
cd "$place"
mkdir linked
ln -s "$env/bin/crun" linked/crun
runs_in_environment "$env/bin/crun"
PATH=$env/bin:$PATH runs_in_environment crun
runs_in_environment linked/crun
runs_in_environment "$env/bin/crun" --warm=fractions
runs_in_environment "$env/bin/python" -m crun --nproc_per_node=1
CRUN_AS_TORCHRUN=1 runs_in_environment "$env/bin/python" -m torch.distributed.run
runs_in_environment "$env/bin/crun" as-torchrun "$env/bin/python" -m torch.distributed.run --warm=fractions
printf '#!/bin/sh\nfor command; do :; done\nexec sh -c "$command"\n' >ssh
chmod +x ssh
runs_in_environment "$env/bin/crun" --rsh="$place/ssh" -H localhost

"$env/bin/crun" --nproc_per_node=2 train --model=mlp --passes=1 --train-limit=200 >out 2>&1 || { cat out && fail "crun train"; }
# shellcheck disable=SC2046 # several flags
"${CC:-cc}" -o summed "$root/worker-lib/examples/all_reduce.c" $("$env/bin/python" -m crun --cflags --libs)
[ "$("$env/bin/crun" --nproc_per_node=3 ./summed | grep -c 'the sum is 3')" = 3 ] || fail "the example in C"

README_BIN=$env/bin "$root/tests/functional/launch/78-readme.py" >out 2>&1 || { cat out && fail "README's commands"; }

"${pip[@]}" uninstall -q -y crun-launcher >out 2>&1 || { cat out && fail "pip uninstall"; }
files >after
diff before after || fail "pip uninstall leaves files"

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# takes: 2 s
# sanitizers: no, it runs no program of ours
#
# What scripts/release refuses, in one line each, and the notes that it takes from the changelog: in
# a small repository, whose records of tests are those that scripts/test leaves.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
command -v git >/dev/null || { echo "SKIPPED: there is no git" && exit 77; }
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_{AUTHOR,COMMITTER}_NAME=tester GIT_{AUTHOR,COMMITTER}_EMAIL=tester@localhost

fail()
{
    echo "FAIL: $*"
    exit 1
}

commit()
{
    git add -A
    git commit -qm more
}

# What scripts/test does at its end after failed=$1, of a tree that was clean at its beginning.
test_record()
{
    (
        eval "$(sed -n '/^tested_tree()/,/^}/p; /^leave_record()/,/^}/p' "$root/scripts/test")"
        tested=$(tested_tree) passed=812 failed=$1 skipped=3
        [ $# = 1 ] || eval "$2"
        mkdir -p build
        leave_record
    ) || true
}

# refused WORDS VERSION: in one line that has these words
refused()
{
    local out
    ! out=$(scripts/release --check $2 2>&1) || fail "not refused: $1"
    [[ $out == *"$1"* ]] && [ "$(wc -l <<<"$out")" = 1 ] || fail "\"$out\" in place of \"$1\""
}

mkdir -p scripts .github rendezvous/common/base
cp "$root/scripts/release" scripts/
printf '# Changelog\n\n## 1.3.0\n\n## 1.2.3 - a summer\n\n### Added\n\n- A word.\n\n\n## 1.2.0\n\n- Another word.\n' >.github/CHANGELOG.md
echo '#define CRUN_VERSION "1.2.3"' >rendezvous/common/base/version.h
echo build/ >.gitignore
git init -q
refused 'no clone' 1.2.3
commit
refused 'no version of the form' 1.2
refused 'the programs have version 1.2.3' 1.3.0
refused 'scripts/test has not passed of' 1.2.3

touch new
refused 'the tree has changes: ?? new' 1.2.3
rm new

# a record is of a commit that passed, and of nothing else
test_record 1
refused 'scripts/test has not passed of' 1.2.3
test_record 0 'touch new'
rm new
refused 'scripts/test has not passed of' 1.2.3
test_record 0
[ "$(scripts/release --check 1.2.3)" = $'### Added\n\n- A word.' ] || fail "the notes: $(scripts/release --check 1.2.3)"
git tag v1.2.3
scripts/release --check 1.2.3 >/dev/null || fail "its own tag"

sed -i s/1.2.3/1.3.0/ rendezvous/common/base/version.h
commit
test_record 0
refused 'no section "## 1.3.0"' 1.3.0
sed -i s/1.3.0/1.2.3/ rendezvous/common/base/version.h
commit
refused 'v1.2.3 is another commit' 1.2.3
git tag -d v1.2.3 >/dev/null
refused 'scripts/test has not passed of' 1.2.3
test_record 0
scripts/release --check 1.2.3 >/dev/null || fail "tested again"
sed -i '2i ## Unreleased\n\n- Not yet.' .github/CHANGELOG.md
commit
refused 'lines under Unreleased' 1.2.3

# the tree's own next version can be released
cp "$root/.github/CHANGELOG.md" .github/
cp "$root/rendezvous/common/base/version.h" rendezvous/common/base/
commit
test_record 0
notes=$(scripts/release --check "$(sed -n 's/.*VERSION "\(.*\)"/\1/p' rendezvous/common/base/version.h)") || fail "this tree's version"
[[ $notes != *']('[!h]* ]] || fail "the notes have a link that leads nowhere on a release's page"
echo "ok: release"

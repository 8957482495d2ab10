#!/bin/sh
# Makes .venv with everything the project needs, from the lock file with its hashes. Does nothing when that is done already.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "trimtab set-up: $1" >&2
    exit 1
}

wanted=$(cat requirements.lock.txt pyproject.toml | cksum)
[ -f .venv/ready ] && [ "$(cat .venv/ready)" = "$wanted" ] && exit 0

python=
for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "Python 3.11 or later is needed; install it, or name it with PYTHON=/path/to/python3."
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "Python's venv module is missing; install it (Debian, Ubuntu: the package python3-venv)."

echo "trimtab set-up: installing into .venv, once. It fetches Spark, so this takes a few minutes."
rm -rf .venv
"$python" -m venv .venv
.venv/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock.txt
.venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
echo "$wanted" > .venv/ready

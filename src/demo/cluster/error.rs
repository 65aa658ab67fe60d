//! What can go wrong with a private Postgres, as sentences for the person at the terminal.

use std::io;
use std::path::PathBuf;

/// Why there is no private Postgres. Each text is a whole sentence that says what to do where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No directory holds the three server programs.
    #[error(
        "no PostgreSQL server binaries found: set DATABASE_URL or UNDERSIGN_PG_BIN, or `apt-get install postgresql`, \
         or `brew install postgresql@17`"
    )]
    NoBinaries,
    /// The server is older than what the schema needs.
    #[error("PostgreSQL {found} in {} is too old: 14 or newer is needed; set UNDERSIGN_PG_BIN", .bin.display())]
    TooOld {
        /// Major version found.
        found: u32,
        /// Directory of the binaries.
        bin: PathBuf,
    },
    /// The data directory belongs to another major version.
    #[error(
        "{} was made by PostgreSQL {made_by}, but {} holds PostgreSQL {found}: set UNDERSIGN_PG_BIN to binaries of \
         version {made_by}, or move the directory away to start empty",
        .data.display(), .bin.display()
    )]
    OtherMajor {
        /// The data directory.
        data: PathBuf,
        /// What its `PG_VERSION` says.
        made_by: String,
        /// Major version of the binaries.
        found: u32,
        /// Directory of the binaries.
        bin: PathBuf,
    },
    /// Running as root, and there is no account to drop to.
    #[error(
        "PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody` to run it as"
    )]
    NoAccount,
    /// Neither of the variables that place the state directory is set.
    #[error("no place for the state: set UNDERSIGN_STATE or HOME")]
    NoState,
    /// The server's account cannot reach its directory.
    #[error(
        "{} can't be used: user {account} may not enter {}; set UNDERSIGN_STATE (or TMPDIR) to a directory elsewhere",
        .directory.display(), .blocked.display()
    )]
    Unreachable {
        /// The directory meant for the cluster.
        directory: PathBuf,
        /// The part of its path that is closed.
        blocked: PathBuf,
        /// The account the server would run as.
        account: String,
    },
    /// The directory is someone else's, or open to others.
    #[error(
        "{} must belong to user id {wanted} with mode 0700, but belongs to {found} with mode {mode:04o}: correct it, \
         or set UNDERSIGN_STATE to another directory",
        .directory.display()
    )]
    NotOurs {
        /// The directory.
        directory: PathBuf,
        /// The user id it must belong to.
        wanted: u32,
        /// The user id it belongs to.
        found: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// Another process holds the state directory.
    #[error("another undersign uses {}", .0.display())]
    InUse(PathBuf),
    /// `initdb` failed.
    #[error("initdb could not make {} (is the disk full?): {output}", .data.display())]
    Initdb {
        /// The data directory.
        data: PathBuf,
        /// The last lines it printed.
        output: String,
    },
    /// The server did not come up.
    #[error("the private PostgreSQL did not start; the end of {}:\n{tail}", .log.display())]
    NotStarted {
        /// The server's log.
        log: PathBuf,
        /// Its last five lines.
        tail: String,
    },
    /// The server did not stop.
    #[error("the private PostgreSQL in {} did not stop; see its log", .0.display())]
    NotStopped(PathBuf),
    /// The server answered a statement with an error.
    #[error("the private PostgreSQL refused a statement: {message} ({code})")]
    Sql {
        /// SQLSTATE.
        code: String,
        /// The server's message.
        message: String,
    },
    /// A database name that is not plain lower-case letters, digits and underscores.
    #[error("{0:?} is no database name: only a-z, 0-9 and _ are taken")]
    DatabaseName(String),
    /// A file operation failed.
    #[error("could not {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A process could not be run or waited for.
    #[error("could not run {}: {source}", .program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The blocking task ended abnormally.
    #[error("the task that ran the private PostgreSQL ended abnormally")]
    Task,
}

impl ClusterError {
    /// Gives an I/O error its place: what was tried, and on what.
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}

//! A private Postgres from the server binaries found on the machine: for the demo, and for the tests.
//!
//! Keeps true: nobody else can reach it (no TCP port; the socket lies in a directory of mode 0700, which is why trust
//! authentication is enough), a start that was killed leaves nothing half made, and whether a server runs is found out
//! by connecting, never from a pid file. Not for production: `serve` is given a database and starts none.
//!
//! Everything here blocks; asynchronous callers use `spawn_blocking`.

mod binaries;
mod error;
mod place;
mod wire;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use binaries::Binaries;
pub use error::ClusterError;
use place::Account;

/// The role that owns the cluster and its databases.
const ROLE: &str = "undersign";

/// Only part of the socket's file name, since the cluster has no TCP port. Said on both sides, so that no default and
/// no `PGPORT` can separate server and client.
const PORT: u16 = 5432;

/// How often a start is tried: after a crash the old server's shared memory may be held for another second or two.
const START_TRIES: u32 = 10;

/// Tells temporary clusters of one process apart.
static TEMPORARY: AtomicU32 = AtomicU32::new(0);

/// What this module needs to know of the process's environment. It is handed in, because only `config` reads that.
#[derive(Debug, Clone, Default)]
pub struct ClusterEnv {
    /// `UNDERSIGN_PG_BIN`: the directory that holds `initdb`, `pg_ctl` and `postgres`; searched before all others.
    pub pg_bin: Option<PathBuf>,
    /// `PATH`: searched for `pg_ctl`, and the `PATH` of the server's processes.
    pub path: Option<OsString>,
    /// `UNDERSIGN_STATE`: where the durable cluster lives.
    pub state: Option<PathBuf>,
    /// `XDG_STATE_HOME`: the parent of the default state directory.
    pub xdg_state_home: Option<PathBuf>,
    /// `HOME`: stands in for `XDG_STATE_HOME`.
    pub home: Option<PathBuf>,
    /// The system's directory for temporary files.
    pub temp_dir: PathBuf,
}

/// A running private Postgres, with the database `undersign` in it.
#[derive(Debug)]
pub struct Cluster {
    binaries: Binaries,
    account: Option<Account>,
    path: Option<OsString>,
    directory: PathBuf,
    socket_directory: PathBuf,
    temporary: bool,
    stopped: bool,
    /// Held while this value lives: one process at a time uses a directory.
    _lock: File,
}

impl Cluster {
    /// The durable cluster in the state directory: made when missing, reused when its server is still alive.
    ///
    /// Dropping it leaves the server running, to be found by the next start; [`Cluster::stop`] ends it.
    ///
    /// # Errors
    /// Every [`ClusterError`] but those of [`Cluster::create_database`]'s name and of a command.
    pub fn durable(env: &ClusterEnv) -> Result<Self, ClusterError> {
        let account = Account::for_server()?;
        let directory = place::state_directory(env, account.as_ref())?;
        Self::open(env, account, directory, false)
    }

    /// A cluster that is thrown away: in a fresh directory, without flushing, for 200 connections.
    ///
    /// # Errors
    /// As [`Cluster::durable`].
    pub fn temporary(env: &ClusterEnv) -> Result<Self, ClusterError> {
        let account = Account::for_server()?;
        let directory = loop {
            let count = TEMPORARY.fetch_add(1, Ordering::Relaxed);
            let candidate = env.temp_dir.join(format!("undersign-{}-{count}", std::process::id()));
            // A directory of a killed process that had our pid may be there: the next number is free.
            if fs::symlink_metadata(&candidate).is_err() {
                break candidate;
            }
        };
        Self::open(env, account, directory.clone(), true).inspect_err(|_| {
            // The cause is already being reported; what could not be removed lies in the temporary directory.
            let _ = fs::remove_dir_all(&directory);
        })
    }

    fn open(
        env: &ClusterEnv,
        account: Option<Account>,
        directory: PathBuf,
        temporary: bool,
    ) -> Result<Self, ClusterError> {
        let binaries = Binaries::find(env)?;
        place::own_directory(&directory, account.as_ref())?;
        let lock = place::lock(&directory)?;
        let socket_directory = place::socket_directory(&directory, &env.temp_dir, account.as_ref())?;
        let cluster = Self {
            binaries,
            account,
            path: env.path.clone(),
            directory,
            socket_directory,
            temporary,
            // Until a server of ours runs there is none to stop when this value is dropped on an error.
            stopped: true,
            _lock: lock,
        };
        cluster.initialise()?;
        let cluster = cluster.start()?;
        cluster.create_database(ROLE)?;
        Ok(cluster)
    }

    /// Makes the data directory once, under another name until it is whole.
    fn initialise(&self) -> Result<(), ClusterError> {
        let data = self.directory.join("data");
        if let Ok(made_by) = fs::read_to_string(data.join("PG_VERSION")) {
            return self.binaries.check_major(&data, made_by.trim());
        }
        let half_made = self.directory.join("data.tmp");
        match fs::remove_dir_all(&half_made) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ClusterError::io("remove", half_made)(error));
            }
            _ => {}
        }
        let mut command = self.command("initdb");
        command.args(["-U", ROLE, "-A", "trust", "--no-locale", "-E", "UTF8", "-D", "data.tmp"]);
        if self.temporary {
            command.arg("--no-sync");
        }
        let output = command.stdin(Stdio::null()).output().map_err(self.run("initdb"))?;
        if !output.status.success() {
            return Err(ClusterError::Initdb {
                data,
                output: last_lines(&String::from_utf8_lossy(&output.stderr)),
            });
        }
        fs::rename(&half_made, &data).map_err(ClusterError::io("rename", half_made))
    }

    /// Connects to the server of an earlier run, else starts one.
    fn start(mut self) -> Result<Self, ClusterError> {
        for attempt in 0..START_TRIES {
            if wire::connect(&self.socket(), ROLE, "postgres").is_ok() {
                self.stopped = false;
                return Ok(self);
            }
            if attempt > 0 {
                std::thread::sleep(Duration::from_secs(1));
            }
            let mut options = format!(
                "-c listen_addresses='' -c unix_socket_directories='{}' -c unix_socket_permissions=0700 -c port={PORT}",
                self.socket_directory.display()
            );
            if self.temporary {
                options.push_str(
                    " -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200",
                );
            }
            // Its exit code says nothing that connecting does not say better.
            self.command("pg_ctl")
                .args(["-D", "data", "-w", "-t", "60", "-l", "log", "-o", &options, "start"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .map_err(self.run("pg_ctl"))?;
        }
        if wire::connect(&self.socket(), ROLE, "postgres").is_ok() {
            self.stopped = false;
            return Ok(self);
        }
        let log = self.directory.join("log");
        let tail = last_lines(&fs::read_to_string(&log).unwrap_or_default());
        Err(ClusterError::NotStarted { log, tail })
    }

    /// The address for sqlx: `postgres://undersign@localhost/NAME?host=DIRECTORY`.
    #[must_use]
    pub fn database_url(&self, database: &str) -> String {
        // The socket directory is plain ASCII without anything to escape: `place::socket_directory` sees to it.
        format!("postgres://{ROLE}@localhost:{PORT}/{database}?host={}", self.socket_directory.display())
    }

    /// The directory that holds the cluster.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the database unless it is there.
    ///
    /// # Errors
    /// [`ClusterError::DatabaseName`] for a name with anything but `a-z`, `0-9` and `_`; [`ClusterError::Sql`] and
    /// [`ClusterError::Io`] when the server refuses or is gone.
    pub fn create_database(&self, name: &str) -> Result<(), ClusterError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if name.is_empty() || name.len() > 63 || !name.bytes().all(plain) {
            return Err(ClusterError::DatabaseName(name.to_owned()));
        }
        let mut connection = wire::connect(&self.socket(), ROLE, "postgres")?;
        match connection.execute(&format!("CREATE DATABASE \"{name}\"")) {
            // duplicate_database
            Err(ClusterError::Sql { code, .. }) if code == "42P04" => Ok(()),
            other => other,
        }
    }

    /// Runs statements whose rows nobody needs, all of them or none: a migration, say.
    ///
    /// # Errors
    /// [`ClusterError::Sql`] and [`ClusterError::Io`] when the server refuses or is gone.
    pub fn execute(&self, database: &str, sql: &str) -> Result<(), ClusterError> {
        wire::connect(&self.socket(), ROLE, database)?.execute(sql)
    }

    /// Stops the server; a temporary cluster's directory is removed.
    ///
    /// # Errors
    /// [`ClusterError::NotStopped`], [`ClusterError::Run`], and [`ClusterError::Io`] for the removal.
    pub fn stop(mut self) -> Result<(), ClusterError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ClusterError> {
        if self.stopped {
            return Ok(());
        }
        self.stopped = true;
        // Nothing of a temporary cluster is kept, so it need not write a checkpoint first.
        let mode = if self.temporary { "immediate" } else { "fast" };
        let status = self
            .command("pg_ctl")
            .args(["-D", "data", "-w", "-t", "60", "-m", mode, "stop"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(self.run("pg_ctl"))?;
        if !status.success() {
            return Err(ClusterError::NotStopped(self.directory.clone()));
        }
        if self.temporary {
            for directory in [&self.socket_directory, &self.directory] {
                match fs::remove_dir_all(directory) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(ClusterError::io("remove", directory)(error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.socket_directory.join(format!(".s.PGSQL.{PORT}"))
    }

    /// A command of the server's, as the server's user, in a directory that user can enter, with no `PG…` variable.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.program(program));
        command.env_clear().env("LC_ALL", "C").current_dir(&self.directory);
        command.env("PATH", self.path.as_deref().unwrap_or(OsStr::new("/usr/bin:/bin")));
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    fn run(&self, program: &str) -> impl FnOnce(io::Error) -> ClusterError {
        let program = self.binaries.program(program);
        move |source| ClusterError::Run { program, source }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.temporary {
            // Best effort: there is nobody left to tell.
            let _ = self.end();
        }
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

#[cfg(test)]
mod tests;

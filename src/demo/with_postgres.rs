//! Runs a command with a throw-away Postgres: `undersign with-postgres -- CMD`.
//!
//! Keeps true: the server and its directory are gone when the command is, however the command ended.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::cluster::{Cluster, ClusterEnv, ClusterError};

/// Runs the command with `DATABASE_URL` of a temporary cluster and `SQLX_OFFLINE=true`, and returns its exit code;
/// 128 and the signal's number when a signal ended it, as shells do.
///
/// SIGINT, SIGTERM and SIGHUP are passed on to the command, so that it is the command that decides when to end.
///
/// # Errors
/// Those of [`Cluster::temporary`] and [`Cluster::stop`]; [`ClusterError::Run`] when the command can't be started or is
/// empty.
pub async fn with_postgres(env: ClusterEnv, command: Vec<OsString>) -> Result<i32, ClusterError> {
    with_prepared_postgres(env, |_| Ok(()), command).await
}

/// The same, with something done in the cluster before the command starts; that may block.
///
/// # Errors
/// As [`with_postgres`], and whatever the preparation fails with.
pub async fn with_prepared_postgres(
    env: ClusterEnv,
    prepare: impl FnOnce(&Cluster) -> Result<(), ClusterError> + Send + 'static,
    command: Vec<OsString>,
) -> Result<i32, ClusterError> {
    let Some((program, arguments)) = command.split_first() else {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "no command was given");
        return Err(ClusterError::Run { program: PathBuf::from("with-postgres"), source });
    };
    let failed = |source| ClusterError::Run { program: PathBuf::from(program), source };
    // Caught from before the server starts: a signal meanwhile must not leave the server behind.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;

    let start = move || {
        let cluster = Cluster::temporary(&env)?;
        prepare(&cluster)?;
        Ok(cluster)
    };
    let cluster = blocking(start).await?;
    let started = Command::new(program)
        .args(arguments)
        .env("DATABASE_URL", cluster.database_url("undersign"))
        .env("SQLX_OFFLINE", "true")
        .spawn();
    let ended = match started {
        Err(error) => Err(error),
        Ok(mut child) => loop {
            let pass_on = tokio::select! {
                ended = child.wait() => break ended,
                _ = interrupt.recv() => Signal::INT,
                _ = terminate.recv() => Signal::TERM,
                _ = hangup.recv() => Signal::HUP,
            };
            let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
            if let Some(id) = id {
                // It may have ended this instant; the wait above says so next.
                let _ = kill_process(id, pass_on);
            }
        },
    };
    blocking(move || cluster.stop()).await?;
    Ok(exit_code(ended.map_err(failed)?))
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ClusterError> + Send + 'static,
) -> Result<T, ClusterError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ClusterError::Task)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> ClusterEnv {
        ClusterEnv { path: std::env::var_os("PATH"), temp_dir: std::env::temp_dir(), ..ClusterEnv::default() }
    }

    fn shell(script: &str) -> Vec<OsString> {
        ["sh", "-c", script].map(OsString::from).to_vec()
    }

    /// One test, because the signal goes to this whole process and would reach the command of another one as well.
    #[tokio::test]
    async fn the_command_sees_the_database_and_signals_and_the_server_goes_with_it() {
        let script = r#"
            test "$SQLX_OFFLINE" = true || exit 1
            directory=${DATABASE_URL#*host=}
            test -S "$directory/.s.PGSQL.5432" || exit 2
            exit 7"#;
        assert_eq!(with_postgres(env(), shell(script)).await.unwrap(), 7);

        let note = std::env::temp_dir().join(format!("undersign-note-{}", std::process::id()));
        // The command sends the signal to us, its parent, and ends only when it has come back.
        let script = format!(
            "echo \"${{DATABASE_URL#*host=}}\" > {}; trap 'exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.1; done",
            note.display()
        );
        assert_eq!(with_postgres(env(), shell(&script)).await.unwrap(), 9);
        let directory = std::fs::read_to_string(&note).unwrap();
        std::fs::remove_file(&note).unwrap();
        assert!(!std::path::Path::new(directory.trim()).exists());
    }

    #[tokio::test]
    async fn an_unknown_command_is_named() {
        let refused = with_postgres(env(), vec!["no-such-program-here".into()]).await.unwrap_err();
        assert!(refused.to_string().starts_with("could not run no-such-program-here"), "{refused}");
    }
}

//! `prepare DIRECTORY CMD…`: runs a command with `DATABASE_URL` of a throw-away Postgres to which every `*.sql` of the
//! directory was applied, in the order of their names.
//!
//! For `.ci/sqlx` alone. It shares the cluster's sources with undersign (by links) but not its build.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

#[expect(dead_code, reason = "the durable half is not needed here")]
mod cluster;
#[expect(dead_code, reason = "a preparation is always wanted here")]
mod with_postgres;

use cluster::{ClusterEnv, ClusterError};
use with_postgres::with_prepared_postgres;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: prepare DIRECTORY CMD…");
        return ExitCode::from(2);
    };
    let command: Vec<OsString> = arguments.collect();
    let env = ClusterEnv {
        pg_bin: std::env::var_os("UNDERSIGN_PG_BIN").map(PathBuf::from),
        path: std::env::var_os("PATH"),
        temp_dir: std::env::temp_dir(),
        ..ClusterEnv::default()
    };
    let migrate = move |cluster: &cluster::Cluster| {
        let failed = |source| ClusterError::Io { doing: "read", path: directory.clone(), source };
        let entries = std::fs::read_dir(&directory).map_err(failed)?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
        files.sort();
        for file in files {
            let sql = std::fs::read_to_string(&file).map_err(failed)?;
            eprintln!("applying {}", file.display());
            cluster.execute("undersign", &sql)?;
        }
        Ok(())
    };
    match with_prepared_postgres(env, migrate, command).await {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

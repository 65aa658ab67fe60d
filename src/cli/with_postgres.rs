//! `undersign with-postgres -- CMD`.

use std::ffi::OsString;
use std::process::ExitCode;

use super::Failure;
use crate::config;
use crate::demo::cluster::ClusterEnv;
use crate::demo::with_postgres::with_postgres;

/// Arguments of `with-postgres`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub(super) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let code = with_postgres(cluster_env(), args.command)
        .await
        .map_err(|error| Failure::usage(error.to_string()))?;
    // The command's own code, as far as a process can have it.
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Where binaries and state may be on this machine.
pub(super) fn cluster_env() -> ClusterEnv {
    ClusterEnv {
        pg_bin: config::env("UNDERSIGN_PG_BIN").map(Into::into),
        path: config::env("PATH").map(Into::into),
        state: config::env("UNDERSIGN_STATE").map(Into::into),
        xdg_state_home: config::env("XDG_STATE_HOME").map(Into::into),
        home: config::env("HOME").map(Into::into),
        temp_dir: std::env::temp_dir(),
    }
}

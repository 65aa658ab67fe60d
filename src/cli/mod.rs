//! The command line, and the composition root: the only place that builds everything.
//!
//! Exit codes: 0 done, 1 the answer is no, 2 usage or configuration.

mod actions;
mod agent_key;
mod audit;
mod check;
mod demo;
mod explain;
mod migrate;
mod schema;
pub mod serve;
mod source;
mod with_postgres;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::LoadError;
use crate::{config, storage, telemetry};

/// A person's approval, bound to the exact call, in front of MCP servers.
#[derive(Debug, Parser)]
#[command(name = "undersign", version, about, long_about = None)]
struct Cli {
    /// How log lines are written (to standard error); what is logged is set by RUST_LOG.
    #[arg(long, global = true, value_enum, default_value_t = telemetry::Format::Text)]
    log_format: telemetry::Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play the whole story on this machine: nothing to configure, no account needed
    Demo(demo::Args),
    /// Run the service
    Serve(serve::Args),
    /// Apply the database migrations and exit
    Migrate(migrate::Args),
    /// Validate configuration and policy, and print what each tool would require
    Check(check::Args),
    /// Say which rules match a call and why, and what people would be shown; asks nobody
    Explain(explain::Args),
    /// Print the JSON Schema of one of the two files, or the reference of both
    Schema(schema::Args),
    /// Make an agent key: prints the key once, and the key_sha256 for the configuration
    AgentKey(agent_key::Args),
    /// Read and withdraw actions
    Actions(actions::Args),
    /// Read the audit trail
    Audit(audit::Args),
    /// Run a command with DATABASE_URL of a throw-away Postgres
    WithPostgres(with_postgres::Args),
}

/// A command did what it was asked.
struct Done;

/// A command ended another way.
struct Failure {
    code: u8,
    message: String,
}

type Outcome = Result<Done, Failure>;

impl Failure {
    /// The answer is no.
    fn no(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// Usage or configuration.
    fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<storage::Error> for Failure {
    fn from(error: storage::Error) -> Self {
        Self::no(format!("the database: {error}"))
    }
}

impl From<serve::StartError> for Failure {
    fn from(error: serve::StartError) -> Self {
        Self::usage(error.to_string())
    }
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    // A demo and a throw-away database talk to a person; only what goes wrong is worth a line between.
    let quiet = matches!(cli.command, Command::Demo(_) | Command::WithPostgres(_));
    let filter = config::env("RUST_LOG").unwrap_or_else(|| if quiet { "error" } else { "info" }.to_owned());
    telemetry::start(cli.log_format, &filter);
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return exit(&Failure::usage(format!("no threads can be started: {error}"))),
    };
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Demo(args) => demo::run(args).await,
            Command::Serve(args) => serve::run(args).await,
            Command::Migrate(args) => migrate::run(args).await,
            Command::Check(args) => check::run(&args).await,
            Command::Explain(args) => explain::run(&args),
            Command::Schema(args) => schema::run(&args),
            Command::AgentKey(args) => agent_key::run(&args),
            Command::Actions(args) => actions::run(args).await,
            Command::Audit(args) => audit::run(args).await,
            Command::WithPostgres(args) => return with_postgres::run(args).await,
        }
        .map(|Done| ExitCode::SUCCESS)
    });
    outcome.unwrap_or_else(|failure| exit(&failure))
}

fn exit(failure: &Failure) -> ExitCode {
    eprintln!("{}", failure.message);
    ExitCode::from(failure.code)
}

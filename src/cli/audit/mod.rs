//! `undersign audit`: taking the trail out, proving it, and erasing one action's arguments.

mod erase;
mod export;
mod key;
mod receipt;
mod verify;

use std::path::Path;
use std::sync::Once;

use secrecy::ExposeSecret as _;

use super::{Failure, Outcome};
use crate::config::{self, DatabaseConfig};
use crate::domain::ids::ActionId;
use crate::storage::{self, Db};

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write the trail to standard output, one JSON object a line
    Export(export::Args),
    /// Check the hash chain and its signatures, in the database or in a file
    Verify(verify::Args),
    /// Print the public keys that checkpoints and receipts are signed with, for safe-keeping
    Key(key::Args),
    /// Write one action's audit rows, signed, for whoever has to prove what happened
    Receipt(receipt::Args),
    /// Remove a finished action's arguments for good; the chain still verifies
    Erase(erase::Args),
}

pub(super) async fn run(args: Args) -> Outcome {
    match args.command {
        Command::Export(args) => export::run(args).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Key(args) => key::run(&args),
        Command::Receipt(args) => receipt::run(args).await,
        Command::Erase(args) => erase::run(args).await,
    }
}

/// A database that does not answer is no answer: not that of a broken chain either.
fn no_answer(error: storage::Error) -> Failure {
    Failure::usage(format!("the database: {error}"))
}

async fn open(database: &DatabaseConfig) -> Result<Db, Failure> {
    let db = Db::connect(database.url.expose_secret(), 2).await.map_err(no_answer)?;
    db.check_schema().await.map_err(no_answer)?;
    Ok(db)
}

async fn open_at(config: &Path) -> Result<Db, Failure> {
    open(&config::load_database(config)?).await
}

/// Gives the newest events their place first. A role that only reads leaves that to the service, which does it each
/// second.
async fn place_events(db: &Db) -> Result<(), Failure> {
    static TOLD: Once = Once::new();
    match db.sequence_to_end().await {
        Err(storage::Error::Forbidden) => {
            TOLD.call_once(|| {
                tracing::info!(
                    "this database role can't give events their place; those of the last second may be left out"
                );
            });
            Ok(())
        }
        other => other.map_err(no_answer),
    }
}

fn action_id(text: &str) -> Result<ActionId, String> {
    ActionId::parse(text)
        .ok_or_else(|| "no action id: it looks like 019a0000-0000-7000-8000-000000000000".to_owned())
}

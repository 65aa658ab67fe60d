//! `undersign migrate`.

use std::path::PathBuf;

use secrecy::ExposeSecret as _;

use super::{Done, Outcome};
use crate::config;
use crate::storage::Db;

/// Arguments of `migrate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file; only its database section is read.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) async fn run(args: Args) -> Outcome {
    let database = config::load_database(&args.config)?;
    Db::migrate(database.url.expose_secret()).await?;
    println!("the schema is current");
    Ok(Done)
}

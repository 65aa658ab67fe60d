//! `undersign audit key`.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::{Done, Outcome};
use crate::config;
use crate::domain::checkpoint::Signer;

/// Arguments of `audit key`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file; only its database section and token keys are read.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    let (_, keys) = config::load_keys(&args.config)?;
    let signers = Signer::all(&keys);
    if args.json {
        let keys: Vec<Value> = signers
            .iter()
            .map(|signer| json!({ "key_id": signer.id(), "public_key": signer.public_key().to_string() }))
            .collect();
        println!("{}", json!({ "keys": keys }));
        return Ok(Done);
    }
    for (at, signer) in signers.iter().enumerate() {
        println!("{}  {}{}", signer.public_key(), signer.id(), if at == 0 { "  signs" } else { "" });
    }
    Ok(Done)
}

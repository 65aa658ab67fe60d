//! `undersign audit receipt`.

use std::path::PathBuf;

use serde_json::Value;

use super::super::{Done, Failure, Outcome};
use super::{action_id, open, place_events};
use crate::config;
use crate::domain::chain::at_text;
use crate::domain::checkpoint::Signer;
use crate::domain::ids::ActionId;
use crate::domain::receipt::receipt;
use crate::domain::verify::Checker;

/// Arguments of `audit receipt`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Format: one JSON object
  { \"undersign\": \"receipt/1\", \"tenant\", \"action_id\", \"at\", \"rows\": [audit rows as exported],
    \"checkpoint\": {the signed head of the tenant's chain}, \"key_id\", \"public_key\", \"signature\" }
The Ed25519 signature is over the RFC 8785 bytes of the object without `signature` and with each row cut down to its seq,
prev and hash. `undersign audit verify --file receipt.json --public-key HEX` checks it, anywhere.")]
pub(super) struct Args {
    /// The action.
    #[arg(value_name = "ACTION", value_parser = action_id)]
    action: ActionId,
    /// The configuration file; only its database section and token keys are read.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) async fn run(args: Args) -> Outcome {
    let (database, keys) = config::load_keys(&args.config)?;
    let signers = Signer::all(&keys);
    let db = open(&database).await?;
    place_events(&db).await?;
    // Nothing is signed that the chain does not bear out.
    let report = db.verify_audit(Checker::new(signers.iter().map(Signer::public_key).collect())).await?;
    let rows = db.chain_of(args.action).await?;
    let Some((tenant, _)) = rows.first().cloned() else {
        return Err(Failure::no(format!("the audit trail has no action {}", args.action)));
    };
    let faults: Vec<String> = report
        .faults
        .iter()
        .filter(|fault| fault.tenant.as_deref().is_none_or(|of| of == tenant.as_str()))
        .map(ToString::to_string)
        .collect();
    if !faults.is_empty() {
        return Err(Failure::no(format!("the audit trail does not verify:\n{}", faults.join("\n"))));
    }
    let Some(signer) = signers.first() else { return Err(Failure::usage("there is no token key")) };
    let heads = db.heads_to_sign(&signer.public_key()).await?;
    let lines = rows.iter().filter(|(of, _)| *of == tenant).filter_map(|(_, row)| row.line()).collect();
    let Some(entry) = heads.iter().find(|entry| entry.head.tenant == tenant) else {
        return Err(Failure::no("the chain has no head"));
    };
    let at = at_text(entry.now);
    let checkpoint = signer.checkpoint(tenant.as_str(), entry.head.seq, &entry.head.hash, &at);
    let receipt = receipt(signer, tenant.as_str(), &args.action.to_string(), &at, lines, checkpoint);
    println!("{}", Value::Object(receipt));
    Ok(Done)
}

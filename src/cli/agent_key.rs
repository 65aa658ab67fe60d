//! `undersign agent-key`: the key is printed once and kept nowhere.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::source::SystemEntropy;
use super::{Done, Outcome};
use crate::domain::digest::sha256;
use crate::domain::source::Entropy as _;

/// Arguments of `agent-key`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "every command ends in an Outcome")]
pub(super) fn run(args: &Args) -> Outcome {
    let mut bytes = [0; 32];
    SystemEntropy.fill(&mut bytes);
    let key = format!("usk_{}", URL_SAFE_NO_PAD.encode(bytes));
    let hash = hex::encode(sha256(key.as_bytes()));
    if args.json {
        println!("{}", serde_json::json!({ "key": key, "key_sha256": hash }));
    } else {
        println!("key          {key}");
        println!("key_sha256   {hash}");
        println!();
        println!(
            "The key is shown this once. Give it to the agent (Authorization: Bearer <key>), and put into the"
        );
        println!("configuration:  key_sha256 = [\"{hash}\"]");
    }
    Ok(Done)
}

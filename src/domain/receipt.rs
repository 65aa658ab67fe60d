//! A receipt: everything that the audit trail says about one action, signed, to be verified by whoever holds it.
//!
//! ```text
//! { "undersign": "receipt/1", "tenant", "action_id", "at",
//!   "rows": [ the exported lines of the action ],
//!   "checkpoint": { the signed head of the tenant's chain when the receipt was made },
//!   "key_id", "public_key", "signature" }
//! ```
//!
//! The signature is over the object with each row cut down to its `seq`, `prev` and `hash`: it says which rows the action
//! has in the chain that ends at the checkpoint, all of them, and a row proves its content by its hash. So a receipt
//! tells nothing of other actions, and stays true when the arguments are erased from it. The `prev` and `hash` of
//! the rows in between would prove nothing without their content: a hash says what `prev` is only to those who can
//! recompute it.

use serde_json::{Map, Value, json};

use super::chain::{self, Shown, parse_hash};
use super::checkpoint::{Checkpoint, PublicKey, Signer, signed_by};
use super::verify::{Fault, Report, TenantReport, What};

/// What a receipt says it is.
pub const RECEIPT: &str = "receipt/1";

/// Makes a receipt over an action's lines and the signed head of its tenant's chain.
pub fn receipt(
    signer: &Signer,
    tenant: &str,
    action: &str,
    at: &str,
    rows: Vec<Map<String, Value>>,
    checkpoint: Map<String, Value>,
) -> Map<String, Value> {
    let whole = Map::from_iter([
        ("undersign".to_owned(), json!(RECEIPT)),
        ("tenant".to_owned(), json!(tenant)),
        ("action_id".to_owned(), json!(action)),
        ("at".to_owned(), json!(at)),
        ("rows".to_owned(), Value::Array(rows.into_iter().map(Value::Object).collect())),
        ("checkpoint".to_owned(), Value::Object(checkpoint)),
    ]);
    let signed = signer.sign(cut_down(&whole));
    let mut receipt = whole;
    for member in ["key_id", "public_key", "signature"] {
        receipt.insert(member.to_owned(), signed.get(member).cloned().unwrap_or_default());
    }
    receipt
}

/// What is signed: each row as its place and hashes.
fn cut_down(receipt: &Map<String, Value>) -> Map<String, Value> {
    let mut cut = receipt.clone();
    if let Some(Value::Array(rows)) = cut.get_mut("rows") {
        for row in rows {
            let member = |name: &str| row.get(name).cloned().unwrap_or_default();
            *row = json!({ "seq": member("seq"), "prev": member("prev"), "hash": member("hash") });
        }
    }
    cut
}

/// Verifies a receipt. With no trusted key, the signature is only held against the key that it names itself.
pub fn verify(receipt: &Map<String, Value>, trusted: &[PublicKey]) -> Report {
    let text = |name: &str| receipt.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (tenant, action) = (text("tenant"), text("action_id"));
    let mut faults = Vec::new();
    let mut fault = |seq: Option<i64>, what: What, detail: String| {
        faults.push(Fault { tenant: Some(tenant.clone()), seq, what, detail });
    };
    let none = Vec::new();
    let rows = receipt.get("rows").and_then(Value::as_array).unwrap_or(&none);
    let mut report = TenantReport {
        tenant: tenant.clone(),
        rows: rows.len(),
        last_seq: 0,
        hash: String::new(),
        erased: 0,
        signed_to: None,
        signed_by: None,
    };
    if rows.is_empty() {
        fault(None, What::Missing, "the receipt has no rows".to_owned());
    }
    let mut before: Option<(i64, chain::Hash)> = None;
    for row in rows {
        let fields = row.as_object().and_then(|line| {
            let seq = line.get("seq")?.as_i64()?;
            Some((line, seq, parse_hash(line.get("prev"))?, parse_hash(line.get("hash"))?))
        });
        let Some((line, seq, prev, hash)) = fields else {
            fault(None, What::Malformed, "a row of the receipt is no audit row".to_owned());
            continue;
        };
        if chain::hash(line) != Some(hash) {
            fault(Some(seq), What::Edited, "edited: the hash is not that of the row".to_owned());
        }
        if line.get("tenant") != receipt.get("tenant") || line.get("action_id") != receipt.get("action_id") {
            fault(Some(seq), What::Edited, format!("is not a row of action {action}"));
        }
        match before {
            Some((last, _)) if seq <= last => {
                fault(Some(seq), What::Reordered, format!("stands behind seq {last}"))
            }
            Some((last, hash)) if seq == last + 1 && prev != hash => {
                fault(Some(seq), What::Edited, format!("prev is not the hash of seq {last}"));
            }
            _ => {}
        }
        match chain::shown(line) {
            Shown::Nothing | Shown::Committed => {}
            Shown::Erased => report.erased += 1,
            Shown::Changed => {
                let detail =
                    "edited: arguments, preview, facts or salt are not what the commitment stands for";
                fault(Some(seq), What::Edited, detail.to_owned());
            }
        }
        before = Some((seq, hash));
        (report.last_seq, report.hash) = (seq, hex::encode(hash));
    }
    match signed_by(&cut_down(receipt)) {
        None => fault(
            None,
            What::Signature,
            "the receipt's signature is wrong: a row was changed, added or left out".to_owned(),
        ),
        Some(key) if !trusted.is_empty() && !trusted.contains(&key) => {
            fault(None, What::Signature, format!("signed by {key}, which is not trusted"));
        }
        Some(key) => {
            report.signed_to = before.map(|(seq, _)| seq);
            report.signed_by =
                Some(if trusted.is_empty() { format!("an unnamed key ({key})") } else { key.to_string() });
        }
    }
    let head = receipt.get("checkpoint").and_then(Value::as_object).map(Checkpoint::read);
    match head {
        Some(Ok(head)) if head.tenant == tenant && before.is_none_or(|(seq, _)| seq <= head.seq) => {
            let same = before.is_none_or(|(seq, hash)| seq != head.seq || hash == head.hash);
            if !same {
                fault(
                    Some(head.seq),
                    What::Edited,
                    "rewritten: this is not the hash that was signed".to_owned(),
                );
            }
        }
        _ => fault(
            None,
            What::Signature,
            "the receipt's checkpoint is not that of its tenant's chain".to_owned(),
        ),
    }
    Report::new(vec![report], faults, Vec::new())
}

#[cfg(test)]
mod tests;

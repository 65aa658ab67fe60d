use super::*;
use crate::domain::token::{TokenKey, TokenKeys};

fn signer(secret: &str) -> Signer {
    let key = TokenKey { id: "k1".to_owned(), secret: secret.repeat(32).into_bytes().into() };
    Signer::all(&TokenKeys::new(vec![key]).unwrap()).remove(0)
}

/// A receipt over the golden chain's action, all rows but the last.
fn made(signer: &Signer) -> Map<String, Value> {
    let kept = include_str!("../../../tests/data/audit_golden.jsonl");
    let mut lines: Vec<Map<String, Value>> =
        kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.pop().unwrap();
    let hash = parse_hash(last.get("hash")).unwrap();
    let at = "2026-12-01T15:00:00.000000Z";
    let head = signer.checkpoint("acme", last["seq"].as_i64().unwrap(), &hash, at);
    let action = lines[0]["action_id"].as_str().unwrap().to_owned();
    receipt(signer, "acme", &action, at, lines, head)
}

fn whats(report: &Report) -> Vec<What> {
    report.faults.iter().map(|fault| fault.what).collect()
}

#[test]
fn a_receipt_proves_itself_to_whoever_knows_the_key() {
    let (ours, other) = (signer("a"), signer("b"));
    let receipt = made(&ours);
    let report = verify(&receipt, &[ours.public_key()]);
    assert_eq!(whats(&report), []);
    assert_eq!(report.tenants[0].signed_by, Some(ours.public_key().to_string()));
    assert_eq!(whats(&verify(&receipt, &[other.public_key()])), [What::Signature]);
    let unnamed = verify(&receipt, &[]);
    assert!(unnamed.ok && unnamed.tenants[0].signed_by.as_ref().unwrap().starts_with("an unnamed key"));
}

#[test]
fn a_row_that_is_changed_left_out_added_or_moved_is_seen() {
    let ours = signer("a");
    type Change = fn(&mut Vec<Value>);
    let changes: [(&str, Change); 5] = [
        ("changed", |rows| rows[6]["action_digest"] = json!("x")),
        ("left out", |rows| drop(rows.remove(3))),
        ("left out at the end", |rows| drop(rows.pop())),
        ("added", |rows| rows.push(rows[0].clone())),
        ("moved", |rows| rows.swap(3, 4)),
    ];
    for (name, change) in changes {
        let mut receipt = made(&ours);
        change(receipt["rows"].as_array_mut().unwrap());
        assert!(!verify(&receipt, &[ours.public_key()]).ok, "{name}");
    }
    let mut lied = made(&ours);
    lied["rows"][0]["preview"] = json!({ "title": "something else" });
    assert_eq!(whats(&verify(&lied, &[ours.public_key()])), [What::Edited]);
    // A changed row with a hash that fits it is not what was signed.
    let mut forged = made(&ours);
    forged["rows"][22]["kind"] = json!("denied");
    let hash = hex::encode(chain::hash(forged["rows"][22].as_object().unwrap()).unwrap());
    forged["rows"][22]["hash"] = json!(hash);
    assert_eq!(whats(&verify(&forged, &[ours.public_key()])), [What::Signature]);
}

#[test]
fn a_receipt_outlives_its_arguments() {
    let ours = signer("a");
    let mut receipt = made(&ours);
    for name in ["action_subject", "facts", "preview", "salt"] {
        receipt["rows"][0][name] = Value::Null;
    }
    let report = verify(&receipt, &[ours.public_key()]);
    assert_eq!((whats(&report), report.tenants[0].erased), (vec![], 1));
}

#[test]
fn a_receipt_of_nothing_or_over_another_head_is_none() {
    let ours = signer("a");
    let mut empty = made(&ours);
    empty.insert("rows".to_owned(), json!([]));
    assert!(!verify(&empty, &[]).ok);
    let mut headless = made(&ours);
    headless.remove("checkpoint");
    assert!(!verify(&headless, &[]).ok);
    let mut other = made(&ours);
    other.insert("action_id".to_owned(), json!("x"));
    assert!(!verify(&other, &[]).ok);
}

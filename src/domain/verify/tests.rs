use super::*;
use crate::domain::checkpoint::Signer;
use crate::domain::token::{TokenKey, TokenKeys};

/// The golden chain, which `chain` keeps.
fn lines() -> Vec<Map<String, Value>> {
    let kept = include_str!("../../../tests/data/audit_golden.jsonl");
    kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn signer(secret: &str) -> Signer {
    let key = TokenKey { id: "k1".to_owned(), secret: secret.repeat(32).into_bytes().into() };
    Signer::all(&TokenKeys::new(vec![key]).unwrap()).remove(0)
}

fn checkpoint(signer: &Signer, line: &Map<String, Value>) -> Map<String, Value> {
    let (seq, hash) = (line["seq"].as_i64().unwrap(), parse_hash(line.get("hash")).unwrap());
    signer.checkpoint("acme", seq, &hash, "2026-12-01T15:00:00.000000Z")
}

fn verdict(trusted: &[&Signer], lines: &[Map<String, Value>]) -> Report {
    let mut checker = Checker::new(trusted.iter().map(|signer| signer.public_key()).collect());
    for (at, line) in lines.iter().enumerate() {
        checker.line(at + 1, line);
    }
    checker.finish()
}

/// Place and kind of every fault.
fn found(report: &Report) -> Vec<(Option<i64>, What)> {
    report.faults.iter().map(|fault| (fault.seq, fault.what)).collect()
}

/// Hashes a chain anew from one place on, as whoever can write everything would.
fn rehash(lines: &mut [Map<String, Value>], from: usize) {
    for at in from..lines.len() {
        let prev = lines[at - 1]["hash"].clone();
        lines[at].insert("prev".to_owned(), prev);
        lines[at].insert("seq".to_owned(), (at + 1).into());
        let hash = hex::encode(chain::hash(&lines[at]).unwrap());
        lines[at].insert("hash".to_owned(), hash.into());
    }
}

#[test]
fn an_edited_row_is_named_and_no_other() {
    for (member, value) in [
        ("action_digest", "x"),
        ("at", "2026-12-01T14:00:03.000002Z"),
        ("kind", "denied"),
        ("hash", "0101010101010101010101010101010101010101010101010101010101010101"),
        ("prev", "0101010101010101010101010101010101010101010101010101010101010101"),
        ("added", "x"),
    ] {
        let mut lines = lines();
        lines[6].insert(member.to_owned(), value.into());
        assert_eq!(found(&verdict(&[], &lines)), [(Some(7), What::Edited)], "{member}");
    }
}

#[test]
fn an_edit_with_its_hash_made_good_is_seen_at_the_next_row() {
    let mut lines = lines();
    lines[6].insert("action_digest".to_owned(), "x".into());
    let hash = hex::encode(chain::hash(&lines[6]).unwrap());
    lines[6].insert("hash".to_owned(), hash.into());
    let report = verdict(&[], &lines);
    assert_eq!(found(&report), [(Some(8), What::Edited)]);
    assert!(report.faults[0].detail.contains("seq 7"), "{}", report.faults[0]);
}

#[test]
fn missing_moved_and_doubled_rows_are_told_apart() {
    let mut missing = lines();
    missing.remove(4);
    assert_eq!(found(&verdict(&[], &missing)), [(Some(5), What::Missing)]);
    let mut beginning = lines();
    beginning.drain(..3);
    assert_eq!(found(&verdict(&[], &beginning)), [(Some(1), What::Missing)]);
    let mut swapped = lines();
    swapped.swap(4, 5);
    assert_eq!(found(&verdict(&[], &swapped)), [(Some(5), What::Reordered)]);
    let mut doubled = lines();
    doubled.insert(5, doubled[4].clone());
    assert_eq!(found(&verdict(&[], &doubled)), [(Some(5), What::Forked)]);
    // Moved, and numbered as if it had always stood there.
    let mut renumbered = lines();
    renumbered.swap(4, 5);
    renumbered[4].insert("seq".to_owned(), 5.into());
    renumbered[5].insert("seq".to_owned(), 6.into());
    assert_eq!(found(&verdict(&[], &renumbered)), [(Some(5), What::Reordered), (Some(6), What::Reordered)]);
}

#[test]
fn a_part_that_was_exported_after_a_place_begins_there() {
    let mut part = lines();
    part.drain(..3);
    let mut checker = Checker::new(Vec::new()).after(3);
    for (at, line) in part.iter().enumerate() {
        checker.line(at + 1, line);
    }
    assert_eq!(found(&checker.finish()), []);
}

#[test]
fn a_truncated_or_rewritten_chain_does_not_fit_what_was_signed() {
    let ours = signer("a");
    let all = lines();
    let signed = checkpoint(&ours, all.last().unwrap());
    let whole = [all.clone(), vec![signed.clone()]].concat();
    let report = verdict(&[&ours], &whole);
    assert_eq!(found(&report), []);
    assert_eq!(report.tenants[0].signed_to, Some(24));
    assert_eq!(report.tenants[0].signed_by, Some(ours.public_key().to_string()));

    let mut short = all.clone();
    short.truncate(20);
    short.push(signed.clone());
    assert_eq!(found(&verdict(&[&ours], &short)), [(Some(21), What::Truncated)]);

    let mut rewritten = all.clone();
    rewritten.remove(8);
    rehash(&mut rewritten, 8);
    assert_eq!(found(&verdict(&[&ours], &rewritten)), [], "nothing but a signature tells");
    let early = checkpoint(&ours, &all[15]);
    rewritten.push(early);
    assert_eq!(found(&verdict(&[&ours], &rewritten)), [(Some(16), What::Edited)]);

    assert_eq!(found(&verdict(&[&ours], &[signed])), [(Some(1), What::Truncated)]);
}

#[test]
fn a_signature_counts_when_it_is_right_and_of_a_key_that_is_known() {
    let (ours, foreign) = (signer("a"), signer("b"));
    let all = lines();
    let by_foreign = checkpoint(&foreign, all.last().unwrap());
    let foreign_only = [all.clone(), vec![by_foreign.clone()]].concat();
    assert_eq!(found(&verdict(&[&ours], &foreign_only)), [(Some(24), What::Signature)]);
    let unnamed = verdict(&[], &foreign_only);
    assert_eq!(found(&unnamed), []);
    assert!(unnamed.tenants[0].signed_by.as_ref().unwrap().starts_with("an unnamed key"));
    // Of a key that is no longer known, under one that is.
    let covered = [all.clone(), vec![checkpoint(&foreign, &all[3]), checkpoint(&ours, &all[9])]].concat();
    let report = verdict(&[&ours], &covered);
    assert_eq!((found(&report), report.notes.len()), (vec![], 1));
    let mut wrong = by_foreign;
    wrong.insert("at".to_owned(), "2026-12-01T16:00:00.000000Z".into());
    assert_eq!(found(&verdict(&[], &[all, vec![wrong]].concat())), [(Some(24), What::Signature)]);
}

#[test]
fn erased_arguments_without_an_event_are_a_fault_where_everything_is_seen() {
    let mut all = lines();
    for name in ["action_subject", "facts", "preview", "salt"] {
        all[0].insert(name.to_owned(), Value::Null);
    }
    let run = |lines: &[Map<String, Value>]| {
        let mut checker = Checker::new(Vec::new()).whole();
        lines.iter().for_each(|line| assert!(checker.row(line).is_some()));
        let last = lines.last().unwrap();
        checker.head("acme", last["seq"].as_i64().unwrap(), parse_hash(last.get("hash")).unwrap());
        checker.finish()
    };
    assert_eq!(found(&run(&all)), [], "the `erased` event is there");
    all.truncate(20);
    assert_eq!(found(&run(&all)), [(Some(1), What::Missing)]);
}

#[test]
fn a_head_that_is_not_the_last_row_is_a_fault() {
    let all = lines();
    let (seq, hash) = (24, parse_hash(all[23].get("hash")).unwrap());
    for (head, expected) in [
        (Some((seq, hash)), vec![]),
        (Some((seq + 2, hash)), vec![(Some(25), What::Truncated)]),
        (Some((seq - 1, hash)), vec![(Some(23), What::Edited)]),
        (Some((seq, [1; 32])), vec![(Some(24), What::Edited)]),
        (None, vec![(Some(24), What::Missing)]),
    ] {
        let mut checker = Checker::new(Vec::new()).whole();
        all.iter().for_each(|line| assert!(checker.row(line).is_some()));
        if let Some((seq, hash)) = head {
            checker.head("acme", seq, hash);
        }
        assert_eq!(found(&checker.finish()), expected);
    }
}

use super::*;
use crate::domain::audit::Event;
use crate::domain::ids::RuleName;
use crate::domain::place::{Account, Platform};
use crate::domain::press::Verdict;
use crate::domain::requirement::Requirement;

/// One event of each kind, in the order of [`place`].
fn one_of_each() -> Vec<Event> {
    let account =
        || Account { platform: Platform::Slack, installation: "main".into(), user: "U0BEN".to_owned() };
    let digest = "d".repeat(64);
    let requirement: Requirement = serde_json::from_value(json!({
        "approvers": [{ "count": 1, "group": "payments" }], "separate_proposer": true, "step_up": null,
        "escalate": null, "second_look_s": null,
    }))
    .unwrap();
    vec![
        Event::Parked {
            action_digest: digest.clone(),
            content_digest: digest.clone(),
            rules: vec![RuleName::new("large-refunds")],
            risk: "high",
            requirement,
            post_to: vec!["slack:main/C0PAY".to_owned()],
            commitment: erasable().commitment(),
        },
        Event::Posted {
            place: "slack:main/C0PAY".to_owned(),
            message_id: "1.2".to_owned(),
            card_sha256: digest.clone(),
        },
        Event::PostFailed { place: "slack:main/C0PAY".to_owned(), error: "not_in_channel".to_owned() },
        Event::Voted {
            person: "ben".into(),
            verdict: Verdict::Approve,
            account: account(),
            channel: "C0PAY".to_owned(),
            message_id: "1.2".to_owned(),
            callback_id: "c1".to_owned(),
            groups: vec!["payments".into()],
            authenticated_by: "click",
            action_digest: digest.clone(),
        },
        Event::VoteRefused {
            account: account(),
            verdict: Verdict::Deny,
            callback_id: "c2".to_owned(),
            reason: "not_eligible",
        },
        Event::Late {
            account: account(),
            verdict: Verdict::Deny,
            callback_id: "c3".to_owned(),
            state: "expired".to_owned(),
        },
        Event::Approved { action_digest: digest.clone() },
        Event::Denied { person: "ben".into(), revoked: true },
        Event::Expired {},
        Event::Cancelled { by: "agent bot".to_owned() },
        Event::Invalidated { reason: "tool_changed".to_owned() },
        Event::Undeliverable {},
        Event::TokenIssued { agent: "bot".into() },
        Event::TokenRefused { code: "expired" },
        Event::Tamper { agent: "bot".into(), presented_content_digest: digest.clone() },
        Event::RowTampered { action_digest: digest.clone() },
        Event::ForeignUse { agent: "bot".into() },
        Event::Claimed {
            agent: "bot".into(),
            idempotency_key: "ust-1".to_owned(),
            claimed_by: "r1".to_owned(),
        },
        Event::Succeeded { result_sha256: digest.clone() },
        Event::Failed { detail: "not_sent" },
        Event::OutcomeUnknown { detail: "abandoned" },
        Event::Erased {},
        Event::Paused { agent: "bot".into(), reason: "denials", seconds: 600 },
        Event::PolicyLoaded { policy_sha256: digest, upstreams: vec!["shop".into()] },
    ]
}

/// A new kind has to be added here, and then above.
fn place(event: &Event) -> usize {
    match event {
        Event::Parked { .. } => 0,
        Event::Posted { .. } => 1,
        Event::PostFailed { .. } => 2,
        Event::Voted { .. } => 3,
        Event::VoteRefused { .. } => 4,
        Event::Late { .. } => 5,
        Event::Approved { .. } => 6,
        Event::Denied { .. } => 7,
        Event::Expired { .. } => 8,
        Event::Cancelled { .. } => 9,
        Event::Invalidated { .. } => 10,
        Event::Undeliverable { .. } => 11,
        Event::TokenIssued { .. } => 12,
        Event::TokenRefused { .. } => 13,
        Event::Tamper { .. } => 14,
        Event::RowTampered { .. } => 15,
        Event::ForeignUse { .. } => 16,
        Event::Claimed { .. } => 17,
        Event::Succeeded { .. } => 18,
        Event::Failed { .. } => 19,
        Event::OutcomeUnknown { .. } => 20,
        Event::Erased { .. } => 21,
        Event::Paused { .. } => 22,
        Event::PolicyLoaded { .. } => 23,
    }
}

fn erasable() -> Erasable {
    let subject =
        json!({ "undersign": "action/1", "arguments": { "note": "\u{20ac} \u{1f602}", "amount": 1.5 } });
    Erasable::new(&subject, &json!({ "title": "Refund" }), &json!({}), [7; 32])
}

fn golden() -> Vec<Map<String, Value>> {
    let (mut prev, mut lines) = (GENESIS, Vec::new());
    for (seq, event) in (1..).zip(one_of_each()) {
        let about_action = !matches!(event, Event::PolicyLoaded { .. });
        let stored = StoredEvent {
            at: time::macros::datetime!(2026-12-01 14:00:00.000001 UTC) + time::Duration::seconds(seq),
            tenant: "acme".to_owned(),
            action: about_action.then(|| {
                ActionId::from_uuid(uuid::Uuid::from_u128(0x019a_0000_0000_7000_8000_0000_0000_0001))
            }),
            kind: event.kind(),
            body: event.body(),
        };
        let object = placed(&stored, seq, &prev);
        let hash = hash(&object).unwrap();
        let erasable = erasable();
        lines.push(line(object, &hash, Some(&erasable.subject), Some(&erasable.salt)));
        prev = hash;
    }
    lines
}

/// What was exported once is exported and hashed the same way for ever: `audit verify` must know it again.
#[test]
fn the_line_of_each_kind_is_what_it_always_was() {
    let text: String = golden().into_iter().map(|line| format!("{}\n", Value::Object(line))).collect();
    let kept = include_str!("../../../tests/data/audit_golden.jsonl");
    for (line, expected) in text.lines().zip(kept.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(text.lines().count(), kept.lines().count());
    let places: Vec<usize> = one_of_each().iter().map(place).collect();
    assert_eq!(places, (0..places.len()).collect::<Vec<_>>());
}

#[test]
fn the_last_hash_is_known_elsewhere() {
    let mut checker = crate::domain::verify::Checker::new(Vec::new());
    for (at, line) in golden().iter().enumerate() {
        checker.line(at + 1, line);
    }
    let report = checker.finish();
    assert!(report.ok, "{:?}", report.faults);
    assert_eq!(report.tenants[0].rows, one_of_each().len());
}

#[test]
fn every_member_of_a_line_is_under_its_hash_or_its_commitment() {
    for line in golden() {
        let hash_there = parse_hash(line.get("hash")).unwrap();
        assert_eq!(hash(&line), Some(hash_there));
        for name in line.keys().filter(|name| *name != "hash") {
            let mut changed = line.clone();
            changed.insert(name.clone(), json!("changed"));
            let seen = hash(&changed) != Some(hash_there) || shown(&changed) == Shown::Changed;
            assert!(seen, "{} of {}", name, line["kind"]);
        }
        let mut grown = line.clone();
        grown.insert("more".to_owned(), json!(1));
        assert_ne!(hash(&grown), Some(hash_there));
    }
}

#[test]
fn no_kind_has_a_field_with_a_name_of_the_chain() {
    for event in one_of_each() {
        assert!(own_fields(&event.body()).is_some(), "{}", event.kind());
    }
}

#[test]
fn what_is_erased_leaves_the_hash_alone_and_what_is_half_erased_is_seen() {
    let parked = golden().remove(0);
    let hash_there = parse_hash(parked.get("hash"));
    let erased = line(
        [
            "seq",
            "at",
            "tenant",
            "kind",
            "action_id",
            "prev",
            "commitment",
            "action_digest",
            "content_digest",
            "rules",
            "risk",
            "requirement",
            "post_to",
        ]
        .iter()
        .map(|name| ((*name).to_owned(), parked[*name].clone()))
        .collect(),
        &hash_there.unwrap(),
        None,
        None,
    );
    assert_eq!(hash(&erased), hash_there);
    assert_eq!(shown(&erased), Shown::Erased);
    assert_eq!(shown(&parked), Shown::Committed);
    for name in ["action_subject", "preview", "facts", "salt"] {
        let mut half = parked.clone();
        half.insert(name.to_owned(), Value::Null);
        assert_eq!(shown(&half), Shown::Changed, "{name}");
        let mut put_in = golden().remove(1);
        put_in.insert(name.to_owned(), json!("x"));
        assert_eq!(shown(&put_in), Shown::Changed, "{name}");
    }
}

#[test]
fn fields_that_no_code_writes_are_carried_as_they_are() {
    for body in [
        &b"not json"[..],
        b"{\"b\":1,\"a\":2}",
        b"{\"seq\":9}",
        b"{\"preview\":\"x\"}",
        b"[]",
        b"{\"malformed\":\"\"}",
    ] {
        let stored = StoredEvent {
            at: time::macros::datetime!(2026-12-01 14:00:00 UTC),
            tenant: "acme".to_owned(),
            action: None,
            kind: "posted".to_owned(),
            body: body.to_vec(),
        };
        let object = placed(&stored, 1, &GENESIS);
        assert_eq!(object["malformed"], hex::encode(body));
        assert_eq!(object["seq"], 1);
        assert!(hash(&object).is_some());
    }
}

#[test]
fn times_have_six_digits_and_are_utc() {
    let at = time::macros::datetime!(2026-12-01 15:00:00.5 +1);
    assert_eq!(at_text(at), "2026-12-01T14:00:00.500000Z");
}

//! What a superuser does to the audit trail, past every trigger, is found at the place where it was done.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use harness::{BOT_KEY, World, refund};
use serde_json::Value;
use undersign::domain::chain;

const TABLES: [&str; 6] =
    ["audit_events", "audit_subjects", "audit_pending", "audit_chain", "audit_head", "audit_checkpoints"];

/// A world with a signed trail, and a copy of it to go back to.
struct Evidence {
    world: World,
    action: String,
}

impl Evidence {
    async fn secure() -> Self {
        let mut world = World::start().await;
        let (action, token) = world.approved().await;
        world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
        world.stop().await;
        for table in TABLES {
            world.rewrite(&format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}")).await;
        }
        assert_eq!(world.verify(&[]).0, 0);
        Self { world, action }
    }

    async fn restore(&self) {
        for table in TABLES {
            self.world
                .rewrite(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}"))
                .await;
        }
        assert_eq!(self.world.verify(&[]).0, 0, "the copy is whole");
    }

    /// The place of the action's first event of a kind.
    async fn seq(&self, kind: &str) -> i64 {
        sqlx::query_scalar(
            "SELECT c.seq FROM kept_audit_chain c JOIN kept_audit_events e ON e.id = c.event_id
              WHERE e.kind = $1 AND e.action_id = $2::uuid ORDER BY c.seq LIMIT 1",
        )
        .bind(kind)
        .bind(&self.action)
        .fetch_one(&self.world.db)
        .await
        .unwrap()
    }

    async fn last(&self) -> i64 {
        sqlx::query_scalar("SELECT seq FROM kept_audit_head WHERE tenant = 'acme'")
            .fetch_one(&self.world.db)
            .await
            .unwrap()
    }

    /// What `audit verify` finds: place and kind of each fault of the tenant.
    fn found(&self, arguments: &[&str]) -> Vec<(Option<i64>, String)> {
        let (code, report) = self.world.verify(arguments);
        let faults = report["faults"].as_array().unwrap();
        assert_eq!(code, i32::from(!faults.is_empty()), "{report}");
        let of = |fault: &Value| (fault["seq"].as_i64(), fault["what"].as_str().unwrap().to_owned());
        assert!(faults.iter().all(|fault| fault["tenant"] == "acme"), "{report}");
        faults.iter().map(of).collect()
    }

    /// Makes the whole chain from one place on fit again, as whoever can write everything would.
    async fn rehash(&self, from: i64) {
        let rows: Vec<(i64, i64)> = sqlx::query_as(
            "SELECT seq, event_id FROM audit_chain WHERE tenant = 'acme' AND seq >= $1 ORDER BY seq",
        )
        .bind(from)
        .fetch_all(&self.world.db)
        .await
        .unwrap();
        let mut prev: Vec<u8> = match from {
            1 => vec![0; 32],
            _ => sqlx::query_scalar("SELECT hash FROM audit_chain WHERE tenant = 'acme' AND seq = $1")
                .bind(from - 1)
                .fetch_one(&self.world.db)
                .await
                .unwrap(),
        };
        for (seq, id) in rows {
            let (at, action, kind, body): (time::OffsetDateTime, Option<sqlx::types::Uuid>, String, Vec<u8>) =
                sqlx::query_as("SELECT at, action_id, kind, body FROM audit_events WHERE id = $1")
                    .bind(id)
                    .fetch_one(&self.world.db)
                    .await
                    .unwrap();
            let event = chain::StoredEvent {
                at,
                tenant: "acme".to_owned(),
                action: action.map(undersign::domain::ids::ActionId::from_uuid),
                kind,
                body,
            };
            let object = chain::placed(&event, seq, &prev.clone().try_into().unwrap());
            let hash = chain::hash(&object).unwrap().to_vec();
            self.world
                .rewrite(&format!(
                    "UPDATE audit_chain SET prev = '\\x{}', hash = '\\x{}' WHERE tenant = 'acme' AND seq = {seq};
                     UPDATE audit_head SET seq = {seq}, hash = '\\x{}' WHERE tenant = 'acme'",
                    hex::encode(&prev),
                    hex::encode(&hash),
                    hex::encode(&hash)
                ))
                .await;
            prev = hash;
        }
    }
}

fn event_of(seq: i64) -> String {
    format!("(SELECT event_id FROM kept_audit_chain WHERE tenant = 'acme' AND seq = {seq})")
}

#[tokio::test]
async fn o07_whatever_a_superuser_does_to_audit_rows_is_found_where_it_was_done() {
    let evidence = Evidence::secure().await;
    let (voted, parked, last) =
        (evidence.seq("voted").await, evidence.seq("parked").await, evidence.last().await);
    let (event, next) = (event_of(voted), event_of(voted + 1));
    let cases: Vec<(String, Vec<(Option<i64>, &str)>)> = vec![
        // Edited.
        (
            format!("UPDATE audit_events SET body = convert_to(replace(convert_from(body, 'UTF8'), 'ben', 'ana'), 'UTF8') WHERE id = {event}"),
            vec![(Some(voted), "edited")],
        ),
        (format!("UPDATE audit_events SET kind = 'late' WHERE id = {event}"), vec![(Some(voted), "edited")]),
        (format!("UPDATE audit_events SET body = body || ' ' WHERE id = {event}"), vec![(Some(voted), "edited")]),
        (format!("UPDATE audit_events SET action_id = NULL WHERE id = {event}"), vec![(Some(voted), "edited")]),
        (format!("UPDATE audit_events SET tenant = 'globex' WHERE id = {event}"), vec![(Some(voted), "edited")]),
        (
            format!("UPDATE audit_events SET at = at - interval '1 hour' WHERE id = {event}"),
            vec![(Some(voted), "edited")],
        ),
        (
            format!("UPDATE audit_chain SET hash = sha256('x') WHERE tenant = 'acme' AND seq = {voted}"),
            vec![(Some(voted), "edited")],
        ),
        (
            format!("UPDATE audit_chain SET prev = sha256('x') WHERE tenant = 'acme' AND seq = {voted}"),
            vec![(Some(voted), "edited")],
        ),
        (
            "UPDATE audit_subjects SET subject = convert_to(replace(convert_from(subject, 'UTF8'), '12000', '12'), 'UTF8')".to_owned(),
            vec![(Some(parked), "edited")],
        ),
        ("UPDATE audit_subjects SET salt = sha256('x')".to_owned(), vec![(Some(parked), "edited")]),
        // Taken away.
        (format!("DELETE FROM audit_events WHERE id = {event}"), vec![(Some(voted), "missing")]),
        (
            format!("DELETE FROM audit_chain WHERE tenant = 'acme' AND seq = {voted}"),
            vec![(None, "unchained"), (Some(voted), "missing")],
        ),
        (
            format!("DELETE FROM audit_events WHERE id = {event}; DELETE FROM audit_chain WHERE tenant = 'acme' AND seq = {voted}"),
            vec![(Some(voted), "missing")],
        ),
        ("DELETE FROM audit_subjects".to_owned(), vec![(Some(parked), "missing")]),
        ("UPDATE audit_subjects SET subject = NULL, salt = NULL".to_owned(), vec![(Some(parked), "missing")]),
        // Moved.
        (
            format!(
                "UPDATE audit_events e SET kind = o.kind, body = o.body FROM kept_audit_events o
                  WHERE e.id = {event} AND o.id = {next} OR e.id = {next} AND o.id = {event}"
            ),
            // The two have other times besides.
            vec![(Some(voted), "edited"), (Some(voted + 1), "edited")],
        ),
        (
            format!(
                "DELETE FROM audit_chain WHERE tenant = 'acme' AND seq IN ({voted}, {voted} + 1);
                 INSERT INTO audit_chain SELECT c.tenant, c.seq, o.event_id, o.event_at, c.prev, c.hash
                   FROM kept_audit_chain c JOIN kept_audit_chain o ON o.tenant = c.tenant AND c.seq <> o.seq
                  WHERE c.tenant = 'acme' AND c.seq IN ({voted}, {voted} + 1) AND o.seq IN ({voted}, {voted} + 1)"
            ),
            vec![(Some(voted), "reordered"), (Some(voted + 1), "reordered")],
        ),
        // Cut off.
        (
            format!("DELETE FROM audit_events WHERE id = {}; DELETE FROM audit_chain WHERE tenant = 'acme' AND seq = {last}", event_of(last)),
            vec![(Some(last), "truncated"), (Some(last), "truncated")],
        ),
        (
            format!(
                "DELETE FROM audit_events WHERE id = {}; DELETE FROM audit_chain WHERE tenant = 'acme' AND seq = {last};
                 UPDATE audit_head SET seq = {last} - 1, hash = (SELECT hash FROM kept_audit_chain
                   WHERE tenant = 'acme' AND seq = {last} - 1) WHERE tenant = 'acme'",
                event_of(last)
            ),
            vec![(Some(last), "truncated")],
        ),
        // Put in.
        (
            "INSERT INTO audit_events (tenant, kind, body) VALUES ('acme', 'approved', '{}')".to_owned(),
            vec![(None, "unchained")],
        ),
        // The head and the signatures.
        ("UPDATE audit_head SET hash = sha256('x') WHERE tenant = 'acme'".to_owned(), vec![(Some(last), "edited")]),
        (
            "UPDATE audit_checkpoints SET signed = convert_to(replace(convert_from(signed, 'UTF8'), '\"at\":\"20', XX.to_owned(),
            vec![(Some(last), "signature")],
        ),
    ];
    for (sql, expected) in cases {
        evidence.world.rewrite(&sql).await;
        let expected: Vec<_> = expected.into_iter().map(|(seq, what)| (seq, what.to_owned())).collect();
        assert_eq!(evidence.found(&[]), expected, "{sql}");
        evidence.restore().await;
    }
}

/// All rows are gone or rewritten so that everything in the database fits: only what was signed and kept tells.
#[tokio::test]
async fn o07_a_chain_that_was_rewritten_whole_does_not_fit_a_checkpoint() {
    let evidence = Evidence::secure().await;
    let (voted, last) = (evidence.seq("voted").await, evidence.last().await);
    let export = evidence.world.export(&["--tenant", "acme"]);
    evidence.world.write("kept.jsonl", &format!("{}\n", export.last().unwrap()));
    let kept = evidence.world.path_text("kept.jsonl");

    let forge = format!(
        "UPDATE audit_events SET body = convert_to(replace(convert_from(body, 'UTF8'), 'ben', 'ana'), 'UTF8')
          WHERE id = {}",
        event_of(voted)
    );
    evidence.world.rewrite(&forge).await;
    evidence.rehash(voted).await;
    assert_eq!(evidence.found(&[]), [(Some(last), "edited".to_owned())]);
    evidence.world.rewrite("DELETE FROM audit_checkpoints").await;
    assert_eq!(evidence.found(&[]), [], "whoever has kept nothing can prove nothing");
    assert_eq!(evidence.found(&["--checkpoint", &kept]), [(Some(last), "edited".to_owned())]);
    evidence.restore().await;

    for table in TABLES.iter().filter(|table| **table != "audit_checkpoints") {
        evidence.world.rewrite(&format!("TRUNCATE {table}")).await;
    }
    let (code, report) = evidence.world.verify(&[]);
    assert_eq!(code, 1);
    let faults = report["faults"].as_array().unwrap();
    assert!(faults.iter().all(|fault| fault["what"] == "truncated" && fault["seq"] == 1), "{report}");
    assert_eq!(faults.len(), 2, "both tenants");
    evidence.restore().await;

    // A signature of one's own is nobody's.
    evidence.world.rewrite("DELETE FROM audit_checkpoints WHERE tenant = 'acme'").await;
    let key = undersign::domain::token::TokenKey { id: "k1".to_owned(), secret: vec![7; 32].into() };
    let ring = undersign::domain::token::TokenKeys::new(vec![key]).unwrap();
    let signer = undersign::domain::checkpoint::Signer::all(&ring).remove(0);
    let row = export.iter().rfind(|line| line.get("kind").is_some()).unwrap();
    let hash = chain::parse_hash(row.get("hash")).unwrap();
    let signed = Value::Object(signer.checkpoint("acme", last, &hash, "2026-12-01T00:00:00.000000Z"));
    evidence
        .world
        .rewrite(&format!(
            "INSERT INTO audit_checkpoints VALUES ('acme', {last}, '\\x{}', now(), convert_to('{signed}', 'UTF8'))",
            signer.public_key()
        ))
        .await;
    assert_eq!(evidence.found(&[]), [(Some(last), "signature".to_owned())]);
    let own = evidence.found(&["--public-key", &signer.public_key().to_string()]);
    assert_eq!(own, [], "to whoever trusts that key it is one");
}

/// The service does not put its name under a chain that was cut off.
#[tokio::test]
async fn a_chain_that_is_shorter_than_what_was_signed_is_not_signed_again() {
    let mut evidence = Evidence::secure().await;
    let last = evidence.last().await;
    evidence
        .world
        .rewrite(&format!(
            "DELETE FROM audit_events WHERE id = {}; DELETE FROM audit_chain WHERE tenant = 'acme' AND seq > {last} - 3;
             UPDATE audit_head SET seq = {last} - 3, hash = (SELECT hash FROM kept_audit_chain
               WHERE tenant = 'acme' AND seq = {last} - 3) WHERE tenant = 'acme'",
            event_of(last)
        ))
        .await;
    evidence.world.add_replica().await;
    evidence.world.stop().await;
    let signed: bool = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM audit_checkpoints WHERE tenant = 'acme')
              = (SELECT count(*) FROM kept_audit_checkpoints WHERE tenant = 'acme')",
    )
    .fetch_one(&evidence.world.db)
    .await
    .unwrap();
    assert!(signed, "the policy that was loaded again is one row, and does not reach the place that was signed");
    let found = evidence.found(&[]);
    assert!(found.iter().any(|(_, what)| what == "truncated"), "{found:?}");
}

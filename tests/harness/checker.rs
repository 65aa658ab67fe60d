//! What must hold after every story, on ledger and database together (THREATS.md section 7).

use std::collections::BTreeMap;

use sqlx::{PgPool, Row as _};
use undersign::demo::shop::FakeShop;
use undersign::domain::verify::Checker;
use undersign::storage::Db;

pub async fn check(db: &PgPool, shop: &FakeShop) {
    // For every approval, at most one call upstream.
    let mut sends = BTreeMap::<String, usize>::new();
    for call in shop.ledger() {
        if let Some(key) = call.idempotency_key {
            *sends.entry(key).or_default() += 1;
        }
    }
    for (key, count) in &sends {
        assert_eq!(*count, 1, "the upstream saw intent {key} more than once");
    }
    // Whatever was sent was claimed, and whatever was claimed was approved, in time, by somebody.
    let intents = sqlx::query(
        "SELECT i.idempotency_key, a.state, a.redeemed_at <= a.redeem_by AS in_time,
                (SELECT count(*) FROM votes v WHERE v.action_id = a.id AND v.verdict = 'approve') AS approvals,
                EXISTS (SELECT FROM tokens t WHERE t.action_id = a.id) AS minted
           FROM intents i JOIN actions a ON a.id = i.action_id",
    )
    .fetch_all(db)
    .await
    .unwrap();
    let mut claimed = Vec::new();
    for row in &intents {
        assert!(row.get::<Option<bool>, _>("in_time").unwrap_or(false), "a claim after its deadline");
        assert!(row.get::<i64, _>("approvals") > 0, "a claim without an approval");
        assert!(row.get::<bool, _>("minted"), "a claim without a token");
        claimed.push(row.get::<String, _>("idempotency_key"));
    }
    for key in sends.keys() {
        assert!(claimed.contains(key), "the upstream was called without a claim");
    }
    // Every action that is not over has a next step: a deadline ahead, or a sweeper that will meet it.
    let stuck: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM actions a WHERE a.state = 'executing'
            AND NOT EXISTS (SELECT FROM intents i WHERE i.action_id = a.id AND i.state = 'claimed')",
    )
    .fetch_one(db)
    .await
    .unwrap();
    assert_eq!(stuck, 0, "an executing action without a claimed intent");
    // Each state change is in the audit trail: the last state of each action is the last kind that names one.
    let unaudited: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM actions a WHERE a.state NOT IN ('pending', 'executing')
            AND NOT EXISTS (SELECT FROM audit_events e WHERE e.action_id = a.id AND e.kind = a.state)",
    )
    .fetch_one(db)
    .await
    .unwrap();
    assert_eq!(unaudited, 0, "a state that the audit trail does not tell");
}

/// The audit trail is whole: every event has its place, and no place and no event was changed.
pub async fn check_audit(database_url: &str) {
    let db = Db::connect(database_url, 2).await.unwrap();
    db.sequence_to_end().await.unwrap();
    let report = db.verify_audit(Checker::new(Vec::new())).await.unwrap();
    assert!(report.ok, "the audit trail does not verify: {:#?}", report.faults);
    db.close().await;
}

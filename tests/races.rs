//! Many at once: one action, one decision, one execution, whoever is first and through whichever replica.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::collections::BTreeSet;

use axum::http::StatusCode;
use harness::{BEN, BOT_KEY, CHANNEL, CYD, OTHER_KEY, PEOPLE, RULES, TEAM, World, at_once, now, refund};
use serde_json::json;
use undersign::demo::slack::{SlackUser, SlackUsergroup};

#[tokio::test]
async fn r05_a_hundred_identical_calls_are_one_action_and_one_card() {
    let mut world = World::start().await;
    world.add_replica().await;
    let agents = [world.agent_at(0, BOT_KEY), world.agent_at(1, BOT_KEY)];
    let answers = at_once(100, move |index| {
        let agent = agents[index % 2].clone();
        async move {
            let answer = agent.call("refund_order", refund()).await;
            assert_eq!(answer.code(), "approval_pending", "{}", answer.0);
            answer.action_id()
        }
    })
    .await;
    assert_eq!(answers.iter().collect::<BTreeSet<_>>().len(), 1);
    let card = world.card().await;
    assert_eq!(world.audit("parked").await.len(), 1);
    // Another agent's identical call is another action.
    let other = world.agent(OTHER_KEY).call("refund_order", refund()).await;
    assert_ne!(other.action_id(), answers[0]);
    let id = other.action_id();
    world.card_where(|card| card.text.contains(&id)).await;
    assert_eq!(world.slack.messages(CHANNEL).len(), 2);
    assert_eq!(card.versions.len(), 1);
    world.finish().await;
}

/// A thousand actions; on each, one person approves and another denies at the same moment, over two replicas.
#[tokio::test]
async fn a09_a_thousand_approve_and_deny_races_end_in_one_state_each() {
    let mut world = World::start().await;
    world.add_replica().await;
    // Parked straight into the table by copying one parked action: the race is about deciding.
    let (template, card) = world.park().await;
    let handle = world.slack.click_payload(BEN, CHANNEL, &card.ts, "undersign_approve").unwrap()["actions"]
        [0]["value"]
        .as_str()
        .unwrap()
        .to_owned();
    copy_actions(&world, &template.action_id(), &handle, 1000).await;
    let urls = [world.callback_url(0), world.callback_url(1)];
    let payload = world.slack.click_payload(BEN, CHANNEL, &card.ts, "undersign_approve").unwrap();
    let press = |index: usize, approve: bool| {
        let mut payload = payload.clone();
        payload["actions"][0]["value"] = json!(format!("race-{index}"));
        payload["container"]["message_ts"] = json!(format!("17.{index:06}"));
        payload["message"]["ts"] = json!(format!("17.{index:06}"));
        if !approve {
            payload["user"]["id"] = json!(CYD);
            payload["actions"][0]["action_id"] = json!("undersign_deny");
        }
        payload
    };
    for batch in 0..20 {
        let requests: Vec<_> = (0..100)
            .map(|slot| world.slack.sign(&press(batch * 50 + slot / 2, slot % 2 == 0), now()))
            .collect();
        let (slack, urls) = (world.slack.clone(), urls.clone());
        let statuses = at_once(100, move |slot| {
            let (slack, url, request) =
                (slack.clone(), urls[(slot / 2 + slot) % 2].clone(), requests[slot].clone());
            async move { slack.send(&url, request).await.unwrap() }
        })
        .await;
        assert!(statuses.iter().all(|status| *status == StatusCode::OK), "{statuses:?}");
    }
    let mut undecided = 1;
    for _ in 0..300 {
        undecided = sqlx::query_scalar("SELECT count(*) FROM callbacks WHERE decided_at IS NULL")
            .fetch_one(&world.db)
            .await
            .unwrap();
        if undecided == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(undecided, 0_i64, "presses that nobody decided");
    // Deny wins until consumption: whichever came first, each race ends denied, once.
    let states: Vec<(String, i64)> = sqlx::query_as(
        "SELECT state, count(*) FROM actions WHERE run = 'race' GROUP BY state ORDER BY state",
    )
    .fetch_all(&world.db)
    .await
    .unwrap();
    assert_eq!(states, [("denied".to_owned(), 1000)]);
    let twice: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM (SELECT action_id FROM audit_events WHERE kind = 'denied' GROUP BY action_id
          HAVING count(*) > 1) AS twice",
    )
    .fetch_one(&world.db)
    .await
    .unwrap();
    assert_eq!(twice, 0, "an action that was denied twice");
    // Whoever approved after the deny is on record as late; whoever was before it, as having voted.
    let accounted: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM audit_events WHERE kind IN ('late', 'voted')
            AND action_id IN (SELECT id FROM actions WHERE run = 'race')",
    )
    .fetch_one(&world.db)
    .await
    .unwrap();
    assert_eq!(accounted, 2000);
    world.finish().await;
}

async fn copy_actions(world: &World, template: &str, handle: &str, count: i32) {
    sqlx::query(
        "INSERT INTO actions (id, tenant, agent, owner, run, upstream, environment, tool, tool_version, policy_version,
           requirement, preconditions, arguments, content_digest, action_digest, barred_person, preview, facts, rules,
           risk, post_to, expires_at, redeem_within)
         SELECT ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, tenant, agent, owner, 'race', upstream,
           environment, tool, tool_version, policy_version, requirement, preconditions, arguments,
           sha256(int4send(i)), sha256(int4send(i)), barred_person, preview, facts, rules, risk, post_to,
           clock_timestamp() + interval '1 hour', redeem_within
           FROM actions, generate_series(0, $2 - 1) AS i WHERE id = $1::uuid",
    )
    .bind(template)
    .bind(count)
    .execute(&world.db)
    .await
    .unwrap();
    sqlx::query(
        "INSERT INTO cards (handle, action_id, tenant, platform, installation, channel, message_id, permalink, revision)
         SELECT 'race-' || i, ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, tenant, platform,
           installation, channel, '17.' || lpad(i::text, 6, '0'), 'https://example.invalid/' || i, 1000
           FROM cards, generate_series(0, $2 - 1) AS i WHERE handle = $1",
    )
    .bind(handle)
    .bind(count)
    .execute(&world.db)
    .await
    .unwrap();
}

/// Eight people at once on a count of two: the action closes with the second vote, and never without it.
#[tokio::test]
async fn eight_voters_at_once_on_a_count_of_two() {
    let voters: Vec<String> = (1..=8).map(|n| format!("U0VOTER00{n}")).collect();
    let world = World::start().await;
    for voter in &voters {
        world.slack.set_user(SlackUser::member(voter, voter, TEAM));
    }
    let names: Vec<&str> = voters.iter().map(String::as_str).collect();
    world.slack.set_usergroup(SlackUsergroup::new("S0PAY00001", &names));
    let mut channel = undersign::demo::slack::SlackChannel::new(CHANNEL, "payments", &names);
    channel.members.insert(BEN.to_owned());
    world.slack.set_channel(channel);
    let agent = world.agent(BOT_KEY);
    for round in 0..6 {
        let parked = agent.call("delete_customer", json!({"customer_id": format!("C-{round}")})).await;
        let id = parked.action_id();
        let card = world.card_where(|card| card.text.contains(&id)).await;
        // One vote alone is never enough.
        let requests: Vec<_> = names
            .iter()
            .map(|voter| {
                let payload =
                    world.slack.click_payload(voter, CHANNEL, &card.ts, "undersign_approve").unwrap();
                world.slack.sign(&payload, now())
            })
            .collect();
        let (slack, url) = (world.slack.clone(), world.callback_url(0));
        let statuses = at_once(8, move |index| {
            let (slack, url, request) = (slack.clone(), url.clone(), requests[index].clone());
            async move { slack.send(&url, request).await.unwrap() }
        })
        .await;
        assert!(statuses.iter().all(|status| *status == StatusCode::OK));
        assert_eq!(agent.approval(&id, 30).await.code(), "approval_granted", "round {round}: stuck");
        let approvals: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM votes WHERE action_id = $1::uuid AND verdict = 'approve'",
        )
        .bind(&id)
        .fetch_one(&world.db)
        .await
        .unwrap();
        assert_eq!(approvals, 2, "round {round}: closed with the second vote and no later");
    }
    world.finish().await;
}

/// A deny and a redemption at once: either the call ran and the deny was late, or the deny was first and nothing ran.
#[tokio::test]
async fn deny_and_redeem_at_once_never_both() {
    let rules = RULES.replace("risk = \"high\"", "risk = \"medium\"");
    let mut world = World::with_rules(&rules).await;
    world.add_replica().await;
    assert!(!PEOPLE.is_empty());
    let (mut ran, mut denied) = (0, 0);
    for round in 0..20 {
        let arguments = json!({"order_id": "A-17", "amount_cents": 20_000 + round});
        let agent = world.agent(BOT_KEY);
        let parked = agent.call("refund_order", arguments.clone()).await;
        let id = parked.action_id();
        let card = world.card_where(|card| card.text.contains(&id)).await;
        world.press(BEN, &card, "undersign_approve").await;
        let token = agent.approval(&id, 30).await.token().unwrap();
        let card =
            world.card_where(|card| card.text.contains(&id) && card.buttons() == ["undersign_revoke"]).await;
        let before = world.shop.ledger().len();
        let redeemer = world.agent_at(1, BOT_KEY);
        let redeeming =
            tokio::spawn(
                async move { redeemer.call_with_token("refund_order", arguments, &token).await.code() },
            );
        if round % 3 > 0 {
            tokio::time::sleep(std::time::Duration::from_millis((round % 3) * 4)).await;
        }
        assert_eq!(world.press_stale_version(CYD, &card, "undersign_revoke").await, StatusCode::OK);
        let code = redeeming.await.unwrap();
        let calls = world.shop.ledger().len() - before;
        match code.as_str() {
            "upstream" => {
                let state = world.state(&id).await;
                // The shop refuses when the order is paid back: it was called all the same.
                assert_eq!((calls, matches!(state.as_str(), "succeeded" | "failed")), (1, true), "{state}");
                ran += 1;
            }
            "denied" => {
                assert_eq!((calls, world.state(&id).await.as_str()), (0, "denied"));
                denied += 1;
            }
            other => panic!("round {round}: {other}"),
        }
    }
    assert_eq!(ran + denied, 20);
    world.finish().await;
}

//! Who may decide (THREATS.md group A): the policy's groups, resolved at the click and again at the redemption; people
//! are counted, never clicks; deny wins until the token is consumed.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::process::Command;

use axum::http::StatusCode;
use harness::{ANA, BEN, BOT_KEY, CYD, EVE, GIL, MAL, RULES, World, refund};
use serde_json::json;
use undersign::demo::slack::{Fault, SlackUser, SlackUsergroup};

#[tokio::test]
async fn a01_a_channel_member_outside_the_group_decides_nothing() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    for button in ["undersign_approve", "undersign_deny"] {
        assert_eq!(world.press(MAL, &card, button).await, StatusCode::OK);
    }
    assert!(world.note_to(MAL).await.contains("you are not in that group"));
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    let refused = world.wait_audit("vote_refused", 2).await;
    assert_eq!(refused[0]["reason"], "not_a_member");
    assert_eq!(refused[0]["account"]["user"], MAL);
    let card = world.card().await;
    assert_eq!(card.buttons(), ["undersign_approve", "undersign_deny"], "the card stays");
    assert_eq!(card.versions.len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn a02_a_member_of_another_tools_group_decides_nothing() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    assert_eq!(world.press(EVE, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(EVE).await.contains("you are not in that group"));
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    world.finish().await;
}

#[tokio::test]
async fn a_guest_a_bot_and_a_deactivated_person_decide_nothing_though_policy_names_them() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    assert_eq!(world.press(GIL, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(GIL).await.contains("full members"));
    let mut gone = SlackUser::member(BEN, "ben", harness::TEAM);
    gone.deleted = true;
    world.slack.set_user(gone);
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(BEN).await.contains("full members"));
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    world.finish().await;
}

#[tokio::test]
async fn a_member_of_the_slack_user_group_may_decide_without_an_entry() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    assert_eq!(world.press(CYD, &card, "undersign_approve").await, StatusCode::OK);
    let granted = world.agent(BOT_KEY).approval(&parked.action_id(), 30).await;
    assert_eq!(granted.code(), "approval_granted");
    assert_eq!(world.audit("voted").await[0]["person"], format!("slack:main/{CYD}"));
    world.finish().await;
}

#[tokio::test]
async fn a03_a_platform_that_cannot_be_asked_closes_the_door() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    world.slack.fail("usergroups.users.list", 100, &Fault::Http(500));
    assert_eq!(world.press(CYD, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(CYD).await.contains("could not be checked"));
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    assert_eq!(world.wait_audit("vote_refused", 1).await[0]["reason"], "unavailable");
    world.slack.recover("usergroups.users.list");
    assert_eq!(world.press(CYD, &card, "undersign_approve").await, StatusCode::OK);
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "approval_granted");
    world.finish().await;
}

#[tokio::test]
async fn a05_a_disabled_or_emptied_user_group_is_nobody_and_not_everyone() {
    let mut disabled = SlackUsergroup::new("S0PAY00001", &[CYD]);
    disabled.disabled = true;
    for group in [disabled, SlackUsergroup::new("S0PAY00001", &[])] {
        let world = World::start().await;
        world.slack.set_usergroup(group);
        let (parked, card) = world.park().await;
        for person in [CYD, MAL, EVE] {
            assert_eq!(world.press(person, &card, "undersign_approve").await, StatusCode::OK);
            assert!(world.note_to(person).await.contains("not in that group"));
        }
        assert_eq!(world.state(&parked.action_id()).await, "pending");
        world.finish().await;
    }
}

/// The cache is warm when the person leaves the group. Whatever it still says, it says for no longer than a minute.
#[tokio::test]
async fn a03_a_removed_approver_is_refused_within_a_minute_though_the_cache_was_warm() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    let (_, card) = world.park().await;
    assert_eq!(world.press(CYD, &card, "undersign_deny").await, StatusCode::OK);
    world.wait_audit("denied", 1).await;
    world.slack.set_usergroup(SlackUsergroup::new("S0PAY00001", &[BEN]));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let other = json!({"order_id": "A-17", "amount_cents": 13_000});
    let id = agent.call("refund_order", other).await.action_id();
    let card = world.card_where(|card| card.text.contains(&id)).await;
    assert_eq!(world.press(CYD, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(CYD).await.contains("not in that group"));
    assert_eq!(world.state(&id).await, "pending");
    world.finish().await;
}

#[tokio::test]
async fn a11_one_approve_and_one_deny_on_a_count_of_two_is_denied() {
    for deny_first in [false, true] {
        let world = World::start().await;
        let agent = world.agent(BOT_KEY);
        let id = agent.call("delete_customer", json!({"customer_id": "C-1"})).await.action_id();
        let card = world.card_where(|card| card.text.contains(&id)).await;
        let presses = [(BEN, "undersign_approve"), (CYD, "undersign_deny")];
        let order = if deny_first { [1, 0] } else { [0, 1] };
        for at in order {
            assert_eq!(world.press_stale(presses[at].0, &card, presses[at].1).await, StatusCode::OK);
        }
        assert_eq!(agent.approval(&id, 30).await.code(), "denied");
        assert!(world.shop.ledger().is_empty());
        world.finish().await;
    }
}

#[tokio::test]
async fn a06_the_owner_cannot_approve_where_that_is_separated_and_can_where_it_is_not() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    assert_eq!(world.press(ANA, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(ANA).await.contains("someone else has to approve"));
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    assert_eq!(world.audit("vote_refused").await[0]["reason"], "proposer");
    // The owner may always say no.
    assert_eq!(world.press(ANA, &card, "undersign_deny").await, StatusCode::OK);
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "denied");
    world.finish().await;

    let together = RULES.replace("risk = \"high\"", "risk = \"high\"\nseparate_proposer = false");
    let world = World::with_rules(&together).await;
    let (parked, card) = world.park().await;
    assert_eq!(world.press(ANA, &card, "undersign_approve").await, StatusCode::OK);
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "approval_granted");
    assert_eq!(world.audit("voted").await[0]["person"], "ana");
    world.finish().await;
}

#[tokio::test]
async fn a08_the_owner_and_one_other_are_one_of_two() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    let parked = agent.call("delete_customer", json!({"customer_id": "C-1"})).await;
    let card = world.card().await;
    assert_eq!(world.press(ANA, &card, "undersign_approve").await, StatusCode::OK);
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    let status = agent.approval(&parked.action_id(), 0).await;
    assert_eq!(status.code(), "approval_pending");
    assert_eq!(status.meta()["approvals"][0]["got"], 1);
    world.card_showing("1 of 2 from payments").await;
    assert_eq!(world.press(CYD, &card, "undersign_approve").await, StatusCode::OK);
    assert_eq!(agent.approval(&parked.action_id(), 30).await.code(), "approval_granted");
    world.finish().await;
}

#[tokio::test]
async fn a10_a_deny_before_the_retry_takes_the_approval_back() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    let card = world.card_where(|card| card.buttons() == ["undersign_revoke"]).await;
    assert_eq!(world.press(CYD, &card, "undersign_revoke").await, StatusCode::OK);
    world.card_showing("The tool was not called").await;
    let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "denied");
    assert!(world.shop.ledger().is_empty());
    assert_eq!(world.state(&action).await, "denied");
    let denied = world.audit("denied").await;
    assert_eq!((denied.len(), denied[0]["revoked"].as_bool()), (1, Some(true)));
    // The approver may take back their own yes as well.
    let other = json!({"order_id": "A-17", "amount_cents": 9_000});
    let parked = world.agent(BOT_KEY).call("refund_order", other).await;
    let id = parked.action_id();
    let card = world.card_where(|card| card.text.contains(&id)).await;
    world.press(BEN, &card, "undersign_approve").await;
    let card =
        world.card_where(|card| card.text.contains(&id) && card.buttons() == ["undersign_revoke"]).await;
    world.press(BEN, &card, "undersign_revoke").await;
    assert_eq!(world.agent(BOT_KEY).approval(&id, 30).await.code(), "denied");
    world.finish().await;
}

#[tokio::test]
async fn an_identical_call_after_a_denial_is_denied_without_a_card() {
    let world = World::start().await;
    let (_, card) = world.park().await;
    world.press(BEN, &card, "undersign_deny").await;
    world.card_showing("Denied").await;
    let again = world.agent(BOT_KEY).call("refund_order", refund()).await;
    assert_eq!(again.code(), "denied");
    assert_eq!(world.slack.messages(harness::CHANNEL).len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn an_approver_who_lost_the_right_meanwhile_approves_nothing() {
    let mut world = World::start().await;
    let (parked, card) = world.park().await;
    world.press(CYD, &card, "undersign_approve").await;
    let token = world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.token().unwrap();
    world.slack.set_usergroup(SlackUsergroup::new("S0PAY00001", &[MAL]));
    // A fresh replica has no memory of who was a member.
    world.restart().await;
    let agent = world.agent(BOT_KEY);
    let answer = agent.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "approver_revoked");
    assert!(world.shop.ledger().is_empty());
    let later = agent.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(later.meta()["reason"], "approver_revoked");
    world.card_showing("No longer valid").await;
    world.finish().await;
}

#[tokio::test]
async fn membership_that_cannot_be_checked_at_the_redemption_stops_it_and_spends_nothing() {
    let mut world = World::start().await;
    let (_, token) = world.approved().await;
    world.restart().await;
    world.slack.fail("users.info", 100, &Fault::Http(500));
    let agent = world.agent(BOT_KEY);
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "unavailable");
    assert!(world.shop.ledger().is_empty());
    world.slack.recover("users.info");
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "upstream");
    world.finish().await;
}

/// The commands of the program, each with the words that lead to it.
fn commands(path: &[String]) -> Vec<Vec<String>> {
    let output =
        Command::new(env!("CARGO_BIN_EXE_undersign")).args(path).arg("--help").env_clear().output().unwrap();
    assert!(output.status.success(), "{path:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let list = help.split_once("Commands:\n").map(|(_, list)| list.split("\n\n").next().unwrap_or_default());
    let Some(list) = list else { return vec![path.to_vec()] };
    // Names stand two in; what they do, when it goes on, stands further in.
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .flat_map(|name| commands(&[path, &[name.to_owned()]].concat()))
        .collect()
}

/// Nothing but a verified press of an eligible person approves: no command, no route, no tool, whatever it is told.
#[tokio::test]
async fn a12_no_command_no_route_and_no_tool_approves() {
    let world = World::start().await;
    let (parked, _) = world.park().await;
    let id = parked.action_id();

    let commands = commands(&[]);
    assert!(commands.contains(&vec!["audit".to_owned(), "export".to_owned()]), "{commands:?}");
    for command in &commands {
        for word in ["approve", "vote", "grant", "mint", "redeem", "execute", "decide"] {
            assert!(!command.iter().any(|part| part.contains(word)), "{command:?}");
        }
        // These would run on, or play a story of their own.
        if ["serve", "demo", "with-postgres", "bridge"].contains(&command[0].as_str()) {
            continue;
        }
        for more in [vec![], vec![id.as_str()], vec![id.as_str(), "approve"]] {
            let words: Vec<&str> =
                command.iter().map(String::as_str).chain(more).chain(["--config"]).collect();
            world.run(&words);
        }
    }

    let replica = &world.replicas[0];
    let http = reqwest::Client::builder().build().unwrap();
    let body = json!({ "action_id": id, "verdict": "approve", "approve": true, "person": "ben" }).to_string();
    let mut paths: Vec<String> = undersign::http::ROUTES
        .iter()
        .map(|(_, path, _)| path.replace("{upstream}", "shop").replace("{app}", "main"))
        .collect();
    for guess in ["/approve", "/actions", "/admin/approve"] {
        paths.extend([guess.to_owned(), format!("{guess}/{id}"), format!("/actions/{id}{guess}")]);
    }
    for address in [replica.agents(), replica.callbacks(), replica.admin()] {
        for path in &paths {
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                let url = format!("http://{address}{path}?action_id={id}&verdict=approve");
                let answer = http
                    .request(method.parse().unwrap(), url)
                    .header("content-type", "application/json")
                    .header("authorization", format!("Bearer {BOT_KEY}"))
                    .body(body.clone())
                    .send()
                    .await
                    .unwrap();
                assert!(!answer.status().is_server_error(), "{method} {path}: {}", answer.status());
            }
        }
    }

    let tools = world.agent(BOT_KEY).list().await;
    let mut own: Vec<&str> =
        tools.iter().filter_map(|tool| tool["name"].as_str()?.strip_prefix("undersign_")).collect();
    own.sort_unstable();
    assert_eq!(own, ["approval", "cancel"]);

    let state = world.state(&id).await;
    assert!(["pending", "cancelled"].contains(&state.as_str()), "{state}");
    for table in ["votes", "tokens", "intents"] {
        let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&world.db).await.unwrap();
        assert_eq!(count, 0, "{table}");
    }
    world.finish().await;
}

//! `undersign actions`: what operators read and withdraw.

mod harness;

use harness::{BEN, BOT_KEY, World, refund};
use serde_json::Value;

fn json(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn operators_list_and_show_actions_as_text_and_as_json() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    let executed = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
    assert_eq!(executed.code(), "upstream");
    let arguments = serde_json::json!({"order_id": "B-2", "amount_cents": 7_000});
    let pending = world.agent(BOT_KEY).call("refund_order", arguments).await.action_id();
    let all = json(&world.run(&["actions", "list", "--json", "--config"]));
    let ids: Vec<_> =
        all.as_array().unwrap().iter().map(|line| line["action_id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&*pending, &*action], "newest first");
    assert_eq!(all[1]["state"], "succeeded");
    let some = json(
        &world.run(&["actions", "list", "--state", "pending", "--tenant", "acme", "--json", "--config"]),
    );
    assert_eq!(some.as_array().unwrap().len(), 1);
    assert_eq!(
        json(&world.run(&["actions", "list", "--tenant", "globex", "--json", "--config"])),
        serde_json::json!([])
    );
    let page = json(&world.run(&["actions", "list", "--before", &pending, "--json", "--config"]));
    assert_eq!(page[0]["action_id"], action);
    let text = String::from_utf8(world.run(&["actions", "list", "--config"]).stdout).unwrap();
    assert!(text.lines().next().unwrap().starts_with(&format!("{pending}  pending ")), "{text}");

    let shown = json(&world.run(&["actions", "show", &action, "--json", "--config"]));
    assert_eq!(shown["state"], "succeeded");
    assert_eq!(shown["arguments"], refund());
    assert_eq!(shown["votes"][0]["person"], "ben");
    assert_eq!(shown["intact"], true);
    assert!(shown["result"]["content"].is_array(), "{shown}");
    let text = String::from_utf8(world.run(&["actions", "show", &action, "--config"]).stdout).unwrap();
    assert!(text.contains("state: succeeded") && text.contains("\"amount_cents\": 12000"), "{text}");
    assert!(!text.contains("ust1."), "no token is shown");
    world.finish().await;
}

#[tokio::test]
async fn an_operator_withdraws_and_everybody_is_told_who_it_was() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    let id = parked.action_id();
    let waiting = tokio::spawn({
        let (agent, id) = (world.agent(BOT_KEY), id.clone());
        async move { agent.approval(&id, 50).await }
    });
    let output = world.run(&["actions", "cancel", &id, "--by", "dana", "--config"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(waiting.await.unwrap_or_else(|error| panic!("{error}")).code(), "cancelled");
    assert_eq!(world.audit("cancelled").await[0]["by"], "operator dana");
    world.card_showing("Withdrawn by operator dana").await;
    world.press_stale(BEN, &card, "undersign_approve").await;
    assert!(world.note_to(BEN).await.contains("it was withdrawn"));
    let again = world.run(&["actions", "cancel", &id, "--by", "dana", "--config"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&again.stderr).contains("is cancelled: only what is pending or approved")
    );
    world.finish().await;
}

#[tokio::test]
async fn what_operators_mistype_is_named() {
    let world = World::start().await;
    for (arguments, code, said) in [
        (
            &["actions", "list", "--state", "waiting", "--config"][..],
            2,
            "there is no such state; one of pending, approved",
        ),
        (&["actions", "show", "abc", "--config"], 2, "abc is not an action's id"),
        (&["actions", "show", "01890a5d-ac96-774b-bcce-b302099a8057", "--config"], 1, "there is no action"),
        (
            &["actions", "cancel", "01890a5d-ac96-774b-bcce-b302099a8057", "--by", "", "--config"],
            2,
            "--by must be a name",
        ),
    ] {
        let output = world.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    world.finish().await;
}

/// The demo's workers would post real cards to a played Slack: it keeps away from a database that is not its own.
#[tokio::test]
async fn the_demo_does_not_touch_a_database_in_use() {
    let world = World::start().await;
    let (parked, _) = world.park().await;
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_undersign"))
        .args(["demo", "--headless"])
        .env("DATABASE_URL", world.database_url())
        .output()
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("in use by something other than the demo"), "{said}");
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    assert_eq!(world.audit("parked").await.len(), 1);
    world.finish().await;
}

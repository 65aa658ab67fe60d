//! How much an agent may ask of people, and what a denial is worth.

mod harness;

use std::collections::{BTreeMap, BTreeSet};

use harness::{ANA, BEN, BOT_KEY, CHANNEL, OTHER_KEY, RULES, World, at_once, refund};
use serde_json::{Value, json};

fn amount(cents: u64) -> Value {
    json!({ "order_id": "A-17", "amount_cents": cents })
}

#[tokio::test]
async fn r01_a_denied_call_stays_denied_and_asks_nobody() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    world.press(BEN, &card, "undersign_deny").await;
    let agent = world.agent(BOT_KEY);
    assert_eq!(agent.approval(&parked.action_id(), 30).await.code(), "denied");
    for _ in 0..5 {
        let again = agent.call("refund_order", refund()).await;
        assert_eq!(again.code(), "denied");
        assert_eq!(again.action_id(), parked.action_id());
    }
    assert_eq!(world.slack.messages(CHANNEL).len(), 1);
    assert_eq!(world.audit("parked").await.len(), 1);
    // Another agent's identical call is its own.
    assert_eq!(world.agent(OTHER_KEY).call("refund_order", refund()).await.code(), "approval_pending");
    world.finish().await;
}

#[tokio::test]
async fn a_cosmetic_variant_of_what_was_denied_is_denied_too() {
    let noted = |note: &str| json!({"order_id": "A-17", "amount_cents": 12_000, "note": note});
    let ignoring =
        RULES.replace("reversible = \"no\"", "reversible = \"no\"\n[rules.cosmetic]\nignore = [\"/note\"]");
    for (rules, another_note) in [(RULES, "approval_pending"), (&*ignoring, "denied_recently")] {
        let world = World::with_rules(rules).await;
        let agent = world.agent(BOT_KEY);
        let id = agent.call("refund_order", noted("Sorry for the delay")).await.action_id();
        let card = world.card_where(|card| card.text.contains(&id)).await;
        world.press(BEN, &card, "undersign_deny").await;
        assert_eq!(agent.approval(&id, 30).await.code(), "denied");
        assert_eq!(agent.call("refund_order", noted("Sorry for the delay")).await.code(), "denied");
        for variant in [
            " SORRY for  the\ndelay",
            "Sor\u{200b}ry for the delay",
            "\u{ff33}orry for the delay",
            "Sorry for the delay\u{a0}",
        ] {
            let answer = agent.call("refund_order", noted(variant)).await;
            assert_eq!(answer.code(), "denied_recently", "{variant:?}");
            assert_eq!(answer.action_id(), id);
        }
        assert_eq!(world.audit("parked").await.len(), 1);
        assert_eq!(agent.call("refund_order", noted("As promised")).await.code(), another_note);
        world.finish().await;
    }
}

#[tokio::test]
async fn r03_a_materially_different_proposal_after_a_denial_is_asked_for() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    world.press(BEN, &card, "undersign_deny").await;
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "denied");
    let other = world.agent(BOT_KEY).call("refund_order", amount(12_001)).await;
    assert_eq!(other.code(), "approval_pending");
    let id = other.action_id();
    world.card_where(|card| card.text.contains(&id)).await;
    world.finish().await;
}

#[tokio::test]
async fn a_denial_is_remembered_as_long_as_the_policy_says() {
    let rules = |memory: &str| {
        format!("{RULES}{}", harness::NO_LIMITS.trim_end()) + &format!("\ndenial_memory = \"{memory}\"\n")
    };
    for (memory, age, code) in [
        ("1h", "59 minutes", "denied"),
        ("1h", "61 minutes", "approval_pending"),
        ("forever", "700 days", "denied"),
    ] {
        let world = World::with_rules(&rules(memory)).await;
        let (parked, card) = world.park().await;
        world.press(BEN, &card, "undersign_deny").await;
        assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "denied");
        world.rewrite(&format!("UPDATE actions SET decided_at = clock_timestamp() - interval '{age}'")).await;
        let again = world.agent(BOT_KEY).call("refund_order", refund()).await;
        assert_eq!(again.code(), code, "{memory}, {age}");
        world.finish().await;
    }
}

/// A hundred different calls at once, over two replicas: five cards, and another agent is not affected.
#[tokio::test]
async fn r04_a_hundred_different_calls_are_five_cards_and_the_rest_is_rate_limited() {
    let mut world = World::with_rules(&format!("{RULES}[limits]\n")).await;
    world.add_replica().await;
    let agents = [world.agent_at(0, BOT_KEY), world.agent_at(1, BOT_KEY)];
    let codes = at_once(100, move |index| {
        let agent = agents[index % 2].clone();
        async move {
            let answer = agent.call("refund_order", amount(10_000 + index as u64)).await;
            (answer.code(), answer.text())
        }
    })
    .await;
    let mut count = BTreeMap::<&str, usize>::new();
    for (code, text) in &codes {
        *count.entry(code).or_default() += 1;
        if code == "rate_limited" {
            assert!(text.contains("5 new approvals a minute"), "{text}");
        }
    }
    assert_eq!(count, BTreeMap::from([("approval_pending", 5), ("rate_limited", 95)]));
    assert_eq!(world.audit("parked").await.len(), 5);
    // A minute later it may ask again; what it asked for is still pending.
    world.rewrite("UPDATE actions SET created_at = created_at - interval '61 seconds'").await;
    let agent = world.agent(BOT_KEY);
    assert_eq!(agent.call("refund_order", amount(50_000)).await.code(), "approval_pending");
    assert_eq!(world.agent(OTHER_KEY).call("refund_order", amount(10_000)).await.code(), "approval_pending");
    world.finish().await;
}

#[tokio::test]
async fn what_is_pending_is_limited_for_an_agent_an_owner_and_a_group() {
    for (limits, whose) in [
        ("pending_per_agent = 3", "An agent may have 3 approvals pending"),
        ("pending_per_owner = 3", "The agents of this owner"),
        ("pending_per_group = 3", "The people to be asked"),
    ] {
        let rules = format!("{RULES}[limits]\nasks_per_minute = 1000\n{limits}\n");
        let mut world = World::with_rules(&rules).await;
        world.add_replica().await;
        let agents = [world.agent_at(0, BOT_KEY), world.agent_at(1, BOT_KEY)];
        let answers = at_once(20, move |index| {
            let agent = agents[index % 2].clone();
            async move { agent.call("refund_order", amount(10_000 + index as u64)).await }
        })
        .await;
        let pending: Vec<_> = answers.iter().filter(|answer| answer.code() == "approval_pending").collect();
        assert_eq!(pending.len(), 3, "{limits}");
        let limited = answers.iter().find(|answer| answer.code() == "rate_limited").unwrap();
        assert!(limited.text().contains(whose), "{}", limited.text());
        let other = world.agent(OTHER_KEY).call("refund_order", amount(10_000)).await.code();
        let expected = if limits.contains("group") { "rate_limited" } else { "approval_pending" };
        assert_eq!(other, expected, "{limits}");
        // One that is withdrawn makes room.
        let agent = world.agent(BOT_KEY);
        assert_eq!(agent.cancel(&pending[0].action_id()).await.code(), "cancelled");
        assert_eq!(agent.call("refund_order", amount(90_000)).await.code(), "approval_pending", "{limits}");
        world.finish().await;
    }
}

#[tokio::test]
async fn r06_three_denials_pause_the_agent_and_somebody_is_told() {
    let rules = format!("{RULES}[limits]\nasks_per_minute = 100\nalert_to = [\"slack:main/C0OTHER001\"]\n");
    let world = World::with_rules(&rules).await;
    let agent = world.agent(BOT_KEY);
    let mut pending = Vec::new();
    for cents in [10_000, 11_000, 12_000, 13_000] {
        pending.push(agent.call("refund_order", amount(cents)).await.action_id());
    }
    for id in &pending[..3] {
        let card = world.card_where(|card| card.text.contains(id)).await;
        world.press(BEN, &card, "undersign_deny").await;
        assert_eq!(agent.approval(id, 30).await.code(), "denied");
    }
    let refused = agent.call("refund_order", amount(14_000)).await;
    assert_eq!(refused.code(), "rate_limited");
    assert!(
        refused.text().contains("paused because of its denials; it may ask again at "),
        "{}",
        refused.text()
    );
    let told = world
        .slack
        .wait_message("C0OTHER001", |message| {
            message.as_text().contains("is paused for 10m: 3 denials within 10m")
        })
        .await
        .unwrap();
    assert!(told.as_text().contains("support-bot of acme") && told.buttons().is_empty());
    assert_eq!(
        world.audit("paused").await,
        [json!({"agent": "support-bot", "reason": "denials", "seconds": 600})]
    );
    // What was pending can still be approved and executed; other agents and allowed calls go on.
    let card = world.card_where(|card| card.text.contains(&pending[3])).await;
    world.press(BEN, &card, "undersign_approve").await;
    let token = agent.approval(&pending[3], 30).await.token().unwrap_or_default();
    assert_eq!(agent.call_with_token("refund_order", amount(13_000), &token).await.code(), "upstream");
    assert_eq!(agent.call("refund_order", amount(100)).await.code(), "upstream");
    assert_eq!(world.agent(OTHER_KEY).call("refund_order", amount(14_000)).await.code(), "approval_pending");
    // The pause ends, and the denials that led to it are spent.
    world
        .rewrite("UPDATE limits SET until = clock_timestamp() WHERE kind = 'agent' AND until IS NOT NULL")
        .await;
    assert_eq!(agent.call("refund_order", amount(14_000)).await.code(), "approval_pending");
    world.finish().await;
}

/// Many agents of one tenant, one channel: one card a second, turn about, and what is not posted in time expires unseen.
#[tokio::test]
async fn r07_a_flood_goes_to_a_channel_one_card_a_second_with_turns_among_agents() {
    let rules = RULES.replace("risk = \"high\"", "risk = \"high\"\nexpires = \"10s\"");
    let world = World::with_rules(&rules).await;
    let flood = world.agent(BOT_KEY);
    for index in 0..30 {
        assert_eq!(flood.call("refund_order", amount(10_000 + index)).await.code(), "approval_pending");
    }
    let already = world.slack.messages(CHANNEL).len();
    let quiet = world.agent(OTHER_KEY).call("refund_order", amount(10_000)).await;
    let id = quiet.action_id();
    let card = world.card_where(|card| card.text.contains(&id)).await;
    let before = world.slack.messages(CHANNEL).iter().filter(|other| other.ts < card.ts).count();
    assert!(
        before <= already + 2,
        "{before} cards went out before the quiet agent's, {already} before it asked"
    );
    for _ in 0..400 {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM actions WHERE state = 'pending'")
            .fetch_one(&world.db)
            .await
            .unwrap();
        if left == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // By the database's own clock: no more cards than seconds, and one to begin with.
    let (cards, seconds): (i64, f64) = sqlx::query_as(
        "SELECT count(*), extract(epoch FROM max(created_at) - min(created_at))::float8 FROM cards",
    )
    .fetch_one(&world.db)
    .await
    .unwrap();
    assert!(cards >= 2, "nothing was posted");
    #[expect(clippy::cast_precision_loss, reason = "a few dozen")]
    let within = cards as f64 <= seconds + 2.0;
    assert!(within, "{cards} cards in {seconds} s");
    let states: BTreeSet<String> = sqlx::query_scalar::<_, String>("SELECT state FROM actions")
        .fetch_all(&world.db)
        .await
        .unwrap()
        .into_iter()
        .collect();
    assert_eq!(states, BTreeSet::from(["expired".to_owned()]));
    let unseen: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM actions a WHERE NOT EXISTS (SELECT FROM cards c WHERE c.action_id = a.id)",
    )
    .fetch_one(&world.db)
    .await
    .unwrap();
    assert!(unseen >= 10, "only {unseen} were never shown");
    world.finish().await;
}

#[tokio::test]
async fn t10_twenty_wrong_tokens_throttle_that_agent_and_touch_nobody_else() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    let wrong = world.agent(OTHER_KEY);
    for n in 0..20 {
        let guess = format!("{}{n:02}", &token[..token.len() - 2]);
        assert_eq!(wrong.call_with_token("refund_order", refund(), &guess).await.code(), "invalid_token");
    }
    let refused = wrong.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(refused.code(), "rate_limited");
    assert!(refused.text().contains("wrong tokens"), "{}", refused.text());
    // Without a token it may still ask; and the owner's approval is as good as before.
    assert_eq!(wrong.call("refund_order", refund()).await.code(), "approval_pending");
    assert_eq!(world.state(&action).await, "approved");
    assert_eq!(
        world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await.code(),
        "upstream"
    );
    world.finish().await;
}

#[tokio::test]
async fn a_token_in_the_wrong_hands_is_told_to_alert_to() {
    let world =
        World::with_rules(&format!("{RULES}[limits]\nalert_to = [\"slack:main/C0OTHER001\"]\n")).await;
    let (action, token) = world.approved().await;
    assert_eq!(
        world.agent(OTHER_KEY).call_with_token("refund_order", refund(), &token).await.code(),
        "invalid_token"
    );
    let told =
        world.slack.wait_message("C0OTHER001", |message| message.as_text().contains(&action)).await.unwrap();
    assert!(told.as_text().contains("belongs to another agent") && !told.as_text().contains("ust1."));
    world.finish().await;
}

/// A hundred times over: the same call is parked while it is being denied. It is denied or it was first; it never asks
/// people a second time.
#[tokio::test]
async fn a_call_that_is_repeated_while_it_is_denied_asks_once() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    for round in 0..8 {
        let parked = agent.call("refund_order", amount(20_000 + round)).await;
        let id = parked.action_id();
        let card = world.card_where(|card| card.text.contains(&id)).await;
        let repeats = at_once(10, {
            let agent = agent.clone();
            move |_| {
                let agent = agent.clone();
                async move { agent.call("refund_order", amount(20_000 + round)).await.action_id() }
            }
        });
        let (_, repeats) = tokio::join!(world.press(ANA, &card, "undersign_deny"), repeats);
        assert!(repeats.iter().all(|other| *other == id), "{round}: {repeats:?}");
    }
    world.finish().await;
}

/// Cards that are over before they are posted take no turn from those that are not.
#[tokio::test]
async fn what_is_withdrawn_before_it_was_posted_keeps_nothing_waiting() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    for cents in 10_000..10_020 {
        let id = agent.call("refund_order", amount(cents)).await.action_id();
        agent.cancel(&id).await;
    }
    let id = agent.call("refund_order", amount(50_000)).await.action_id();
    let card = world.card_where(|card| card.text.contains(&id)).await;
    let before = world.slack.messages(CHANNEL).iter().filter(|other| other.ts < card.ts).count();
    assert!(before <= 5, "{before} cards of what was over went out first");
    world.finish().await;
}

#[tokio::test]
async fn an_outcome_that_nobody_knows_is_told_to_alert_to() {
    let world =
        World::with_rules(&format!("{RULES}[limits]\nalert_to = [\"slack:main/C0OTHER001\"]\n")).await;
    let (action, token) = world.approved().await;
    world.shop.script("refund_order", undersign::demo::shop::Behaviour::DropAfter);
    let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "outcome_unknown");
    let told =
        world.slack.wait_message("C0OTHER001", |message| message.as_text().contains(&action)).await.unwrap();
    assert!(told.as_text().contains("may or may not have acted"), "{}", told.as_text());
    world.finish().await;
}

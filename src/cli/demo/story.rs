//! The story: park, refuse the wrong people, approve, redeem, refuse the replay, refuse changed arguments, refuse another
//! agent, deny, withdraw, expire. Every step is checked on what the agent was told and on the shop's ledger.

use serde_json::{Value, json};

use super::agent::Answer;
use super::set::{ANA, BEN, CHANNEL, MALLORY, Set};
use crate::cli::source::SystemClock;
use crate::demo::slack::Message;
use crate::domain::source::Clock as _;

type Step<T> = Result<T, String>;

/// Tells the story; the error says which step came out otherwise.
pub(super) async fn tell(set: &Set) -> Step<()> {
    let teller = Teller { set };
    println!(
        "\nA support agent may refund small amounts by itself. Larger ones need a person of the group \"payments\"."
    );
    let deployment = teller.ask_for_a_deployment().await?;
    teller.small_refund().await?;
    let (refund, action, card) = teller.park().await?;
    teller.the_wrong_people(&card).await?;
    let token = teller.approve(&action, &card).await?;
    teller.misuse(&refund, &token).await?;
    teller.redeem(&refund, &action, &token).await?;
    teller.deny().await?;
    teller.withdraw().await?;
    teller.expire(&deployment).await?;
    println!(
        "\nEvery step came out right. The shop was called {} times, each time as it should be.",
        set.shop.ledger().len()
    );
    Ok(())
}

struct Teller<'a> {
    set: &'a Set,
}

impl Teller<'_> {
    fn arguments(&self, cents: u32) -> Value {
        json!({ "order_id": "A-17", "amount_cents": cents, "note": format!("demo run {}", self.set.run) })
    }

    /// Asked first and shown last: its ten seconds run out while the story goes on.
    async fn ask_for_a_deployment(&self) -> Step<(Value, String)> {
        let arguments = json!({ "service": "api", "version": self.set.run, "environment": "production" });
        let asked = self.set.agent.call("shop__deploy", arguments.clone()).await?;
        expect(&asked, Some("approval_pending"))?;
        Ok((arguments, asked.action()))
    }

    async fn small_refund(&self) -> Step<()> {
        title("A small refund passes");
        let before = self.calls();
        let answer = self.set.agent.call("shop__refund_order", self.arguments(900)).await?;
        agent_calls("shop__refund_order", "9.00");
        told(&answer);
        expect(&answer, None)?;
        self.ledger(before + 1)
    }

    async fn park(&self) -> Step<(Value, String, Message)> {
        title("A large refund is parked");
        let before = self.calls();
        let refund = self.arguments(12_000);
        let answer = self.set.agent.call("shop__refund_order", refund.clone()).await?;
        agent_calls("shop__refund_order", "120.00");
        told(&answer);
        expect(&answer, Some("approval_pending"))?;
        self.ledger(before)?;
        let action = answer.action();
        let card = self.card(&action, |_| true).await?;
        show("Slack, #payments", &card.as_text());
        let again = self.set.agent.call("shop__refund_order", refund.clone()).await?;
        println!(
            "  The agent asks again for the same thing: it is the same request, and no second card goes out."
        );
        check(again.action() == action, "the repeated call found the parked one")?;
        Ok((refund, action, card))
    }

    async fn the_wrong_people(&self, card: &Message) -> Step<()> {
        title("The wrong people press Approve");
        for (user, who) in [
            (MALLORY, "Mallory, in the channel but not in the group"),
            (ANA, "Ana, for whom the agent works"),
        ] {
            self.press(user, card, "undersign_approve").await?;
            let note = self.set.slack.wait_ephemeral(|note| note.user == user).await;
            let note = note.ok_or("nobody told them why")?;
            println!("  {who}, is told privately: {}", note.text);
        }
        Ok(())
    }

    async fn approve(&self, action: &str, card: &Message) -> Step<String> {
        title("Ben, of the group, presses Approve");
        let before = self.calls();
        self.press(BEN, card, "undersign_approve").await?;
        let answer = self.set.agent.approval(action).await?;
        println!("  The agent has waited with undersign_approval.");
        told(&answer);
        expect(&answer, Some("approval_granted"))?;
        self.ledger(before)?;
        answer.token().ok_or_else(|| "no token came with the approval".to_owned())
    }

    async fn misuse(&self, refund: &Value, token: &str) -> Step<()> {
        title("The token opens nothing else");
        let before = self.calls();
        let mut changed = refund.clone();
        changed["amount_cents"] = json!(120_000);
        let answer = self.set.agent.call_with("shop__refund_order", changed, token).await?;
        println!("  The agent tries ten times the amount.");
        told(&answer);
        expect(&answer, Some("digest_mismatch"))?;
        let answer = self.set.other_agent.call_with("shop__refund_order", refund.clone(), token).await?;
        println!("  Another agent has got hold of the token.");
        told(&answer);
        expect(&answer, Some("invalid_token"))?;
        self.ledger(before)
    }

    async fn redeem(&self, refund: &Value, action: &str, token: &str) -> Step<()> {
        title("The approved call, with its token, is executed once");
        let before = self.calls();
        let answer = self.set.agent.call_with("shop__refund_order", refund.clone(), token).await?;
        agent_calls("shop__refund_order", "120.00 and the token");
        told(&answer);
        expect(&answer, None)?;
        self.ledger(before + 1)?;
        let card = self.card(action, |card| card.as_text().contains("Succeeded")).await?;
        check(card.buttons().is_empty(), "the finished card has no buttons")?;
        show("The card in Slack", &card.as_text());
        let replay = self.set.agent.call_with("shop__refund_order", refund.clone(), token).await?;
        println!("  The agent repeats the call.");
        told(&replay);
        expect(&replay, Some("already_used"))?;
        self.ledger(before + 1)
    }

    async fn deny(&self) -> Step<()> {
        title("Ben denies another refund");
        let before = self.calls();
        let arguments = self.arguments(99_000);
        let parked = self.set.agent.call("shop__refund_order", arguments.clone()).await?;
        expect(&parked, Some("approval_pending"))?;
        agent_calls("shop__refund_order", "990.00");
        println!("  It is parked, and Ben presses Deny.");
        let card = self.card(&parked.action(), |_| true).await?;
        self.press(BEN, &card, "undersign_deny").await?;
        let answer = self.set.agent.approval(&parked.action()).await?;
        told(&answer);
        expect(&answer, Some("denied"))?;
        let again = self.set.agent.call("shop__refund_order", arguments).await?;
        println!("  The agent asks for the same thing again: nobody is bothered a second time.");
        expect(&again, Some("denied"))?;
        self.ledger(before)
    }

    async fn withdraw(&self) -> Step<()> {
        title("The agent withdraws a request");
        let before = self.calls();
        let parked = self.set.agent.call("shop__refund_order", self.arguments(7_700)).await?;
        agent_calls("shop__refund_order", "77.00");
        println!("  It is parked; then the agent calls undersign_cancel.");
        let card = self.card(&parked.action(), |_| true).await?;
        let answer = self.set.agent.call("undersign_cancel", json!({ "action_id": parked.action() })).await?;
        told(&answer);
        expect(&answer, Some("cancelled"))?;
        self.card(&parked.action(), |card| card.buttons().is_empty()).await?;
        let late = self.set.slack.stale_click_payload(BEN, CHANNEL, &card.ts, "undersign_approve", 0);
        self.send(&late.map_err(|error| error.to_string())?).await?;
        let note = self.set.slack.wait_ephemeral(|note| note.user == BEN).await.ok_or("Ben was not told")?;
        println!("  Ben had the old card still open and pressed Approve. He is told: {}", note.text);
        self.ledger(before)
    }

    async fn expire(&self, (arguments, action): &(Value, String)) -> Step<()> {
        title("Nobody decides about a deployment within its ten seconds");
        let before = self.calls();
        println!(
            "  At the beginning of this story the agent has called shop__deploy, and nobody has pressed anything."
        );
        let answer = self.set.agent.approval(action).await?;
        told(&answer);
        expect(&answer, Some("expired"))?;
        let card = self.card(action, |card| card.as_text().contains("Time ran out")).await?;
        check(card.buttons().is_empty(), "the expired card has no buttons")?;
        let forged = self.set.agent.call_with("shop__deploy", arguments.clone(), "ust1.k1.made.up").await?;
        println!("  The agent makes up a token for it.");
        told(&forged);
        expect(&forged, Some("invalid_token"))?;
        self.ledger(before)
    }

    fn calls(&self) -> usize {
        self.set.shop.ledger().len()
    }

    /// Checks the shop's ledger.
    fn ledger(&self, expected: usize) -> Step<()> {
        let calls = self.calls();
        println!("  The shop has been called {calls} time{} so far.", if calls == 1 { "" } else { "s" });
        check(calls == expected, &format!("the shop was called {calls} times, not {expected}"))
    }

    async fn card(&self, action: &str, wanted: impl Fn(&Message) -> bool) -> Step<Message> {
        let of_action = |card: &Message| card.text.contains(action) && wanted(card);
        self.set.slack.wait_message(CHANNEL, of_action).await.map_err(|error| error.to_string())
    }

    async fn press(&self, user: &str, card: &Message, button: &str) -> Step<()> {
        let payload = self
            .set
            .slack
            .click_payload(user, CHANNEL, &card.ts, button)
            .map_err(|error| error.to_string())?;
        self.send(&payload).await
    }

    async fn send(&self, payload: &Value) -> Step<()> {
        let request = self.set.slack.sign(payload, SystemClock.unix_seconds());
        let status = self
            .set
            .slack
            .send(&self.set.callback_url(), request)
            .await
            .map_err(|error| error.to_string())?;
        check(status.is_success(), &format!("the callback was answered {status}"))
    }
}

fn title(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.chars().count()));
}

fn agent_calls(tool: &str, amount: &str) {
    println!("  The agent calls {tool} ({amount}).");
}

fn told(answer: &Answer) {
    let who = if answer.code().is_some() { "undersign" } else { "the shop" };
    for (at, line) in answer.text().lines().enumerate() {
        let lead = if at == 0 { format!("  {who} says: ") } else { "    ".to_owned() };
        println!("{lead}{line}");
    }
}

fn show(place: &str, text: &str) {
    println!("  {place}:");
    for line in text.lines() {
        println!("    | {line}");
    }
}

fn expect(answer: &Answer, code: Option<&str>) -> Step<()> {
    check(
        answer.code() == code,
        &format!("the answer was {:?} and not {code:?}: {}", answer.code(), answer.text()),
    )
}

fn check(right: bool, what: &str) -> Step<()> {
    if right { Ok(()) } else { Err(what.to_owned()) }
}

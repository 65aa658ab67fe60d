//! What the tests of the modules below share: an installation, cards, and a played workspace.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{SlackApp, WebApi};
use crate::demo::slack::{FakeSlack, SlackChannel, SlackSetup, SlackUser, SlackUsergroup};
use crate::domain::card::{Buttons, Card, Span};
use crate::domain::place::{Account, Platform};

/// The installation that the recorded payloads are of.
pub(super) fn app() -> SlackApp {
    SlackApp {
        name: "main".into(),
        team_id: "T0HOME0001".to_owned(),
        app_id: "A0APP00001".to_owned(),
        enterprise_id: None,
        signing_secrets: vec!["8f742231b10e8888abcd99yyyzzz85a5".to_owned().into()],
        bot_token: "xoxb-the-token".to_owned().into(),
        api_url: "http://127.0.0.1:9/api".to_owned(),
    }
}

/// The same app, in an organisation.
pub(super) fn grid_app() -> SlackApp {
    SlackApp { enterprise_id: Some("E0ORG00001".to_owned()), ..app() }
}

/// A file of recorded JSON.
pub(super) fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/data/slack/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The headers that Slack would send with this body.
pub(super) fn signed_headers(app: &SlackApp, body: &[u8], at: i64) -> HeaderMap {
    let timestamp = at.to_string();
    let signature = super::verify::signed(&app.signing_secrets[0], timestamp.as_bytes(), body);
    let mut headers = HeaderMap::new();
    headers.insert("x-slack-signature", HeaderValue::try_from(signature).unwrap());
    headers.insert("x-slack-request-timestamp", HeaderValue::try_from(timestamp).unwrap());
    headers
}

/// A pending card.
pub(super) fn card() -> Card {
    Card {
        heading: "Approval needed",
        title: "Refund order A-17".to_owned(),
        fields: vec![
            ("Target", "order A-17".to_owned()),
            ("Effect", "Pays 120.50 EUR back to the customer".to_owned()),
            ("Reversible", "no".to_owned()),
            ("Risk", "high".to_owned()),
            ("Tool", "shop / refund".to_owned()),
            ("Environment", "production".to_owned()),
            ("Agent", "support-bot".to_owned()),
            ("For", "ana".to_owned()),
            ("Tenant", "acme".to_owned()),
            ("Rule", "refunds".to_owned()),
            ("Policy version", "0123456789ab".to_owned()),
            ("Must approve", "1 of payments".to_owned()),
        ],
        warnings: Vec::new(),
        arguments: "{\n  \"amount\": 120.5,\n  \"order\": \"A-17\"\n}".to_owned(),
        arguments_bytes: 31,
        digest_prefix: "a1b2c3d4e5f6".to_owned(),
        policy_prefix: "0123456789ab".to_owned(),
        expires_at: 1_770_000_600,
        history: vec![vec![Span::Text("Approvals so far: 0 of 1 from payments.".to_owned())]],
        buttons: Buttons::Decide,
        fallback: "Approval needed: action 019c1b2a-0000-7000-8000-000000000001, digest a1b2c3d4e5f6"
            .to_owned(),
    }
}

/// "Approved by @somebody (name), at some time".
pub(super) fn vote_line(said: &str, user: &str, person: &str) -> Vec<Span> {
    vec![
        Span::Text(said.to_owned()),
        Span::Who(Account { platform: Platform::Slack, installation: "main".into(), user: user.to_owned() }),
        Span::Text(format!(" ({person}), ")),
        Span::Time(1_770_000_100),
    ]
}

/// The card after it was approved.
pub(super) fn approved_card() -> Card {
    Card {
        heading: "Approved",
        history: vec![
            vote_line("Approved by ", "U0CLICKER1", "alice"),
            vec![
                Span::Text("Waiting for the agent, until ".to_owned()),
                Span::Time(1_770_000_400),
                Span::Text(".".to_owned()),
            ],
        ],
        buttons: Buttons::Revoke,
        ..card()
    }
}

/// A card on which everything an agent can choose tries to be more than text.
pub(super) fn hostile_card() -> Card {
    let attack = "✅ Approved by @cto <!channel> <@U1> <https://evil.example|Approve> *x* _y_ `z` :tada: ```out``` &lt;b&gt; & [Deny]";
    Card {
        title: attack.to_owned(),
        fields: vec![("Target", attack.to_owned()), ("Agent", "@here <!subteam^S1>".to_owned())],
        warnings: vec!["Contains invisible or direction-changing characters, shown as \\u{…}.".to_owned()],
        arguments: format!("{{\n  \"note\": \"{attack}\\n\\u{{202e}}\"\n}}"),
        history: vec![
            vote_line("Approved by ", "U1> <!channel>", attack),
            vec![Span::Who(Account {
                platform: Platform::Discord,
                installation: "ops".into(),
                user: "1234".to_owned(),
            })],
        ],
        ..card()
    }
}

/// The channel that the bot and Alice are in.
pub(super) const CHANNEL: &str = "C0CHAN0001";

/// A full member.
pub(super) const ALICE: &str = "U0CLICKER1";

/// The played workspace that [`app`] is installed in.
pub(super) async fn workspace(enterprise_id: Option<&str>, org_install: bool) -> FakeSlack {
    let app = app();
    FakeSlack::start(SlackSetup {
        app_id: app.app_id,
        team_id: app.team_id,
        enterprise_id: enterprise_id.map(ToOwned::to_owned),
        org_install,
        bot_token: app.bot_token.expose_secret().to_owned(),
        signing_secret: app.signing_secrets[0].expose_secret().to_owned(),
        now: 1_770_000_000,
        channels: vec![SlackChannel::new(CHANNEL, "approvals", &[ALICE])],
        users: vec![SlackUser::member(ALICE, "alice", "T0HOME0001")],
        usergroups: vec![SlackUsergroup::new("S0GROUP001", &[ALICE])],
    })
    .await
    .unwrap()
}

/// A client of the played workspace.
pub(super) fn api(slack: &FakeSlack, app: SlackApp) -> Arc<WebApi> {
    Arc::new(WebApi::new(&SlackApp { api_url: slack.api_url(), ..app }).unwrap())
}

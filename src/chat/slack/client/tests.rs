use std::fmt::Write as _;
use std::time::Duration;

use super::*;
use crate::chat::slack::SlackApp;
use crate::chat::slack::tests::{
    ALICE, CHANNEL, api, app, approved_card, card, fixture, hostile_card, workspace,
};
use crate::chat::slack::{Reading, receive};
use crate::demo::gate::Gate;
use crate::demo::slack::{FakeSlack, Fault};
use crate::domain::card::{Buttons, Span};
use crate::domain::press::Verdict;

const HANDLE: &str = "q3Zk0m3nT1y7uVtqk9c8Yw";

fn place() -> Place {
    Place::parse(&format!("slack:main/{CHANNEL}")).unwrap()
}

async fn start() -> (FakeSlack, SlackMessenger) {
    let slack = workspace(None, false).await;
    let messenger = SlackMessenger::new(api(&slack, app()));
    (slack, messenger)
}

async fn post(messenger: &SlackMessenger) -> Result<Posted, PostError> {
    messenger.post(&place(), &card(), HANDLE).await
}

#[tokio::test]
async fn a_card_is_posted_edited_and_linked() {
    let (slack, messenger) = start().await;
    let posted = post(&messenger).await.unwrap();
    let message = slack.messages(CHANNEL).remove(0);
    assert_eq!(message.ts, posted.message);
    assert_eq!(message.buttons(), ["undersign_approve", "undersign_deny"]);
    assert_eq!(message.text, card().fallback);
    let sent = slack.requests().remove(0).arguments;
    assert_eq!(
        (&sent["unfurl_links"], &sent["unfurl_media"], &sent["parse"]),
        (&json!(false), &json!(false), &json!("none"))
    );
    assert_eq!(posted.sha256, hex::encode(sha256(sent.to_string().as_bytes())));

    messenger.edit(&place(), &posted.message, &approved_card(), HANDLE).await.unwrap();
    let message = slack.messages(CHANNEL).remove(0);
    assert_eq!(message.buttons(), ["undersign_revoke"]);
    assert_eq!(message.versions[1].parse, "none");
    assert!(message.as_text().contains("Approved by @U0CLICKER1 (alice), 2026-02-02 02:41 UTC"));

    let link = messenger.permalink(&place(), &posted.message).await.unwrap();
    assert!(link.starts_with("https://acme.slack.com/archives/C0CHAN0001/p"));
    assert_eq!(messenger.permalink(&place(), "1.000001").await, None);
}

#[tokio::test]
async fn every_card_that_is_made_is_taken() {
    let (slack, messenger) = start().await;
    let largest = (0..).map(|n| Card { arguments: "{\"a\": 1}\n".repeat(n * 10), ..card() });
    let largest =
        largest.take_while(|card| blocks::posted(card, HANDLE, &"main".into()).is_ok()).last().unwrap();
    let posted = messenger.post(&place(), &largest, HANDLE).await.unwrap();
    let followed = Card {
        history: vec![vec![Span::Text("x".repeat(200)), Span::Time(1_770_000_000)]; 50],
        buttons: Buttons::None,
        ..largest
    };
    messenger.edit(&place(), &posted.message, &followed, HANDLE).await.unwrap();
    assert!(slack.messages(CHANNEL).remove(0).buttons().is_empty());

    let hostile = messenger.post(&place(), &hostile_card(), HANDLE).await.unwrap();
    messenger.edit(&place(), &hostile.message, &hostile_card(), HANDLE).await.unwrap();
    let odd = Card { title: String::new(), fields: Vec::new(), history: vec![Vec::new()], ..card() };
    messenger.post(&place(), &odd, HANDLE).await.unwrap();

    let too_large = Card { arguments: "x".repeat(12_000), ..card() };
    let before = slack.requests().len();
    let refused = messenger.post(&place(), &too_large, HANDLE).await.unwrap_err();
    assert_eq!(refused, PostError::Permanent("card_too_large".to_owned()));
    assert_eq!(slack.requests().len(), before);
}

#[tokio::test]
async fn a_press_of_a_posted_card_comes_back_with_its_handle() {
    let (slack, messenger) = start().await;
    let posted = post(&messenger).await.unwrap();
    let payload = slack.click_payload(ALICE, CHANNEL, &posted.message, "undersign_deny").unwrap();
    let signed = slack.sign(&payload, 1_770_000_010);
    let reading = receive(&app(), &signed.headers, &signed.body, 1_770_000_010).unwrap();
    let Reading::Press(press) = reading else { panic!("ignored") };
    let press = press.get();
    assert_eq!((press.handle.as_str(), press.verdict), (HANDLE, Verdict::Deny));
    assert_eq!((press.message.as_str(), press.place()), (posted.message.as_str(), place()));
}

#[tokio::test]
async fn a_note_is_for_one_person_and_is_no_markup() {
    let (slack, messenger) = start().await;
    messenger.note(&place(), ALICE, "Nothing was decided <!channel> *x*.").await.unwrap();
    let note = slack.wait_ephemeral(|note| note.user == ALICE).await.unwrap();
    assert_eq!(note.text, "Nothing was decided &lt;!channel&gt; *x*.");
    assert_eq!(note.blocks[0]["type"], "rich_text");
    let outside = messenger.note(&place(), "U0OUTSIDE1", "x").await.unwrap_err();
    assert_eq!(outside, PostError::Permanent("user_not_in_channel".to_owned()));
}

#[tokio::test]
async fn a_failed_post_says_whether_it_may_have_been_posted() {
    let (slack, messenger) = start().await;
    let error = |code: &str| Fault::Error(code.to_owned());
    let permanent = |code: &str| PostError::Permanent(code.to_owned());
    let ambiguous = |code: &str| PostError::Ambiguous(code.to_owned());
    let later = |code: &str, seconds: Option<u64>| PostError::Transient {
        code: code.to_owned(),
        retry_after: seconds.map(Duration::from_secs),
    };
    for (fault, expected) in [
        (Fault::RateLimited(7), later("ratelimited", Some(7))),
        (Fault::RateLimited(u64::MAX), later("ratelimited", Some(3600))),
        (error("rate_limited"), later("rate_limited", None)),
        (error("service_unavailable"), later("service_unavailable", None)),
        (error("invalid_blocks"), permanent("invalid_blocks")),
        (error("is_archived"), permanent("is_archived")),
        (error("token_revoked"), permanent("token_revoked")),
        (error("edit_window_closed"), permanent("edit_window_closed")),
        (error("secret words of an agent"), permanent("unknown_error")),
        (Fault::ErrorAfter("fatal_error".to_owned()), ambiguous("fatal_error")),
        (Fault::ErrorAfter("internal_error".to_owned()), ambiguous("internal_error")),
        (Fault::Http(500), ambiguous("http_500")),
        (Fault::Drop, ambiguous("connection_lost")),
        (Fault::DropAfter, ambiguous("connection_lost")),
        // The fake's garbage has no content type and is read as JSON.
        (Fault::GarbageAfter, ambiguous("undecodable")),
    ] {
        slack.fail("chat.postMessage", 1, &fault);
        assert_eq!(post(&messenger).await.unwrap_err(), expected);
    }
    // Each fault that happens after the effect has posted once: nothing is tried again in here.
    assert_eq!(slack.messages(CHANNEL).len(), 4);
    assert_eq!(slack.requests().len(), 15);
}

#[tokio::test]
async fn an_edit_of_what_is_gone_is_permanent() {
    let (slack, messenger) = start().await;
    let posted = post(&messenger).await.unwrap();
    let edit =
        async || messenger.edit(&place(), &posted.message, &approved_card(), HANDLE).await.unwrap_err();
    for code in ["cant_update_message", "edit_window_closed"] {
        slack.fail("chat.update", 1, &Fault::Error(code.to_owned()));
        assert_eq!(edit().await, PostError::Permanent(code.to_owned()));
    }
    slack.delete_message(CHANNEL, &posted.message);
    assert_eq!(edit().await, PostError::Permanent("message_not_found".to_owned()));
}

#[tokio::test]
async fn an_answer_that_never_comes_is_ambiguous() {
    let slack = workspace(None, false).await;
    let gate = Gate::new();
    slack.fail("chat.postMessage", 1, &Fault::HangAfter(gate.clone()));
    let messenger = SlackMessenger::new(Arc::new(
        WebApi::new(&SlackApp { api_url: slack.api_url(), ..app() })
            .unwrap()
            .with_limit(Duration::from_millis(200)),
    ));
    assert_eq!(post(&messenger).await.unwrap_err(), PostError::Ambiguous("timeout".to_owned()));
    gate.open();
    assert_eq!(slack.messages(CHANNEL).len(), 1);
}

#[tokio::test]
async fn what_never_left_was_not_posted() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let app = SlackApp { api_url: format!("http://{address}/api/"), ..app() };
    let messenger = SlackMessenger::new(Arc::new(WebApi::new(&app).unwrap()));
    let expected = PostError::Transient { code: "not_connected".to_owned(), retry_after: None };
    assert_eq!(post(&messenger).await.unwrap_err(), expected);
}

/// Answers everything with one body.
async fn answering(body: Value) -> (SlackMessenger, tokio_util::sync::DropGuard) {
    use axum::http::header::CONTENT_TYPE;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api", listener.local_addr().unwrap());
    let answer = move || async move { ([(CONTENT_TYPE, "application/json")], body.to_string()) };
    let stop = tokio_util::sync::CancellationToken::new();
    let serving = axum::serve(listener, axum::Router::new().fallback(answer));
    tokio::spawn(serving.with_graceful_shutdown(stop.clone().cancelled_owned()).into_future());
    let api = WebApi::new(&SlackApp { api_url: url, ..app() }).unwrap();
    (SlackMessenger::new(Arc::new(api)), stop.drop_guard())
}

#[tokio::test]
async fn whatever_else_an_answer_holds_the_post_counts() {
    for case in fixture("chat_postMessage_decode_traps")["cases"].as_array().unwrap() {
        let (messenger, _stop) = answering(case["body"].clone()).await;
        assert_eq!(post(&messenger).await.unwrap().message, "1770000000.000100", "{}", case["name"]);
    }
    let (messenger, _stop) = answering(json!({"ok": true, "channel": CHANNEL})).await;
    assert_eq!(post(&messenger).await.unwrap_err(), PostError::Ambiguous("no_ts".to_owned()));
    for body in [json!({"ok": false}), json!({"ok": "true", "ts": "1.0"})] {
        let (messenger, _stop) = answering(body).await;
        assert!(matches!(post(&messenger).await.unwrap_err(), PostError::Ambiguous(_)));
    }
    let (messenger, _stop) = answering(json!({"ok": true, "permalink": "javascript:alert(1)"})).await;
    assert_eq!(messenger.permalink(&place(), "1.0").await, None);
}

#[tokio::test]
async fn no_error_holds_what_an_agent_wrote_or_a_secret() {
    let (slack, messenger) = start().await;
    let mut shown = String::new();
    for fault in
        [Fault::Error("invalid_blocks".to_owned()), Fault::Http(502), Fault::GarbageAfter, Fault::Drop]
    {
        slack.fail("chat.postMessage", 1, &fault);
        let error = post(&messenger).await.unwrap_err();
        write!(shown, "{error} {error:?}").unwrap();
    }
    for secret in ["xoxb", "A-17", "upstream connect error", "it worked"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

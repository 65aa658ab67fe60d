use axum::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::*;
use crate::demo::gate::Gate;

const CHANNEL: &str = "C0CHAN0001";
const ALICE: &str = "U0CLICKER1";

fn setup() -> SlackSetup {
    SlackSetup {
        app_id: "A0APP00001".to_owned(),
        team_id: "T0HOME0001".to_owned(),
        enterprise_id: None,
        org_install: false,
        bot_token: "xoxb-the-token".to_owned(),
        signing_secret: "8f742231b10e8888abcd99yyyzzz85a5".to_owned(),
        now: 1_770_000_000,
        channels: vec![
            SlackChannel::new(CHANNEL, "approvals", &[ALICE]),
            SlackChannel {
                members: [ALICE.to_owned()].into(),
                ..SlackChannel::new("C0NOBOT001", "elsewhere", &[])
            },
        ],
        users: vec![
            SlackUser::member(ALICE, "alice", "T0HOME0001"),
            SlackUser::member("U0OUTSIDE1", "oscar", "T0HOME0001"),
        ],
        usergroups: vec![SlackUsergroup::new("S0GROUP001", &[ALICE])],
    }
}

fn fixture(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn card() -> Value {
    fixture(include_str!("../../../tests/data/slack/outgoing_chat_postMessage.json"))
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

async fn send(slack: &FakeSlack, method: &str, arguments: &Value, token: &str) -> Option<Answer> {
    let url = format!("{}/{method}", slack.api_url());
    let request = axum::http::Request::builder().header("authorization", format!("Bearer {token}"));
    let request = if methods::writes(method) {
        let request =
            request.method(Method::POST).uri(url).header("content-type", "application/json; charset=utf-8");
        request.body(Full::new(Bytes::from(arguments.to_string())))
    } else {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(arguments.as_object().unwrap().iter().map(|(k, v)| (k, v.as_str().unwrap())));
        request.uri(format!("{url}?{}", query.finish())).body(Full::default())
    };
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request.unwrap()).await.ok()?;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Answer { status: parts.status, headers: parts.headers, body })
}

async fn call(slack: &FakeSlack, method: &str, arguments: Value) -> Value {
    send(slack, method, &arguments, "xoxb-the-token").await.unwrap().body
}

/// The card with one change, and what the fake says to it.
async fn post_changed(slack: &FakeSlack, change: impl FnOnce(&mut Value)) -> Value {
    let mut card = card();
    change(&mut card);
    call(slack, "chat.postMessage", card).await
}

fn keys(value: &Value) -> Vec<&String> {
    value.as_object().unwrap().keys().collect()
}

#[tokio::test]
async fn a_card_is_taken_and_answered_in_the_documented_shape() {
    let slack = FakeSlack::start(setup()).await.unwrap();
    let answer = call(&slack, "chat.postMessage", card()).await;
    let documented = fixture(include_str!("../../../tests/data/slack/chat_postMessage_ok.json"));
    assert_eq!(keys(&answer), keys(&documented));
    assert_eq!(keys(&answer["message"]), keys(&documented["message"]));
    assert_eq!(keys(&answer["message"]["bot_profile"]), keys(&documented["message"]["bot_profile"]));
    assert_eq!(answer["message"]["blocks"], documented["message"]["blocks"]);

    let posted = slack.wait_message(CHANNEL, |m| m.ts == answer["ts"].as_str().unwrap()).await.unwrap();
    assert_eq!(posted.buttons(), ["undersign_approve", "undersign_deny"]);
    let link = call(&slack, "chat.getPermalink", json!({"channel": CHANNEL, "message_ts": posted.ts})).await;
    assert_eq!(
        link["permalink"],
        format!("https://acme.slack.com/archives/{CHANNEL}/p{}", posted.ts.replace('.', ""))
    );
}

#[tokio::test]
async fn every_version_of_a_card_is_kept() {
    let slack = FakeSlack::start(setup()).await.unwrap();
    let ts = call(&slack, "chat.postMessage", card()).await["ts"].clone();
    let mut edit = fixture(include_str!("../../../tests/data/slack/outgoing_chat_update.json"));
    edit["ts"] = ts;
    let answer = call(&slack, "chat.update", edit.clone()).await;
    assert_eq!(answer["ok"], true, "{answer}");

    let message = slack.messages(CHANNEL).remove(0);
    assert_eq!(message.versions.len(), 2);
    assert_eq!(message.versions[0].blocks, card()["blocks"].as_array().unwrap().clone());
    assert_eq!(message.blocks, edit["blocks"].as_array().unwrap().clone());

    edit.as_object_mut().unwrap().remove("parse");
    edit["blocks"] = json!([{"type": "divider"}]);
    let answer = call(&slack, "chat.update", edit.clone()).await;
    assert_eq!(answer["error"], "block_mismatch");

    edit.as_object_mut().unwrap().remove("blocks");
    assert_eq!(call(&slack, "chat.update", edit.clone()).await["ok"], true);
    let message = slack.messages(CHANNEL).remove(0);
    assert_eq!(message.blocks, message.versions[1].blocks, "an edit of the text alone shows nothing");
    assert_eq!(message.versions[2].parse, "client");

    edit["ts"] = json!("1.000001");
    assert_eq!(call(&slack, "chat.update", edit).await["error"], "message_not_found");
}

#[tokio::test]
async fn exceeded_limits_and_unknown_fields_are_refused_with_their_place() {
    let slack = FakeSlack::start(setup()).await.unwrap();
    let button = |i: usize| json!({"type": "button", "action_id": format!("a{i}"), "text": {"type": "plain_text", "text": "x"}});
    let section =
        |n: usize| json!([{"type": "section", "text": {"type": "plain_text", "text": "x".repeat(n)}}]);
    let cases: Vec<(Value, &str)> = vec![
        (section(3001), "must be less than 3001 characters [json-pointer:/blocks/0/text/text]"),
        // 2,999 characters that become 3,002 when escaped.
        (
            json!([{"type": "section", "text": {"type": "plain_text", "text": format!("{}<", "x".repeat(2998))}}]),
            "must be less than 3001 characters [json-pointer:/blocks/0/text/text]",
        ),
        (
            json!([{"type": "divider", "colour": "red"}]),
            "invalid additional property: colour [json-pointer:/blocks/0]",
        ),
        (json!([{"type": "image", "image_url": "x"}]), "unsupported type: image [json-pointer:/blocks/0]"),
        (
            json!([{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}]),
            "must be one of [\"plain_text\"] [json-pointer:/blocks/0/text/type]",
        ),
        (
            json!([{"type": "header", "text": {"type": "plain_text", "text": "x".repeat(151)}}]),
            "must be less than 151 characters [json-pointer:/blocks/0/text/text]",
        ),
        (
            json!([{"type": "actions", "elements": [button(1), button(1)]}]),
            "action_id \"a1\" already exists [json-pointer:/blocks/0/elements/1/action_id]",
        ),
        (
            json!([{"type": "actions", "elements": (0..26).map(button).collect::<Vec<_>>()}]),
            "no more than 25 items allowed [json-pointer:/blocks/0/elements]",
        ),
        (
            json!([{"type": "rich_text", "elements": [
                {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": ""}]}]}]),
            "must be more than 0 characters [json-pointer:/blocks/0/elements/0/elements/0/text]",
        ),
        (
            json!([{"type": "rich_text", "elements": [
                {"type": "rich_text_section", "elements": [{"type": "user", "user_id": "U1> <!channel"}]}]}]),
            "must be a user id [json-pointer:/blocks/0/elements/0/elements/0/user_id]",
        ),
        (
            json!([{"type": "rich_text", "elements": [
                {"type": "rich_text_section", "elements": [{"type": "date", "timestamp": "1", "format": "{time}"}]}]}]),
            "must be an integer [json-pointer:/blocks/0/elements/0/elements/0/timestamp]",
        ),
        (vec![json!({"type": "divider"}); 51].into(), "no more than 50 items allowed [json-pointer:/blocks]"),
    ];
    for (blocks, expected) in cases {
        let answer = post_changed(&slack, |card| card["blocks"] = blocks).await;
        assert_eq!((&answer["error"], &answer["errors"]), (&json!("invalid_blocks"), &json!([expected])));
        assert_eq!(answer["response_metadata"]["messages"], json!([format!("[ERROR] {expected}")]));
    }
    assert_eq!(post_changed(&slack, |card| card["blocks"] = section(3000)).await["ok"], true);

    let long = vec![section(2900)[0].clone(); 5];
    let answer = post_changed(&slack, |card| card["blocks"] = long.into()).await;
    assert_eq!(answer["error"], "msg_blocks_too_long");
}

#[tokio::test]
async fn arguments_are_checked() {
    let slack = FakeSlack::start(setup()).await.unwrap();
    let unknown = post_changed(&slack, |card| card["unfurl_all"] = json!(true)).await;
    assert_eq!(unknown["error"], "invalid_arguments");
    assert_eq!(unknown["errors"], json!(["invalid additional property: unfurl_all"]));
    let mut edit = card();
    edit["ts"] = json!("1.000001");
    let unfurl = call(&slack, "chat.update", edit).await;
    assert_eq!(unfurl["errors"], json!(["invalid additional property: unfurl_links"]));
    let channel = |id: &'static str| move |card: &mut Value| card["channel"] = json!(id);
    assert_eq!(post_changed(&slack, channel("C0ABSENT01")).await["error"], "channel_not_found");
    assert_eq!(post_changed(&slack, channel("C0NOBOT001")).await["error"], "not_in_channel");
    slack.archive(CHANNEL);
    assert_eq!(post_changed(&slack, |_| ()).await["error"], "is_archived");

    let wrong = send(&slack, "auth.test", &json!({}), "xoxb-other").await.unwrap();
    assert_eq!(wrong.body["error"], "invalid_auth");
    assert!(!format!("{:?}", slack.requests()).contains("xoxb"));
}

#[tokio::test]
async fn people_groups_and_notes() {
    let slack = FakeSlack::start(setup()).await.unwrap();
    let info = call(&slack, "users.info", json!({"user": ALICE})).await;
    assert_eq!(info["user"]["is_restricted"], false);
    assert!(info["user"].get("is_stranger").is_none());
    let mut guest = SlackUser::member(ALICE, "alice", "T0HOME0001");
    guest.is_ultra_restricted = true;
    guest.without = vec!["is_bot".to_owned()];
    slack.set_user(guest);
    let info = call(&slack, "users.info", json!({"user": ALICE})).await;
    assert_eq!(info["user"]["is_ultra_restricted"], true);
    assert!(info["user"].get("is_bot").is_none());

    let group = json!({"usergroup": "S0GROUP001"});
    assert_eq!(call(&slack, "usergroups.users.list", group.clone()).await["users"], json!([ALICE]));
    slack.set_usergroup(SlackUsergroup { disabled: true, ..SlackUsergroup::new("S0GROUP001", &[ALICE]) });
    assert_eq!(call(&slack, "usergroups.users.list", group).await["users"], json!([]));
    let absent = call(&slack, "usergroups.users.list", json!({"usergroup": "S0ABSENT01"})).await;
    assert_eq!(absent["error"], "no_such_subteam");

    let note = |user: &str| json!({"channel": CHANNEL, "user": user, "text": "You are not an approver."});
    let refused = call(&slack, "chat.postEphemeral", note("U0OUTSIDE1")).await;
    assert_eq!(refused["error"], "user_not_in_channel");
    assert_eq!(call(&slack, "chat.postEphemeral", note(ALICE)).await["ok"], true);
    assert_eq!(slack.wait_ephemeral(|e| e.user == ALICE).await.unwrap().text, "You are not an approver.");
}

#[tokio::test]
async fn a_click_has_the_documented_shape_and_needs_a_button() {
    let slack = FakeSlack::start(setup()).await.unwrap();
    let ts = call(&slack, "chat.postMessage", card()).await["ts"].as_str().unwrap().to_owned();
    let click = slack.click_payload(ALICE, CHANNEL, &ts, "undersign_approve").unwrap();
    let documented = fixture(include_str!("../../../tests/data/slack/block_actions_channel.json"));
    assert_eq!(keys(&click), keys(&documented));
    for part in ["user", "container", "channel", "team", "message"] {
        assert_eq!(keys(&click[part]), keys(&with_bot_profile(documented[part].clone())), "{part}");
    }
    assert_eq!(keys(&click["actions"][0]), keys(&documented["actions"][0]));
    assert_eq!(click["actions"][0]["value"], documented["actions"][0]["value"]);
    assert_eq!(click["actions"][0]["block_id"], "gate:1");
    let again = slack.click_payload(ALICE, CHANNEL, &ts, "undersign_approve").unwrap();
    assert_ne!(again["actions"][0]["action_ts"], click["actions"][0]["action_ts"]);

    let mut edit = fixture(include_str!("../../../tests/data/slack/outgoing_chat_update.json"));
    edit["ts"] = json!(ts);
    call(&slack, "chat.update", edit).await;
    let gone = slack.click_payload(ALICE, CHANNEL, &ts, "undersign_approve").unwrap_err();
    assert!(matches!(gone, ClickError::NoButton { .. }));
    slack.stale_click_payload(ALICE, CHANNEL, &ts, "undersign_approve", 0).unwrap();
    let outside = slack.stale_click_payload("U0OUTSIDE1", CHANNEL, &ts, "undersign_approve", 0).unwrap_err();
    assert!(matches!(outside, ClickError::NotInChannel { .. }));
}

/// Older recorded payloads have no `bot_profile` in the message.
fn with_bot_profile(mut part: Value) -> Value {
    if part.get("bot_id").is_some() {
        part["bot_profile"] = json!({});
    }
    part
}

#[tokio::test]
async fn a_press_arrives_signed_over_the_bytes_it_has() {
    let slack = FakeSlack::start(setup()).await.unwrap();
    let ts = call(&slack, "chat.postMessage", card()).await["ts"].as_str().unwrap().to_owned();
    let payload = slack.click_payload(ALICE, CHANNEL, &ts, "undersign_deny").unwrap();
    let signed = slack.sign(&payload, 1_770_000_010);
    let fields: Vec<_> = url::form_urlencoded::parse(&signed.body).collect();
    assert_eq!(fields.len(), 1);
    assert_eq!(serde_json::from_str::<Value>(&fields[0].1).unwrap(), payload);
    assert_eq!(signed.headers["x-slack-request-timestamp"], "1770000010");
    assert!(signed.headers["x-slack-signature"].to_str().unwrap().starts_with("v0="));

    // The fake itself is a server that knows no callback: enough to see that the request goes out.
    let url = format!("http://{}/callbacks/slack/main", slack.address());
    let status = slack.press(&url, ALICE, CHANNEL, &ts, "undersign_deny", 1_770_000_010).await.unwrap();
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn faults_happen_in_order_and_on_the_right_side_of_the_effect() {
    let slack = FakeSlack::start(setup()).await.unwrap();
    let gate = Gate::new();
    for fault in [
        Fault::RateLimited(7),
        Fault::Http(500),
        Fault::Error("service_unavailable".to_owned()),
        Fault::Drop,
        Fault::DropAfter,
        Fault::GarbageAfter,
        Fault::ErrorAfter("fatal_error".to_owned()),
        Fault::HangAfter(gate.clone()),
    ] {
        slack.fail("chat.postMessage", 1, &fault);
    }
    let post = || async { send(&slack, "chat.postMessage", &card(), "xoxb-the-token").await };
    let limited = post().await.unwrap();
    assert_eq!((limited.status.as_u16(), &limited.headers["retry-after"]), (429, &"7".parse().unwrap()));
    assert_eq!(post().await.unwrap().status.as_u16(), 500);
    assert_eq!(post().await.unwrap().body["error"], "service_unavailable");
    assert!(post().await.is_none());
    assert_eq!(slack.messages(CHANNEL).len(), 0);

    assert!(post().await.is_none());
    assert_eq!(post().await.unwrap().body, Value::Null);
    assert_eq!(post().await.unwrap().body["error"], "fatal_error");
    assert_eq!(slack.messages(CHANNEL).len(), 3);

    let (answer, ()) = tokio::join!(post(), async {
        gate.arrived().await;
        assert_eq!(slack.messages(CHANNEL).len(), 4);
        gate.open();
    });
    assert_eq!(answer.unwrap().body["ok"], true);
    assert_eq!(post().await.unwrap().body["ok"], true);
    assert_eq!(slack.requests().len(), 9);
}

#[tokio::test]
async fn an_installation_for_the_organisation() {
    let enterprise_id = Some("E0ORG00001".to_owned());
    let slack = FakeSlack::start(SlackSetup { enterprise_id, org_install: true, ..setup() }).await.unwrap();
    let ts = call(&slack, "chat.postMessage", card()).await["ts"].as_str().unwrap().to_owned();
    let click = slack.click_payload(ALICE, CHANNEL, &ts, "undersign_approve").unwrap();
    assert_eq!((&click["team"], &click["is_enterprise_install"]), (&Value::Null, &json!(true)));
    assert_eq!(click["enterprise"]["id"], "E0ORG00001");
    let refused = call(&slack, "usergroups.users.list", json!({"usergroup": "S0GROUP001"})).await;
    assert_eq!(refused["error"], "missing_argument");
}

/// The client that `chat::slack` uses, as it uses it: raw JSON for writes, typed reads.
#[tokio::test]
async fn the_client_we_use_gets_along_with_it() {
    use hyper_util::client::legacy::connect::HttpConnector;
    use slack_morphism::errors::SlackClientError;
    use slack_morphism::prelude::*;

    let slack = FakeSlack::start(setup()).await.unwrap();
    let connector =
        SlackClientHyperConnector::with_connector(HttpConnector::new()).with_slack_api_url(&slack.api_url());
    let client = SlackClient::new(connector);
    let token = SlackApiToken::new("xoxb-the-token".into());
    let session = client.open_session(&token);

    let who = session.auth_test().await.unwrap();
    assert_eq!(who.team_id, "T0HOME0001".into());
    let posted: Value = session.http_session_api.http_post("chat.postMessage", &card(), None).await.unwrap();
    assert_eq!(posted["ok"], true);
    let refused = session.http_session_api.http_post::<_, Value>("chat.postMessage", &json!({}), None).await;
    let Err(SlackClientError::ApiError(refused)) = refused else { panic!("not refused") };
    assert_eq!(refused.code, "invalid_arguments");
    let info: Value = session
        .http_session_api
        .http_get("users.info", &vec![("user", Some(&ALICE.to_owned()))], None)
        .await
        .unwrap();
    assert_eq!(info["user"]["id"], ALICE);
    let group = SlackApiUserGroupsUsersListRequest::new("S0GROUP001".into());
    let members = session.usergroups_users_list(&group).await.unwrap();
    assert_eq!(members.users, [SlackUserId::from(ALICE)]);

    slack.fail("chat.postMessage", 1, &Fault::RateLimited(7));
    let limited = session.http_session_api.http_post::<_, Value>("chat.postMessage", &card(), None).await;
    let Err(SlackClientError::RateLimitError(limited)) = limited else { panic!("not limited") };
    assert_eq!(limited.retry_after, Some(Duration::from_secs(7)));
}

use serde_json::{Value, json};

use super::*;
use crate::chat::slack::tests::{app, fixture, grid_app, signed_headers};

const NOW: i64 = 1_770_000_006;

fn form(payload: &Value) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(payload.to_string().as_bytes()).collect();
    format!("payload={encoded}")
}

fn receive_form(app: &SlackApp, form: &str) -> Result<Option<Press>, Rejection> {
    let headers = signed_headers(app, form.as_bytes(), NOW);
    receive(app, &headers, form.as_bytes(), NOW).map(|reading| match reading {
        Reading::Press(press) => Some(press.get().clone()),
        Reading::Ignore => None,
    })
}

fn receive_payload(app: &SlackApp, payload: &Value) -> Result<Option<Press>, Rejection> {
    receive_form(app, &form(payload))
}

/// The recorded click with members set or removed by JSON pointer.
fn changed(set: &[(&str, Value)], remove: &[&str]) -> Value {
    let mut payload = fixture("block_actions_channel");
    let split = |pointer: &str| {
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        (parent.to_owned(), member.to_owned())
    };
    for (pointer, value) in set {
        let (parent, member) = split(pointer);
        match payload.pointer_mut(&parent).unwrap() {
            Value::Object(fields) => drop(fields.insert(member, value.clone())),
            Value::Array(items) => items[member.parse::<usize>().unwrap()] = value.clone(),
            _ => panic!("{pointer} is in nothing"),
        }
    }
    for pointer in remove {
        let (parent, member) = split(pointer);
        payload.pointer_mut(&parent).unwrap().as_object_mut().unwrap().remove(&member).unwrap();
    }
    payload
}

#[test]
fn a_click_is_read() {
    let press = receive_payload(&app(), &fixture("block_actions_channel")).unwrap().unwrap();
    let expected = Press {
        callback_id: press.callback_id.clone(),
        handle: "q3Zk0m3nT1y7uVtqk9c8Yw".to_owned(),
        verdict: Verdict::Approve,
        account: Account {
            platform: Platform::Slack,
            installation: "main".into(),
            user: "U0CLICKER1".to_owned(),
        },
        home: Some("T0HOME0001".to_owned()),
        channel: "C0CHAN0001".to_owned(),
        message: "1770000000.000100".to_owned(),
    };
    assert_eq!(press, expected);
    assert_eq!(press.callback_id.len(), 64);
    assert_eq!(press.place().to_string(), "slack:main/C0CHAN0001");

    let deny = receive_payload(&app(), &fixture("block_actions_channel_deny")).unwrap().unwrap();
    assert_eq!(deny.verdict, Verdict::Deny);
    let revoke = changed(&[("/actions/0/action_id", json!("undersign_revoke"))], &[]);
    assert_eq!(receive_payload(&app(), &revoke).unwrap().unwrap().verdict, Verdict::Deny);
}

#[test]
fn every_recorded_variant_is_read() {
    for (name, app, home, channel) in [
        ("block_actions_confirm_echoed", app(), "T0HOME0001", "C0CHAN0001"),
        ("block_actions_dm", app(), "T0HOME0001", "D0DMCH0001"),
        ("block_actions_ephemeral_no_message", app(), "T0HOME0001", "C0CHAN0001"),
        ("block_actions_minimal_legacy", app(), "T0HOME0001", "C0CHAN0001"),
        ("block_actions_private_channel", app(), "T0HOME0001", "C0PRIV0001"),
        ("block_actions_thread", app(), "T0HOME0001", "C0CHAN0001"),
        // Whether a person of another workspace counts is decided later.
        ("block_actions_slack_connect_foreign_user", app(), "T0OTHER001", "C0CHAN0001"),
        ("block_actions_grid_user_team_is_org_id", grid_app(), "E0ORG00001", "C0CHAN0001"),
        ("block_actions_grid_workspace_install", grid_app(), "T0HOME0001", "C0CHAN0001"),
        ("block_actions_org_install_team_null", grid_app(), "T0HOME0001", "C0CHAN0001"),
    ] {
        let press =
            receive_payload(&app, &fixture(name)).unwrap().unwrap_or_else(|| panic!("{name} ignored"));
        assert_eq!((press.home.as_deref(), press.channel.as_str()), (Some(home), channel), "{name}");
    }
}

#[test]
fn what_slack_adds_elsewhere_breaks_nothing() {
    let table = fixture("block_actions_tolerance_cases");
    let cases = table["cases"].as_array().unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let set: Vec<(&str, Value)> = case["set"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(pointer, value)| (pointer.as_str(), value.clone()))
            .collect();
        let remove: Vec<&str> =
            case["remove"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let got = receive_payload(&app(), &changed(&set, &remove));
        match name {
            "no_user" | "unknown_interaction_type" => assert_eq!(got, Ok(None), "{name}"),
            "team_null" => assert_eq!(got, Err(Rejection::Foreign), "{name}"),
            _ => assert!(matches!(got, Ok(Some(_))), "{name}: {got:?}"),
        }
    }
}

#[test]
fn another_installation_is_refused() {
    let other_org = json!({"id": "E0OTHER001", "name": "Other"});
    for (name, app, payload) in [
        ("app", app(), changed(&[("/api_app_id", json!("A0OTHER001"))], &[])),
        ("no app", app(), changed(&[], &["/api_app_id"])),
        ("team", app(), changed(&[("/team/id", json!("T0OTHER001"))], &[])),
        ("no team", app(), changed(&[("/team", Value::Null)], &[])),
        ("organisation", app(), changed(&[("/enterprise", other_org.clone())], &[])),
        ("team's organisation", app(), changed(&[("/team/enterprise_id", json!("E0OTHER001"))], &[])),
        ("other organisation", grid_app(), changed(&[("/enterprise", other_org)], &[])),
        ("no organisation", grid_app(), fixture("block_actions_channel")),
        ("neither", grid_app(), changed(&[("/team", Value::Null)], &[])),
        ("a dialog of another app", app(), {
            let mut payload = fixture("view_submission");
            payload["api_app_id"] = json!("A0OTHER001");
            payload
        }),
    ] {
        assert_eq!(receive_payload(&app, &payload), Err(Rejection::Foreign), "{name}");
    }
}

#[test]
fn other_interactions_have_no_effect() {
    for name in ["view_submission", "view_submission_view_team_id_null"] {
        assert_eq!(receive_payload(&app(), &fixture(name)), Ok(None), "{name}");
    }
    let org = fixture("view_submission_org_install_team_null");
    assert_eq!(receive_payload(&grid_app(), &org), Ok(None));
    for kind in ["shortcut", "message_action", "view_closed", "interactive_message", "brand_new"] {
        let payload = changed(&[("/type", json!(kind))], &[]);
        assert_eq!(receive_payload(&app(), &payload), Ok(None), "{kind}");
    }
}

#[test]
fn a_press_that_says_too_little_has_no_effect() {
    assert_eq!(receive_payload(&app(), &fixture("block_actions_no_value")), Ok(None));
    for remove in [
        "/user",
        "/user/id",
        "/container",
        "/container/message_ts",
        "/actions/0/action_id",
        "/actions/0/action_ts",
        "/actions/0/value",
    ] {
        assert_eq!(receive_payload(&app(), &changed(&[], &[remove])), Ok(None), "{remove}");
    }
    for (pointer, value) in [
        ("/actions/0/value", json!("")),
        ("/actions/0/value", json!("with space")),
        ("/actions/0/value", json!("nul\u{0}")),
        ("/actions/0/value", json!("v".repeat(201))),
        ("/actions/0/action_id", json!("undersign_reply")),
        ("/actions/0/action_id", json!("Undersign_approve")),
        ("/user/id", json!("")),
        ("/container/message_ts", Value::Null),
        // Two channels in one payload: which one the card is in can't be known.
        ("/channel/id", json!("C0OTHER001")),
    ] {
        assert_eq!(receive_payload(&app(), &changed(&[(pointer, value)], &[])), Ok(None), "{pointer}");
    }
    let neither = changed(&[], &["/container/channel_id", "/channel"]);
    assert_eq!(receive_payload(&app(), &neither), Ok(None));
    let one = receive_payload(&app(), &changed(&[], &["/container/channel_id"])).unwrap().unwrap();
    assert_eq!(one.channel, "C0CHAN0001");
}

#[test]
fn what_is_not_the_documented_form_is_refused() {
    let click = form(&fixture("block_actions_channel"));
    let two = changed(&[], &[]);
    let action = two["actions"][0].clone();
    let two = changed(&[("/actions", json!([action, action]))], &[]);
    for (name, form) in [
        ("empty", String::new()),
        ("no payload", "x=1".to_owned()),
        ("legacy token only", "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T0HOME0001".to_owned()),
        ("two payloads", format!("{click}&{click}")),
        ("two payloads, one spelt otherwise", format!("{click}&pa%79load=%7B%7D")),
        ("not JSON", "payload=%7B".to_owned()),
        ("no object", "payload=%5B%22block_actions%22%2C%22A0APP00001%22%5D".to_owned()),
        ("no type", self::form(&changed(&[], &["/type"]))),
        ("two actions", self::form(&two)),
        ("no action", self::form(&changed(&[("/actions", json!([]))], &[]))),
        ("no actions", self::form(&changed(&[], &["/actions"]))),
        ("user is no object", self::form(&changed(&[("/user", json!("U0CLICKER1"))], &[]))),
        ("a member twice", click.replacen("%7B", "%7B%22api_app_id%22%3A%22A0APP00001%22%2C", 1)),
        ("too deep", format!("payload={{\"x\":{}", "[".repeat(100_000))),
    ] {
        assert_eq!(receive_form(&app(), &form), Err(Rejection::Malformed), "{name}");
    }
}

#[test]
fn the_signature_comes_first() {
    let form = form(&fixture("block_actions_channel"));
    let headers = signed_headers(&app(), form.as_bytes(), NOW);
    let other = SlackApp { signing_secrets: vec!["other".to_owned().into()], ..app() };
    let refused = |app: &SlackApp, headers: &HeaderMap, body: &str, now| {
        receive(app, headers, body.as_bytes(), now).unwrap_err()
    };
    assert_eq!(refused(&other, &headers, &form, NOW), Rejection::Unauthenticated);
    assert_eq!(refused(&app(), &headers, &form, NOW + 301), Rejection::Unauthenticated);
    assert_eq!(refused(&app(), &headers, "payload=%7B", NOW), Rejection::Unauthenticated);
    assert_eq!(refused(&app(), &HeaderMap::new(), &"a".repeat(300_000), NOW), Rejection::TooLarge);
}

#[test]
fn the_same_press_has_the_same_id_and_another_has_another() {
    let press_of = |set: &[(&str, Value)]| receive_payload(&app(), &changed(set, &[])).unwrap().unwrap();
    let first = press_of(&[]).callback_id;
    // What a replay may differ in is not part of it.
    assert_eq!(
        press_of(&[("/trigger_id", json!("1.2.3")), ("/channel/name", json!("renamed"))]).callback_id,
        first
    );
    for (pointer, value) in [
        ("/user/id", "U0CLICKER2"),
        ("/actions/0/action_ts", "1770000005.113301"),
        ("/actions/0/action_id", "undersign_deny"),
        ("/actions/0/value", "another"),
    ] {
        assert_ne!(press_of(&[(pointer, json!(value))]).callback_id, first, "{pointer}");
    }
    assert_ne!(callback_id(&["ab", "c"]), callback_id(&["a", "bc"]));
}

#[test]
fn rejections_have_the_documented_status() {
    let statuses =
        [Rejection::TooLarge, Rejection::Unauthenticated, Rejection::Foreign, Rejection::Malformed]
            .map(|rejection| rejection.status().as_u16());
    assert_eq!(statuses, [413, 401, 403, 400]);
}

#[test]
fn secrets_are_not_shown() {
    assert!(!format!("{:?}", app()).contains("8f742231"));
    assert!(!format!("{:?}", app()).contains("xoxb"));
}

//! What the tests of this module share.

use http::{HeaderMap, HeaderValue};
use serde_json::Value;

use super::SlackApp;

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

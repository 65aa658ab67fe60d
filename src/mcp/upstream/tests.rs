//! The client against a raw server that answers what no SDK would.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde_json::{Map, Value, json};

use super::http::Call;
use super::*;
use crate::app::ports::{Relayed, Upstream as _};
use crate::domain::ids::ToolName;
use crate::domain::intent::{FailureDetail, Outcome, UnknownDetail};

/// Long enough that only a test that hangs reaches it.
const PATIENT: Duration = Duration::from_secs(20);

/// What a `tools/call` is answered with.
#[derive(Clone)]
enum Act {
    Result(Value),
    Error(i32),
    Raw(u16, String),
    Redirect(String),
    Drop,
    Hang,
}

struct Raw {
    act: Mutex<Act>,
    tools: Mutex<Value>,
    modern: bool,
    ledger: Mutex<Vec<Value>>,
    address: String,
}

impl Raw {
    async fn start(modern: bool, act: Act) -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let raw = Arc::new(Self {
            act: Mutex::new(act),
            tools: Mutex::new(json!({"tools": [{"name": "refund", "inputSchema": {"type": "object"}}]})),
            modern,
            ledger: Mutex::default(),
            address: format!("http://{}/mcp", listener.local_addr().unwrap()),
        });
        let router = Router::new().route("/mcp", post(answer)).with_state(Arc::clone(&raw));
        tokio::spawn(async move { axum::serve(listener, router).await });
        raw
    }

    fn act(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }

    fn asked(&self, method: &str) -> Vec<Value> {
        let ledger = self.ledger.lock().unwrap();
        ledger.iter().filter(|message| message["method"] == method).cloned().collect()
    }

    fn calls(&self) -> Vec<Value> {
        self.asked("tools/call")
    }
}

async fn answer(State(raw): State<Arc<Raw>>, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    raw.ledger.lock().unwrap().push(message.clone());
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" if raw.modern => {
            json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})
        }
        "server/discover" => return error(&message["id"], -32601),
        "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"}}),
        "tools/list" => {
            let tools = raw.tools.lock().unwrap().clone();
            if tools.is_null() { std::future::pending().await } else { tools }
        }
        "tools/call" => {
            let act = raw.act.lock().unwrap().clone();
            match act {
                Act::Result(result) => result,
                Act::Error(code) => return error(&message["id"], code),
                Act::Raw(status, body) => return plain(status, body),
                Act::Redirect(to) => {
                    let mut response = plain(307, String::new());
                    response.headers_mut().insert("location", to.parse().unwrap());
                    return response;
                }
                Act::Drop => std::panic::resume_unwind(Box::new("dropped")),
                Act::Hang => std::future::pending().await,
            }
        }
        _ => return plain(202, String::new()),
    };
    plain(200, json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
}

fn error(id: &Value, code: i32) -> Response {
    let error =
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no", "data": {"x": 1}}});
    plain(200, error.to_string())
}

fn plain(status: u16, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn upstream(url: &str) -> HttpUpstream {
    // Another test of this process may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let headers = vec![(HeaderName::from_static("x-key"), HeaderValue::from_static("k"))];
    let config = UpstreamConfig { url: url.to_owned(), headers, timeout: PATIENT };
    HttpUpstream::new(http_client().unwrap(), config)
}

fn arguments() -> Map<String, Value> {
    json!({"order_id": "A-17", "amount_cents": 12000}).as_object().cloned().unwrap()
}

async fn execute(upstream: &HttpUpstream, limit: Duration) -> Outcome {
    let (tool, arguments) = (ToolName::from("refund"), arguments());
    let call = Call { tool: &tool, arguments: &arguments, idempotency_key: Some("k-1"), passing: None };
    upstream.send_once(&call, limit).await
}

async fn relay(upstream: &HttpUpstream) -> Relayed {
    let (tool, arguments) = (ToolName::from("refund"), arguments());
    upstream
        .relay_once(&Call { tool: &tool, arguments: &arguments, idempotency_key: None, passing: None })
        .await
}

/// The outcome of one execution that the upstream of each era answers so, and that it was called once.
async fn outcome_of(act: Act) -> Outcome {
    let mut outcomes = Vec::new();
    for modern in [false, true] {
        let raw = Raw::start(modern, act.clone()).await;
        outcomes.push(execute(&upstream(&raw.address), PATIENT).await);
        assert_eq!(raw.calls().len(), 1);
    }
    assert_eq!(outcomes[0], outcomes[1]);
    outcomes.remove(0)
}

fn failed(detail: FailureDetail) -> Outcome {
    Outcome::Failed { detail, result: None }
}

fn unknown(detail: UnknownDetail) -> Outcome {
    Outcome::Unknown { detail }
}

#[tokio::test]
async fn a_result_is_a_success_and_goes_with_our_key_and_nothing_else_of_ours() {
    let result = json!({"content": [{"type": "text", "text": "done"}], "structuredContent": {"n": 1e21}});
    assert_eq!(outcome_of(Act::Result(result.clone())).await, Outcome::Succeeded { result: result.clone() });
    for modern in [false, true] {
        let raw = Raw::start(modern, Act::Result(result.clone())).await;
        execute(&upstream(&raw.address), PATIENT).await;
        let params = raw.calls()[0]["params"].clone();
        assert_eq!(params["arguments"], Value::Object(arguments()));
        assert_eq!(params["_meta"]["dev.undersign/idempotency-key"], "k-1");
        let keys: Vec<_> = params["_meta"].as_object().unwrap().keys().cloned().collect();
        assert!(keys.iter().all(|key| {
            key == "progressToken"
                || key == "dev.undersign/idempotency-key"
                || modern && key.starts_with("io.modelcontextprotocol/")
        }));
        if modern {
            assert_eq!(params["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}));
        }
        relay(&upstream(&raw.address)).await;
        assert_eq!(raw.calls()[1]["params"]["_meta"].get("dev.undersign/idempotency-key"), None);
    }
}

#[tokio::test]
async fn an_error_of_the_tool_is_a_failure_with_its_result() {
    let result = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    let failed = Outcome::Failed { detail: FailureDetail::ToolError, result: Some(result.clone()) };
    assert_eq!(outcome_of(Act::Result(result)).await, failed);
}

#[tokio::test]
async fn an_error_of_the_protocol_is_a_failure() {
    assert_eq!(outcome_of(Act::Error(-32602)).await, failed(FailureDetail::ProtocolError));
}

#[tokio::test]
async fn a_result_that_the_sdk_cannot_type_is_still_a_result() {
    for complete in [false, true] {
        let mut result = json!({"content": [{"type": "hologram", "data": "x"}], "vendor": 1});
        if complete {
            result["resultType"] = json!("complete");
        }
        assert_eq!(
            outcome_of(Act::Result(result.clone())).await,
            Outcome::Succeeded { result: result.clone() }
        );
        result["isError"] = json!(true);
        let failed = Outcome::Failed { detail: FailureDetail::ToolError, result: Some(result.clone()) };
        assert_eq!(outcome_of(Act::Result(result)).await, failed);
    }
}

#[tokio::test]
async fn a_question_or_a_task_is_not_followed() {
    let question = json!({"resultType": "input_required", "requestState": "s"});
    assert_eq!(outcome_of(Act::Result(question)).await, failed(FailureDetail::InputRequired));
    let task = json!({"resultType": "task", "taskId": "t", "status": "working",
        "createdAt": "2026-12-01T14:00:00Z", "lastUpdatedAt": "2026-12-01T14:00:00Z", "ttlMs": 1000});
    assert_eq!(outcome_of(Act::Result(task)).await, unknown(UnknownDetail::TaskStarted));
}

/// Neither has a type of the SDK's, and both have the `content` that a result would have.
#[tokio::test]
async fn what_says_itself_that_it_is_no_result_is_none_whatever_its_content() {
    let labelled = |kind: &str| {
        Act::Result(json!({"resultType": kind, "content": [{"type": "text", "text": "later"}],
            "inputRequests": {"x": {"method": "vendor/ask", "params": {}}}}))
    };
    assert_eq!(outcome_of(labelled("input_required")).await, failed(FailureDetail::InputRequired));
    assert_eq!(outcome_of(labelled("task")).await, unknown(UnknownDetail::TaskStarted));
    assert_eq!(outcome_of(labelled("deferred")).await, unknown(UnknownDetail::UnexpectedAnswer));
}

#[tokio::test]
async fn an_answer_of_another_kind_is_doubt() {
    for result in [json!({}), json!({"prompts": []}), json!({"content": "text"}), json!(5)] {
        assert_eq!(outcome_of(Act::Result(result)).await, unknown(UnknownDetail::UnexpectedAnswer));
    }
}

#[tokio::test]
async fn what_was_sent_and_not_answered_readably_is_doubt() {
    for act in [
        Act::Drop,
        Act::Raw(200, "{\"jsonrpc\":\"2.0\",\"id\":".to_owned()),
        Act::Raw(200, "{}{}".to_owned()),
        Act::Raw(500, "oops".to_owned()),
        Act::Raw(503, String::new()),
    ] {
        assert_eq!(outcome_of(act).await, unknown(UnknownDetail::Transport));
    }
}

#[tokio::test]
async fn no_answer_in_time_is_doubt_and_the_next_call_works() {
    let raw = Raw::start(true, Act::Hang).await;
    let upstream = upstream(&raw.address);
    upstream.tools().await.unwrap();
    let outcome = execute(&upstream, Duration::from_millis(300)).await;
    assert_eq!(outcome, unknown(UnknownDetail::Timeout));
    raw.act(Act::Result(json!({"content": []})));
    assert!(matches!(execute(&upstream, PATIENT).await, Outcome::Succeeded { .. }));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Raw::start(true, Act::Result(json!({"content": []}))).await;
    let outcome = outcome_of(Act::Redirect(elsewhere.address.clone())).await;
    assert_eq!(outcome, unknown(UnknownDetail::Transport));
    assert!(elsewhere.ledger.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_cannot_be_connected_was_not_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let upstream = upstream(&address);
    let outcome = execute(&upstream, Duration::from_millis(300)).await;
    assert_eq!(outcome, failed(FailureDetail::NotSent));
    assert_eq!(relay(&upstream).await, Relayed::NotSent);
    assert!(upstream.tools().await.is_err());
}

/// The connection exists for rmcp, but each request has one of its own: a server that goes away between the list and
/// the call gets nothing.
#[tokio::test]
async fn a_server_that_went_away_after_the_list_was_not_sent_the_call() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    let raw = Raw::start(true, Act::Result(json!({"content": []}))).await;
    let router = Router::new().route("/mcp", post(answer)).with_state(Arc::clone(&raw));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let upstream = upstream(&address);
    upstream.tools().await.unwrap();
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    assert_eq!(execute(&upstream, Duration::from_millis(300)).await, failed(FailureDetail::NotSent));
    assert!(raw.calls().is_empty());
}

#[tokio::test]
async fn an_error_without_an_id_ends_the_connection_and_not_the_upstream() {
    let restarted = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#;
    let raw = Raw::start(false, Act::Raw(400, restarted.to_owned())).await;
    let upstream = upstream(&raw.address);
    assert_eq!(execute(&upstream, PATIENT).await, unknown(UnknownDetail::Transport));
    raw.act(Act::Result(json!({"content": []})));
    assert!(matches!(execute(&upstream, PATIENT).await, Outcome::Succeeded { .. }));
}

#[tokio::test]
async fn tools_are_listed_afresh_and_a_list_without_end_is_none() {
    let raw = Raw::start(true, Act::Hang).await;
    let upstream = upstream(&raw.address);
    let before = upstream.tools().await.unwrap();
    *raw.tools.lock().unwrap() =
        json!({"tools": [{"name": "refund", "description": "new", "inputSchema": {"type": "object"}}]});
    let after = upstream.tools().await.unwrap();
    assert_eq!((before.len(), after.len()), (1, 1));
    assert_ne!(before[0].version, after[0].version);
    *raw.tools.lock().unwrap() = json!({"tools": [], "nextCursor": "again"});
    assert!(upstream.tools().await.is_err());
}

/// What hangs stays in the SDK's connection, which holds only so many requests.
#[tokio::test]
async fn a_connection_on_which_a_list_never_came_is_given_up() {
    let raw = Raw::start(true, Act::Hang).await;
    let listed = raw.tools.lock().unwrap().clone();
    *raw.tools.lock().unwrap() = Value::Null;
    let upstream = upstream(&raw.address);
    let is_asked = async {
        while raw.asked("tools/list").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // Whoever waits gives up: its time is over, or it is itself no longer wanted.
    tokio::select! {
        _ = upstream.tools() => panic!("nobody answered"),
        () = is_asked => {}
    }
    *raw.tools.lock().unwrap() = listed;
    assert_eq!(upstream.tools().await.unwrap().len(), 1);
    assert_eq!(raw.asked("server/discover").len(), 2);
}

#[tokio::test]
async fn a_relayed_call_comes_back_as_it_was_answered() {
    let result = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    let raw = Raw::start(true, Act::Result(result.clone())).await;
    let upstream = upstream(&raw.address);
    assert_eq!(relay(&upstream).await, Relayed::Result(result));
    raw.act(Act::Error(-32602));
    let error = Relayed::Error { code: -32602, message: "no".to_owned(), data: Some(json!({"x": 1})) };
    assert_eq!(relay(&upstream).await, error);
    let asked = json!({"resultType": "input_required", "requestState": "s"});
    raw.act(Act::Result(asked.clone()));
    assert_eq!(relay(&upstream).await, Relayed::InputRequired(asked));
    raw.act(Act::Raw(502, "oops".to_owned()));
    assert_eq!(relay(&upstream).await, Relayed::Unknown);
}

//! What passes between an agent and an upstream besides calls and results, and what does not.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

#[path = "conformance/fixture.rs"]
mod fixture;
mod harness;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use harness::{Agent, BOT_KEY, PEOPLE, RULES, World, refund};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// An upstream that asks its client for everything there is before it answers a call, in the way of the older revisions.
#[derive(Clone)]
struct Asker {
    modern: bool,
    /// What it was sent.
    ledger: Arc<Mutex<Vec<Value>>>,
}

impl Asker {
    async fn start(modern: bool) -> (Self, String) {
        let asker = Self { modern, ledger: Arc::default() };
        let router = Router::new().route("/mcp", post(answer)).with_state(asker.clone());
        (asker, serve(router).await)
    }

    fn sent(&self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        self.ledger.lock().unwrap().iter().filter(|message| wanted(message)).cloned().collect()
    }
}

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

async fn answer(State(asker): State<Asker>, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    asker.ledger.lock().unwrap().push(message.clone());
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let method = message["method"].as_str().unwrap_or_default();
    let said = match method {
        "server/discover" if asker.modern => answer(json!({"resultType": "complete", "ttlMs": 0,
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "cacheScope": "private"})),
        "server/discover" => {
            json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "?"}})
        }
        "initialize" => answer(json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "asker", "version": "1"}})),
        "tools/list" => answer(json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})),
        "tools/call" => {
            answer(json!({"resultType": "complete", "content": [{"type": "text", "text": "the result"}]}))
        }
        _ => return respond(202, "application/json", String::new()),
    };
    if method != "tools/call" {
        return respond(200, "application/json", said.to_string());
    }
    let question = |id: u32, method: &str, parameters: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters});
    let schema = json!({"type": "object", "properties": {"password": {"type": "string"}}});
    let messages = [
        question(900, "elicitation/create", json!({"message": "Your password?", "requestedSchema": schema})),
        question(901, "sampling/createMessage", json!({"maxTokens": 9, "messages": []})),
        question(902, "roots/list", json!({})),
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "call me"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
        said,
    ];
    let events = messages.map(|message| format!("event: message\ndata: {message}\n\n"));
    respond(200, "text/event-stream", events.concat())
}

fn respond(status: u16, content_type: &str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", content_type.parse().unwrap());
    response
}

/// A world in which `acme` may call everything of one more upstream, and an agent on that.
async fn with_upstream(url: &str) -> (World, Agent) {
    let mut world = World::prepare(RULES).await;
    let allowed = "[[rules]]\nname = \"more\"\ntools = [\"more/*\"]\ndecision = \"allow\"\n";
    world.write("policy/acme/team.toml", &format!("{RULES}{allowed}{PEOPLE}"));
    world.add_upstream("more", url);
    world.add_replica().await;
    let agent = Agent::new(format!("http://{}/mcp/more", world.replicas[0].agents()), BOT_KEY);
    (world, agent)
}

/// The parameters of a modern request with these capabilities.
fn modern(mut parameters: Value, capabilities: &Value) -> Value {
    parameters["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    parameters["_meta"]["io.modelcontextprotocol/clientInfo"] =
        json!({"name": "secret-name", "version": "1"});
    parameters["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    parameters
}

async fn ask(agent: &Agent, method: &str, parameters: &Value) -> (StatusCode, Value) {
    let name = ["name", "uri", "taskId"].iter().find_map(|key| parameters[key].as_str());
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
    agent.request(method, name, body.to_string().into_bytes()).await
}

#[tokio::test]
async fn g08_what_is_not_offered_reaches_no_upstream() {
    let world = World::start().await;
    world.agent(BOT_KEY).list().await;
    let before = world.shop.methods();
    let task = json!({"taskId": "01a231e7-bb00-729f-9f01-020304050607"});
    let reference =
        json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}});
    for (method, parameters) in [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "file:///etc/passwd"})),
        ("resources/subscribe", json!({"uri": "file:///etc/passwd"})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "x"})),
        ("completion/complete", reference),
        ("logging/setLevel", json!({"level": "debug"})),
        ("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})),
        ("tasks/get", task.clone()),
        ("tasks/result", task.clone()),
        ("tasks/update", json!({"taskId": task["taskId"], "inputResponses": {}})),
        ("tasks/cancel", task.clone()),
        ("tasks/list", json!({})),
        ("sampling/createMessage", json!({"maxTokens": 1, "messages": []})),
        ("roots/list", json!({})),
        ("shop/refund_order", refund()),
    ] {
        let agent = world.agent(BOT_KEY);
        let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        let (_, answer) = ask(&agent, method, &modern(parameters.clone(), &tasks)).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
        let (_, answer) = ask(&agent.legacy(), method, &parameters).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    assert_eq!(world.shop.methods(), before);
    world.finish().await;
}

#[tokio::test]
async fn g08_what_an_upstream_asks_by_itself_is_refused_and_the_agent_hears_nothing() {
    for modern_upstream in [false, true] {
        let (asker, url) = Asker::start(modern_upstream).await;
        let (world, agent) = with_upstream(&url).await;
        let everything = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        let parameters = json!({"name": "ask", "arguments": {}});
        for (agent, parameters) in
            [(agent.clone(), modern(parameters.clone(), &everything)), (agent.legacy(), parameters)]
        {
            // One JSON object: nothing came before the result.
            let (status, answer) = ask(&agent, "tools/call", &parameters).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            assert_eq!(
                answer["result"]["content"],
                json!([{"type": "text", "text": "the result"}]),
                "{answer}"
            );
        }
        // A refusal may still be under way when the result is there.
        let answers = |message: &Value| message.get("method").is_none();
        for _ in 0..600 {
            if asker.sent(answers).len() >= 6 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let answers = asker.sent(answers);
        assert!(answers.iter().all(|answer| answer.get("result").is_none()), "{answers:?}");
        assert_eq!(asker.sent(|message| message["method"] == "tools/call").len(), 2);
        world.finish().await;
    }
}

#[tokio::test]
async fn an_allowed_call_takes_the_agents_meta_along_less_what_is_ours_or_the_hops() {
    let (asker, url) = Asker::start(true).await;
    let (world, agent) = with_upstream(&url).await;
    let declared = json!({"elicitation": {"form": {}}, "extensions":
        {"io.modelcontextprotocol/tasks": {}, "example.com/x": {}}});
    let mut parameters = modern(json!({"name": "ask", "arguments": {}}), &declared);
    parameters["_meta"]["example.com/note"] = json!({"kept": true});
    parameters["_meta"]["traceparent"] = json!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    parameters["_meta"]["dev.undersign/run"] = json!("secret-run");
    parameters["_meta"]["dev.undersign/idempotency-key"] = json!("secret-key");
    parameters["_meta"]["progressToken"] = json!("secret-progress");
    parameters["requestState"] = json!("kept");
    parameters["inputResponses"] = json!({"name": {"action": "decline"}});
    ask(&agent, "tools/call", &parameters).await;
    let sent = asker.sent(|message| message["method"] == "tools/call").pop().unwrap()["params"].clone();
    assert_eq!(
        sent["_meta"]["io.modelcontextprotocol/clientCapabilities"],
        json!({"elicitation": {"form": {}}, "extensions": {"example.com/x": {}}})
    );
    assert_eq!(
        (&sent["requestState"], &sent["inputResponses"]),
        (&json!("kept"), &parameters["inputResponses"])
    );
    for key in ["example.com/note", "traceparent"] {
        assert_eq!(sent["_meta"][key], parameters["_meta"][key], "{key}");
    }
    assert!(!sent.to_string().contains("secret"), "{sent}");
    world.finish().await;
}

#[tokio::test]
async fn an_upstreams_questions_pass_to_a_modern_agent_under_our_name() {
    let (world, agent) = with_upstream(&serve(fixture::router()).await).await;
    let can = json!({"elicitation": {"form": {}}});
    let tool = json!({"name": "test_input_required_result_request_state", "arguments": {}});
    let (_, asked) = ask(&agent, "tools/call", &modern(tool.clone(), &can)).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!(asked["result"]["inputRequests"]["confirm"]["method"], "elicitation/create");
    assert_eq!(asked["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "undersign");
    let mut answered = modern(tool.clone(), &can);
    answered["requestState"] = asked["result"]["requestState"].clone();
    answered["inputResponses"] = json!({"confirm": {"action": "accept", "content": {"ok": true}}});
    let (_, done) = ask(&agent, "tools/call", &answered).await;
    assert_eq!(done["result"]["content"][0]["text"], "state-ok", "{done}");
    // An older agent knows no rounds.
    let (_, refused) = ask(&agent.legacy(), "tools/call", &tool).await;
    assert!(refused["error"]["code"].is_i64() && refused.get("result").is_none(), "{refused}");
    world.finish().await;
}

#[tokio::test]
async fn progress_passes_in_order_under_the_agents_own_token() {
    let (world, agent) = with_upstream(&serve(fixture::router()).await).await;
    let tool =
        json!({"name": "test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": "mine"}});
    for (agent, parameters) in [(agent.clone(), modern(tool.clone(), &json!({}))), (agent.legacy(), tool)] {
        let (_, said) = ask(&agent, "tools/call", &parameters).await;
        let events = said.as_str().unwrap_or_else(|| panic!("no stream: {said}")).to_owned();
        let messages: Vec<Value> = events
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .filter_map(|data| serde_json::from_str(data).ok())
            .collect();
        let (result, reports) = messages.split_last().unwrap();
        assert_eq!(result["result"]["content"][0]["text"], "Done.");
        let expected = [0.0, 50.0, 100.0].map(|done| {
            json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": "mine", "progress": done, "total": 100.0}})
        });
        assert_eq!(reports, expected);
    }
    world.finish().await;
}

#[tokio::test]
async fn a_request_state_on_a_gated_call_is_refused() {
    let world = World::start().await;
    let (_, token) = world.approved().await;
    let parked = world.audit("parked").await.len();
    let mut other = json!({"order_id": "A-17", "amount_cents": 7_000});
    for approval_token in [None, Some(&token)] {
        if let Some(token) = approval_token {
            other = refund();
            other["approval_token"] = json!(token);
        }
        let mut parameters =
            json!({"name": "refund_order", "arguments": other, "requestState": "rs2.made.up"});
        let (_, legacy) = ask(&world.agent(BOT_KEY).legacy(), "tools/call", &parameters).await;
        parameters = modern(parameters, &json!({}));
        parameters["inputResponses"] = json!({"approval": {"action": "accept"}});
        let (status, answer) = ask(&world.agent(BOT_KEY), "tools/call", &parameters).await;
        assert_eq!(status, StatusCode::OK);
        for answer in [legacy, answer] {
            let error = json!({"code": -32602, "message": "requestState rejected"});
            assert_eq!(answer["error"], error, "{answer}");
        }
    }
    assert_eq!(world.audit("parked").await.len(), parked);
    assert!(world.shop.ledger().is_empty());
    // The token was not spent on it.
    let executed = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
    assert_eq!(executed.code(), "upstream", "{}", executed.text());
    world.finish().await;
}

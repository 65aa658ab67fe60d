//! The whole path with the SDK's own client, in both eras of the protocol and on both endpoints.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use axum::http::StatusCode;
use harness::{Agent, BEN, BOT_KEY, World, refund};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion,
    Tool,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient, ServiceExt as _};
use serde_json::{Value, json};

#[derive(Clone)]
struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("sdk", "1"))
    }
}

struct Sdk(RunningService<RoleClient, Client>);

impl Sdk {
    async fn connect(world: &World, path: &str, modern: bool) -> Self {
        let url = format!("http://{}{path}", world.replicas[0].agents());
        let mut headers = std::collections::HashMap::new();
        headers.insert(http::header::AUTHORIZATION, format!("Bearer {BOT_KEY}").parse().unwrap());
        let http = reqwest::Client::builder().build().unwrap();
        let transport = StreamableHttpClientTransport::with_client(
            http,
            StreamableHttpClientTransportConfig::with_uri(url).custom_headers(headers),
        );
        Self(if modern {
            let lifecycle = ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::V_2025_11_25),
            };
            Client.serve_with_lifecycle(transport, lifecycle).await.unwrap()
        } else {
            Client.serve(transport).await.unwrap()
        })
    }

    async fn tools(&self) -> Vec<Tool> {
        self.0.peer().list_tools(None).await.unwrap().tools
    }

    async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let parameters = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        self.0.call_tool(parameters).await.unwrap()
    }
}

fn text(result: &CallToolResult) -> String {
    result.content[0].as_text().unwrap().text.clone()
}

fn meta(result: &CallToolResult) -> Value {
    let result = serde_json::to_value(result).unwrap();
    result["_meta"]["dev.undersign/approval"].clone()
}

async fn whole_path(modern: bool, path: &str, prefix: &str) {
    let world = World::start().await;
    let sdk = Sdk::connect(&world, path, modern).await;
    let (refund_tool, get_tool) = (format!("{prefix}refund_order"), format!("{prefix}get_order"));

    let tools = sdk.tools().await;
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    for own in ["undersign_approval", "undersign_cancel", &refund_tool, &get_tool] {
        assert!(names.contains(&own), "{own} is not among {names:?}");
    }
    let tool =
        |name: &str| serde_json::to_value(tools.iter().find(|tool| tool.name == name).unwrap()).unwrap();
    let gated = tool(&refund_tool);
    assert_eq!(gated["inputSchema"]["properties"]["approval_token"]["type"], "string");
    assert!(!gated["inputSchema"]["required"].as_array().unwrap().contains(&json!("approval_token")));
    assert!(gated["description"].as_str().unwrap().contains("approval_token"));
    assert!(gated.get("outputSchema").is_some(), "the upstream's outputSchema passes");
    let plain = tool(&get_tool);
    assert!(plain["inputSchema"]["properties"].get("approval_token").is_none());

    let order = sdk.call(&get_tool, json!({"order_id": "A-17"})).await;
    assert_ne!(order.is_error, Some(true));
    assert!(text(&order).contains("A-17"));

    let parked = sdk.call(&refund_tool, refund()).await;
    assert_eq!(parked.is_error, Some(true));
    assert!(parked.structured_content.is_none());
    assert!(text(&parked).starts_with("APPROVAL_PENDING: not executed."), "{}", text(&parked));
    let action = meta(&parked)["action_id"].as_str().unwrap().to_owned();
    assert!(text(&parked).contains(&action), "the model can read the id");

    let card = world.card().await;
    // The agent waits while the person decides.
    let peer = sdk.0.peer().clone();
    let waiting = tokio::spawn({
        let arguments = json!({"action_id": action, "wait_seconds": 50});
        async move {
            let Value::Object(arguments) = arguments else { panic!("an object") };
            let request = CallToolRequestParams::new("undersign_approval").with_arguments(arguments);
            peer.call_tool(request).await.unwrap()
        }
    });
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    let granted = waiting.await.unwrap();
    assert_ne!(granted.is_error, Some(true));
    let token = meta(&granted)["approval_token"].as_str().unwrap().to_owned();
    assert!(text(&granted).contains(&token), "the model can read the token");

    let mut approved = refund();
    approved["approval_token"] = json!(token);
    let executed = sdk.call(&refund_tool, approved.clone()).await;
    assert_ne!(executed.is_error, Some(true));
    assert_eq!(executed.structured_content.as_ref().unwrap()["refunded_cents"], 12_000);
    let replayed = sdk.call(&refund_tool, approved).await;
    assert_eq!(meta(&replayed)["code"], "already_used");
    let ledger = world.shop.ledger();
    assert_eq!(ledger.iter().filter(|call| call.tool == "refund_order").count(), 1);
    world.card_showing("Succeeded").await;
    sdk.0.cancel().await.unwrap();
    world.finish().await;
}

#[tokio::test]
async fn modern_clients_on_the_whole_endpoint() {
    whole_path(true, "/mcp", "shop__").await;
}

#[tokio::test]
async fn modern_clients_on_one_upstream() {
    whole_path(true, "/mcp/shop", "").await;
}

#[tokio::test]
async fn legacy_clients_on_the_whole_endpoint() {
    whole_path(false, "/mcp", "shop__").await;
}

#[tokio::test]
async fn legacy_clients_on_one_upstream() {
    whole_path(false, "/mcp/shop", "").await;
}

#[tokio::test]
async fn the_pending_answer_is_what_the_contract_says() {
    let world = World::start().await;
    let modern = world.agent(BOT_KEY);
    let parked = modern.call("refund_order", refund()).await;
    let (id, expires) = (parked.action_id(), parked.meta()["expires_at"].as_str().unwrap().to_owned());
    let clock = &expires[11..];
    let expected = json!({
        "resultType": "complete",
        "isError": true,
        "content": [{"type": "text", "text": format!(
            "APPROVAL_PENDING: not executed. Waiting for 1 of payments, in slack:main/C0PAY00001. Expires {clock}.\n\
             Call undersign_approval with action_id={id} to wait; when approved, repeat this call unchanged with \
             approval_token."
        )}],
        "_meta": {
            "dev.undersign/approval": {
                "code": "approval_pending", "action_id": id, "state": "pending", "expires_at": expires,
                "approvals": [{"group": "payments", "got": 0, "count": 1}], "cards": [],
            },
            "io.modelcontextprotocol/serverInfo": {"name": "undersign", "version": env!("CARGO_PKG_VERSION")},
        },
    });
    assert_eq!(*parked.result(), expected);
    // Later answers fill in the card's address.
    world.wait_audit("posted", 1).await;
    let mut cards = json!([]);
    for _ in 0..100 {
        cards = modern.approval(&id, 0).await.meta()["cards"].clone();
        if cards != json!([]) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(cards[0].as_str().unwrap().contains("/archives/C0PAY00001/p"), "{cards}");
    // An older client gets the same without the members that it does not know.
    let legacy = world.agent(BOT_KEY).legacy().call("refund_order", refund()).await;
    assert_eq!(legacy.action_id(), id);
    assert!(legacy.result().get("resultType").is_none());
    assert!(legacy.result()["_meta"].get("io.modelcontextprotocol/serverInfo").is_none());
    world.finish().await;
}

#[tokio::test]
async fn refusals_before_anybody_is_asked() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    for wrong in [
        json!({"order_id": "A-17", "amount_cents": 12_000, "extra": 1}),
        json!({"amount_cents": 12_000}),
        json!({"order_id": 17, "amount_cents": 12_000}),
    ] {
        let answer = agent.call("refund_order", wrong.clone()).await;
        assert_eq!(answer.code(), "invalid_arguments", "{wrong}");
    }
    let unknown = agent.call_raw("no_such_tool", "{}").await.1;
    assert_eq!(unknown.0["error"]["code"], -32602, "{}", unknown.0);
    let rules = harness::RULES.replace("\"shop/get_*\", ", "");
    let narrow = World::with_rules(&rules).await;
    let refused = narrow.agent(BOT_KEY).call("get_order", json!({"order_id": "A-17"})).await;
    assert_eq!(refused.code(), "not_allowed");
    assert!(narrow.shop.ledger().is_empty());
    narrow.finish().await;
    let nobody = Agent::new(agent.url.clone(), "usk_nobody");
    let (status, _) = nobody.request("tools/list", None, b"{}".to_vec()).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(world.slack.messages(harness::CHANNEL).is_empty());
    world.finish().await;
}

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

use super::*;

/// Posts one JSON-RPC message; `None` when the connection ended without an answer or was refused.
async fn post(shop: &FakeShop, message: &Value) -> Option<(StatusCode, Value)> {
    let request = Request::post(shop.url())
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25")
        .header("authorization", "Bearer shop-secret")
        .body(Full::new(Bytes::from(message.to_string())));
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request.unwrap()).await.ok()?;
    let status = response.status();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

fn call(tool: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
           "params": {"name": tool, "arguments": arguments, "_meta": {IDEMPOTENCY_KEY: "key-1"}}})
}

fn refund() -> Value {
    call("refund_order", &json!({"order_id": "A-17", "amount_cents": 900}))
}

#[tokio::test]
async fn a_refund_is_done_written_down_and_matches_its_schema() {
    let shop = FakeShop::start(None).await.unwrap();
    let listed = post(&shop, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await.unwrap().1;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["get_order", "list_orders", "refund_order", "delete_customer", "deploy"]);

    let answer = post(&shop, &refund()).await.unwrap().1;
    let structured = &answer["result"]["structuredContent"];
    assert_eq!(*structured, json!({"order_id": "A-17", "refunded_cents": 900, "remaining_cents": 48_000}));
    assert!(jsonschema::is_valid(&tools[2]["outputSchema"], structured));
    assert!(jsonschema::is_valid(&tools[2]["inputSchema"], &refund()["params"]["arguments"]));
    assert_eq!(shop.order("A-17").unwrap().refunded_cents, 900);
    assert_eq!(
        shop.effects(),
        [Effect::Refunded { order_id: "A-17".to_owned(), amount_cents: 900, note: None }]
    );

    let ledger = shop.wait_calls(1).await;
    assert_eq!((ledger.len(), ledger[0].tool.as_str()), (1, "refund_order"));
    assert_eq!(ledger[0].idempotency_key.as_deref(), Some("key-1"));
    assert_eq!(ledger[0].headers["authorization"], "Bearer shop-secret");
    assert!(!format!("{ledger:?}").contains("shop-secret"));
    assert_eq!(shop.methods(), ["tools/list", "tools/call"]);
}

#[tokio::test]
async fn what_a_tool_does_not_take_is_refused() {
    let shop = FakeShop::start(None).await.unwrap();
    let unknown = call("get_order", &json!({"order_id": "A-17", "verbose": true}));
    assert_eq!(post(&shop, &unknown).await.unwrap().1["error"]["code"], -32602);
    assert_eq!(post(&shop, &call("sell", &json!({}))).await.unwrap().1["error"]["code"], -32602);
    let too_much = call("refund_order", &json!({"order_id": "A-18", "amount_cents": 1251}));
    assert_eq!(post(&shop, &too_much).await.unwrap().1["result"]["isError"], true);
    assert_eq!(shop.effects(), []);
    let gone = call("delete_customer", &json!({"customer_id": "C-3"}));
    assert_eq!(post(&shop, &gone).await.unwrap().1["result"]["isError"], false);
    assert!(shop.order("A-17").is_none());
}

#[tokio::test]
async fn it_misbehaves_on_the_side_of_the_effect_that_was_asked_for() {
    let shop = FakeShop::start(None).await.unwrap();
    let elsewhere = FakeShop::start(None).await.unwrap();
    let without_effect = [
        (Behaviour::ToolError("no".to_owned()), Some(200)),
        (Behaviour::RpcError(-32602, "no".to_owned()), Some(200)),
        (Behaviour::Http(503), Some(503)),
        (Behaviour::Redirect(elsewhere.url()), Some(307)),
        (Behaviour::DropBefore, None),
    ];
    for (behaviour, status) in without_effect {
        shop.script("refund_order", behaviour.clone());
        let answered = post(&shop, &refund()).await.map(|(status, _)| status.as_u16());
        assert_eq!(answered, status, "{behaviour:?}");
    }
    assert_eq!((shop.effects().len(), shop.ledger().len(), elsewhere.ledger().len()), (0, 5, 0));

    shop.script("refund_order", Behaviour::DropAfter);
    assert!(post(&shop, &refund()).await.is_none());
    shop.script("refund_order", Behaviour::GarbageAfter);
    assert_eq!(post(&shop, &refund()).await.unwrap(), (StatusCode::OK, Value::Null));
    assert_eq!(shop.effects().len(), 2);
}

#[tokio::test]
async fn a_caller_who_hangs_up_does_not_undo_what_was_begun() {
    let shop = FakeShop::start(None).await.unwrap();
    let gate = Gate::new();
    shop.script("refund_order", Behaviour::HangBefore(gate.clone()));
    let calling = tokio::spawn({
        let shop = shop.clone();
        async move { post(&shop, &refund()).await }
    });
    gate.arrived().await;
    assert_eq!(shop.effects().len(), 0);
    calling.abort();
    gate.open();
    while shop.effects().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stopped_shop_refuses_connections_and_opens_again_with_its_goods() {
    let shop = FakeShop::start(Some("shop-secret".to_owned())).await.unwrap();
    post(&shop, &refund()).await.unwrap();
    shop.stop().await;
    assert!(post(&shop, &refund()).await.is_none());
    shop.start_again().await.unwrap();
    post(&shop, &refund()).await.unwrap();
    assert_eq!(shop.order("A-17").unwrap().refunded_cents, 1800);
}

#[tokio::test]
async fn the_bearer_token_is_asked_for() {
    let shop = FakeShop::start(Some("another".to_owned())).await.unwrap();
    assert_eq!(post(&shop, &refund()).await.unwrap().0, StatusCode::UNAUTHORIZED);
    assert!(shop.ledger().is_empty());
}

#[tokio::test]
async fn a_tool_can_change_under_the_agents_feet() {
    let shop = FakeShop::start(None).await.unwrap();
    shop.edit_tool("deploy", |tool| tool["description"] = json!("Harmless.")).unwrap();
    shop.edit_tool("deploy", |tool| tool["inputSchema"] = json!("none")).unwrap_err();
    let listed = post(&shop, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await.unwrap().1;
    assert_eq!(listed["result"]["tools"][4]["description"], "Harmless.");
    assert_eq!(listed["result"]["tools"][4]["inputSchema"]["type"], "object");
}

/// The official client in its modern mode, with the checks of its own that it brings.
#[tokio::test]
async fn the_official_client_gets_along_with_it() {
    use rmcp::ClientServiceExt as _;
    use rmcp::model::{CallToolRequestParams, ProtocolVersion};
    use rmcp::service::ClientLifecycleMode;
    use rmcp::transport::StreamableHttpClientTransport;

    // Already installed by another test of this process is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let shop = FakeShop::start(None).await.unwrap();
    let mode = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    let transport = StreamableHttpClientTransport::from_uri(shop.url());
    let client = ().serve_with_lifecycle(transport, mode).await.unwrap();
    assert_eq!(client.list_all_tools().await.unwrap().len(), 5);
    let arguments = json!({"order_id": "A-17", "amount_cents": 900}).as_object().cloned();
    let mut parameters = CallToolRequestParams::new("refund_order");
    parameters.arguments = arguments;
    let result = client.call_tool(parameters).await.unwrap();
    assert_eq!(result.structured_content.unwrap()["refunded_cents"], 900);
    assert!(shop.methods().contains(&"server/discover".to_owned()), "{:?}", shop.methods());
}

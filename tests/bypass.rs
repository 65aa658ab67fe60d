//! Ways around the gateway (THREATS.md group G): another spelling, another path, another header, another caller.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use harness::wire::Wire;
use harness::{BOT_KEY, GLOBEX_KEY, OTHER_KEY, World, at_once, refund};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

/// A call of a gated tool by an agent of the older revisions, as text.
fn gated_call() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "refund_order", "arguments": refund()}})
    .to_string()
}

fn usual_headers() -> HeaderMap {
    headers(&[
        ("authorization", &format!("Bearer {BOT_KEY}")),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2025-11-25"),
    ])
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    });
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name, value);
    }
    headers
}

struct Sent {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Sent {
    fn code(&self) -> &Value {
        &self.body["result"]["_meta"]["dev.undersign/approval"]["code"]
    }

    fn error(&self) -> &Value {
        &self.body["error"]["code"]
    }
}

async fn send(world: &World, method: &str, path: &str, headers: HeaderMap, body: String) -> Sent {
    let url = format!("http://{}{path}", world.replicas[0].agents());
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let request = client.request(method.parse().unwrap(), url).headers(headers).body(body);
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    Sent { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}

async fn post(world: &World, headers: HeaderMap) -> Sent {
    send(world, "POST", "/mcp/shop", headers, gated_call()).await
}

fn with(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = usual_headers();
    headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    headers
}

#[tokio::test]
async fn g02_only_plain_json_is_read_and_it_is_gated_whatever_its_spelling() {
    let world = World::start().await;
    for content_type in ["application/json;charset=utf-7", "text/plain", "application/jsonp", ""] {
        assert_eq!(post(&world, with("content-type", content_type)).await.status, 415, "{content_type}");
    }
    let mut without = usual_headers();
    without.remove("content-type");
    assert_eq!(post(&world, without).await.status, 415);
    assert_eq!(post(&world, with("content-encoding", "gzip")).await.status, 415);
    for content_type in ["Application/json", "application/json; charset=UTF-8"] {
        let sent = post(&world, with("content-type", content_type)).await;
        assert_eq!((sent.status, sent.code()), (200, &json!("approval_pending")), "{content_type}");
    }
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn g03_another_spelling_is_another_name() {
    let world = World::start().await;
    for (right, name) in [
        ("method", "Method"),
        ("method", "METHOD"),
        ("method", "method\u{200b}"),
        ("params", "param\u{17f}"),
        ("params", "Params"),
        ("jsonrpc", "JSONRPC"),
    ] {
        let body = gated_call().replace(&format!("\"{right}\""), &format!("\"{name}\""));
        let sent = send(&world, "POST", "/mcp/shop", usual_headers(), body.clone()).await;
        assert_eq!((sent.status, sent.error()), (400, &json!(-32600)), "{name}");
        // Beside the right spelling, it is no second reading either.
        let both = body.replacen('{', &format!("{{\"{right}\":\"tools/list\","), 1);
        let sent = send(&world, "POST", "/mcp/shop", usual_headers(), both).await;
        assert_eq!((sent.status, sent.error()), (400, &json!(-32600)), "{name}");
    }
    for (right, name) in [("name", "Name"), ("arguments", "Arguments"), ("name", "na\u{200b}me")] {
        let body = gated_call().replace(&format!("\"{right}\""), &format!("\"{name}\""));
        let sent = send(&world, "POST", "/mcp/shop", usual_headers(), body).await;
        assert_ne!(sent.code(), "upstream");
        assert!(
            sent.status == 400 || sent.error().is_i64() || sent.code() == "invalid_arguments",
            "{name}: {}",
            sent.body
        );
    }
    for tool in [
        " refund_order",
        "refund_order ",
        "Refund_order",
        "refund_order\u{200b}",
        "refund_order.",
        "refund_order\0",
        "refund_ord\u{0435}r",
        "refund_orde\u{301}r",
        "refund\u{ff3f}order",
        " delete_customer",
        "Delete_customer",
        "delete_customer\u{200b}",
        "delete_customer.",
        "shop/refund_order",
        "shop__refund_order",
    ] {
        let answer = world.agent(BOT_KEY).legacy().call(tool, refund()).await;
        let refused = answer.0["error"]["code"] == -32602 || answer.code() == "not_allowed";
        assert!(refused, "{tool}: {}", answer.0);
    }
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn g04_a_header_that_names_another_tool_is_a_mismatch() {
    let world = World::start().await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "refund_order", "arguments": refund(), "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}}}});
    for (method, name) in [
        ("tools/call", "get_order"),
        ("tools/call", "=?base64?Z2V0X29yZGVy?="),
        ("tools/list", "refund_order"),
        ("tools/call", ""),
    ] {
        let mut headers = usual_headers();
        headers.insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
        headers.insert("mcp-method", HeaderValue::from_static(method));
        headers.insert("mcp-name", HeaderValue::from_static(name));
        let sent = send(&world, "POST", "/mcp/shop", headers, body.to_string()).await;
        assert_eq!((sent.status, sent.error()), (400, &json!(-32020)), "{method} {name}");
    }
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn g05_there_is_no_other_way_in() {
    let world = World::start().await;
    for path in
        ["/", "/mcp/", "//mcp", "/MCP", "/sse", "/messages", "/mcp/shop/", "/mcp/shop/x", "/mcp/other"]
    {
        let sent = send(&world, "POST", path, usual_headers(), gated_call()).await;
        assert_eq!(sent.status, 404, "{path}");
    }
    // Paths that a client library would tidy up, and some that a proxy would.
    let address = world.replicas[0].agents();
    for path in [
        "/mcp/.",
        "/./mcp",
        "/mcp/../mcp",
        "/mcp/shop/..",
        "/%6dcp",
        "/mcp%2fshop",
        "/mcp/sh%6fp%00",
        "/mcp;x",
        "/mcp/shop;x",
        "/mcp\\shop",
        "/mcp/shop%20",
        "/mcp/SHOP",
        "/mcp//shop",
        "/mcp/%2e%2e/mcp",
    ] {
        let mut wire = Wire::connect(address).await;
        let body = gated_call();
        let length = body.len();
        wire.send(format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {BOT_KEY}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2025-11-25\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
        assert!(matches!(wire.answer().await.unwrap().status, 400 | 404), "{path}");
    }
    // What is on another listener is not here.
    for path in ["/healthz", "/readyz", "/callbacks/slack/main"] {
        for method in ["GET", "POST"] {
            assert_eq!(
                send(&world, method, path, usual_headers(), String::new()).await.status,
                404,
                "{path}"
            );
        }
    }
    for method in ["GET", "DELETE", "PUT", "PATCH", "OPTIONS"] {
        for path in ["/mcp", "/mcp/shop"] {
            for name in ["x-http-method-override", "x-http-method", "x-method-override"] {
                let mut headers = usual_headers();
                headers.insert(name, HeaderValue::from_static("POST"));
                let path = format!("{path}?_method=POST");
                let sent = send(&world, method, &path, headers, gated_call()).await;
                assert_eq!(
                    (sent.status, sent.headers["allow"].to_str().unwrap()),
                    (405, "POST"),
                    "{method} {path}"
                );
            }
        }
    }
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn g06_a_prefixed_name_means_one_upstream_and_one_tool() {
    let world = World::start().await;
    let mut agent = world.agent(BOT_KEY);
    agent.url = format!("http://{}/mcp", world.replicas[0].agents());
    assert_eq!(agent.call("shop__refund_order", refund()).await.code(), "approval_pending");
    for unknown in ["refund_order", "shop_refund_order", "_shop__refund_order", "shop___refund_order"] {
        let answer = agent.call(unknown, refund()).await;
        let refused = answer.0["error"]["code"] == -32602 || answer.code() == "not_allowed";
        assert!(refused, "{unknown}: {}", answer.0);
    }
    let names: Vec<_> = agent.list().await.iter().map(|tool| tool["name"].clone()).collect();
    assert!(names.contains(&json!("shop__refund_order")) && names.contains(&json!("undersign_approval")));
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn g09_a_tool_that_no_rule_names_is_not_allowed_and_not_listed() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    let listed: Vec<_> = agent.list().await.iter().map(|tool| tool["name"].clone()).collect();
    assert!(listed.contains(&json!("refund_order")));
    for definition in ["no_such_tool", "undersign"] {
        assert!(!listed.contains(&json!(definition)));
        let answer = agent.call(definition, json!({})).await;
        assert!(answer.0["error"]["code"] == -32602 || answer.code() == "not_allowed", "{}", answer.0);
    }
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn g10_another_host_or_origin_is_403() {
    let world = World::start().await;
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        let sent = post(&world, with("origin", origin)).await;
        assert_eq!(sent.status, 403, "{origin}");
        assert!(sent.headers.keys().all(|name| !name.as_str().starts_with("access-control-")));
    }
    for (one, two) in [("http://evil.example", "http://127.0.0.1"), ("http://127.0.0.1", "http://127.0.0.1")]
    {
        let mut twice = with("origin", one);
        twice.append("origin", HeaderValue::from_str(two).unwrap());
        assert_eq!(post(&world, twice).await.status, 403);
    }
    // The question of a browser that comes before: no header of the answer allows anything.
    let mut preflight = with("origin", "http://evil.example");
    preflight.insert("access-control-request-method", HeaderValue::from_static("POST"));
    preflight.remove("authorization");
    let sent = send(&world, "OPTIONS", "/mcp", preflight, String::new()).await;
    assert_eq!(sent.status, 403);
    assert!(sent.headers.keys().all(|name| !name.as_str().starts_with("access-control-")));
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example"] {
        assert_eq!(post(&world, with("host", host)).await.status, 403, "{host}");
    }
    // Before anything else: neither a key nor a body is needed to be told so, and the body is not waited for.
    let address = world.replicas[0].agents();
    for head in [
        "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n".to_owned(),
        format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\nHost: evil.example\r\n"),
        format!("POST http://evil.example/mcp HTTP/1.1\r\nHost: {address}\r\n"),
        "POST /mcp HTTP/1.0\r\n".to_owned(),
        format!("POST /mcp HTTP/1.1\r\nHost: {address}\r\nOrigin: null\r\n"),
    ] {
        let mut wire = Wire::connect(address).await;
        wire.send(format!("{head}Content-Length: 1000000\r\n\r\n")).await;
        assert_eq!(wire.answer().await.unwrap().status, 403, "{head}");
    }
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn g10_a_listed_origin_may_ask_and_is_still_told_nothing_of_cors() {
    let mut world = World::prepare(harness::RULES).await;
    let listed =
        "allowed_origins = [\"https://app.example\"]\nallowed_hosts = [\"gate.example\"]\n[database]";
    world.write("undersign.toml", &world.config().replace("[database]", listed));
    world.add_replica().await;
    let mut allowed = with("origin", "https://app.example");
    allowed.insert("host", HeaderValue::from_static("gate.example"));
    let sent = post(&world, allowed).await;
    assert_eq!(sent.code(), "approval_pending");
    assert!(sent.headers.keys().all(|name| !name.as_str().starts_with("access-control-")));
    for origin in ["http://app.example", "https://app.example:444", "https://app.example.evil.example"] {
        assert_eq!(post(&world, with("origin", origin)).await.status, 403, "{origin}");
    }
    world.finish().await;
}

#[tokio::test]
async fn g11_a_session_id_is_nothing() {
    let world = World::start().await;
    let mut nobody = with("mcp-session-id", "1");
    nobody.remove("authorization");
    assert_eq!(post(&world, nobody).await.status, 401);
    let sent = post(&world, with("mcp-session-id", "1")).await;
    assert_eq!(sent.code(), "approval_pending");
    assert!(sent.headers.get("mcp-session-id").is_none());
    let action =
        sent.body["result"]["_meta"]["dev.undersign/approval"]["action_id"].as_str().unwrap().to_owned();
    assert_eq!(world.agent(OTHER_KEY).approval(&action, 0).await.code(), "not_found");
    world.finish().await;
}

#[tokio::test]
async fn g12_only_a_known_key_is_let_in_and_it_goes_no_further() {
    let world = World::start().await;
    // A token that some parser would take for one without a signature.
    let unsigned = "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJzdXBwb3J0LWJvdCIsImF1ZCI6InVuZGVyc2lnbiJ9.";
    for value in
        ["Bearer x", "Bearer ", "Bearer", "Basic x", BOT_KEY, &format!("Bearer {BOT_KEY}x"), unsigned]
    {
        let sent = post(&world, with("authorization", value)).await;
        assert_eq!(sent.status, 401, "{value}");
        assert_eq!(sent.headers["www-authenticate"], "Bearer");
    }
    let read = world.agent(BOT_KEY).call("list_orders", json!({})).await;
    assert_eq!(read.code(), "upstream", "{}", read.0);
    let call = world.shop.ledger().pop().unwrap();
    assert!(
        call.headers
            .values()
            .all(|value| !value.as_bytes().windows(8).any(|part| part == &BOT_KEY.as_bytes()[..8]))
    );
    assert!(call.meta.keys().all(|key| !key.starts_with("dev.undersign/")));
    // A key opens its own tenant: of another's it finds nothing.
    let action = world.agent(BOT_KEY).call("refund_order", refund()).await.action_id();
    assert_eq!(world.agent(GLOBEX_KEY).approval(&action, 0).await.code(), "not_found");
    world.finish().await;
}

#[tokio::test]
async fn g13_answers_never_cross() {
    let world = World::start().await;
    let agents = [
        world.agent(BOT_KEY),
        world.agent(OTHER_KEY).legacy(),
        world.agent(GLOBEX_KEY),
        world.agent(BOT_KEY).legacy(),
    ];
    // A hundred clients with ten calls each, each call with a marker of its own: asked, gated, refused.
    let crossed = at_once(100, move |client| {
        let agent = agents[client % 4].clone();
        async move {
            for round in 0..10 {
                let marker = format!("order-{client}-{round}.");
                let answer = match round % 3 {
                    0 => agent.call("get_order", json!({ "order_id": marker })).await,
                    1 => agent.call(&format!("no-tool-{marker}"), json!({})).await,
                    _ => agent.approval(&marker, 0).await,
                };
                let text = answer.0.to_string();
                let markers = text.matches("order-").count();
                let own = text.matches(&marker).count();
                if markers != own || (round % 3 == 0 && own == 0) {
                    return Some(text);
                }
            }
            None
        }
    })
    .await;
    assert!(crossed.iter().all(Option::is_none), "an answer with another's marker: {crossed:?}");
    world.finish().await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_413_and_one_that_is_no_message_400() {
    let world = World::start().await;
    let huge = format!("{}{}", gated_call(), " ".repeat(1024 * 1024));
    assert_eq!(send(&world, "POST", "/mcp/shop", usual_headers(), huge).await.status, 413);
    for body in
        [r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#]
    {
        let sent = send(&world, "POST", "/mcp/shop", usual_headers(), body.to_owned()).await;
        assert_eq!((sent.status, sent.error()), (400, &json!(-32600)), "{body}");
    }
    world.finish().await;
}

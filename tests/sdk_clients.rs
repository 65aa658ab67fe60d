//! Agents with the official SDKs of other languages: what they list, and what they are told about a call that is allowed
//! and one that needs approval. `refund_order` has an output schema, which makes some of them choosy about results.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::process::Stdio;

use harness::{BOT_KEY, World};
use serde_json::{Value, json};

fn installed(variable: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = ".ci/conformance hands the SDKs over this way")]
    let installed = std::env::var(variable);
    installed.unwrap_or_else(|_| panic!("{variable}: run .ci/conformance, which installs the SDKs"))
}

/// Runs a client, which gets address and key as its last arguments, and looks at what it saw.
async fn smoke(program: &str, arguments: &[&str]) {
    let world = World::start().await;
    let url = format!("http://{}/mcp/shop", world.replicas[0].agents());
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .args([&url, BOT_KEY])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    for tool in ["undersign_approval", "undersign_cancel", "get_order", "refund_order"] {
        assert!(seen["tools"].as_array().unwrap().contains(&json!(tool)), "{seen}");
    }
    assert_eq!(seen["allowed"]["isError"], false, "{seen}");
    assert!(seen["allowed"]["text"].as_str().unwrap().contains("A-17"), "{seen}");
    assert_eq!(seen["gated"]["isError"], true, "{seen}");
    assert!(seen["gated"]["text"].as_str().unwrap().starts_with("APPROVAL_PENDING: not executed."), "{seen}");
    assert_eq!(world.shop.ledger().len(), 1);
    world.finish().await;
}

async fn typescript(version: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk_clients/client.mjs");
    smoke("node", &[script, &installed("UNDERSIGN_NODE_PACKAGES"), version]).await;
}

async fn python(mode: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk_clients/client.py");
    smoke(&installed("UNDERSIGN_PYTHON"), &[script, mode]).await;
}

#[tokio::test]
#[ignore = "needs Node and the TypeScript SDK; .ci/conformance runs it"]
async fn typescript_v1() {
    typescript("v1").await;
}

#[tokio::test]
#[ignore = "needs Node and the TypeScript SDK; .ci/conformance runs it"]
async fn typescript_v2() {
    typescript("v2").await;
}

#[tokio::test]
#[ignore = "needs the Python SDK; .ci/conformance runs it"]
async fn python_modern() {
    python("auto").await;
}

#[tokio::test]
#[ignore = "needs the Python SDK; .ci/conformance runs it"]
async fn python_legacy() {
    python("legacy").await;
}

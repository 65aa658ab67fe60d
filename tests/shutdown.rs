//! How the process ends: told once it finishes what is under way, told twice it drops it.

mod harness;

use std::time::Duration;

use harness::process::Process;
use harness::wire::Wire;
use harness::{BEN, BOT_KEY, World, refund};
use serde_json::json;
use undersign::demo::gate::Gate;
use undersign::demo::shop::Behaviour;

/// A world whose program is a process of its own.
async fn world() -> (World, Process) {
    let world = World::prepare(harness::RULES).await;
    let process = Process::start(&world, &[]);
    (world, process)
}

fn call(process: &Process, tool: &str, arguments: &serde_json::Value) -> String {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}})
    .to_string();
    format!(
        "POST /mcp/shop HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {BOT_KEY}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\n\
         Content-Length: {}\r\n\r\n{body}",
        process.agents,
        body.len()
    )
}

async fn ready(wire: &mut Wire) -> Option<u16> {
    wire.send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    wire.answer().await.map(|said| said.status)
}

#[tokio::test]
async fn sigterm_finishes_what_is_under_way_and_exits_0() {
    let (world, mut process) = world().await;
    // One call that its upstream holds, and one agent that waits for a decision.
    let gate = Gate::new();
    world.shop.script("list_orders", Behaviour::HangBefore(gate.clone()));
    let mut held = Wire::connect(process.agents).await;
    held.send(call(&process, "list_orders", &json!({}))).await;
    world.shop.wait_calls(1).await;
    let mut waiting = Wire::connect(process.agents).await;
    waiting.send(call(&process, "refund_order", &refund())).await;
    let parked = waiting.answer().await.unwrap();
    let parked: serde_json::Value = serde_json::from_str(&parked.body).unwrap();
    let action =
        parked["result"]["_meta"]["dev.undersign/approval"]["action_id"].as_str().unwrap().to_owned();
    waiting
        .send(call(&process, "undersign_approval", &json!({"action_id": action, "wait_seconds": 50})))
        .await;
    let mut probe = Wire::connect(process.admin).await;
    assert_eq!(ready(&mut probe).await, Some(200));

    process.signal("TERM");
    // At once: who waits is answered, and who asks is told to go elsewhere.
    let told = waiting.answer().await.unwrap();
    assert!(told.body.contains("approval_pending"), "{}", told.body);
    assert_eq!(ready(&mut probe).await, Some(503));
    // Then nobody new is let in, and the listener of operators goes with the others.
    while tokio::net::TcpStream::connect(process.agents).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gate.open();
    let answered = held.answer().await.unwrap();
    assert!(answered.status == 200 && answered.body.contains("A-17"), "{}", answered.body);
    assert_eq!(answered.header("connection"), Some("close"));
    assert_eq!(process.ended().await, Some(0));
    assert_eq!(world.state(&action).await, "pending");
    world.finish().await;
}

#[tokio::test]
async fn a_second_sigterm_drops_what_is_under_way() {
    let (world, mut process) = world().await;
    let gate = Gate::new();
    world.shop.script("list_orders", Behaviour::HangBefore(gate.clone()));
    let mut held = Wire::connect(process.agents).await;
    held.send(call(&process, "list_orders", &json!({}))).await;
    world.shop.wait_calls(1).await;
    process.signal("TERM");
    while tokio::net::TcpStream::connect(process.agents).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process.signal("TERM");
    assert_eq!(held.answer().await, None);
    // Something was dropped, and the exit code says so.
    assert_eq!(process.ended().await, Some(1));
    gate.open();
    world.finish().await;
}

/// Too few file descriptors: connections are refused for a while, and the listener goes on.
#[tokio::test]
async fn running_out_of_descriptors_does_not_end_a_listener() {
    let world = World::prepare(harness::RULES).await;
    let mut process = Process::start(&world, &["sh", "-c", "ulimit -n 60; exec \"$0\" \"$@\""]);
    let mut crowd = Vec::new();
    for _ in 0..200 {
        // The kernel takes them whether they are accepted or not.
        crowd.push(tokio::net::TcpStream::connect(process.callbacks).await.unwrap());
    }
    while !world.read("stderr").contains("could not be accepted") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(crowd);
    let mut wire = Wire::connect(process.agents).await;
    wire.send(call(&process, "refund_order", &refund())).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let card = world.card().await;
    let payload = world.slack.click_payload(BEN, &card.channel, &card.ts, "undersign_approve").unwrap();
    let request = world.slack.sign(&payload, harness::now());
    let url = format!("http://{}/callbacks/slack/main", process.callbacks);
    assert_eq!(world.slack.send(&url, request).await.unwrap().as_u16(), 200);
    process.signal("TERM");
    assert_eq!(process.ended().await, Some(0));
    world.finish().await;
}

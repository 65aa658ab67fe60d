//! What a hostile network sends (THREATS.md group N): too much, too slowly, too many, and nothing signed.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use harness::wire::{Said, Wire};
use harness::{BEN, BOT_KEY, World, at_once, now};
use serde_json::json;
use tokio::task::JoinHandle;
use undersign::http::server::{self, Caps, Serving, Stop, Timeouts};
use undersign::http::{Rate, Rates, Tuning};

/// The head of a POST to the agents' listener with a key that is known; the caller adds what tells of the body.
fn agent_head(address: SocketAddr) -> String {
    format!(
        "POST /mcp/shop HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {BOT_KEY}\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2025-11-25\r\n"
    )
}

fn slack_head(address: SocketAddr) -> String {
    format!("POST /callbacks/slack/main HTTP/1.1\r\nHost: {address}\r\n")
}

/// The most that this process has held in memory so far, in MiB: the service, the fakes and the test itself.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Sends a head and chunks for as long as the peer takes them; its answer.
async fn chunked(address: SocketAddr, head: &str, chunks: usize) -> Option<Said> {
    let mut wire = Wire::connect(address).await;
    wire.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n")).await;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..chunks {
        if !wire.send(&chunk).await {
            break;
        }
    }
    wire.answer().await
}

#[tokio::test]
async fn n01_a_body_beyond_the_limit_is_413_however_it_is_declared() {
    let world = World::start().await;
    let (agents, callbacks) = (world.replicas[0].agents(), world.replicas[0].callbacks());
    let places = [(agents, agent_head(agents), 1024 * 1024), (callbacks, slack_head(callbacks), 256 * 1024)];
    for (address, head, limit) in &places {
        // Refused by what it declares, before a byte of it has come.
        for length in [limit + 1, 10 * limit, 1 << 30, usize::MAX >> 1] {
            let mut wire = Wire::connect(*address).await;
            wire.send(format!("{head}Content-Length: {length}\r\n\r\n")).await;
            assert_eq!(wire.answer().await.unwrap().status, 413, "{length}");
            wire.closed().await;
        }
        // Nothing declared: refused when the limit is passed, and nobody reads a gigabyte.
        assert_eq!(chunked(*address, head, limit / 0x10000 + 1).await.unwrap().status, 413);
        let refused = chunked(*address, head, 1 << 14).await;
        assert!(refused.is_none_or(|said| said.status == 413));
        // More than declared: what is left over is no request.
        let mut wire = Wire::connect(*address).await;
        wire.send(format!("{head}Content-Length: 2\r\n\r\n{{}}garbage\r\n\r\n")).await;
        assert!(matches!(wire.answer().await.unwrap().status, 400 | 401));
        assert_eq!(wire.answer().await.unwrap().status, 400);
        wire.closed().await;
        // Less than declared, and gone.
        let mut wire = Wire::connect(*address).await;
        wire.send(format!("{head}Content-Length: 100\r\n\r\n{{}}")).await;
        tokio::io::AsyncWriteExt::shutdown(&mut wire.stream).await.unwrap();
        assert!(wire.answer().await.is_none_or(|said| said.status == 400));
        // Lengths that readers understand differently.
        for lengths in [
            "Content-Length: 2\r\nContent-Length: 3\r\n",
            "Content-Length: +2\r\n",
            "Content-Length: 2, 2x\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length: -1\r\n",
            "Transfer-Encoding: chunked, gzip\r\n",
        ] {
            let mut wire = Wire::connect(*address).await;
            wire.send(format!("{head}{lengths}\r\n{{}}")).await;
            assert_eq!(wire.answer().await.unwrap().status, 400, "{lengths}");
            wire.closed().await;
        }
    }
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

/// Each is just below the limit and never ends: what is held of all together stays bounded.
#[tokio::test]
async fn n01_many_large_bodies_share_a_budget() {
    let timeouts = Timeouts { body: Duration::from_secs(3), ..Timeouts::default() };
    let world = World::with_tuning(Tuning { timeouts, ..Tuning::default() }).await;
    let (agents, callbacks) = (world.replicas[0].agents(), world.replicas[0].callbacks());
    let places = [(agents, agent_head(agents), 1024 * 1024), (callbacks, slack_head(callbacks), 256 * 1024)];
    for (address, head, limit) in places {
        let statuses = at_once(400, move |_| {
            let head = head.clone();
            async move {
                let mut wire = Wire::connect(address).await;
                wire.send(format!("{head}Content-Length: {limit}\r\n\r\n")).await;
                for _ in 0..limit / 1024 - 1 {
                    // One that has no seat stays in the kernel's buffers until it is cut.
                    if !wire.send([b' '; 1024]).await {
                        break;
                    }
                }
                wire.answer().await.map(|said| said.status)
            }
        })
        .await;
        assert!(statuses.iter().all(|status| status.is_none_or(|status| status == 408)));
    }
    let peak = peak_mib();
    assert!(peak < 256, "{peak} MiB");
    world.finish().await;
}

/// Whoever proves nothing and sends slowly takes no seat of an agent's large call.
#[tokio::test]
async fn slow_bodies_of_callbacks_hold_up_no_call_of_an_agent() {
    let timeouts = Timeouts { body: PATIENT, ..Timeouts::default() };
    let world = World::with_tuning(Tuning { timeouts, ..Tuning::default() }).await;
    let callbacks = world.replicas[0].callbacks();
    let head = slack_head(callbacks);
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut wire = Wire::connect(callbacks).await;
        assert!(wire.send(format!("{head}Content-Length: 60000\r\n\r\n{}", " ".repeat(34_000))).await);
        slow.push(wire);
    }
    let large = json!({"order_id": "A-17", "amount_cents": 12_000, "note": "x".repeat(60_000)});
    let answer = world.agent(BOT_KEY).call("refund_order", large).await;
    assert_eq!(answer.code(), "too_large_to_preview", "{}", answer.text());
    drop(slow);
    world.finish().await;
}

#[tokio::test]
async fn n02_a_body_that_would_cost_much_is_refused_where_it_begins_to() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY).legacy();
    for depth in [65, 1_000, 100_000] {
        let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(depth), "]".repeat(depth));
        let (status, answer) = agent.call_raw("refund_order", &deep).await;
        assert_eq!(
            (status, &answer.0["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!(-32600)),
            "{depth}"
        );
        // The scan ends at the first bracket too many: the rest costs nothing.
        let message = answer.0["error"]["message"].as_str().unwrap();
        let at: usize = message.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(message.contains("64 levels") && at < 300, "{message}");
    }
    // More than a body may hold: refused by its length, unread.
    let keys: Vec<String> = (0..1_000_000).map(|key| format!(r#""{key}":0"#)).collect();
    for huge in [
        format!("{{{}}}", keys.join(",")),
        format!(r#"{{"x":{}}}"#, "1".repeat(10_000_000)),
        format!(r#"{{"{}":1}}"#, "k".repeat(1024 * 1024)),
    ] {
        let (status, _) = agent.call_raw("refund_order", &huge).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
    // The most that a body may hold of each: read once, and refused as arguments.
    for large in [
        format!("{{{}}}", keys[..80_000].join(",")),
        format!(r#"{{"x":{}}}"#, "1".repeat(1_000_000)),
        format!(r#"{{"{}":1}}"#, "k".repeat(1_000_000)),
    ] {
        let (status, answer) = agent.call_raw("refund_order", &large).await;
        let code = answer.code();
        let refused =
            ["too_large_to_preview", "unsupported_value", "invalid_arguments"].contains(&code.as_str());
        assert!(status.is_client_error() || refused, "{status} {code}");
    }
    let parked: i64 = sqlx::query_scalar("SELECT count(*) FROM actions").fetch_one(&world.db).await.unwrap();
    assert_eq!(parked, 0);
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

/// A server of ours on a port of its own, with a router of the test's.
struct Server {
    address: SocketAddr,
    stop: Stop,
    serving: JoinHandle<()>,
}

fn serve(router: Router, timeouts: Timeouts, caps: Caps, proxies: &[&str]) -> Server {
    let listener = server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = Stop::default();
    let networks = proxies.iter().map(|network| network.parse().unwrap()).collect();
    let proxies = Arc::new(undersign::http::TrustedProxies::new(networks));
    let serving = Serving { timeouts, caps, request: None, proxies };
    let serving = tokio::spawn(server::serve(listener, router, serving, stop.clone()));
    Server { address, stop, serving }
}

/// Everything short, for peers that get no further; a step that is not meant stays long.
const PATIENT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);

fn patient() -> Timeouts {
    Timeouts { header: PATIENT, body: PATIENT, idle: PATIENT, write: PATIENT }
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

#[tokio::test]
async fn n03_slow_headers_are_cut() {
    let server = serve(hello(), Timeouts { header: SHORT, ..patient() }, Caps::default(), &[]);
    // Nothing; a beginning; a byte now and then; a beginning of HTTP/2; the same behind an answered request.
    for start in [
        "",
        "G",
        "GET / HTTP/1.1\r\nHost: x\r\n",
        "PRI * HTTP/2.0\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\r\nGE",
    ] {
        let mut wire = Wire::connect(server.address).await;
        wire.send(start).await;
        if start.ends_with("GE") {
            assert_eq!(wire.answer().await.unwrap().status, 200);
            wire.send("T").await;
        }
        wire.closed().await;
    }
    let mut trickle = Wire::connect(server.address).await;
    while trickle.send("X").await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A connection that says nothing between two requests is not slow.
    let mut idle = Wire::connect(server.address).await;
    for _ in 0..3 {
        idle.send(GET).await;
        assert_eq!(idle.answer().await.unwrap().body, "hello");
        tokio::time::sleep(2 * SHORT).await;
    }
    // Nor is a request that is held.
    let held = Router::new().route("/", get(|| async { tokio::time::sleep(3 * SHORT).await }));
    let server = serve(held, Timeouts { header: SHORT, idle: SHORT, ..patient() }, Caps::default(), &[]);
    let mut wire = Wire::connect(server.address).await;
    wire.send(GET).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
    wire.closed().await;
}

#[tokio::test]
async fn n03_slow_bodies_are_cut() {
    let timeouts = Timeouts { body: SHORT, ..patient() };
    let world = World::with_tuning(Tuning { timeouts, ..Tuning::default() }).await;
    let (agents, callbacks) = (world.replicas[0].agents(), world.replicas[0].callbacks());
    for (address, head) in [(agents, agent_head(agents)), (callbacks, slack_head(callbacks))] {
        // Nothing more, and a byte now and then.
        let mut wire = Wire::connect(address).await;
        wire.send(format!("{head}Content-Length: 1000\r\n\r\n{{")).await;
        assert_eq!(wire.answer().await.unwrap().status, 408);
        wire.closed().await;
        let mut wire = Wire::connect(address).await;
        wire.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n")).await;
        while wire.send("1\r\n \r\n").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    // Whoever has no key is not waited for.
    let mut wire = Wire::connect(agents).await;
    let head = agent_head(agents).replace(BOT_KEY, "wrong");
    wire.send(format!("{head}Content-Length: 1000\r\n\r\n{{")).await;
    assert_eq!(wire.answer().await.unwrap().status, 401);
    world.finish().await;
}

#[tokio::test]
async fn n03_slow_readers_and_idle_connections_are_cut() {
    // A body that never ends, as an answer: its producer is dropped when the reader is.
    let produced = Arc::new(AtomicUsize::new(0));
    let count = produced.clone();
    let endless = Router::new().route(
        "/",
        get(move || async move {
            axum::body::Body::from_stream(futures_util::stream::repeat_with(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok::<_, std::io::Error>(bytes::Bytes::from_static(&[b' '; 16 * 1024]))
            }))
        }),
    );
    let server = serve(endless, Timeouts { write: SHORT, ..patient() }, Caps::default(), &[]);
    let mut deaf = Wire::connect(server.address).await;
    deaf.send(GET).await;
    // The peer has not read a byte; the connection is gone all the same, so that a stop has nothing to wait for.
    while produced.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.stop.soft.cancel();
    server.serving.await.unwrap();
    assert!(produced.load(Ordering::Relaxed) < 4_096, "no more is produced than fits");

    let server = serve(hello(), Timeouts { idle: SHORT, ..patient() }, Caps::default(), &[]);
    let mut idle = Wire::connect(server.address).await;
    idle.send(GET).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    idle.closed().await;
}

#[tokio::test]
async fn n03_connections_are_capped_and_come_back() {
    let caps = Caps { of_peer: 20, total: 30 };
    let server = serve(hello(), patient(), caps, &[]);
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut wire = Wire::connect(server.address).await;
        wire.send(GET).await;
        assert_eq!(wire.answer().await.unwrap().status, 200);
        held.push(wire);
    }
    Wire::connect(server.address).await.closed().await;
    // Those that are there go on, and one that ends makes room.
    held[0].send(GET).await;
    assert_eq!(held[0].answer().await.unwrap().status, 200);
    held.pop();
    loop {
        let mut wire = Wire::connect(server.address).await;
        wire.send(GET).await;
        if wire.answer().await.is_some() {
            break;
        }
    }
    // A proxy speaks for many: only the total counts for it.
    let server = serve(hello(), patient(), caps, &["127.0.0.0/8"]);
    let mut held = Vec::new();
    for _ in 0..30 {
        let mut wire = Wire::connect(server.address).await;
        wire.send(GET).await;
        assert_eq!(wire.answer().await.unwrap().status, 200);
        held.push(wire);
    }
    Wire::connect(server.address).await.closed().await;
}

#[tokio::test]
async fn n03_calls_are_answered_beside_five_thousand_dead_connections() {
    let world = World::start().await;
    let address = world.replicas[0].agents();
    let dead = at_once(50, move |_| async move {
        let mut wires = Vec::new();
        for index in 0..100 {
            // One beyond the cap is closed at once; either way it is no longer our concern.
            let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { continue };
            let start: &[u8] = if index % 2 == 0 { b"POST /mcp HTTP/1.1\r\n" } else { b"" };
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, start).await;
            wires.push(stream);
        }
        wires
    });
    let calls = async {
        // From another address, as this one has used up its own cap.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut wire = Wire::over(socket.connect(address).await.unwrap());
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
        for _ in 0..50 {
            let head = agent_head(address);
            wire.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
            assert_eq!(wire.answer().await.unwrap().status, 200);
        }
    };
    let (dead, ()) = tokio::join!(dead, calls);
    assert!(dead.iter().map(Vec::len).sum::<usize>() > 4_000);
    assert!(peak_mib() < 256);
    drop(dead);
    world.finish().await;
}

/// Rates that a test meets however slow the machine is: the next request is an hour away.
fn tight() -> Tuning {
    let hour = Duration::from_secs(3_600);
    let rates =
        Rates { unproven: Rate { interval: hour, burst: 100 }, agent: Rate { interval: hour, burst: 200 } };
    Tuning { rates, ..Tuning::default() }
}

#[tokio::test]
async fn n04_a_flood_without_signatures_reaches_no_table_and_stops_no_click() {
    let world = World::with_tuning(tight()).await;
    let (parked, card) = world.park().await;
    let address = world.replicas[0].callbacks();
    let unsigned = move |head: String| async move {
        let mut statuses = Vec::new();
        let mut wire = Wire::connect(address).await;
        for batch in 0..20 {
            let mut requests = String::new();
            for index in 0..10 {
                let signature = format!("v0={:064x}", batch * 10 + index);
                write!(
                    requests,
                    "{head}X-Slack-Signature: {signature}\r\nX-Slack-Request-Timestamp: {}\r\nContent-Length: 9\r\n\r\npayload=1",
                    now()
)
.unwrap();
            }
            wire.send(requests).await;
            for _ in 0..10 {
                statuses.push(wire.answer().await.unwrap().status);
            }
        }
        statuses
    };
    let flood = move || at_once(8, move |_| unsigned(slack_head(address)));
    // There is no database now: whoever asked it anything would have another answer.
    let mut own = world.db.acquire().await.unwrap();
    let allow = async |own: &mut sqlx::PgConnection, allow: bool| {
        // `ALTER DATABASE` refuses this from inside.
        sqlx::query("UPDATE pg_database SET datallowconn = $1 WHERE datname = current_database()")
            .bind(allow)
            .execute(own)
            .await
            .unwrap();
    };
    allow(&mut own, false).await;
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .execute(&mut *own)
    .await
    .unwrap();
    let statuses = flood().await.concat();
    assert!(statuses.iter().all(|status| [401, 429].contains(status)));
    assert!(statuses.contains(&401), "the first are told what is wrong");
    assert!(statuses.contains(&429), "and those beyond the rate to wait");
    // A signed click does ask, and can't be taken.
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::SERVICE_UNAVAILABLE);
    allow(&mut own, true).await;
    drop(own);
    // A click in the middle of a flood, from the very address that floods.
    let flooding = tokio::spawn(flood());
    // The pool has to find its way back first.
    while world.press(BEN, &card, "undersign_approve").await != StatusCode::OK {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "approval_granted");
    flooding.await.unwrap();
    world.finish().await;
}

#[tokio::test]
async fn too_many_wrong_keys_are_429_and_a_right_key_is_not() {
    let world = World::with_tuning(tight()).await;
    let address = world.replicas[0].agents();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let request = |key: &str, more: &str| {
        let head = agent_head(address).replace(BOT_KEY, key);
        format!("{head}{more}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let mut wire = Wire::connect(address).await;
    for index in 0..101 {
        // It says where it comes from, which is a proxy's business alone.
        wire.send(request("wrong", &format!("X-Forwarded-For: 198.51.100.{index}\r\n"))).await;
        let said = wire.answer().await.unwrap();
        if index < 100 {
            assert_eq!(said.status, 401);
            continue;
        }
        assert_eq!((said.status, said.body.as_str()), (429, "too many requests"));
        assert!(said.header("retry-after").unwrap().parse::<u64>().unwrap() > 3_000);
    }
    wire.send(request(BOT_KEY, "")).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
    world.finish().await;
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_that_is_counted() {
    let mut world = World::prepare(harness::RULES).await;
    let config = world.config().replace("[database]", "trusted_proxies = [\"127.0.0.0/8\"]\n[database]");
    world.write("undersign.toml", &config);
    world.add_replica_with(tight()).await;
    let mut wire = Wire::connect(world.replicas[0].agents()).await;
    let head = agent_head(world.replicas[0].agents()).replace(BOT_KEY, "wrong");
    for (client, status) in [("198.51.100.1", 401), ("198.51.100.1", 429), ("198.51.100.2", 401)] {
        for round in 0..100 {
            // What the client itself wrote in front of its address counts for nothing.
            let hops = format!("10.0.0.{round}, {client}, 127.0.0.3");
            wire.send(format!("{head}X-Forwarded-For: {hops}\r\n\r\n")).await;
            assert_eq!(wire.answer().await.unwrap().status, status, "{client}");
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn an_agent_that_runs_wild_is_429_and_another_is_not() {
    let world = World::with_tuning(tight()).await;
    let mut wire = Wire::connect(world.replicas[0].agents()).await;
    for index in 0..210 {
        // Not even a POST: counted like every other request of this agent.
        wire.send(agent_head(world.replicas[0].agents()).replace("POST", "GET") + "\r\n").await;
        let said = wire.answer().await.unwrap();
        assert_eq!(said.status, if index < 200 { 405 } else { 429 }, "{index}");
    }
    let again = agent_head(world.replicas[0].agents()) + "Content-Length: 2\r\n\r\n{}";
    wire.send(again).await;
    assert_eq!(wire.answer().await.unwrap().status, 429);
    let other = world.agent(harness::OTHER_KEY).call("list_orders", json!({})).await;
    assert_eq!(other.code(), "upstream");
    world.finish().await;
}

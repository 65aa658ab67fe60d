//! The official MCP conformance suite against `/mcp/<upstream>`, for both revisions of the protocol. What is expected to
//! fail is listed in `tests/conformance/<revision>.yml`, with the reason; the suite also fails when a listed scenario
//! passes.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

#[path = "conformance/fixture.rs"]
mod fixture;
mod harness;

use std::net::SocketAddr;
use std::process::Stdio;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use harness::{BOT_KEY, PEOPLE, World};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;

/// Names the suite's command.
const SUITE: &str = "UNDERSIGN_CONFORMANCE_SUITE";

/// What passes through unasked is what is measured.
const RULES: &str = "[[rules]]\nname = \"conformance\"\ntools = [\"conf/*\"]\ndecision = \"allow\"\n";

/// Adds the agent's key to what the suite sends, which has no option for it, and leaves everything else as it is.
#[derive(Clone)]
struct Proxy {
    to: SocketAddr,
    client: Client<HttpConnector, Body>,
}

async fn forward(State(proxy): State<Proxy>, mut request: Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("http://{}{path}", proxy.to).parse().unwrap();
    let key = HeaderValue::try_from(format!("Bearer {BOT_KEY}")).unwrap();
    request.headers_mut().insert(AUTHORIZATION, key);
    match proxy.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn serve(listener: TcpListener, router: Router) {
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
}

/// A world with the fixture as an upstream, behind the proxy; the address of the proxy.
async fn start() -> (World, SocketAddr) {
    let mut world = World::prepare(harness::RULES).await;
    world.write("policy/acme/team.toml", &format!("{RULES}{PEOPLE}"));
    let (upstream, upstream_address) = listen().await;
    serve(upstream, fixture::router());
    let (front, front_address) = listen().await;
    // The suite's own origin is the address that it was told.
    let origins = format!("[server]\nallowed_origins = [\"http://{front_address}\"]\n");
    world.write("undersign.toml", &world.read("undersign.toml").replace("[server]\n", &origins));
    world.add_upstream("conf", &format!("http://{upstream_address}/mcp"));
    world.add_replica().await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let proxy = Proxy { to: world.replicas[0].agents(), client };
    serve(front, Router::new().fallback(forward).with_state(proxy));
    (world, front_address)
}

async fn run(revision: &str) {
    #[expect(clippy::disallowed_methods, reason = ".ci/conformance hands the suite over this way")]
    let suite =
        std::env::var(SUITE).unwrap_or_else(|_| panic!("{SUITE}: run .ci/conformance, which installs it"));
    let (world, front) = start().await;
    let root = env!("CARGO_MANIFEST_DIR");
    let results = concat!(env!("CARGO_TARGET_TMPDIR"), "/conformance/").to_owned() + revision;
    let output = tokio::process::Command::new(suite)
        .args(["server", "--url", &format!("http://{front}/mcp/conf"), "--requirements", revision])
        .args(["--timeout", "10000", "-o", &results])
        .args(["--expected-failures", &format!("{root}/tests/conformance/{revision}.yml")])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    // The figures, for whoever runs this with --nocapture.
    println!("{said}");
    world.finish().await;
}

#[tokio::test]
#[ignore = "needs Node and the MCP conformance suite; .ci/conformance runs it"]
async fn revision_2026_07_28() {
    run("2026-07-28").await;
}

#[tokio::test]
#[ignore = "needs Node and the MCP conformance suite; .ci/conformance runs it"]
async fn revision_2025_11_25() {
    run("2025-11-25").await;
}

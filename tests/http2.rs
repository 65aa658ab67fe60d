//! HTTP/2 against the agents' listener and the server behind it: what one connection can make us hold or do
//! (THREATS.md N05). Frames are written by hand.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{Method, Request};
use axum::routing::any;
use bytes::Bytes;
use harness::{BOT_KEY, World};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use undersign::http::TrustedProxies;
use undersign::http::server::{self, Caps, Serving, Stop, Timeouts};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `GET http://x/`: three entries of the static table, and the authority as a literal that is not remembered.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'x'];

/// Counts the requests that reached it and how many were there at once, and lets them go when told.
struct Counter {
    begun: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
    gate: Semaphore,
}

struct Present(Arc<Counter>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(open: bool) -> (SocketAddr, Arc<Counter>) {
    let gate = Semaphore::new(if open { Semaphore::MAX_PERMITS } else { 0 });
    let counter = Arc::new(Counter {
        begun: AtomicUsize::new(0),
        now: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        gate,
    });
    let shared = counter.clone();
    let router = Router::new().fallback(any(move || {
        let counter = shared.clone();
        async move {
            counter.begun.fetch_add(1, Ordering::SeqCst);
            let now = counter.now.fetch_add(1, Ordering::SeqCst) + 1;
            counter.most.fetch_max(now, Ordering::SeqCst);
            let here = Present(counter);
            here.0.gate.acquire().await.unwrap().forget();
        }
    }));
    let listener = server::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let proxies = Arc::new(TrustedProxies::default());
    let serving = Serving { timeouts: Timeouts::default(), caps: Caps::default(), request: None, proxies };
    tokio::spawn(server::serve(listener, router, serving, Stop::default()));
    (address, counter)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

async fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    stream
}

/// The next frame; none when the connection has ended.
async fn next(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head[3], payload))
}

/// Writes for as long as the peer takes it, while everything that it says is read; what it said.
async fn exchange(stream: TcpStream, frames: impl Iterator<Item = Vec<u8>>) -> Vec<(u8, Vec<u8>)> {
    let (mut reading, mut writing) = stream.into_split();
    let said = tokio::spawn(async move {
        let mut said = Vec::new();
        while let Some(frame) = next(&mut reading).await {
            said.push(frame);
        }
        said
    });
    for frame in frames {
        if writing.write_all(&frame).await.is_err() {
            break;
        }
    }
    said.await.unwrap()
}

fn has_gone_away(said: &[(u8, Vec<u8>)]) -> bool {
    said.iter().any(|(kind, _)| *kind == GOAWAY)
}

#[tokio::test]
async fn n05_streams_that_are_reset_at_once_end_the_connection() {
    let (address, counter) = serve(false);
    let stream = connect(address).await;
    let resets = (0..50_000_u32).map(|index| {
        let id = 2 * index + 1;
        let mut both = frame(HEADERS, END_HEADERS | END_STREAM, id, GET);
        both.extend(frame(RST_STREAM, 0, id, &8_u32.to_be_bytes()));
        both
    });
    let said = exchange(stream, resets).await;
    assert!(has_gone_away(&said));
    let begun = counter.begun.load(Ordering::SeqCst);
    assert!(begun < 5_000, "{begun} requests were begun for nobody");
}

#[tokio::test]
async fn n05_a_connection_has_so_many_streams_at_once() {
    let (address, counter) = serve(false);
    let stream = connect(address).await;
    let streams = (0..10_000_u32).map(|index| frame(HEADERS, END_HEADERS | END_STREAM, 2 * index + 1, GET));
    let said = exchange(stream, streams).await;
    let (_, settings) = said.iter().find(|(kind, _)| *kind == SETTINGS).unwrap();
    let streams = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).unwrap();
    let announced = u32::from_be_bytes(streams[2..].try_into().unwrap());
    assert!(announced <= 100, "{announced}");
    assert!(counter.most.load(Ordering::SeqCst) <= announced as usize);
    assert!(has_gone_away(&said), "a peer that goes on is cut");
}

#[tokio::test]
async fn n05_headers_without_an_end_or_that_unfold_are_refused() {
    // Without an end: continuation after continuation.
    let (address, counter) = serve(true);
    let stream = connect(address).await;
    let begin = frame(HEADERS, END_STREAM, 1, GET);
    let more = frame(CONTINUATION, 0, 1, &[&[0x00, 1, b'a', 127, 0][..], &[b'v'; 127]].concat());
    let endless = std::iter::once(begin).chain(std::iter::repeat_n(more, 100_000));
    exchange(stream, endless).await;
    assert_eq!(counter.begun.load(Ordering::SeqCst), 0);

    // Small on the wire: one long field that is remembered, and then named again and again.
    let stream = connect(address).await;
    let mut field = vec![0x40, 1, b'a', 127, 0x81, 0x1e];
    field.extend(vec![b'v'; 127 + 1 + 30 * 128]);
    let bomb = [GET, &field, &vec![0xbe; 4_000]].concat();
    let frames =
        (0..100_u32).map(move |index| frame(HEADERS, END_HEADERS | END_STREAM, 2 * index + 1, &bomb));
    let (mut reading, mut writing) = stream.into_split();
    let writer = tokio::spawn(async move {
        for frame in frames {
            if writing.write_all(&frame).await.is_err() {
                return;
            }
        }
        writing.shutdown().await.unwrap();
    });
    while let Some((kind, payload)) = next(&mut reading).await {
        // 431 by its Huffman code or in plain digits, never an answer of the router's.
        assert!(kind != DATA || payload.is_empty());
    }
    writer.await.unwrap();
    assert_eq!(counter.begun.load(Ordering::SeqCst), 0, "no such request gets through");
}

#[tokio::test]
async fn n05_http_1_has_bounded_headers_too() {
    let (address, counter) = serve(true);
    let many = (0..101).fold(String::new(), |headers, index| headers + &format!("X-{index}: 1\r\n"));
    let long = format!("X-Long: {}\r\n", "v".repeat(64 * 1024));
    for headers in [many, long.clone(), long.repeat(1_000)] {
        let mut wire = harness::wire::Wire::connect(address).await;
        wire.send(format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n")).await;
        assert!(wire.answer().await.is_none_or(|said| said.status == 431));
        wire.closed().await;
    }
    let mut wire = harness::wire::Wire::connect(address).await;
    wire.send(format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "p".repeat(70_000))).await;
    assert!(wire.answer().await.is_none_or(|said| [414, 431].contains(&said.status)));
    assert_eq!(counter.begun.load(Ordering::SeqCst), 0);
}

/// The same rules hold for an agent that speaks HTTP/2, where `:authority` stands for `Host`.
#[tokio::test]
async fn an_agent_may_speak_http_2() {
    let world = World::start().await;
    let address = world.replicas[0].agents();
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string();
    let ask = |key: &'static str, host: Option<&'static str>, origin: Option<&'static str>| {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{address}/mcp/shop"))
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25");
        if let Some(host) = host {
            request = request.header("host", host);
        }
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let request = request.body(Full::new(Bytes::from(body.clone()))).unwrap();
        let response = client.request(request);
        async move {
            let response = response.await.unwrap();
            let status = response.status().as_u16();
            (status, response.into_body().collect().await.unwrap().to_bytes())
        }
    };
    let (status, answer) = ask(BOT_KEY, None, None).await;
    assert_eq!(status, 200);
    assert!(String::from_utf8_lossy(&answer).contains("refund_order"));
    assert_eq!(ask("wrong", None, None).await.0, 401);
    assert_eq!(ask(BOT_KEY, Some("evil.example"), None).await.0, 403);
    assert_eq!(ask(BOT_KEY, None, Some("http://evil.example")).await.0, 403);
    world.finish().await;
}

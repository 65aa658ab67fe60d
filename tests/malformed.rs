//! A hundred thousand requests that are wrong in every way a generator thinks of, against the program as it is run:
//! no answer is a fault of ours, nothing is parked or sent, and memory stays bounded.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use harness::process::Process;
use harness::{BEN, BOT_KEY, GLOBEX_KEY, OTHER_KEY, World, now, refund};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A generator of numbers: the same for the same seed, everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// The first, four times out of five.
    fn usually<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        if self.below(5) > 0 { &of[0] } else { self.one(of) }
    }

    /// A few bytes changed, cut out, doubled or put in.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes[at] = self.next().to_le_bytes()[0],
                1 => bytes[at] ^= 1 << self.below(8),
                2 => drop(bytes.remove(at)),
                3 => bytes.truncate(at),
                4 => {
                    let piece = self.one(PIECES).as_bytes().to_vec();
                    drop(bytes.splice(at..at, piece));
                }
                _ => {
                    let end = at + self.below(bytes.len() - at);
                    let piece = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, piece));
                }
            }
        }
    }
}

/// What parsers trip over.
const PIECES: &[&str] = &[
    "\0",
    "\r",
    "\n",
    "\r\n\r\n",
    "\u{feff}",
    "\u{202e}",
    "\\ud800",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "-0",
    "1e999",
    "9007199254740993",
    "NaN",
    "null",
    "true",
    "\"id\":1,",
    "\"method\":\"tools/call\",",
    "%00",
    "%zz",
    "=?base64?",
    "payload=",
    "&",
    "../",
    "\u{10ffff}",
    "\"approval_token\":\"ust1.x\",",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

const METHODS: &[&str] = &["POST", "GET", "DELETE", "OPTIONS", "PRI", "p", "CONNECT"];

const PATHS: &[&str] =
    &["/mcp/shop", "/mcp", "/mcp/", "/mcp/x%2f..", "//", "*", "http://x/mcp", "/mcp/%00", "/mcp?x=\""];

const CONTENT_TYPES: &[&str] = &["application/json", "text/plain", "application/json; charset=\"", ""];

const ODD_HEADERS: &[&str] = &[
    "Mcp-Method: tools/call\r\n",
    "Mcp-Name: refund_order\r\n",
    "Mcp-Name: =?base64?!?=\r\n",
    "Mcp-Session-Id: 1\r\n",
    "Last-Event-ID: 1\r\n",
    "Content-Encoding: gzip\r\n",
    "Origin: null\r\n",
    "Host: x\r\n",
    "Expect: 100-continue\r\n",
    "Expect: x\r\n",
    "Upgrade: h2c\r\nConnection: upgrade\r\n",
    "X-Forwarded-For: ,,,\r\n",
    "Mcp-Param-X: \u{e9}\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Cookie: \u{7f}\r\n",
    "TE: trailers\r\n",
    "Range: bytes=9-1\r\n",
    " folded: x\r\n",
    "Authorization: Bearer x\r\n",
];

/// JSON-RPC messages to begin with; two of them would park a call if they were right.
fn messages() -> Vec<String> {
    let modern = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}});
    let message = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
    };
    vec![
        message(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}),
        ),
        message("tools/list", json!({"_meta": modern})),
        message("tools/list", json!({"cursor": "x"})),
        message("tools/call", json!({"name": "no_such_tool", "arguments": {"a": [1, 2.5, "x", null]}})),
        message(
            "tools/call",
            json!({"name": "undersign_approval", "arguments": {"action_id": "x", "wait_seconds": 0}}),
        ),
        message("tools/call", json!({"name": "undersign_cancel", "arguments": {"action_id": 5}})),
        message(
            "tools/call",
            json!({"name": "refund_order", "arguments": {"order_id": 5, "amount_cents": "many"}}),
        ),
        message("tools/call", json!({"name": "refund_order", "arguments": [], "_meta": modern})),
        message(
            "tools/call",
            json!({"name": "refund_order", "arguments": refund(), "task": {"ttl": 1}, "_meta": 5}),
        ),
        message("tools/call", json!({"name": "refund_order", "arguments": {"approval_token": {"x": 1}}})),
        message("resources/read", json!({"uri": "file:///etc/passwd"})),
        message("prompts/get", json!({"name": "x"})),
        message("completion/complete", json!({})),
        message("tasks/get", json!({"taskId": "x"})),
        message("ping", json!({})),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
            .to_string(),
        json!({"jsonrpc": "2.0", "id": 7, "result": {}}).to_string(),
        json!([{"jsonrpc": "2.0", "id": 7, "method": "ping"}]).to_string(),
        json!({"jsonrpc": 2, "id": {}, "method": 5, "params": "x"}).to_string(),
    ]
}

struct Generator {
    dice: Dice,
    messages: Vec<String>,
    click: (Vec<(String, String)>, Vec<u8>),
}

impl Generator {
    /// A request to the agents' listener.
    fn agent(&mut self) -> Vec<u8> {
        let dice = &mut self.dice;
        let mut body = dice.one(&self.messages).clone().into_bytes();
        if dice.below(4) > 0 {
            dice.mutate(&mut body);
        }
        let method = *dice.usually(METHODS);
        let path = *dice.usually(PATHS);
        // All of them, as one alone would be told to slow down.
        let known = *dice.one(&[BOT_KEY, OTHER_KEY, GLOBEX_KEY]);
        let key = *dice.usually(&[known, "wrong", ""]);
        let accept = *dice.usually(&["application/json, text/event-stream", "*/*", "text/html", ""]);
        let version = *dice.one(&["2025-11-25", "2026-07-28", "2025-06-18", "1999-01-01", "x", ""]);
        let content_type = *dice.usually(CONTENT_TYPES);
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Type: {content_type}\r\n\
             Accept: {accept}\r\nMCP-Protocol-Version: {version}\r\n"
        );
        for _ in 0..dice.below(5).saturating_sub(2) {
            head += *dice.one(ODD_HEADERS);
        }
        self.frame(head, body)
    }

    /// A request to the callbacks' listener: the click of somebody who may approve, with its body or signature changed.
    fn callback(&mut self) -> Vec<u8> {
        let dice = &mut self.dice;
        let (headers, mut body) = self.click.clone();
        let mut head = "POST /callbacks/slack/main HTTP/1.1\r\nHost: x\r\n".to_owned();
        // At least one of them is not what was signed.
        let wrong = dice.below(3);
        if wrong != 1 {
            let before = body.clone();
            while body == before {
                dice.mutate(&mut body);
            }
        }
        for (name, value) in headers {
            let mut value = value;
            if wrong > 0 && name == "x-slack-signature" {
                let before = value.clone();
                while value.trim() == before {
                    let mut bytes = before.clone().into_bytes();
                    dice.mutate(&mut bytes);
                    // What ends the line, or is cut off by whoever reads it, changes nothing.
                    value = String::from_utf8_lossy(&bytes).replace(|c: char| c.is_control(), "");
                }
            }
            if dice.below(30) > 0 {
                write!(head, "{name}: {value}\r\n").unwrap();
            }
        }
        self.frame(head, body)
    }

    /// Head and body together: mostly whole, now and then with a length that lies, in odd chunks, or broken anywhere.
    fn frame(&mut self, mut head: String, body: Vec<u8>) -> Vec<u8> {
        let dice = &mut self.dice;
        let length = body.len();
        let mut whole;
        match dice.below(12) {
            0 => {
                let lie = *dice.one(&["-1", "", "x", "18446744073709551616", "1073741824", "0"]);
                write!(head, "Content-Length: {lie}\r\n\r\n").unwrap();
                whole = head.into_bytes();
                whole.extend(body);
            }
            1 => {
                head += "Transfer-Encoding: chunked\r\n\r\n";
                whole = head.into_bytes();
                let size = *dice.one(&["", "0", "FFFFFFFFFFFFFFFFF", "-5", "5;x=\"", "zz"]);
                whole.extend(format!("{size}\r\n").into_bytes());
                whole.extend(body);
                whole.extend(b"\r\n0\r\nX: y\r\n\r\n");
            }
            kind => {
                write!(head, "Content-Length: {length}\r\n\r\n").unwrap();
                whole = head.into_bytes();
                whole.extend(body);
                if kind < 4 {
                    dice.mutate(&mut whole);
                }
            }
        }
        whole
    }
}

/// Sends requests one behind the other over connections that last for as long as the server bears them; how many
/// answers had which status.
async fn attack(address: SocketAddr, requests: Vec<Vec<u8>>) -> BTreeMap<u16, usize> {
    let mut statuses = BTreeMap::new();
    let mut next = 0;
    while next < requests.len() {
        let Ok(stream) = TcpStream::connect(address).await else { continue };
        let (mut reading, mut writing) = stream.into_split();
        let bytes = requests[next..requests.len().min(next + 16)].concat();
        let writer = tokio::spawn(async move {
            // The server hangs up where it can't go on.
            let _ = writing.write_all(&bytes).await;
            let _ = writing.shutdown().await;
        });
        let mut said = Vec::new();
        let _ = reading.read_to_end(&mut said).await;
        writer.await.unwrap();
        let text = String::from_utf8_lossy(&said);
        // A fault of ours is told by its body as well.
        assert!(!text.contains("-32603") && !text.contains("internal error"), "{text}");
        let mut answers = 0;
        for line in text.split("HTTP/1.").skip(1) {
            if let Some(status) = line.get(2..5).and_then(|status| status.parse().ok()) {
                answers += usize::from(status != 100);
                *statuses.entry(status).or_default() += 1;
            }
        }
        // The request that ended the connection has been judged, with or without an answer.
        next += answers.max(1);
    }
    statuses
}

#[tokio::test]
async fn a_hundred_thousand_malformed_requests_are_no_fault_of_ours() {
    let mut world = World::start().await;
    let (parked, card) = world.park().await;
    world.wait_audit("posted", 1).await;
    for replica in world.replicas.drain(..) {
        replica.stop().await;
    }
    let payload = world.slack.click_payload(BEN, &card.channel, &card.ts, "undersign_approve").unwrap();
    let click = world.slack.sign(&payload, now());
    let headers =
        click.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let click = (headers.collect::<Vec<_>>(), click.body.to_vec());
    let process = Process::start(&world, &[]);

    let mut tasks = Vec::new();
    for seed in 0..8_u64 {
        let mut generator = Generator { dice: Dice(seed), messages: messages(), click: click.clone() };
        let to_agents = seed % 4 != 0;
        let address = if to_agents { process.agents } else { process.callbacks };
        tasks.push(tokio::spawn(async move {
            let mut statuses = BTreeMap::new();
            let mut sent = 0;
            while sent < 12_500 {
                let requests: Vec<_> = (0..250)
                    .map(|_| if to_agents { generator.agent() } else { generator.callback() })
                    .collect();
                sent += requests.len();
                for (status, count) in attack(address, requests).await {
                    *statuses.entry(status).or_insert(0) += count;
                }
            }
            statuses
        }));
    }
    let mut statuses = BTreeMap::<u16, usize>::new();
    for task in tasks {
        for (status, count) in task.await.unwrap() {
            *statuses.entry(status).or_default() += count;
        }
    }
    let peak = process.peak_mib();
    println!("answers by status: {statuses:?}; peak {peak} MiB");
    assert!(statuses.keys().all(|status| *status < 500), "{statuses:?}");
    // The generator still gets everywhere.
    for (status, at_least) in
        [(200, 100), (400, 10_000), (403, 500), (404, 500), (405, 500), (413, 50), (415, 500)]
    {
        assert!(statuses[&status] >= at_least, "{statuses:?}");
    }
    assert!(peak < 256, "{peak} MiB");
    let said = world.read("stderr");
    assert!(!said.contains("panicked"), "{said}");
    // Nothing came of any of them: no click counted, no call was made.
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    let presses: i64 =
        sqlx::query_scalar("SELECT count(*) FROM callbacks").fetch_one(&world.db).await.unwrap();
    assert_eq!(presses, 0);
    assert!(world.shop.effects().is_empty());
    drop(process);
    world.finish().await;
}

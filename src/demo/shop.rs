//! A small shop as an upstream MCP server over streamable HTTP: what the demo and the tests put behind undersign.
//!
//! Keeps true: the ledger has every `tools/call` as it came in, whatever became of it, and [`FakeShop::effects`] has
//! what was really done. The shop does not look at idempotency keys, so that a call executed twice shows as two effects.

mod server;
mod tools;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::demo::gate::Gate;
use tools::Goods;
pub use tools::{Effect, Order};

/// Where an agent's gateway puts the key that is the same for one action and no other.
const IDEMPOTENCY_KEY: &str = "dev.undersign/idempotency-key";

/// How calls of a tool are treated, until told otherwise.
#[derive(Debug, Clone, Default)]
pub enum Behaviour {
    /// As a working shop.
    #[default]
    Normal,
    /// Waits at the gate, then works; also when the caller has gone meanwhile.
    HangBefore(Gate),
    /// Works, then waits at the gate before answering.
    HangAfter(Gate),
    /// Nothing is done; the result says `isError` with this text.
    ToolError(String),
    /// Nothing is done; a JSON-RPC error of this code.
    RpcError(i32, String),
    /// Nothing is done; this HTTP status with a body that is not JSON.
    Http(u16),
    /// Nothing is done; 307 to this address.
    Redirect(String),
    /// Nothing is done; the connection ends without an answer.
    DropBefore,
    /// Works, and the connection ends without an answer.
    DropAfter,
    /// Works, and the answer is no JSON.
    GarbageAfter,
}

/// One `tools/call` as received.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool's name.
    pub tool: String,
    /// Its arguments; null when there were none.
    pub arguments: Value,
    /// `_meta["dev.undersign/idempotency-key"]`.
    pub idempotency_key: Option<String>,
    /// The whole `_meta`.
    pub meta: Map<String, Value>,
    /// The HTTP headers. The value of `Authorization` is there but does not appear in debug output.
    pub headers: HeaderMap,
}

/// A running shop. Clones are the same one; it closes with the last of them.
#[derive(Clone)]
pub struct FakeShop {
    inner: Arc<Inner>,
    _closer: Arc<Closer>,
}

/// Closes the shop when the last handle is dropped; the server itself holds what it serves.
struct Closer(Arc<Inner>);

impl Drop for Closer {
    fn drop(&mut self) {
        if let Some(running) = self.0.running().take() {
            running.closing.cancel();
        }
    }
}

/// What the server and the handles share.
struct Inner {
    address: SocketAddr,
    /// The bearer token that is asked for, if any.
    bearer: Option<String>,
    state: Mutex<State>,
    /// Counts calls, for those who wait for one.
    called: watch::Sender<usize>,
    running: Mutex<Option<Running>>,
}

struct Running {
    closing: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
}

struct State {
    tools: Vec<Value>,
    goods: Goods,
    script: BTreeMap<String, Behaviour>,
    ledger: Vec<Call>,
    methods: Vec<String>,
}

impl FakeShop {
    /// Opens the shop on a port of the system's choice on the loopback interface. With a bearer token, requests
    /// without it are answered 401.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(bearer: Option<String>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let state = State {
            tools: tools::definitions(),
            goods: Goods::seeded(),
            script: BTreeMap::new(),
            ledger: Vec::new(),
            methods: Vec::new(),
        };
        let inner = Arc::new(Inner {
            address: listener.local_addr()?,
            bearer,
            state: Mutex::new(state),
            called: watch::Sender::new(0),
            running: Mutex::new(None),
        });
        let shop = Self { _closer: Arc::new(Closer(Arc::clone(&inner))), inner };
        shop.serve(listener);
        Ok(shop)
    }

    fn serve(&self, listener: TcpListener) {
        let closing = CancellationToken::new();
        let serving = axum::serve(listener, server::router(&self.inner))
            .with_graceful_shutdown(closing.clone().cancelled_owned());
        let serving = tokio::spawn(serving.into_future());
        *self.inner.running.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Running { closing, serving });
    }

    /// The address of the MCP endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.inner.address)
    }

    /// Every `tools/call` received, oldest first, whatever became of it.
    #[must_use]
    pub fn ledger(&self) -> Vec<Call> {
        self.inner.state().ledger.clone()
    }

    /// The ledger once it has at least so many calls.
    pub async fn wait_calls(&self, at_least: usize) -> Vec<Call> {
        // An error means that the sender is gone, and it lives in `self`.
        let _ = self.inner.called.subscribe().wait_for(|calls| *calls >= at_least).await;
        self.ledger()
    }

    /// The JSON-RPC method of every request and notification received, oldest first.
    #[must_use]
    pub fn methods(&self) -> Vec<String> {
        self.inner.state().methods.clone()
    }

    /// What was done in the shop, oldest first. Reading is no effect.
    #[must_use]
    pub fn effects(&self) -> Vec<Effect> {
        self.inner.state().goods.effects.clone()
    }

    /// An order as it stands.
    #[must_use]
    pub fn order(&self, id: &str) -> Option<Order> {
        self.inner.state().goods.orders.get(id).cloned()
    }

    /// From now on, calls of the tool are treated in this way.
    pub fn script(&self, tool: &str, behaviour: Behaviour) {
        self.inner.state().script.insert(tool.to_owned(), behaviour);
    }

    /// Changes a tool's definition as `tools/list` shows it: description, schema, annotations, anything.
    ///
    /// # Errors
    /// When the outcome is no tool definition; then nothing has changed. A tool that is not there is not changed.
    pub fn edit_tool(&self, tool: &str, edit: impl FnOnce(&mut Value)) -> Result<(), serde_json::Error> {
        let mut state = self.inner.state();
        let Some(found) = state.tools.iter_mut().find(|t| t["name"] == tool) else { return Ok(()) };
        let mut changed = found.clone();
        edit(&mut changed);
        serde_json::from_value::<rmcp::model::Tool>(changed.clone())?;
        *found = changed;
        Ok(())
    }

    /// Closes the listener and the idle connections: whoever connects now is refused. Calls in progress go on.
    pub async fn stop(&self) {
        let running = self.inner.running().take();
        if let Some(running) = running {
            running.closing.cancel();
            running.serving.abort();
            // Once the task has ended the listener is surely closed; how it ended does not matter.
            let _ = running.serving.await;
        }
    }

    /// Opens a stopped shop again, at the same address and with the same goods.
    ///
    /// # Errors
    /// When the port has been taken meanwhile.
    pub async fn start_again(&self) -> io::Result<()> {
        self.stop().await;
        self.serve(TcpListener::bind(self.inner.address).await?);
        Ok(())
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held leaves a state that is at worst incomplete, and the test has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;

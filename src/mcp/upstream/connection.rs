//! One connection to an upstream: the handshake, and the list of tools that must precede the first call.

use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationCreateRequestMethod,
    ErrorData, Implementation, ListRootsRequestMethod, PaginatedRequestParams, ProtocolVersion, Tool,
};
use rmcp::service::{
    ClientCacheConfig, ClientLifecycleMode, ClientServiceExt as _, Peer, RequestContext, RunningService,
    ServiceError,
};
use rmcp::transport::Transport;
use rmcp::{ClientHandler, RoleClient};

use super::tap::Tap;

/// The most pages of a list that are followed, and the most tools that are kept.
const MOST_PAGES: usize = 100;
const MOST_TOOLS: usize = 10_000;

/// An open connection; it closes with the last of its users.
pub(super) struct Connection {
    service: RunningService<RoleClient, Refusing>,
    /// Whether tools were listed on it: the headers that a tool's schema asks for are sent only then.
    listed: AtomicBool,
    /// Whether somebody found it to be of no use.
    given_up: AtomicBool,
}

/// Gives a connection up when it is dropped with a question unanswered: what hangs takes one of the few places that rmcp
/// has for requests, and enough of them would leave the connection open and silent for good.
struct Question<'a>(Option<&'a Connection>);

impl Question<'_> {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            connection.give_up();
        }
    }
}

/// Why tools could not be listed.
pub(super) enum ListFault {
    /// The upstream did not answer, or not with a list.
    Service(ServiceError),
    /// The list has no end.
    Endless,
}

impl Connection {
    /// Asks which revision the upstream speaks, and falls back to the handshake of older ones. `None` when there is
    /// nobody to talk to; the reason would quote the upstream, and is dropped.
    pub(super) async fn open(transport: impl Transport<RoleClient> + 'static) -> Option<Self> {
        let (tap, opener) = Tap::new(transport);
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        };
        let service = Refusing.serve_with_lifecycle(tap, lifecycle).await.ok()?;
        opener.open();
        service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
        Some(Self { service, listed: AtomicBool::new(false), given_up: AtomicBool::new(false) })
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Whether the upstream speaks the revision without handshake, in which every request says what the client can do.
    pub(super) fn is_modern(&self) -> bool {
        let modern = ProtocolVersion::V_2026_07_28;
        self.peer().peer_info().is_some_and(|info| info.protocol_version.as_str() >= modern.as_str())
    }

    pub(super) fn is_open(&self) -> bool {
        let given_up = self.given_up.load(Ordering::Acquire);
        !given_up && !self.service.is_closed() && !self.peer().is_transport_closed()
    }

    /// Lets the next user make a new connection. Takes no lock: an outcome must not wait for whoever is connecting.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// The tools as the upstream lists them now.
    pub(super) async fn tools(&self) -> Result<Vec<Tool>, ListFault> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MOST_PAGES {
            let request = PaginatedRequestParams::default().with_cursor(cursor);
            let question = Question(Some(self));
            let page = self.peer().list_tools(Some(request)).await;
            question.answered();
            let page = page.map_err(ListFault::Service)?;
            tools.extend(page.tools);
            if tools.len() > MOST_TOOLS {
                return Err(ListFault::Endless);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                self.listed.store(true, Ordering::Release);
                return Ok(tools);
            }
        }
        Err(ListFault::Endless)
    }

    /// Lists the tools unless that was done on this connection.
    pub(super) async fn ensure_listed(&self) -> Result<(), ListFault> {
        if !self.listed.load(Ordering::Acquire) {
            self.tools().await?;
        }
        Ok(())
    }
}

/// Declares no capability, and refuses what an upstream asks by itself.
struct Refusing;

impl ClientHandler for Refusing {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("undersign", env!("CARGO_PKG_VERSION")),
        )
    }

    #[expect(deprecated, reason = "older upstreams ask for roots still")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(ErrorData::method_not_found::<ElicitationCreateRequestMethod>())
    }
}

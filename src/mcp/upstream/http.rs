//! An upstream over streamable HTTP, connected when it is first needed and again when the connection is of no use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue};
use async_trait::async_trait;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientRequest, GetExtensions as _,
    RequestMetaObject,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde::Deserialize as _;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::UpstreamConfig;
use super::connection::{Connection, ListFault};
use super::outcome::{self, Answer};
use super::sharing::Sharing;
use super::tap::Follow;
use crate::app::ports::{Passing, Relayed, Sending, Upstream, UpstreamDown};
use crate::domain::call::ToolDefinition;
use crate::domain::ids::ToolName;
use crate::domain::intent::{FailureDetail, Outcome};
use crate::domain::policy::Allowed;

/// Our key in the `_meta` of an execution.
const IDEMPOTENCY_KEY: &str = "dev.undersign/idempotency-key";

/// A list takes no longer, whatever a call may take.
const LONGEST_LIST: Duration = Duration::from_secs(20);

/// Pauses between attempts to connect for one execution; after the last the call counts as not sent.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1500)];

/// What rmcp gets to tell its own timeout upstream before it is left alone.
const GRACE: Duration = Duration::from_secs(1);

/// One upstream. Its calls share a connection for as long as it works.
pub struct HttpUpstream {
    client: reqwest::Client,
    url: Arc<str>,
    headers: HashMap<HeaderName, HeaderValue>,
    timeout: Duration,
    connection: Mutex<Option<Arc<Connection>>>,
    lists: Sharing<Vec<ToolDefinition>>,
}

/// One `tools/call`.
pub(super) struct Call<'a> {
    pub(super) tool: &'a ToolName,
    pub(super) arguments: &'a Map<String, Value>,
    pub(super) idempotency_key: Option<&'a str>,
    /// Given only for a call that policy allows.
    pub(super) passing: Option<&'a Passing>,
}

/// What one attempt came to.
enum Attempt {
    /// Nothing was sent.
    NotSent,
    /// The call was or may have been sent.
    Sent(Box<Answer>),
}

impl HttpUpstream {
    /// An upstream that is not connected yet. The client should be that of [`http_client`](super::http_client).
    pub fn new(client: reqwest::Client, config: UpstreamConfig) -> Self {
        let headers = config.headers.into_iter().map(|(name, mut value)| {
            value.set_sensitive(true);
            (name, value)
        });
        Self {
            client,
            url: config.url.into(),
            headers: headers.collect(),
            timeout: config.timeout,
            connection: Mutex::new(None),
            lists: Sharing::new(),
        }
    }

    /// The open connection, or a new one, and whether it is new.
    async fn connection(&self) -> Option<(Arc<Connection>, bool)> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| connection.is_open()) {
            return Some((Arc::clone(connection), false));
        }
        *slot = None;
        let config = StreamableHttpClientTransportConfig::with_uri(Arc::clone(&self.url))
            .custom_headers(self.headers.clone())
            .reinit_on_expired_session(false);
        let transport = StreamableHttpClientTransport::with_client(self.client.clone(), config);
        let connection = Arc::new(Connection::open(transport).await?);
        *slot = Some(Arc::clone(&connection));
        Some((connection, true))
    }

    async fn list(&self) -> Option<Vec<ToolDefinition>> {
        loop {
            let (connection, is_new) = self.connection().await?;
            match connection.tools().await {
                Ok(tools) => {
                    let definitions = tools.iter().filter_map(|tool| serde_json::to_value(tool).ok());
                    return Some(definitions.filter_map(ToolDefinition::new).collect());
                }
                Err(fault) => {
                    let stale =
                        matches!(&fault, ListFault::Service(error) if outcome::breaks_connection(error));
                    if stale {
                        connection.give_up();
                    }
                    // A connection that was made before may have died since: a list can be asked for again.
                    if is_new || !stale {
                        return None;
                    }
                }
            }
        }
    }

    /// One attempt; whatever happens before the call itself leaves it not sent.
    async fn attempt(&self, call: &Call<'_>, deadline: Instant) -> Attempt {
        let Ok(Some((connection, _))) = timeout_at(deadline, self.connection()).await else {
            return Attempt::NotSent;
        };
        if !matches!(timeout_at(deadline, connection.ensure_listed()).await, Ok(Ok(()))) {
            connection.give_up();
            return Attempt::NotSent;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Attempt::NotSent;
        }
        let answer = timeout_at(deadline + GRACE, send(&connection, call, left))
            .await
            .unwrap_or(Err(ServiceError::Timeout { timeout: left }));
        if let Err(error) = &answer
            && outcome::breaks_connection(error)
        {
            connection.give_up();
            if outcome::was_not_sent(error) {
                return Attempt::NotSent;
            }
        }
        Attempt::Sent(Box::new(answer))
    }

    /// Connects as often as the limit allows, and sends once.
    pub(super) async fn send_once(&self, call: &Call<'_>, time_limit: Duration) -> Outcome {
        let deadline = Instant::now() + time_limit;
        let mut pauses = PAUSES.into_iter();
        loop {
            if let Attempt::Sent(answer) = self.attempt(call, deadline).await {
                return outcome::executed(*answer);
            }
            match pauses.next().map(|pause| Instant::now() + pause) {
                Some(next) if next < deadline => sleep_until(next).await,
                _ => return Outcome::Failed { detail: FailureDetail::NotSent, result: None },
            }
        }
    }

    /// One attempt, for a call that policy allows.
    pub(super) async fn relay_once(&self, call: &Call<'_>) -> Relayed {
        match self.attempt(call, Instant::now() + self.timeout).await {
            Attempt::NotSent => Relayed::NotSent,
            Attempt::Sent(answer) => outcome::relayed(*answer),
        }
    }
}

/// Sends the call, once. Not by `call_tool`, which answers an upstream's questions and calls again.
async fn send(connection: &Connection, call: &Call<'_>, time_limit: Duration) -> Answer {
    let mut parameters =
        CallToolRequestParams::new(call.tool.as_str().to_owned()).with_arguments(call.arguments.clone());
    let mut meta = RequestMetaObject::default();
    if let Some(key) = call.idempotency_key {
        meta.0.0.insert(IDEMPOTENCY_KEY.to_owned(), Value::from(key));
    }
    if let Some(passing) = call.passing {
        meta.0.0.extend(passing.meta.clone());
    }
    // Older upstreams know no rounds.
    if let Some(passing) = call.passing
        && connection.is_modern()
    {
        parameters.input_responses =
            passing.input_responses.clone().map(|answers| answers.into_iter().collect());
        parameters.request_state.clone_from(&passing.request_state);
        if let Some(capabilities) = &passing.capabilities
            && let Ok(capabilities) = ClientCapabilities::deserialize(capabilities)
        {
            meta.set_client_capabilities(capabilities);
        }
    }
    let mut request = CallToolRequest::new(parameters);
    if let Some(progress) = call.passing.and_then(|passing| passing.progress.clone()) {
        request.extensions_mut().insert(Follow(progress));
    }
    let request = ClientRequest::CallToolRequest(request);
    let options = PeerRequestOptions::with_timeout(time_limit).with_meta(meta);
    connection.peer().send_cancellable_request(request, options).await?.await_response().await
}

#[async_trait]
impl Upstream for HttpUpstream {
    async fn tools(&self) -> Result<Vec<ToolDefinition>, UpstreamDown> {
        let deadline = Instant::now() + self.timeout.min(LONGEST_LIST);
        timeout_at(deadline, self.lists.ask(self.list())).await.ok().flatten().ok_or(UpstreamDown)
    }

    async fn relay(
        &self,
        _permit: &Allowed,
        tool: &ToolName,
        arguments: Map<String, Value>,
        passing: Passing,
    ) -> Relayed {
        let call = Call { tool, arguments: &arguments, idempotency_key: None, passing: Some(&passing) };
        self.relay_once(&call).await
    }

    async fn execute(&self, sending: &Sending) -> Outcome {
        let call = Call {
            tool: sending.tool(),
            arguments: sending.arguments().value(),
            idempotency_key: Some(sending.idempotency_key()),
            passing: None,
        };
        self.send_once(&call, sending.time_limit()).await
    }
}

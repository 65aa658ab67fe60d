//! The rmcp handler of one tenant's endpoint.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;

use super::hold::hold;
use super::names::Endpoint;
use super::own::{self, Ask};
use super::{offer, passing, reply};
use crate::app::{App, Caller, Reply, ToolCall};
use crate::domain::answer::{Answer, Code};
use crate::domain::ids::UpstreamName;
use crate::mcp::strict::RawArguments;

/// How we call ourselves.
pub(super) const NAME: &str = "undersign";

/// Our version.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Carries the token of a program that can set `_meta`.
const TOKEN_META: &str = "dev.undersign/approval-token";

/// Carries the agent's own name for what it is doing.
const RUN_META: &str = "dev.undersign/run";

/// Cheap to clone; rmcp clones it for each request.
#[derive(Clone)]
pub(super) struct Gateway(Arc<Inner>);

struct Inner {
    app: App,
    endpoint: Endpoint,
    /// How long a first gated call waits for a quick decision.
    hold: Duration,
    /// The tools as they were last listed: rmcp checks `Mcp-Param-*` headers against them.
    advertised: RwLock<HashMap<String, Tool>>,
}

impl Gateway {
    pub(super) fn new(app: App, endpoint: Endpoint, hold: Duration) -> Self {
        Self(Arc::new(Inner { app, endpoint, hold, advertised: RwLock::default() }))
    }

    async fn listed(&self, caller: &Caller) -> Vec<Tool> {
        let Inner { app, endpoint, .. } = &*self.0;
        let upstreams: Vec<UpstreamName> = match endpoint {
            Endpoint::All => app.upstreams(&caller.tenant),
            Endpoint::One(upstream) => vec![upstream.clone()],
        };
        let asked =
            upstreams.iter().map(|upstream| async move { (upstream, app.tools(caller, upstream).await) });
        let mut tools: Vec<Tool> = own::tools().into();
        for (upstream, offered) in join_all(asked).await {
            tools.extend(offered.iter().filter_map(|tool| offer::tool(endpoint, upstream, tool)));
        }
        let advertised = tools.iter().map(|tool| (tool.name.to_string(), tool.clone())).collect();
        *self.0.advertised.write().unwrap_or_else(PoisonError::into_inner) = advertised;
        tools
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Inner { app, endpoint, .. } = &*self.0;
        let caller = caller(context)?;
        if let Some(ask) = own::ask(&request.name, request.arguments.as_ref()) {
            let answer = match ask {
                Ask::Approval { action_id, wait } => {
                    if context.meta.get_progress_token().is_some() {
                        let now = app.approval(caller, &action_id, Duration::ZERO).await;
                        hold(app, caller, now, wait, context).await
                    } else {
                        tokio::select! {
                            answer = app.approval(caller, &action_id, wait) => answer,
                            // The client is gone: nobody reads this.
                            () = context.ct.cancelled() => Answer::plain(Code::Unavailable),
                        }
                    }
                }
                Ask::Cancel { action_id } => app.cancel(caller, &action_id).await,
                Ask::Unreadable => Answer::plain(Code::InvalidArguments)
                    .detail("action_id must be a string, wait_seconds a number from 0 to 50."),
            };
            return Ok(reply::ours(&answer, false).into());
        }
        let Some((upstream, tool)) = endpoint.resolve(&request.name) else {
            return Err(reply::unknown_tool(&request.name));
        };
        let RawArguments(arguments) = extension::<RawArguments>(context)?.clone();
        let meta = &context.meta.0.0;
        let (passing, reports) = passing::take(&request, context, is_modern(context));
        let call = ToolCall {
            upstream,
            tool,
            arguments,
            token: meta.get(TOKEN_META).cloned(),
            run: meta.get(RUN_META).and_then(Value::as_str).map(str::to_owned),
            passing,
        };
        let work = app.call(caller, call);
        let said = match reports {
            Some(reports) => reports.during(work).await,
            None => work.await,
        };
        let said = match said {
            Reply::Answer(answer) if answer.code == Code::ApprovalPending => {
                hold(app, caller, *answer, self.0.hold, context).await.into()
            }
            said => said,
        };
        reply::call(said, &request.name)
    }
}

impl ServerHandler for Gateway {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(NAME, VERSION);
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.advertised.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // rmcp adds `ttlMs: 0` and `cacheScope: private` for modern agents.
        let mut result = ListToolsResult::with_all_items(self.listed(caller(&context)?).await);
        if is_modern(&context) {
            reply::sign(&mut result.meta);
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut response = self.call(request, &context).await?;
        if is_modern(&context) {
            match &mut response {
                CallToolResponse::Complete(result) => reply::sign(&mut result.meta),
                CallToolResponse::InputRequired(asked) => reply::sign(&mut asked.meta),
                _ => {}
            }
        }
        Ok(response)
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn caller(context: &RequestContext<RoleServer>) -> Result<&Caller, ErrorData> {
    extension(context)
}

/// What was put beside the request before rmcp got it; a request without it did not come through our routes.
fn extension<T: Send + Sync + 'static>(context: &RequestContext<RoleServer>) -> Result<&T, ErrorData> {
    context
        .extensions
        .get::<Parts>()
        .and_then(|parts| parts.extensions.get::<T>())
        .ok_or_else(|| ErrorData::internal_error("the request was not checked", None))
}

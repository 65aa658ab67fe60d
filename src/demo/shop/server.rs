//! The shop over HTTP: the ledger and the misbehaviour in front, rmcp behind.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::header::{AUTHORIZATION, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use axum::routing::any;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Map, Value};

use super::tools::Failure;
use super::{Behaviour, Call, IDEMPOTENCY_KEY, Inner};

/// Far beyond any message of the demo or a test.
const BODY_LIMIT: usize = 4 * 1024 * 1024;

type Mcp = StreamableHttpService<Handler, NeverSessionManager>;

#[derive(Clone)]
struct Front {
    inner: Arc<Inner>,
    mcp: Mcp,
}

pub(super) fn router(inner: &Arc<Inner>) -> Router {
    let handler = Handler { inner: Arc::clone(inner) };
    let config =
        StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let mcp = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    Router::new().route("/mcp", any(serve)).with_state(Front { inner: Arc::clone(inner), mcp })
}

async fn serve(Shared(front): Shared<Front>, request: Request<Body>) -> Response<Body> {
    let Front { inner, mcp } = front;
    if let Some(bearer) = &inner.bearer
        && request
            .headers()
            .get(AUTHORIZATION)
            .is_none_or(|v| v.as_bytes() != format!("Bearer {bearer}").as_bytes())
    {
        let mut response = plain(StatusCode::UNAUTHORIZED, "who are you?");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "too large");
    };
    let behaviour = inner.record(&parts.headers, &serde_json::from_slice(&body).unwrap_or_default());
    let request = Request::from_parts(parts, Body::from(body));
    // A task of its own, because a caller who hangs up must not undo what the shop has begun.
    let work = async move |before: Option<super::Gate>| {
        let working = tokio::spawn(async move {
            if let Some(gate) = before {
                gate.pass().await;
            }
            mcp.handle(request).await.map(Body::new)
        });
        working.await.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "the shop fell over"))
    };
    match behaviour {
        // The handler below answers the two kinds of error.
        Behaviour::Normal | Behaviour::ToolError(_) | Behaviour::RpcError(..) => work(None).await,
        Behaviour::HangBefore(gate) => work(Some(gate)).await,
        Behaviour::HangAfter(gate) => {
            let response = work(None).await;
            gate.pass().await;
            response
        }
        Behaviour::Http(status) => {
            plain(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), "no")
        }
        Behaviour::Redirect(location) => {
            let mut response = plain(StatusCode::TEMPORARY_REDIRECT, "elsewhere");
            if let Ok(location) = HeaderValue::try_from(location) {
                response.headers_mut().insert(LOCATION, location);
            }
            response
        }
        Behaviour::DropBefore => drop_connection(),
        Behaviour::DropAfter => {
            work(None).await;
            drop_connection()
        }
        Behaviour::GarbageAfter => {
            work(None).await;
            let mut response = plain(StatusCode::OK, "{\"jsonrpc\":\"2.0\",\"id\":");
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
            response
        }
    }
}

/// Ends the task that serves this connection, so that the peer sees it closed without one byte of an answer. Unwinding
/// without the panic hook: this is no panic that anyone should read about.
fn drop_connection() -> ! {
    std::panic::resume_unwind(Box::new("the fake drops this connection"))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

impl Inner {
    /// Writes the message down, and says how the shop behaves towards it.
    fn record(&self, headers: &HeaderMap, message: &Value) -> Behaviour {
        let Some(method) = message["method"].as_str() else { return Behaviour::Normal };
        let mut state = self.state();
        state.methods.push(method.to_owned());
        if method != "tools/call" {
            return Behaviour::Normal;
        }
        let parameters = &message["params"];
        let tool = parameters["name"].as_str().unwrap_or_default().to_owned();
        let meta: Map<String, Value> = parameters["_meta"].as_object().cloned().unwrap_or_default();
        let mut headers = headers.clone();
        if let Some(secret) = headers.get_mut(AUTHORIZATION) {
            secret.set_sensitive(true);
        }
        let behaviour = state.script.get(&tool).cloned().unwrap_or_default();
        state.ledger.push(Call {
            tool,
            arguments: parameters["arguments"].clone(),
            idempotency_key: meta.get(IDEMPOTENCY_KEY).and_then(Value::as_str).map(ToOwned::to_owned),
            meta,
            headers,
        });
        self.called.send_modify(|calls| *calls += 1);
        behaviour
    }
}

/// The MCP server proper.
#[derive(Clone)]
struct Handler {
    inner: Arc<Inner>,
}

impl Handler {
    fn tools(&self) -> Vec<Tool> {
        let definitions = self.inner.state().tools.clone();
        // `FakeShop::edit_tool` takes only what can be read here.
        definitions.into_iter().filter_map(|tool| serde_json::from_value(tool).ok()).collect()
    }

    fn work(&self, request: CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        let mut state = self.inner.state();
        let behaviour = state.script.get(request.name.as_ref()).cloned().unwrap_or_default();
        match behaviour {
            Behaviour::ToolError(text) => {
                return Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into());
            }
            Behaviour::RpcError(code, text) => return Err(ErrorData::new(ErrorCode(code), text, None)),
            _ => {}
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        match state.goods.call(&request.name, arguments) {
            Ok(answer) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(answer.text)]);
                result.structured_content = answer.structured;
                Ok(result.into())
            }
            Err(Failure::Refused(text)) => Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into()),
            Err(Failure::UnknownTool) => Err(ErrorData::invalid_params("Unknown tool", None)),
            Err(Failure::Arguments) => Err(ErrorData::invalid_params("Invalid arguments", None)),
        }
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("shop", "1.0.0");
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.work(request)
    }
}

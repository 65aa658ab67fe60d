//! The server that agents talk to: one rmcp service for each tenant and endpoint.
//!
//! Keeps true: the tenant comes from the credential, and a service of one tenant is never asked for another; every tool
//! call goes through [`App::call`], whatever its name; an answer of ours has no `structuredContent` (MCP.md 4.3); a held
//! request never executes anything.

mod gateway;
mod hold;
mod names;
mod offer;
mod own;
mod passing;
mod reply;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

pub use names::Endpoint;
pub use own::is_ours as is_own_tool;

use super::strict::{Checked, RawArguments, Refusal};
use crate::app::{App, Caller};
use crate::domain::ids::Tenant;
use crate::domain::ijson::MAX_BODY;
use gateway::Gateway;

type Service = StreamableHttpService<Gateway, NeverSessionManager>;

/// The services of all tenants, each made when it is first asked for.
pub struct Services {
    app: App,
    config: StreamableHttpServerConfig,
    hold: Duration,
    made: RwLock<HashMap<(Tenant, Endpoint), Service>>,
}

impl Services {
    /// `hosts` are the names in `Host` that are ours (`name` for any port, `name:port` for that one); `origins` are the
    /// origins whose pages may ask (`scheme://host:port`), and every other `Origin` is refused, all of them when the
    /// list is empty. `hold` is how long a first gated call waits for a quick decision.
    pub fn new(app: App, hosts: Vec<String>, origins: Vec<String>, hold: Duration) -> Self {
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_allowed_hosts(hosts)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_BODY);
        Self { app, config, hold, made: RwLock::default() }
    }

    /// Whether the tenant has the endpoint.
    pub fn has(&self, tenant: &Tenant, endpoint: &Endpoint) -> bool {
        match endpoint {
            Endpoint::All => true,
            Endpoint::One(upstream) => self.app.upstreams(tenant).contains(upstream),
        }
    }

    /// Answers a POST whose body was checked. The endpoint must be one that the caller's tenant [has](Self::has).
    pub async fn handle(
        &self,
        caller: Caller,
        endpoint: Endpoint,
        mut parts: Parts,
        checked: Checked,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        let service = self.service(&caller.tenant, endpoint);
        // Nothing behind this point needs the credential.
        parts.headers.remove(AUTHORIZATION);
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        parts.extensions.insert(caller);
        parts.extensions.insert(RawArguments(checked.arguments));
        let response = service.handle(Request::from_parts(parts, Full::new(checked.body))).await;
        match response.status() {
            // The media type was checked before: rmcp says this of JSON that is no message.
            StatusCode::UNSUPPORTED_MEDIA_TYPE => json(Refusal::Message.status(), Refusal::Message.body()),
            status if status.is_server_error() => {
                tracing::error!(status = status.as_u16(), "the MCP library could not answer a request");
                json(StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(INTERNAL_ERROR))
            }
            _ => response,
        }
    }

    fn service(&self, tenant: &Tenant, endpoint: Endpoint) -> Service {
        let key = (tenant.clone(), endpoint);
        let made = self.made.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(service) = made {
            return service;
        }
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        let service = made.entry(key).or_insert_with_key(|(_, endpoint)| {
            let gateway = Gateway::new(self.app.clone(), endpoint.clone(), self.hold);
            StreamableHttpService::new(
                move || Ok(gateway.clone()),
                Arc::new(NeverSessionManager::default()),
                self.config.clone(),
            )
        });
        service.clone()
    }
}

const INTERNAL_ERROR: &[u8] = br#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"internal error"}}"#;

fn json(status: StatusCode, body: Bytes) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::new(body).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

//! storage (being written by the lead).

use std::time::Duration;

use crate::domain::call::Arguments;
use crate::domain::ids::{ActionId, Tenant, ToolName, UpstreamName};

/// Proof that the one claim of an action was won, and that its row says "sent": made by [`Db`] alone.
#[derive(Debug)]
pub struct Sending {
    pub(crate) action: ActionId,
    pub(crate) tenant: Tenant,
    pub(crate) upstream: UpstreamName,
    pub(crate) tool: ToolName,
    pub(crate) arguments: Arguments,
    pub(crate) idempotency_key: String,
    pub(crate) time_limit: Duration,
}

impl Sending {
    /// The tool to call.
    pub fn tool(&self) -> &ToolName {
        &self.tool
    }

    /// The stored arguments.
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// Stable for every send of this intent.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// How long the call may take in all.
    pub fn time_limit(&self) -> Duration {
        self.time_limit
    }
}

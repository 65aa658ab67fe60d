//! Which tools an agent is offered.

use super::{App, Caller, OfferedTool};
use crate::domain::ids::UpstreamName;
use crate::domain::policy::Offer;

impl App {
    /// The tools of one upstream that policy could allow; none when it can't be reached, which is logged.
    pub async fn tools(&self, caller: &Caller, upstream: &UpstreamName) -> Vec<OfferedTool> {
        let Some((tenant, entry)) = self.upstream(&caller.tenant, upstream) else { return Vec::new() };
        let policy = tenant.policy.load_full();
        let Ok(tools) = entry.port.tools().await else {
            tracing::warn!(tenant = %caller.tenant, %upstream, "the upstream's tools can't be listed");
            return Vec::new();
        };
        tools
            .into_iter()
            .filter_map(|definition| {
                let gated = match policy.offer(upstream, &definition.name) {
                    Offer::Never => return None,
                    Offer::Ungated => false,
                    Offer::Gated => true,
                };
                if gated && definition.owns_token_argument() {
                    tracing::warn!(tenant = %caller.tenant, %upstream, "a gated tool has a property approval_token of its own and is not offered");
                    return None;
                }
                Some(OfferedTool { definition, gated })
            })
            .collect()
    }
}

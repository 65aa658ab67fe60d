//! Decides over a call.

use super::{CallFacts, Decision, Policy};
use crate::domain::ids::{ToolName, UpstreamName};

/// Whether a tool can be offered to agents at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// No rule could allow it.
    Never,
    /// Some call of it may pass without approval, and none needs one.
    Ungated,
    /// Some call of it needs approval.
    Gated,
}

impl Policy {
    /// What must happen to a call.
    pub fn decide(&self, _call: &CallFacts<'_>) -> Decision {
        Decision::NotAllowed
    }

    /// Whether policy could allow any call of this tool.
    pub fn offer(&self, _upstream: &UpstreamName, _tool: &ToolName) -> Offer {
        Offer::Never
    }
}

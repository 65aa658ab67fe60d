//! How the tools of an endpoint are called, and what a name means.

use crate::domain::ids::{ToolName, UpstreamName};

/// Stands between an upstream's name and its tool's; an upstream's name has none in it and does not end with `_`.
const SEPARATOR: &str = "__";

/// What a path offers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/mcp`: every upstream of the tenant, tools named `<upstream>__<tool>`.
    All,
    /// `/mcp/<upstream>`: one, its tools named as it names them.
    One(UpstreamName),
}

impl Endpoint {
    /// The name that agents see.
    pub(super) fn name(&self, upstream: &UpstreamName, tool: &ToolName) -> String {
        match self {
            Self::All => format!("{upstream}{SEPARATOR}{tool}"),
            Self::One(_) => tool.as_str().to_owned(),
        }
    }

    /// What a name means: divided at the first separator, so that one name means one tool.
    pub(super) fn resolve(&self, name: &str) -> Option<(UpstreamName, ToolName)> {
        match self {
            Self::All => {
                let (upstream, tool) = name.split_once(SEPARATOR)?;
                Some((upstream.into(), tool.into()))
            }
            Self::One(upstream) => Some((upstream.clone(), name.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(name: &str) -> Option<(String, String)> {
        let (upstream, tool) = Endpoint::All.resolve(name)?;
        Some((upstream.as_str().to_owned(), tool.as_str().to_owned()))
    }

    fn pair(upstream: &str, tool: &str) -> (String, String) {
        (upstream.to_owned(), tool.to_owned())
    }

    #[test]
    fn a_prefixed_name_is_divided_at_the_first_separator() {
        assert_eq!(resolved("shop__refund_order"), Some(pair("shop", "refund_order")));
        assert_eq!(resolved("shop__a__b"), Some(pair("shop", "a__b")));
        assert_eq!(resolved("shop___a"), Some(pair("shop", "_a")));
        assert_eq!(resolved("refund_order"), None);
        assert_eq!(resolved("undersign_approval"), None);
        assert_eq!(resolved(" shop__x"), Some(pair(" shop", "x")));
    }

    #[test]
    fn a_name_means_the_tool_that_is_called_so() {
        for (upstream, tool) in [("shop", "refund"), ("a_b", "c__d"), ("a", "_b"), ("a", "b__c")] {
            let (upstream, tool) = (UpstreamName::from(upstream), ToolName::from(tool));
            for endpoint in [Endpoint::All, Endpoint::One(upstream.clone())] {
                let name = endpoint.name(&upstream, &tool);
                assert_eq!(endpoint.resolve(&name), Some((upstream.clone(), tool.clone())));
            }
        }
    }
}

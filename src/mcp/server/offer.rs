//! How a tool is offered: as the upstream lists it, and a gated one with a place for the token.

use std::sync::Arc;

use rmcp::model::Tool;
use serde_json::{Value, json};

use super::names::Endpoint;
use super::own;
use crate::app::OfferedTool;
use crate::domain::call::TOKEN_ARGUMENT;
use crate::domain::ids::UpstreamName;

/// What a gated tool's description says at its end.
const SENTENCE: &str = "May need a person's approval: leave approval_token out unless you were given one.";

/// The tool as agents see it; `None` for one that can't be offered without ambiguity.
pub(super) fn tool(endpoint: &Endpoint, upstream: &UpstreamName, offered: &OfferedTool) -> Option<Tool> {
    let definition = &offered.definition;
    if own::is_ours(definition.name.as_str()) || definition.owns_token_argument() {
        tracing::warn!(%upstream, "a tool has a name or a property that is ours, and is not offered");
        return None;
    }
    let mut tool: Tool = serde_json::from_value(definition.definition.clone()).ok()?;
    tool.name = endpoint.name(upstream, &definition.name).into();
    if offered.gated {
        add_token(&mut tool)?;
    }
    Some(tool)
}

/// Adds the token to the properties, not to the required ones; every other keyword stays. `None` when the schema's
/// properties are none.
fn add_token(tool: &mut Tool) -> Option<()> {
    let mut schema = (*tool.input_schema).clone();
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let Value::Object(properties) = properties else { return None };
    properties.insert(
        TOKEN_ARGUMENT.to_owned(),
        json!({"type": "string", "description": "Single-use token from undersign for exactly this call."}),
    );
    tool.input_schema = Arc::new(schema);
    let described = tool.description.as_deref().map(str::trim_end).filter(|text| !text.is_empty());
    tool.description = Some(match described {
        Some(text) => format!("{text} {SENTENCE}").into(),
        None => SENTENCE.into(),
    });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::call::ToolDefinition;

    fn offer(definition: Value, gated: bool) -> Option<Value> {
        let offered = OfferedTool { definition: ToolDefinition::new(definition).unwrap(), gated };
        let tool = tool(&Endpoint::All, &"shop".into(), &offered)?;
        Some(serde_json::to_value(tool).unwrap())
    }

    #[test]
    fn a_gated_tool_gains_the_token_and_a_sentence_and_nothing_else() {
        let listed = json!({
            "name": "refund_order",
            "description": "Refunds an order.",
            "inputSchema": {"type": "object", "additionalProperties": false, "required": ["order_id"],
                "x-vendor": 1, "properties": {"order_id": {"type": "string"}}},
            "annotations": {"readOnlyHint": true}
        });
        assert_eq!(
            offer(listed.clone(), true).unwrap(),
            json!({
                "name": "shop__refund_order",
                "description": "Refunds an order. May need a person's approval: leave approval_token out unless you were given one.",
                "inputSchema": {"type": "object", "additionalProperties": false, "required": ["order_id"],
                    "x-vendor": 1, "properties": {"order_id": {"type": "string"},
                        "approval_token": {"type": "string", "description": "Single-use token from undersign for exactly this call."}}},
                "annotations": {"readOnlyHint": true}
            })
        );
        let mut allowed = listed;
        let as_listed = offer(allowed.clone(), false).unwrap();
        allowed["name"] = json!("shop__refund_order");
        assert_eq!(as_listed, allowed);
    }

    #[test]
    fn a_gated_tool_without_properties_or_description_gets_them() {
        let offered = offer(json!({"name": "x", "inputSchema": {"type": "object"}}), true).unwrap();
        assert_eq!(offered["description"], SENTENCE);
        assert_eq!(offered["inputSchema"]["properties"]["approval_token"]["type"], "string");
        assert_eq!(offered["inputSchema"].get("required"), None);
    }

    #[test]
    fn what_is_named_as_ours_is_not_offered() {
        let schema = json!({"type": "object"});
        for name in ["undersign_approval", "undersign_cancel"] {
            assert_eq!(offer(json!({"name": name, "inputSchema": schema}), false), None);
        }
        let owner =
            json!({"name": "x", "inputSchema": {"properties": {"approval_token": {"type": "string"}}}});
        assert_eq!(offer(owner.clone(), true), None);
        assert_eq!(offer(owner, false), None);
    }
}

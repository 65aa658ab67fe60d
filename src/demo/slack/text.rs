//! A message as plain text, for the terminal of the headless demo.

use serde_json::Value;

/// The blocks as lines of text; buttons in brackets. What it does not know it leaves out.
#[must_use]
pub fn text_of(blocks: &[Value]) -> String {
    let mut lines = Vec::new();
    for block in blocks {
        match block["type"].as_str().unwrap_or_default() {
            "divider" => lines.push("────".to_owned()),
            "actions" => lines.push(items(&block["elements"]).map(button).collect::<Vec<_>>().join(" ")),
            "context" => lines.push(items(&block["elements"]).map(text).collect::<Vec<_>>().join(" · ")),
            "rich_text" => {
                for part in items(&block["elements"]) {
                    lines.push(items(&part["elements"]).map(text).collect());
                }
            }
            _ => {
                lines.extend(block.get("text").map(text));
                lines.extend(items(&block["fields"]).map(text));
                lines.extend(block.get("accessory").map(button));
            }
        }
    }
    lines.join("\n")
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A text object's `text` is the text itself; a date is shown as its fallback, and a person by id.
fn text(value: &Value) -> String {
    let shown = match value["type"].as_str() {
        Some("date") => value["fallback"].as_str(),
        Some("user") => return format!("@{}", value["user_id"].as_str().unwrap_or_default()),
        _ => value["text"].as_str(),
    };
    shown.unwrap_or_default().to_owned()
}

fn button(value: &Value) -> String {
    format!("[{}]", text(&value["text"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_readable_in_a_terminal() {
        let call: Value =
            serde_json::from_str(include_str!("../../../tests/data/slack/outgoing_chat_postMessage.json"))
                .unwrap();
        let shown = text_of(call["blocks"].as_array().unwrap());
        insta::assert_snapshot!(shown, @r#"
        Approval required
        Tool: deploy.restart
        Tenant: acme
        Target: prod/api
        Risk: high
        Policy: restart-prod v7
        Requester: agent-42
        {"replicas":3,"service":"api"}
        [Approve] [Deny]
        "#);
    }
}

//! From what the application says to what rmcp sends (MCP.md section 5).

use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData, InputRequiredResult, MetaObject,
    ResultType,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::app::Reply;
use crate::domain::answer::{Answer, META_KEY};
use crate::domain::visible::visible;

/// What our own keys in `_meta` begin with.
pub(super) const OUR_PREFIX: &str = "dev.undersign/";

/// Who answers, in `_meta` of every modern result.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The longest part of an unknown name that is said back, in characters.
const LONGEST_NAME: usize = 64;

/// What a `tools/call` is answered with.
pub(super) fn call(reply: Reply, name: &str) -> Result<CallToolResponse, ErrorData> {
    match reply {
        Reply::Answer(answer) => Ok(ours(&answer, true).into()),
        Reply::Upstream(value) => Ok(upstream(&value).into()),
        Reply::InputRequired(value) => question(&value),
        Reply::UpstreamError { code, message, data } => Err(ErrorData::new(ErrorCode(code), message, data)),
        Reply::UnknownTool => Err(unknown_tool(name)),
        Reply::StateRejected => Err(ErrorData::invalid_params("requestState rejected", None)),
    }
}

/// An answer of ours: one text block and `_meta`. Never `structuredContent`, for which hosts drop the text.
pub(super) fn ours(answer: &Answer, is_error: bool) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(answer.text())]);
    result.is_error = Some(is_error);
    let mut meta = MetaObject::new();
    meta.0.insert(META_KEY.to_owned(), answer.meta());
    result.meta = Some(meta);
    result
}

/// An upstream's result: as it came, or as text when rmcp has no type for it. The tool has run either way.
fn upstream(value: &Value) -> CallToolResult {
    let mut result = CallToolResult::deserialize(value).unwrap_or_else(|_| {
        let mut untyped = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
        untyped.is_error = Some(value.get("isError") == Some(&Value::Bool(true)));
        untyped
    });
    // A legacy upstream sends none, and rmcp takes it off again for legacy agents.
    result.result_type = Some(ResultType::COMPLETE);
    result.meta = not_ours(result.meta);
    result
}

/// What an upstream asks the agent for. rmcp makes an error of it for an agent of an older revision.
fn question(value: &Value) -> Result<CallToolResponse, ErrorData> {
    let mut asked = InputRequiredResult::deserialize(value).map_err(|_| {
        ErrorData::internal_error("the upstream asks for something that can't be passed on", None)
    })?;
    asked.meta = not_ours(asked.meta);
    Ok(asked.into())
}

/// An upstream's `_meta`, less what says who answers: nobody but us speaks as us.
fn not_ours(meta: Option<MetaObject>) -> Option<MetaObject> {
    let mut meta = meta?;
    meta.0.retain(|key, _| key != SERVER_INFO && !key.starts_with(OUR_PREFIX));
    Some(meta).filter(|meta| !meta.0.is_empty())
}

/// Says in a modern result who answers.
pub(super) fn sign(meta: &mut Option<MetaObject>) {
    let info = json!({"name": super::gateway::NAME, "version": super::gateway::VERSION});
    meta.get_or_insert_with(MetaObject::new).0.insert(SERVER_INFO.to_owned(), info);
}

/// The name is the agent's text, and ends up in a log: made visible and short.
pub(super) fn unknown_tool(name: &str) -> ErrorData {
    let short: String = name.chars().take(LONGEST_NAME).collect();
    ErrorData::invalid_params(format!("Unknown tool: {}", visible(&short)), None)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::*;
    use crate::domain::action::StateName;
    use crate::domain::answer::{Code, Standing};
    use crate::domain::ids::ActionId;
    use crate::domain::requirement::Progress;

    fn pending() -> Answer {
        let action = Uuid::parse_str("01a231e7-bb00-729f-9f01-020304050607").unwrap();
        Answer::plain(Code::ApprovalPending).about(Standing {
            action: ActionId::from_uuid(action),
            state: StateName::Pending,
            deadline: datetime!(2026-12-01 14:10:00 UTC),
            approvals: vec![Progress { group: "payments".into(), got: 0, count: 1 }],
            places: vec!["#payments".to_owned()],
            cards: vec!["https://acme.slack.com/archives/C0PAY/p1796133600000100".to_owned()],
        })
    }

    fn sent(reply: Reply, modern: bool) -> Value {
        let CallToolResponse::Complete(mut result) = call(reply, "x").unwrap() else { panic!("a result") };
        if modern {
            sign(&mut result.meta);
        }
        serde_json::to_value(result).unwrap()
    }

    #[test]
    fn a_pending_answer_is_exactly_as_documented() {
        assert_eq!(
            sent(pending().into(), true),
            json!({
                "resultType": "complete",
                "isError": true,
                "content": [{"type": "text", "text": "APPROVAL_PENDING: not executed. Waiting for 1 of payments, in #payments. Expires 14:10:00Z.\nCall undersign_approval with action_id=01a231e7-bb00-729f-9f01-020304050607 to wait; when approved, repeat this call unchanged with approval_token."}],
                "_meta": {
                    "dev.undersign/approval": {
                        "code": "approval_pending",
                        "action_id": "01a231e7-bb00-729f-9f01-020304050607",
                        "state": "pending",
                        "expires_at": "2026-12-01T14:10:00Z",
                        "approvals": [{"group": "payments", "got": 0, "count": 1}],
                        "cards": ["https://acme.slack.com/archives/C0PAY/p1796133600000100"]},
                    "io.modelcontextprotocol/serverInfo": {"name": "undersign", "version": env!("CARGO_PKG_VERSION")}}
            })
        );
    }

    #[test]
    fn every_answer_has_one_text_block_and_nothing_structured() {
        for code in Code::ALL {
            let result = sent(Answer::plain(*code).into(), false);
            assert_eq!(result["content"].as_array().unwrap().len(), 1);
            assert_eq!(result["_meta"], json!({"dev.undersign/approval": {"code": code.as_str()}}));
            assert_eq!(result["isError"], true);
            assert!(result.get("structuredContent").is_none());
        }
        assert_eq!(ours(&Answer::plain(Code::NotFound), false).is_error, Some(false));
    }

    #[test]
    fn an_upstream_result_stays_but_for_who_answers() {
        let value = json!({"content": [{"type": "text", "text": "ok"}], "structuredContent": null,
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "shop", "version": "1"}, "vendor/x": 1}});
        let result = sent(Reply::Upstream(value), false);
        assert_eq!(
            result,
            json!({"resultType": "complete", "content": [{"type": "text", "text": "ok"}],
                "structuredContent": null, "_meta": {"vendor/x": 1}})
        );
        let bare = json!({"content": [], "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "shop"}}});
        assert_eq!(sent(Reply::Upstream(bare), false), json!({"resultType": "complete", "content": []}));
    }

    #[test]
    fn a_result_without_a_type_is_shown_as_text() {
        let value = json!({"content": [{"type": "hologram", "data": "x"}], "isError": true});
        let result = sent(Reply::Upstream(value.clone()), false);
        assert_eq!(result["isError"], true);
        assert_eq!(result["content"], json!([{"type": "text", "text": value.to_string()}]));
        let fine = json!({"content": [{"type": "hologram", "data": "x"}]});
        assert_eq!(sent(Reply::Upstream(fine), false)["isError"], false);
    }

    #[test]
    fn errors_are_errors() {
        let data = Some(json!({"x": 1}));
        let error = Reply::UpstreamError { code: -32000, message: "no".to_owned(), data: data.clone() };
        assert_eq!(call(error, "x").unwrap_err(), ErrorData::new(ErrorCode(-32000), "no", data));
        let unknown = call(Reply::UnknownTool, &format!("a\u{200b}{}", "x".repeat(1000))).unwrap_err();
        assert_eq!(unknown.code, ErrorCode::INVALID_PARAMS);
        assert_eq!(unknown.message, format!("Unknown tool: a\\u{{200b}}{}", "x".repeat(62)));
    }
}

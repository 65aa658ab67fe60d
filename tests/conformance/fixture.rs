//! The upstream that the MCP conformance suite wants to find behind the gateway: tools with the names and the behaviour
//! that its scenarios ask for.

use std::time::Duration;

use axum::Router;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ErrorData, Implementation,
    InputRequiredResult, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, ServerNotification, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};

/// Tools without arguments, and what they are for.
const PLAIN: &[(&str, &str)] = &[
    ("test_simple_text", "Answers with a text"),
    ("test_image_content", "Answers with an image"),
    ("test_audio_content", "Answers with a sound"),
    ("test_embedded_resource", "Answers with a resource"),
    ("test_multiple_content_types", "Answers with a text, an image and a resource"),
    ("test_error_handling", "Always fails"),
    ("test_tool_with_progress", "Reports progress three times"),
    ("test_missing_capability", "Needs sampling"),
    ("test_streaming_elicitation", "Answers with a text"),
    ("test_logging_tool", "Logs, whether it was asked to or not"),
    ("test_input_required_result_elicitation", "Asks for a name"),
    ("test_input_required_result_sampling", "Asks the client's model"),
    ("test_input_required_result_list_roots", "Asks for the client's roots"),
    ("test_input_required_result_request_state", "Asks once, and keeps state"),
    ("test_input_required_result_multiple_inputs", "Asks three things at once"),
    ("test_input_required_result_multi_round", "Asks twice"),
    ("test_input_required_result_tampered_state", "Keeps state that can't be changed"),
    ("test_input_required_result_capabilities", "Asks for what the client can do"),
];

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// A header and no samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// The routes of the fixture.
pub fn router() -> Router {
    let config =
        StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let sessions = NeverSessionManager::default();
    Router::new().route_service("/mcp", StreamableHttpService::new(|| Ok(Fixture), sessions.into(), config))
}

#[derive(Clone)]
struct Fixture;

impl Fixture {
    fn tools() -> Vec<Tool> {
        let plain = PLAIN.iter().map(|(name, description)| {
            json!({"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}})
        });
        let with_header = json!({"name": "test_x_mcp_header", "description": "Has an argument that is a header too",
            "inputSchema": {"type": "object", "properties":
                {"region": {"type": "string", "x-mcp-header": "Region"}}}});
        let tools = plain.chain([with_header, schema_tool()]);
        tools.map(|tool| serde_json::from_value(tool).unwrap()).collect()
    }
}

/// A tool whose schema has the keywords that a gateway could lose.
fn schema_tool() -> Value {
    json!({
        "name": "json_schema_2020_12_tool",
        "description": "Has a schema with many keywords",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties":
                {"street": {"type": "string"}, "city": {"type": "string"}}}},
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": false,
        },
    })
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("fixture", "1.0.0");
        info
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        Self::tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(Self::tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match request.name.as_ref() {
            "test_tool_with_progress" => report_progress(&context).await,
            "test_missing_capability" => {
                let needed: ClientCapabilities = serde_json::from_value(json!({"sampling": {}})).unwrap();
                if capabilities(&context).get("sampling").is_none() {
                    return Err(ErrorData::missing_required_client_capability(needed));
                }
            }
            // Nothing of this may arrive at the agent.
            "test_logging_tool" => {
                let message = json!({"method": "notifications/message",
                    "params": {"level": "info", "data": "nobody asked for this"}});
                let notification: ServerNotification = serde_json::from_value(message).unwrap();
                context.peer.send_notification(notification).await.unwrap();
            }
            _ => {}
        }
        if let Some(content) = content(&request.name) {
            let result = json!({"content": content, "isError": request.name == "test_error_handling"});
            return Ok(serde_json::from_value::<CallToolResult>(result).unwrap().into());
        }
        let answered = json!(request.input_responses.unwrap_or_default());
        match ask(&request.name, &answered, request.request_state.as_deref(), &capabilities(&context))? {
            Turn::Done(said) => {
                let result = json!({"content": [text(&said)]});
                Ok(serde_json::from_value::<CallToolResult>(result).unwrap().into())
            }
            Turn::Ask { questions, state } => {
                let result = json!({"resultType": "input_required", "inputRequests": questions,
                    "requestState": state});
                Ok(serde_json::from_value::<InputRequiredResult>(result).unwrap().into())
            }
        }
    }
}

fn capabilities(context: &RequestContext<RoleServer>) -> Value {
    serde_json::to_value(context.client_capabilities()).unwrap()
}

async fn report_progress(context: &RequestContext<RoleServer>) {
    for done in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let report = ProgressNotificationParam::new(token, done).with_total(100.0);
            context.peer.notify_progress(report).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}})
}

/// What the tools answer that ask nothing.
fn content(tool: &str) -> Option<Value> {
    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    Some(match tool {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => json!([resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content."
        )]),
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image,
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        "test_error_handling" => json!([text("This tool intentionally returns an error for testing")]),
        "test_tool_with_progress"
        | "test_missing_capability"
        | "test_streaming_elicitation"
        | "test_logging_tool"
        | "test_x_mcp_header"
        | "json_schema_2020_12_tool" => json!([text("Done.")]),
        _ => return None,
    })
}

/// One round of a conversation by retried requests.
enum Turn {
    Ask { questions: Value, state: Option<String> },
    Done(String),
}

fn ask(tool: &str, answered: &Value, state: Option<&str>, can: &Value) -> Result<Turn, ErrorData> {
    // A state that this server did not make says nothing.
    let step = state.map(open).transpose()?;
    let done = |said: String| Ok(Turn::Done(said));
    let once = |questions: Value| Ok(Turn::Ask { questions, state: None });
    let keep = |questions: Value, step: &str| Ok(Turn::Ask { questions, state: Some(seal(step)) });
    match tool {
        "test_input_required_result_elicitation" => match answered["user_name"]["content"]["name"].as_str() {
            Some(name) => done(format!("Hello, {name}!")),
            None => once(json!({"user_name": form("What is your name?", "name", "string")})),
        },
        "test_input_required_result_sampling" => match answered["capital_question"]["content"].as_object() {
            Some(said) => done(said["text"].as_str().unwrap_or_default().to_owned()),
            None => once(json!({"capital_question": question()})),
        },
        "test_input_required_result_list_roots" => match answered["client_roots"]["roots"].as_array() {
            Some(roots) => done(json!(roots).to_string()),
            None => once(json!({"client_roots": roots()})),
        },
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            match (answered["confirm"].is_object(), step.as_deref()) {
                (true, Some("confirm")) => done("state-ok".to_owned()),
                _ => keep(json!({"confirm": form("Please confirm", "ok", "boolean")}), "confirm"),
            }
        }
        "test_input_required_result_multiple_inputs" => {
            let all = ["user_name", "greeting", "client_roots"].iter().all(|key| answered[key].is_object());
            if all && step.as_deref() == Some("all") {
                return done("All three were answered.".to_owned());
            }
            let name = form("What is your name?", "name", "string");
            keep(json!({"user_name": name, "greeting": question(), "client_roots": roots()}), "all")
        }
        "test_input_required_result_multi_round" => match step.as_deref() {
            Some("1") if answered["step1"].is_object() => {
                keep(json!({"step2": form("What is your favourite colour?", "color", "string")}), "2")
            }
            Some("2") if answered["step2"].is_object() => done("Thank you.".to_owned()),
            _ => keep(json!({"step1": form("What is your name?", "name", "string")}), "1"),
        },
        "test_input_required_result_capabilities" => {
            let mut questions = json!({});
            if can.get("sampling").is_some() {
                questions["capital_question"] = question();
            }
            if can.get("elicitation").is_some() {
                questions["user_name"] = form("What is your name?", "name", "string");
            }
            once(questions)
        }
        _ => Err(ErrorData::invalid_params("Unknown tool", None)),
    }
}

fn form(message: &str, property: &str, kind: &str) -> Value {
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema":
        {"type": "object", "properties": {property: {"type": kind}}, "required": [property]}}})
}

fn question() -> Value {
    json!({"method": "sampling/createMessage", "params": {"maxTokens": 100,
        "messages": [{"role": "user", "content": text("What is the capital of France?")}]}})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

fn seal(step: &str) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"the fixture's own key").unwrap();
    mac.update(step.as_bytes());
    format!("{step}.{}", hex::encode(mac.finalize().into_bytes()))
}

fn open(state: &str) -> Result<String, ErrorData> {
    match state.split_once('.') {
        Some((step, _)) if seal(step) == state => Ok(step.to_owned()),
        _ => Err(ErrorData::invalid_params("requestState was changed", None)),
    }
}

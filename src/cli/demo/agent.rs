//! The demo's agent: an MCP client reduced to `tools/call`, so that the transcript shows what goes over the wire.

use serde_json::{Value, json};

use crate::cli::Failure;
use crate::domain::answer::META_KEY;

/// An agent with its key.
pub(super) struct Agent {
    url: String,
    key: String,
    http: reqwest::Client,
}

/// What a call was answered with.
pub(super) struct Answer {
    result: Value,
}

impl Agent {
    pub(super) fn new(url: String, key: String) -> Result<Self, Failure> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|_| Failure::no("the demo's HTTP client can't be built"))?;
        Ok(Self { url, key, http })
    }

    /// Calls a tool, as revision 2026-07-28 has it.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<Answer, String> {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "demo-agent", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            }},
        });
        let response = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", format!("Bearer {}", self.key))
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
            .body(body.to_string())
            .send()
            .await
            .map_err(|_| "the service did not answer".to_owned())?;
        let text = response.text().await.map_err(|_| "the answer broke off".to_owned())?;
        let answer: Value = serde_json::from_str(&text).map_err(|_| format!("no JSON: {text}"))?;
        answer
            .get("result")
            .map(|result| Answer { result: result.clone() })
            .ok_or_else(|| format!("no result: {text}"))
    }

    /// The same call with the token in its arguments.
    pub(super) async fn call_with(
        &self,
        tool: &str,
        mut arguments: Value,
        token: &str,
    ) -> Result<Answer, String> {
        arguments["approval_token"] = json!(token);
        self.call(tool, arguments).await
    }

    /// Waits for a decision.
    pub(super) async fn approval(&self, action: &str) -> Result<Answer, String> {
        self.call("undersign_approval", json!({ "action_id": action, "wait_seconds": 30 })).await
    }
}

impl Answer {
    fn meta(&self, field: &str) -> Option<&str> {
        self.result["_meta"][META_KEY][field].as_str()
    }

    /// Our code; `None` for the upstream's own result.
    pub(super) fn code(&self) -> Option<&str> {
        self.meta("code")
    }

    pub(super) fn action(&self) -> String {
        self.meta("action_id").unwrap_or_default().to_owned()
    }

    pub(super) fn token(&self) -> Option<String> {
        self.meta("approval_token").map(str::to_owned)
    }

    /// What a model reads.
    pub(super) fn text(&self) -> &str {
        self.result["content"][0]["text"].as_str().unwrap_or_default()
    }
}

//! An agent as a plain JSON-over-HTTP client, for requests that no SDK would send. The SDK's own client is used in
//! `tests/path.rs`.

use axum::http::StatusCode;
use serde_json::{Value, json};

/// The protocol revision that a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

#[derive(Clone)]
pub struct Agent {
    pub url: String,
    pub key: String,
    pub era: Era,
    http: reqwest::Client,
}

/// A `tools/call` answer.
#[derive(Debug, Clone)]
pub struct Answer(pub Value);

impl Agent {
    pub fn new(url: String, key: &str) -> Self {
        let http = reqwest::Client::builder().pool_max_idle_per_host(4).build().unwrap();
        Self { url, key: key.to_owned(), era: Era::Modern, http }
    }

    pub fn legacy(mut self) -> Self {
        self.era = Era::Legacy;
        self
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.call_with_meta(tool, arguments, json!({})).await
    }

    pub async fn call_with_token(&self, tool: &str, mut arguments: Value, token: &str) -> Answer {
        arguments["approval_token"] = json!(token);
        self.call(tool, arguments).await
    }

    pub async fn call_with_meta(&self, tool: &str, arguments: Value, mut meta: Value) -> Answer {
        self.complete(&mut meta);
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": meta}});
        let (status, answer) = self.send(tool, body.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        Answer(answer)
    }

    /// A call whose arguments are exactly this text.
    pub async fn call_raw(&self, tool: &str, arguments: &str) -> (StatusCode, Answer) {
        let mut meta = json!({});
        self.complete(&mut meta);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{meta}}}}}"#
        );
        let (status, answer) = self.send(tool, body).await;
        (status, Answer(answer))
    }

    pub async fn list(&self) -> Vec<Value> {
        let mut meta = json!({});
        self.complete(&mut meta);
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
        let (_, answer) = self.request("tools/list", None, body.to_string().into_bytes()).await;
        answer["result"]["tools"].as_array().cloned().unwrap_or_else(|| panic!("{answer}"))
    }

    pub async fn approval(&self, action: &str, wait: u64) -> Answer {
        self.call("undersign_approval", json!({"action_id": action, "wait_seconds": wait})).await
    }

    pub async fn cancel(&self, action: &str) -> Answer {
        self.call("undersign_cancel", json!({"action_id": action})).await
    }

    async fn send(&self, tool: &str, body: String) -> (StatusCode, Value) {
        self.request("tools/call", Some(tool), body.into_bytes()).await
    }

    pub async fn request(&self, method: &str, name: Option<&str>, body: Vec<u8>) -> (StatusCode, Value) {
        let mut request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", format!("Bearer {}", self.key));
        request = match self.era {
            Era::Legacy => request.header("mcp-protocol-version", "2025-11-25"),
            Era::Modern => request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method),
        };
        if let (Era::Modern, Some(name)) = (self.era, name) {
            request = request.header("mcp-name", name);
        }
        let response = request.body(body).send().await.unwrap();
        let status = StatusCode::from_u16(response.status().as_u16()).unwrap();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn complete(&self, meta: &mut Value) {
        if self.era == Era::Modern {
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "harness", "version": "1"});
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
    }
}

impl Answer {
    pub fn result(&self) -> &Value {
        &self.0["result"]
    }

    pub fn meta(&self) -> &Value {
        &self.result()["_meta"]["dev.undersign/approval"]
    }

    /// Our code, or `upstream` for an answer that is not ours.
    pub fn code(&self) -> String {
        self.meta()["code"].as_str().unwrap_or("upstream").to_owned()
    }

    pub fn text(&self) -> String {
        self.result()["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }

    pub fn is_error(&self) -> bool {
        self.result()["isError"].as_bool().unwrap_or(false)
    }

    pub fn action_id(&self) -> String {
        self.meta()["action_id"].as_str().unwrap_or_else(|| panic!("no action id in {}", self.0)).to_owned()
    }

    pub fn token(&self) -> Option<String> {
        self.meta()["approval_token"].as_str().map(str::to_owned)
    }
}

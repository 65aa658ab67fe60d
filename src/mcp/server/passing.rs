//! What of an agent's request goes along with a call that policy allows, and the upstream's progress on its way back.

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ProgressNotificationParam, ProgressToken, TASKS_EXTENSION_ID,
};
use rmcp::service::{Peer, RequestContext};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::reply::OUR_PREFIX;
use crate::app::ports::{Passing, Progress};

/// How many reports of progress may wait for an agent that reads slowly.
const WAITING_REPORTS: usize = 16;

/// The upstream's reports, for an agent that asked for them.
pub(super) struct Reports {
    token: ProgressToken,
    peer: Peer<RoleServer>,
    told: mpsc::Receiver<Progress>,
    last: f64,
}

/// Takes out of a request what may go along. Older revisions know no rounds and declare nothing with a request.
pub(super) fn take(
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
    is_modern: bool,
) -> (Passing, Option<Reports>) {
    let mut passing = Passing { meta: own_meta(&context.meta.0.0), ..Passing::default() };
    if is_modern {
        let capabilities = context.client_capabilities().map(without_tasks);
        passing.capabilities = capabilities.and_then(|capabilities| serde_json::to_value(capabilities).ok());
        passing.input_responses =
            request.input_responses.clone().map(|answers| answers.into_iter().collect());
    }
    // Looked at in every revision: where approval is needed, a state that is not ours is refused.
    passing.request_state.clone_from(&request.request_state);
    let reports = context.meta.get_progress_token().map(|token| {
        let (sender, told) = mpsc::channel(WAITING_REPORTS);
        passing.progress = Some(sender);
        Reports { token, peer: context.peer.clone(), told, last: f64::NEG_INFINITY }
    });
    (passing, reports)
}

/// What the agent says to the upstream: neither our keys, nor the protocol's own, which each hop writes for itself.
fn own_meta(meta: &Map<String, Value>) -> Map<String, Value> {
    let of_the_hop = |key: &str| {
        key == "progressToken" || key.starts_with(OUR_PREFIX) || key.starts_with("io.modelcontextprotocol/")
    };
    meta.iter().filter(|(key, _)| !of_the_hop(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A task of the upstream's would not be followed, so nobody may offer to take one.
fn without_tasks(mut capabilities: ClientCapabilities) -> ClientCapabilities {
    if let Some(extensions) = &mut capabilities.extensions {
        extensions.remove(TASKS_EXTENSION_ID);
    }
    capabilities
}

impl Reports {
    /// Tells the agent of progress until the work is done, and then its outcome.
    pub(super) async fn during<T>(mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        let outcome = loop {
            tokio::select! {
                biased;
                Some(report) = self.told.recv() => self.tell(report).await,
                outcome = &mut work => break outcome,
            }
        };
        // What the upstream said before it answered is told before the answer.
        while let Ok(report) = self.told.try_recv() {
            self.tell(report).await;
        }
        outcome
    }

    /// Only what increases is progress.
    async fn tell(&mut self, Progress { done, total, message }: Progress) {
        if done > self.last {
            self.last = done;
            let mut report = ProgressNotificationParam::new(self.token.clone(), done);
            (report.total, report.message) = (total, message);
            // An agent that is gone hears nothing, and the call goes on.
            let _ = self.peer.notify_progress(report).await;
        }
    }
}

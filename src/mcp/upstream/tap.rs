//! Sits between rmcp and the transport, where messages still come one after the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, GetExtensions as _, GetMeta as _, JsonRpcMessage, ProgressToken, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::mpsc;

use crate::app::ports::Progress;

/// Two things that rmcp leaves undone. It ends an open connection on an error without an id: a restarted legacy server
/// answers so, rmcp drops it, and the call that it is about would hang until its time limit, as would every later one.
/// And it follows progress, of which rmcp handles each message in a task of its own, so that their order is lost.
pub(super) struct Tap<T> {
    transport: T,
    open: Arc<AtomicBool>,
    followed: HashMap<ProgressToken, mpsc::Sender<Progress>>,
}

/// Put into a request's extensions: where its progress goes. The upstream sees nothing of it.
#[derive(Clone)]
pub(super) struct Follow(pub(super) mpsc::Sender<Progress>);

/// Says that the handshake is over; during it, rmcp reads such an error as the mark of a legacy server.
pub(super) struct Opener(Arc<AtomicBool>);

impl Opener {
    pub(super) fn open(self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<T> Tap<T> {
    pub(super) fn new(transport: T) -> (Self, Opener) {
        let open = Arc::new(AtomicBool::new(false));
        (Self { transport, open: Arc::clone(&open), followed: HashMap::new() }, Opener(open))
    }

    /// Follows a request that asks for it. Those that nobody waits for any more are forgotten here.
    fn follow(&mut self, request: &ClientRequest) {
        if let ClientRequest::CallToolRequest(call) = request
            && let Some(Follow(sender)) = call.extensions().get()
            && let Some(token) = request.get_meta().get_progress_token()
        {
            self.followed.retain(|_, sender| !sender.is_closed());
            self.followed.insert(token, sender.clone());
        }
    }

    /// Never waits: an upstream that reports faster than the agent reads must not hold up the connection.
    fn report(&self, notification: &ServerNotification) {
        if let ServerNotification::ProgressNotification(notification) = notification
            && let Some(sender) = self.followed.get(&notification.params.progress_token)
        {
            let report = &notification.params;
            let (done, total) = (report.progress, report.total);
            // One that finds no room is dropped: a later one says more.
            let _ = sender.try_send(Progress { done, total, message: report.message.clone() });
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item {
            self.follow(&request.request);
        }
        self.transport.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.transport.receive().await?;
        match &message {
            JsonRpcMessage::Error(error) if error.id.is_none() && self.open.load(Ordering::Acquire) => {
                tracing::warn!("an upstream sent an error without an id; the connection is given up");
                return None;
            }
            JsonRpcMessage::Notification(notification) => self.report(&notification.notification),
            _ => {}
        }
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

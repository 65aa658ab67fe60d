//! Sits between rmcp and the transport, where messages still come one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// Ends an open connection on an error without an id. A restarted legacy server answers so, rmcp drops it, and the call
/// that it is about would hang until its time limit, as would every later one.
pub(super) struct Tap<T> {
    transport: T,
    open: Arc<AtomicBool>,
}

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
        (Self { transport, open: Arc::clone(&open) }, Opener(open))
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.transport.receive().await?;
        let unroutable = matches!(&message, JsonRpcMessage::Error(error) if error.id.is_none());
        if unroutable && self.open.load(Ordering::Acquire) {
            tracing::warn!("an upstream sent an error without an id; the connection is given up");
            return None;
        }
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

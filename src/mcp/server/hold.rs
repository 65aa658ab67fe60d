//! Holding a request open until people have decided, with progress for clients that asked for it.
//!
//! A hold never executes: what it ends with is an answer, with the token at best. A client that goes away ends its hold
//! and nothing else.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::app::{App, Caller};
use crate::domain::answer::{Answer, Code};

/// How far apart signs of life are.
const PROGRESS: Duration = Duration::from_secs(5);

/// Waits up to `wait` for an action to become something that the agent can act on. `answer` is how it stands now.
pub(super) async fn hold(
    app: &App,
    caller: &Caller,
    answer: Answer,
    wait: Duration,
    context: &RequestContext<RoleServer>,
) -> Answer {
    let waits = matches!(answer.code, Code::ApprovalPending | Code::InProgress);
    let Some(standing) = answer.standing.as_ref().filter(|_| waits && !wait.is_zero()) else { return answer };
    let id = standing.action.to_string();
    let message = standing.waiting_for();
    let mut progress = context.meta.get_progress_token().map(|token| Progress { token, told: 0, message });
    if let Some(progress) = &mut progress {
        progress.tell(context).await;
    }
    let mut beat = interval_at(Instant::now() + PROGRESS, PROGRESS);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let decided = app.approval(caller, &id, wait);
    tokio::pin!(decided);
    loop {
        let beats = async {
            if progress.is_none() {
                std::future::pending::<()>().await;
            }
            beat.tick().await;
        };
        tokio::select! {
            answer = &mut decided => return answer,
            // The client is gone: nobody reads this.
            () = context.ct.cancelled() => return answer,
            () = beats => {}
        }
        if let Some(progress) = &mut progress {
            progress.tell(context).await;
        }
    }
}

/// Signs of life, counted from one.
struct Progress {
    token: ProgressToken,
    told: u32,
    message: String,
}

impl Progress {
    async fn tell(&mut self, context: &RequestContext<RoleServer>) {
        self.told += 1;
        let said = ProgressNotificationParam::new(self.token.clone(), f64::from(self.told))
            .with_message(self.message.clone());
        if context.peer.notify_progress(said).await.is_err() {
            tracing::debug!("a sign of progress was not delivered");
        }
    }
}

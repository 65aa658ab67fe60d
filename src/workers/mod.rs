//! Loops beside the requests: outbox, inbox, sweeper, audit chain. Each replica runs them all; the database shares the work out.
//!
//! A loop that fails goes on at its next beat. A loop that panics ends the process: a service that only looks alive is
//! worse than one that is restarted.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// How often each loop looks when there is nothing to do.
#[derive(Debug, Clone, Copy)]
pub struct Beats {
    /// The outbox.
    pub outbox: Duration,
    /// The inbox of presses.
    pub inbox: Duration,
    /// Deadlines and abandoned claims.
    pub sweep: Duration,
    /// Giving audit events their place in the chain.
    pub sequence: Duration,
    /// Signing where the chains end.
    pub sign: Duration,
    /// Decisions that nothing told of.
    pub look: Duration,
    /// Forgetting old presses.
    pub forget: Duration,
}

impl Default for Beats {
    fn default() -> Self {
        Self {
            outbox: Duration::from_millis(250),
            inbox: Duration::from_secs(1),
            sweep: Duration::from_millis(500),
            sequence: Duration::from_secs(1),
            sign: Duration::from_secs(60),
            look: Duration::from_secs(2),
            forget: Duration::from_secs(600),
        }
    }
}

/// Runs every loop until `stop`. Returns early when one of them panicked: the process should end then.
///
/// # Errors
/// The name of the loop that panicked.
pub async fn run(app: App, beats: Beats, stop: CancellationToken) -> Result<(), &'static str> {
    let mut loops = JoinSet::new();
    let a = app.clone();
    loops.spawn(beat("outbox", beats.outbox, stop.clone(), move || {
        let app = a.clone();
        async move { app.deliver_due().await }
    }));
    let a = app.clone();
    loops.spawn(beat("inbox", beats.inbox, stop.clone(), move || {
        let app = a.clone();
        async move { app.drain_inbox().await }
    }));
    let a = app.clone();
    loops.spawn(beat("sweep", beats.sweep, stop.clone(), move || {
        let app = a.clone();
        async move { app.sweep().await }
    }));
    let a = app.clone();
    loops.spawn(beat("sequence", beats.sequence, stop.clone(), move || {
        let app = a.clone();
        async move { app.sequence().await }
    }));
    let a = app.clone();
    loops.spawn(beat("sign", beats.sign, stop.clone(), move || {
        let app = a.clone();
        // What it did is done; there is no more of it before the next beat.
        async move { app.sign_heads().await.map(|_| 0) }
    }));
    let a = app.clone();
    loops.spawn(beat("look", beats.look, stop.clone(), move || {
        let app = a.clone();
        async move { app.look_for_waiters().await }
    }));
    loops.spawn(hear(app.clone(), stop.clone()));
    loops.spawn(beat("forget", beats.forget, stop.clone(), move || {
        let app = app.clone();
        async move { app.forget_presses().await.map(|_| 0) }
    }));
    while let Some(ended) = loops.join_next().await {
        if ended.is_err() {
            stop.cancel();
            return Err("a worker loop panicked");
        }
    }
    Ok(())
}

/// Hears what other replicas decide. What is missed while there is no connection, the slow look finds.
async fn hear(app: App, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let Err(error) = tokio::select! {
            () = stop.cancelled() => return,
            ended = app.hear_changes() => ended,
        };
        tracing::warn!(%error, "other replicas are not heard; waiting agents are looked after more slowly");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// One loop: again at once while there is work, after the beat otherwise.
async fn beat<F, W, E>(name: &'static str, every: Duration, stop: CancellationToken, work: F)
where
    F: Fn() -> W + Send,
    W: Future<Output = Result<usize, E>> + Send,
    E: std::fmt::Display,
{
    while !stop.is_cancelled() {
        let pause = match work().await {
            Ok(0) => every,
            Ok(_) => Duration::ZERO,
            Err(error) => {
                tracing::error!(worker = name, %error, "a beat failed");
                every.max(Duration::from_secs(1))
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

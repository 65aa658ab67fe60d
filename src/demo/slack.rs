//! A Slack workspace, played: the Web API over HTTP as documented, and the interactions Slack would send.
//!
//! Keeps true: it is stricter than Slack, never more lenient, so that what it takes Slack takes; every edit of every
//! message and every call is kept for whoever wants to look. Not a rate limiter and not a clock: limits are played by
//! [`Fault`], and times are handed in.

mod blocks;
mod chat;
mod methods;
mod model;
mod press;
mod server;
mod text;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use model::{
    BOT_ID, BOT_USER, Ephemeral, Fault, Message, Request, SlackChannel, SlackSetup, SlackUser,
    SlackUsergroup, Version,
};
pub use press::{ClickError, PressError, SignedRequest};
pub use text::text_of;

/// How long [`FakeSlack::wait_message`] waits: far beyond what any working program needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running fake workspace. Clones are the same one; it ends with the last of them.
#[derive(Clone)]
pub struct FakeSlack {
    inner: Arc<Inner>,
    _stop: Arc<DropGuard>,
}

/// What the server and the handles share.
struct Inner {
    setup: SlackSetup,
    address: SocketAddr,
    state: Mutex<State>,
    /// Counts changes, for those who wait for one.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    channels: BTreeMap<String, SlackChannel>,
    users: BTreeMap<String, SlackUser>,
    usergroups: BTreeMap<String, SlackUsergroup>,
    messages: Vec<Message>,
    ephemerals: Vec<Ephemeral>,
    requests: Vec<Request>,
    faults: BTreeMap<String, VecDeque<Fault>>,
    /// The source of every `ts` and id: each number is used once.
    serial: u32,
}

impl State {
    fn next(&mut self) -> u32 {
        self.serial += 1;
        self.serial
    }
}

/// No message came that was waited for. The text lists those that are there.
#[derive(Debug, thiserror::Error)]
#[error("no such message in {channel} within {} seconds; there are {}:\n{there}", PATIENCE.as_secs(), .count)]
pub struct NoMessage {
    channel: String,
    count: usize,
    there: String,
}

impl FakeSlack {
    /// Starts the workspace on a port of the system's choice on the loopback interface.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(setup: SlackSetup) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let state = State {
            channels: setup.channels.iter().map(|c| (c.id.clone(), c.clone())).collect(),
            users: setup.users.iter().map(|u| (u.id.clone(), u.clone())).collect(),
            usergroups: setup.usergroups.iter().map(|g| (g.id.clone(), g.clone())).collect(),
            ..State::default()
        };
        let inner = Arc::new(Inner {
            setup,
            address: listener.local_addr()?,
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
        });
        let stop = CancellationToken::new();
        let serving = axum::serve(listener, server::router(Arc::clone(&inner)))
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        tokio::spawn(serving.into_future());
        Ok(Self { inner, _stop: Arc::new(stop.drop_guard()) })
    }

    /// The base of the Web API, for `api_url`: `http://127.0.0.1:PORT/api`.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("http://{}/api", self.inner.address)
    }

    /// The messages of a channel, oldest first.
    #[must_use]
    pub fn messages(&self, channel: &str) -> Vec<Message> {
        self.inner.state().messages.iter().filter(|m| m.channel == channel).cloned().collect()
    }

    /// The first message of the channel that fulfils the condition, now or within 30 seconds.
    ///
    /// # Errors
    /// [`NoMessage`] when none does.
    pub async fn wait_message(
        &self,
        channel: &str,
        wanted: impl Fn(&Message) -> bool,
    ) -> Result<Message, NoMessage> {
        let found = self.wait(|| self.messages(channel).into_iter().find(|m| wanted(m))).await;
        found.ok_or_else(|| {
            let there = self.messages(channel);
            let texts: Vec<String> = there.iter().map(|m| format!("[{}]\n{}", m.ts, m.as_text())).collect();
            NoMessage { channel: channel.to_owned(), count: there.len(), there: texts.join("\n") }
        })
    }

    /// The first ephemeral note that fulfils the condition, now or within 30 seconds; `None` after that.
    pub async fn wait_ephemeral(&self, wanted: impl Fn(&Ephemeral) -> bool) -> Option<Ephemeral> {
        self.wait(|| self.ephemerals().into_iter().find(|e| wanted(e))).await
    }

    async fn wait<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        // Subscribed before the first look, so that a change between a look and the wait is not missed.
        let mut changed = self.inner.changed.subscribe();
        let looking = async {
            loop {
                if let Some(found) = look() {
                    return Some(found);
                }
                changed.changed().await.ok()?;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.ok().flatten()
    }

    /// Every note that was shown to one person, oldest first.
    #[must_use]
    pub fn ephemerals(&self) -> Vec<Ephemeral> {
        self.inner.state().ephemerals.clone()
    }

    /// Every call of the Web API, oldest first, refused ones included.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.inner.state().requests.clone()
    }

    /// Adds or replaces a person.
    pub fn set_user(&self, user: SlackUser) {
        self.inner.change(|state| drop(state.users.insert(user.id.clone(), user)));
    }

    /// Adds or replaces a user group.
    pub fn set_usergroup(&self, group: SlackUsergroup) {
        self.inner.change(|state| drop(state.usergroups.insert(group.id.clone(), group)));
    }

    /// Adds or replaces a channel; its messages stay.
    pub fn set_channel(&self, channel: SlackChannel) {
        self.inner.change(|state| drop(state.channels.insert(channel.id.clone(), channel)));
    }

    /// Archives a channel. A channel that is not there stays not there.
    pub fn archive(&self, channel: &str) {
        self.inner.change(|state| {
            if let Some(found) = state.channels.get_mut(channel) {
                found.archived = true;
            }
        });
    }

    /// Deletes a message, as an administrator may.
    pub fn delete_message(&self, channel: &str, ts: &str) {
        self.inner.change(|state| state.messages.retain(|m| m.channel != channel || m.ts != ts));
    }

    /// The next `times` calls of the method go wrong in this way, after those already ordered.
    pub fn fail(&self, method: &str, times: usize, fault: &Fault) {
        self.inner.change(|state| {
            let queue = state.faults.entry(method.to_owned()).or_default();
            queue.extend(std::iter::repeat_n(fault.clone(), times));
        });
    }

    /// Withdraws the faults of the method that have not happened yet.
    pub fn recover(&self, method: &str) {
        self.inner.change(|state| drop(state.faults.remove(method)));
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held leaves a state that is at worst incomplete, and the test has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// The `ts` with this number.
    fn ts(&self, serial: u32) -> String {
        // The port tells two workspaces apart that were opened within the same minute: no `ts` is ever used again.
        format!("{}.{:06}", self.setup.now + i64::from(serial), self.address.port())
    }
}

#[cfg(test)]
mod tests;

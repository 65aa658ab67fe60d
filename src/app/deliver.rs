//! The outbox: makes cards show what is committed, and gives private notes.
//!
//! One row a destination means one writer a message. A post whose answer was lost may be on the platform: the next try
//! posts anew under another handle, and both messages stay valid, since they name one action.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::App;
use super::ports::{Messenger, PostError};
use crate::domain::action::{Action, State};
use crate::domain::card::Card;
use crate::storage::{self, CardRow, Job, JobKind, PostTarget};

/// A private note is not worth more tries than this.
const NOTE_TRIES: u32 = 5;

/// What one edit may take: a lease that ends sooner is not used for it.
const EDIT_TIME: Duration = Duration::from_secs(12);

/// Rows of one installation that are worked off at once: one that does not answer keeps no hands from the others.
const HANDS_OF_ONE: usize = 12;

/// Rows that are worked off at once, in all and for one lease.
pub(super) const HANDS: usize = 32;
const BATCH: usize = 8;

impl App {
    /// Leases due rows, as many as there are hands free, and has them worked off beside: a platform that does not answer
    /// holds up its own cards and no others. The number of rows.
    ///
    /// # Errors
    /// The database, while leasing.
    pub async fn deliver_due(&self) -> storage::Result<usize> {
        let hands = &self.0.hands;
        // Wait for the first, take what else is free: the row's lease begins when somebody can work on it.
        let Ok(first) = Arc::clone(hands).acquire_owned().await else { return Ok(0) };
        let mut free = vec![first];
        while free.len() < BATCH
            && let Ok(another) = Arc::clone(hands).try_acquire_owned()
        {
            free.push(another);
        }
        let most = i64::try_from(free.len()).unwrap_or(1);
        let mut jobs = self.db.lease_posts(&self.0.replica, most).await?;
        let left = most - i64::try_from(jobs.len()).unwrap_or(most);
        if left > 0 {
            jobs.extend(self.db.lease_jobs(&self.0.replica, left).await?);
        }
        let count = jobs.len();
        for (job, hand) in jobs.into_iter().zip(free) {
            let app = self.clone();
            self.tasks.spawn(async move {
                let (action, place) = (job.action, job.place.to_string());
                let installation = (job.place.platform, job.place.installation.clone());
                let share = {
                    let mut shares = app.0.shares.lock().unwrap_or_else(PoisonError::into_inner);
                    shares
                        .entry(installation)
                        .or_insert_with(|| Arc::new(Semaphore::new(HANDS_OF_ONE)))
                        .clone()
                };
                let Ok(_share) = share.try_acquire() else {
                    // Back at once when there is room; the lease would hold it for too long.
                    if let Err(error) = app.db.defer_job(&job, Duration::from_millis(500)).await {
                        tracing::error!(%action, place, %error, "an outbox row could not be put back");
                    }
                    return;
                };
                if let Err(error) = app.deliver(job).await {
                    // The lease ends and the row comes back.
                    tracing::error!(%action, place, %error, "an outbox row could not be worked off");
                }
                drop(hand);
            });
        }
        Ok(count)
    }

    async fn deliver(&self, job: Job) -> storage::Result<()> {
        let installation = (job.place.platform, job.place.installation.clone());
        let chats = self.chats.load_full();
        let Some(chat) = chats.get(&installation) else {
            let action = job.action;
            if self.db.give_up_job(job, "no such installation is configured".to_owned()).await? {
                self.changed(&[action]);
            }
            return Ok(());
        };
        let messenger = &*chat.messenger;
        match job.kind.clone() {
            JobKind::Note(detail) => self.give_note(messenger, &job, &detail).await,
            JobKind::Alert(text) => self.give_alert(messenger, &job, &text).await,
            JobKind::Card => match self.db.action(&job.tenant, job.action).await? {
                Some(action) => self.show_card(messenger, job, &action).await,
                None => self.db.finish_job(&job, i32::MAX).await,
            },
        }
    }

    async fn show_card(&self, messenger: &dyn Messenger, job: Job, action: &Action) -> storage::Result<()> {
        let card = Card::of(action);
        let cards = self.db.cards_at(job.action, &job.place).await?;
        if !cards.iter().any(|row| row.message.is_some()) {
            return self.post_card(messenger, job, action, &card).await;
        }
        for row in &cards {
            if let Err(error) = self.edit_card(messenger, &job, row, &card, action.revision).await? {
                return self.defer(&job, &error).await;
            }
        }
        self.db.finish_job(&job, action.revision).await
    }

    async fn post_card(
        &self,
        messenger: &dyn Messenger,
        job: Job,
        action: &Action,
        card: &Card,
    ) -> storage::Result<()> {
        if !matches!(action.state, State::Pending) || action.due {
            // Nobody has seen it, and nobody needs to any more.
            return self.db.finish_job(&job, action.revision).await;
        }
        let target = PostTarget {
            action: job.action,
            tenant: &job.tenant,
            place: &job.place,
            revision: action.revision,
        };
        let handle = hex::encode(self.random::<16>());
        self.db.begin_post(&target, &handle).await?;
        match messenger.post(&job.place, card, &handle).await {
            Ok(posted) => {
                self.db.posted(&target, &handle, &posted.message, &posted.sha256).await?;
                tracing::info!(tenant = %job.tenant, action = %job.action, place = %job.place, "card posted");
                self.link(messenger, &job, &handle, &posted.message).await?;
                self.db.finish_job(&job, action.revision).await
            }
            Err(PostError::Permanent(code)) => {
                tracing::error!(tenant = %job.tenant, action = %job.action, place = %job.place, code, "a card was refused");
                let action = job.action;
                if self.db.give_up_job(job, code).await? {
                    self.changed(&[action]);
                }
                Ok(())
            }
            Err(error) => self.defer_post(&job, &error).await,
        }
    }

    /// The outer error is the database; the inner one says "not now".
    async fn edit_card(
        &self,
        messenger: &dyn Messenger,
        job: &Job,
        row: &CardRow,
        card: &Card,
        revision: i32,
    ) -> storage::Result<Result<(), PostError>> {
        let Some(message) = &row.message else { return Ok(Ok(())) };
        if row.permalink.is_none() {
            self.link(messenger, job, &row.handle, message).await?;
        }
        if row.revision >= revision {
            return Ok(Ok(()));
        }
        // Another worker may have shown something newer by the time that this one's edit arrives.
        if !self.db.holds(job, EDIT_TIME).await? {
            return Ok(Err(PostError::Ambiguous("lease_over".to_owned())));
        }
        match messenger.edit(&job.place, message, card, &row.handle).await {
            Ok(()) => {}
            Err(PostError::Permanent(code)) => {
                // Deleted or frozen by somebody: the action goes on without this message.
                tracing::warn!(tenant = %job.tenant, action = %job.action, place = %job.place, code, "a card can't be edited");
            }
            Err(error) => return Ok(Err(error)),
        }
        self.db.shown(&row.handle, revision).await?;
        Ok(Ok(()))
    }

    async fn link(
        &self,
        messenger: &dyn Messenger,
        job: &Job,
        handle: &str,
        message: &str,
    ) -> storage::Result<()> {
        match messenger.permalink(&job.place, message).await {
            Some(link) => self.db.keep_permalink(handle, &link).await,
            None => Ok(()),
        }
    }

    async fn give_note(&self, messenger: &dyn Messenger, job: &Job, detail: &str) -> storage::Result<()> {
        let note: serde_json::Value = serde_json::from_str(detail).unwrap_or_default();
        let field =
            |name: &str| note.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
        match messenger.note(&job.place, &field("user"), &field("text")).await {
            Err(error @ PostError::Transient { .. }) if job.attempt() < NOTE_TRIES => {
                self.defer(job, &error).await
            }
            Err(error) => {
                tracing::warn!(action = %job.action, place = %job.place, %error, "a private note was not delivered");
                self.db.finish_job(job, i32::MAX).await
            }
            Ok(()) => self.db.finish_job(job, i32::MAX).await,
        }
    }

    async fn give_alert(&self, messenger: &dyn Messenger, job: &Job, text: &str) -> storage::Result<()> {
        match messenger.tell(&job.place, text).await {
            Err(error @ PostError::Transient { .. }) => self.defer_post(job, &error).await,
            Err(error) => {
                // Posted or not, once more could be once too often; the log has it either way.
                tracing::error!(action = %job.action, place = %job.place, %error, "an alert was not delivered");
                self.db.finish_job(job, i32::MAX).await
            }
            Ok(()) => self.db.finish_job(job, i32::MAX).await,
        }
    }

    /// The channel's other new messages wait as well when the platform has asked for time.
    async fn defer_post(&self, job: &Job, error: &PostError) -> storage::Result<()> {
        if let PostError::Transient { retry_after: Some(after), .. } = error {
            self.db.close_channel(&job.place, *after).await?;
        }
        self.defer(job, error).await
    }

    /// Comes back when the platform says, or after a delay that doubles, with jitter.
    async fn defer(&self, job: &Job, error: &PostError) -> storage::Result<()> {
        tracing::warn!(action = %job.action, place = %job.place, %error, attempt = job.attempt(), "a card waits");
        let backoff = Duration::from_millis(500_u64 << job.attempt().min(6));
        let jitter = Duration::from_millis(u64::from(self.random::<1>()[0]));
        let asked = match error {
            PostError::Transient { retry_after: Some(after), .. } => *after,
            PostError::Transient { .. } | PostError::Ambiguous(_) | PostError::Permanent(_) => Duration::ZERO,
        };
        self.db.defer_job(job, backoff.max(asked) + jitter).await
    }
}

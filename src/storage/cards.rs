//! The messages that show an action: one row for each that was or may have been posted.

use super::error::inconsistent;
use super::{Db, Error, Result};
use crate::domain::audit::Event;
use crate::domain::ids::{ActionId, Tenant};
use crate::domain::place::{Place, Platform};

/// A card as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardRow {
    /// What its buttons carry.
    pub handle: String,
    /// The action.
    pub action: ActionId,
    /// Its tenant.
    pub tenant: Tenant,
    /// Where it is.
    pub place: Place,
    /// The platform's id of the message, once known.
    pub message: Option<String>,
    /// The action's revision that it shows.
    pub revision: i32,
    /// Its address for people, once known.
    pub permalink: Option<String>,
}

/// What a post attempt is for.
#[derive(Debug, Clone)]
pub struct PostTarget<'a> {
    /// The action.
    pub action: ActionId,
    /// Its tenant.
    pub tenant: &'a Tenant,
    /// Where to.
    pub place: &'a Place,
    /// The revision that is about to be shown.
    pub revision: i32,
}

struct Row {
    handle: String,
    action_id: sqlx::types::Uuid,
    tenant: String,
    platform: String,
    installation: String,
    channel: String,
    message_id: Option<String>,
    revision: i32,
    permalink: Option<String>,
}

impl Row {
    fn into_card(self) -> Result<CardRow> {
        Ok(CardRow {
            handle: self.handle,
            action: ActionId::from_uuid(self.action_id),
            tenant: Tenant::new(self.tenant),
            place: Place {
                platform: Platform::parse(&self.platform).ok_or(inconsistent("cards", "platform"))?,
                installation: self.installation.as_str().into(),
                channel: self.channel,
            },
            message: self.message_id,
            revision: self.revision,
            permalink: self.permalink,
        })
    }
}

impl Db {
    /// The card behind a handle.
    ///
    /// # Errors
    /// The database.
    pub async fn card(&self, handle: &str) -> Result<Option<CardRow>> {
        sqlx::query_as!(
            Row,
            "SELECT handle, action_id, tenant, platform, installation, channel, message_id, revision, permalink
               FROM cards WHERE handle = $1",
            handle,
        )
        .fetch_optional(&self.pool)
        .await?
        .map(Row::into_card)
        .transpose()
    }

    /// The cards of an action at one place, oldest first.
    ///
    /// # Errors
    /// The database.
    pub async fn cards_at(&self, action: ActionId, place: &Place) -> Result<Vec<CardRow>> {
        sqlx::query_as!(
            Row,
            "SELECT handle, action_id, tenant, platform, installation, channel, message_id, revision, permalink
               FROM cards WHERE action_id = $1 AND platform = $2 AND installation = $3 AND channel = $4
              ORDER BY created_at, handle",
            action.uuid(),
            place.platform.as_str(),
            place.installation.as_str(),
            place.channel,
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(Row::into_card)
        .collect()
    }

    /// Writes the card's handle before the post, so that a click which outruns the platform's answer is known.
    ///
    /// # Errors
    /// The database: don't post then.
    pub async fn begin_post(&self, target: &PostTarget<'_>, handle: &str) -> Result<()> {
        sqlx::query!(
            "INSERT INTO cards (handle, action_id, tenant, platform, installation, channel, revision)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            handle,
            target.action.uuid(),
            target.tenant.as_str(),
            target.place.platform.as_str(),
            target.place.installation.as_str(),
            target.place.channel,
            target.revision,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Records that a card was posted, with its audit event. A click may have told the message's id before.
    ///
    /// # Errors
    /// The database.
    pub async fn posted(
        &self,
        target: &PostTarget<'_>,
        handle: &str,
        message: &str,
        sha256: &str,
    ) -> Result<()> {
        let event = Event::Posted {
            place: target.place.to_string(),
            message_id: message.to_owned(),
            card_sha256: sha256.to_owned(),
        };
        sqlx::query!(
            "WITH c AS (
               UPDATE cards SET message_id = $2, revision = $3 WHERE handle = $1 RETURNING tenant, action_id
             )
             INSERT INTO audit_events (tenant, action_id, kind, body) SELECT tenant, action_id, 'posted', $4 FROM c",
            handle,
            message,
            target.revision,
            &event.body(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Learns a message's id from a click that came before it was stored, and has the message shown as things stand: it
    /// may have been left behind. `false`: another id is known.
    ///
    /// # Errors
    /// The database.
    pub async fn learn_message(&self, handle: &str, message: &str) -> Result<bool> {
        let learnt = sqlx::query!(
            "WITH known AS MATERIALIZED (
               SELECT handle, message_id FROM cards WHERE handle = $1 FOR UPDATE
             ), c AS (
               UPDATE cards k SET message_id = $2 FROM known
                WHERE k.handle = known.handle AND (known.message_id IS NULL OR known.message_id = $2)
               RETURNING k.action_id, k.tenant, k.platform || ':' || k.installation || '/' || k.channel AS place,
                 known.message_id IS NULL AS learnt
             ), o AS (
               INSERT INTO outbox (action_id, tenant, destination, kind)
               SELECT action_id, tenant, place, 'card' FROM c WHERE learnt
               ON CONFLICT (action_id, destination, kind, detail) DO UPDATE SET revision = outbox.revision + 1
             )
             SELECT place FROM c",
            handle,
            message,
        )
        .fetch_optional(&self.pool)
        .await;
        match learnt.map_err(Error::from) {
            Ok(learnt) => Ok(learnt.is_some()),
            // The message is another card already: it can't be this one.
            Err(Error::Conflict(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Records what a message shows now. Older revisions never replace newer ones.
    ///
    /// # Errors
    /// The database.
    pub async fn shown(&self, handle: &str, revision: i32) -> Result<()> {
        sqlx::query!(
            "UPDATE cards SET revision = greatest(revision, $2) WHERE handle = $1",
            handle,
            revision
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Keeps a card's address.
    ///
    /// # Errors
    /// The database.
    pub async fn keep_permalink(&self, handle: &str, permalink: &str) -> Result<()> {
        sqlx::query!("UPDATE cards SET permalink = $2 WHERE handle = $1", handle, permalink)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

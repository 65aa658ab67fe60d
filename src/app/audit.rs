//! The audit chain's own work: placing events, and signing where the chains end. Every replica may do this at any moment.

use crate::domain::canonical::canonical;
use crate::domain::chain::at_text;
use crate::domain::checkpoint::Signer;
use crate::storage::{self, HeadToSign};

use super::App;

impl App {
    /// Gives events that await it their place in the chain, a batch of them. How many.
    ///
    /// # Errors
    /// The database; the next beat tries again.
    pub async fn sequence(&self) -> storage::Result<usize> {
        self.db.sequence().await
    }

    /// Signs the head of each tenant whose chain grew since it was signed last, at most once a minute each. How many.
    ///
    /// # Errors
    /// The database; the next beat tries again.
    pub async fn sign_heads(&self) -> storage::Result<usize> {
        self.sign(|head| !head.recent).await
    }

    /// Places what awaits it and signs every head that is not signed yet: what a service does last.
    ///
    /// # Errors
    /// The database.
    pub async fn close_audit(&self) -> storage::Result<()> {
        while self.db.sequence().await? > 0 {}
        self.sign(|_| true).await.map(|_| ())
    }

    async fn sign(&self, due: impl Fn(&HeadToSign) -> bool + Send) -> storage::Result<usize> {
        let Some(signer) = Signer::all(&self.keys.load()).into_iter().next() else { return Ok(0) };
        let key = signer.public_key();
        let mut done = 0;
        for entry in self.db.heads_to_sign(&key).await? {
            let head = &entry.head;
            if entry.signed.is_some_and(|(seq, hash)| seq > head.seq || seq == head.seq && hash != head.hash)
            {
                // A signature must not make good what was taken away.
                tracing::error!(tenant = %head.tenant, seq = head.seq,
                    "the audit chain ends before, or otherwise than, it was signed: run `undersign audit verify`");
                continue;
            }
            let grown = entry.signed.is_none_or(|(seq, _)| seq < head.seq);
            if !(grown || !entry.same_key) || !due(&entry) {
                continue;
            }
            let signed = signer.checkpoint(head.tenant.as_str(), head.seq, &head.hash, &at_text(entry.now));
            // It was signed over its canonical form a moment ago.
            let Ok(bytes) = canonical(&signed) else { continue };
            self.db.keep_checkpoint(head, entry.now, &key, &bytes).await?;
            tracing::info!(tenant = %head.tenant, seq = head.seq, hash = %hex::encode(head.hash),
                key_id = signer.id(), public_key = %key, "audit checkpoint");
            done += 1;
        }
        Ok(done)
    }
}

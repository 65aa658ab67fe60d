//! Where the chains end, and what was signed of them.

use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::chain::hash;
use super::error::inconsistent;
use super::{Db, Result};
use crate::domain::chain::{self, Hash};
use crate::domain::checkpoint::PublicKey;
use crate::domain::ids::Tenant;

/// Where a tenant's chain ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The tenant.
    pub tenant: Tenant,
    /// The last place.
    pub seq: i64,
    /// Its hash.
    pub hash: Hash,
}

/// A head, and the newest of its tenant's checkpoints.
#[derive(Debug, Clone)]
pub struct HeadToSign {
    /// The head.
    pub head: Head,
    /// The database's clock.
    pub now: OffsetDateTime,
    /// The place that was signed last, and the hash that was signed there.
    pub signed: Option<(i64, Hash)>,
    /// Whether that was with this key, less than a minute ago.
    pub recent: bool,
    /// Whether that was with this key.
    pub same_key: bool,
}

impl Db {
    /// The tenants that have checkpoints.
    ///
    /// # Errors
    /// The database.
    pub async fn signed_tenants(&self) -> Result<Vec<Tenant>> {
        let names = sqlx::query_scalar!(
            r#"WITH RECURSIVE t AS (
                 (SELECT tenant FROM audit_checkpoints ORDER BY tenant LIMIT 1)
                 UNION ALL
                 SELECT (SELECT c.tenant FROM audit_checkpoints c WHERE c.tenant > t.tenant ORDER BY c.tenant LIMIT 1)
                   FROM t WHERE t.tenant IS NOT NULL
               )
               SELECT tenant AS "tenant!" FROM t WHERE tenant IS NOT NULL"#,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(names.into_iter().map(Tenant::new).collect())
    }

    /// The heads, each with what was signed of its chain last.
    ///
    /// # Errors
    /// The database, or a stored value that no code writes.
    pub async fn heads_to_sign(&self, key: &PublicKey) -> Result<Vec<HeadToSign>> {
        let rows = sqlx::query!(
            r#"SELECT h.tenant, h.seq, h.hash, clock_timestamp() AS "now!", s.seq AS "signed_seq?", s.signed AS "signed?",
                      coalesce(s.public_key = $1, false) AS "same_key!",
                      coalesce(s.public_key = $1 AND s.at > clock_timestamp() - interval '55 seconds', false) AS "recent!"
                 FROM audit_head h
                 LEFT JOIN LATERAL (
                   SELECT seq, signed, public_key, at FROM audit_checkpoints c
                    WHERE c.tenant = h.tenant ORDER BY c.seq DESC, c.at DESC LIMIT 1
                 ) s ON true
                ORDER BY h.tenant"#,
            &key.bytes()[..],
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let signed = row.signed_seq.zip(row.signed).map(|(seq, signed)| -> Result<_> {
                    let object: Value = serde_json::from_slice(&signed).unwrap_or_default();
                    let hash = chain::parse_hash(object.get("hash"));
                    Ok((seq, hash.ok_or(inconsistent("audit_checkpoints", "signed"))?))
                });
                Ok(HeadToSign {
                    head: Head {
                        tenant: Tenant::new(row.tenant),
                        seq: row.seq,
                        hash: hash(&row.hash, "audit_head")?,
                    },
                    now: row.now,
                    signed: signed.transpose()?,
                    recent: row.recent,
                    same_key: row.same_key,
                })
            })
            .collect()
    }

    /// Keeps a signed head. A second one of the same place and key changes nothing.
    ///
    /// # Errors
    /// The database.
    pub async fn keep_checkpoint(
        &self,
        head: &Head,
        at: OffsetDateTime,
        key: &PublicKey,
        signed: &[u8],
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO audit_checkpoints (tenant, seq, public_key, at, signed) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT DO NOTHING",
            head.tenant.as_str(),
            head.seq,
            &key.bytes()[..],
            at,
            signed,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The newest checkpoint of a tenant.
    ///
    /// # Errors
    /// The database.
    pub async fn newest_checkpoint(&self, tenant: &Tenant) -> Result<Option<Map<String, Value>>> {
        let signed = sqlx::query_scalar!(
            "SELECT signed FROM audit_checkpoints WHERE tenant = $1 ORDER BY seq DESC, at DESC LIMIT 1",
            tenant.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        signed
            .map(|bytes| {
                serde_json::from_slice(&bytes).map_err(|_| inconsistent("audit_checkpoints", "signed"))
            })
            .transpose()
    }
}

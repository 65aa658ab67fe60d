//! Deciding: lock the action, record the vote, count, close, in one transaction.

use std::collections::BTreeSet;

use sqlx::{PgConnection, PgPool};

use super::actions::bytes;
use super::error::inconsistent;
use super::outbox::queue_alert;
use super::{Db, Result, detached, interval};
use crate::domain::action::StateName;
use crate::domain::audit::Event;
use crate::domain::digest::ActionDigest;
use crate::domain::duration::human;
use crate::domain::ids::{ActionId, AgentName, GroupName, Person, Tenant};
use crate::domain::place::Place;
use crate::domain::policy::DenialsPause;
use crate::domain::press::{Press, Verdict};
use crate::domain::requirement::{EligibleApprover, Requirement, Tally, tally};
use crate::domain::token::Nonce;

/// A vote about to be cast. It holds an [`EligibleApprover`], which only admission makes.
pub struct Ballot {
    /// The tenant.
    pub tenant: Tenant,
    /// The action.
    pub action: ActionId,
    /// The admitted person.
    pub approver: EligibleApprover,
    /// The press it came by.
    pub press: Press,
    /// Fresh random bytes: written only if this vote meets the requirement.
    pub nonce: Nonce,
    /// When denials pause the agent.
    pub pause: DenialsPause,
    /// Where a pause is told.
    pub alert_to: Vec<Place>,
}

/// What a vote came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// It counts; more people are needed.
    Counted(Tally),
    /// It met the requirement.
    Approved,
    /// It closed the action.
    Denied {
        /// Whether it took an approval back.
        revoked: bool,
    },
    /// This person has approved already; nothing changed.
    AlreadyVoted,
    /// The action was decided before; nothing changed.
    Late(StateName),
    /// Another worker decided this very press.
    AlreadyDecided,
    /// There is no such action any more.
    Gone,
}

struct Locked {
    state: StateName,
    requirement: Requirement,
    digest: ActionDigest,
    barred: String,
    agent: String,
}

impl Db {
    /// Casts a vote and closes the action when that decides it.
    ///
    /// # Errors
    /// The database. During the commit that means "not known"; the press stays in the inbox and is decided again.
    pub async fn decide(&self, ballot: Ballot) -> Result<Decided> {
        let pool = self.pool.clone();
        detached(decide(pool, ballot)).await
    }
}

async fn decide(pool: PgPool, ballot: Ballot) -> Result<Decided> {
    #[expect(clippy::disallowed_methods, reason = "inside a detached task: nothing can cancel this begin")]
    let mut tx = pool.begin().await?;
    let decided = decide_in(&mut tx, &ballot).await?;
    tx.commit().await?;
    Ok(decided)
}

async fn decide_in(tx: &mut PgConnection, ballot: &Ballot) -> Result<Decided> {
    // The action's row first: two votes at once would otherwise count one each, and nobody would close the action.
    let Some(locked) = lock(tx, ballot).await? else { return Ok(Decided::Gone) };
    let press = &ballot.press;
    let taken = sqlx::query!(
        "UPDATE callbacks SET decided_at = clock_timestamp(), result = 'decided'
          WHERE platform = $1 AND installation = $2 AND callback_id = $3 AND decided_at IS NULL",
        press.account.platform.as_str(),
        press.account.installation.as_str(),
        press.callback_id,
    )
    .execute(&mut *tx)
    .await?;
    if taken.rows_affected() == 0 {
        return Ok(Decided::AlreadyDecided);
    }
    let state = if expire(tx, ballot).await? { StateName::Expired } else { locked.state };
    match (state, press.verdict) {
        (StateName::Pending | StateName::Approved, Verdict::Deny) => deny(tx, ballot, &locked).await,
        (StateName::Pending, Verdict::Approve) => approve(tx, ballot, &locked).await,
        (state, verdict) => {
            let event = Event::Late {
                account: press.account.clone(),
                verdict,
                callback_id: press.callback_id.clone(),
                state: state.as_str().to_owned(),
            };
            append(tx, ballot, &event).await?;
            Ok(Decided::Late(state))
        }
    }
}

async fn lock(tx: &mut PgConnection, ballot: &Ballot) -> Result<Option<Locked>> {
    let row = sqlx::query!(
        "SELECT state, requirement, action_digest, barred_person, agent FROM actions WHERE id = $1 AND tenant = $2
          FOR NO KEY UPDATE",
        ballot.action.uuid(),
        ballot.tenant.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    row.map(|row| {
        Ok(Locked {
            state: StateName::parse(&row.state).ok_or(inconsistent("actions", "state"))?,
            requirement: serde_json::from_slice(&row.requirement)
                .map_err(|_| inconsistent("actions", "requirement"))?,
            digest: ActionDigest::from_stored(&row.action_digest)
                .ok_or(inconsistent("actions", "action_digest"))?,
            barred: row.barred_person,
            agent: row.agent,
        })
    })
    .transpose()
}

/// The lock is ours, so this clock is true.
async fn expire(tx: &mut PgConnection, ballot: &Ballot) -> Result<bool> {
    let expired = sqlx::query!(
        "UPDATE actions SET state = 'expired', decided_at = coalesce(decided_at, clock_timestamp())
          WHERE id = $1 AND state IN ('pending', 'approved') AND coalesce(redeem_by, expires_at) <= clock_timestamp()",
        ballot.action.uuid(),
    )
    .execute(&mut *tx)
    .await?;
    if expired.rows_affected() == 0 {
        return Ok(false);
    }
    append(tx, ballot, &Event::Expired {}).await?;
    Ok(true)
}

async fn approve(tx: &mut PgConnection, ballot: &Ballot, locked: &Locked) -> Result<Decided> {
    if !vote(tx, ballot, locked).await? {
        return Ok(Decided::AlreadyVoted);
    }
    let votes = sqlx::query!(
        "SELECT person, groups FROM votes WHERE action_id = $1 AND verdict = 'approve' ORDER BY voted_at, person",
        ballot.action.uuid(),
    )
    .fetch_all(&mut *tx)
    .await?;
    let votes: Vec<(Person, BTreeSet<GroupName>)> = votes
        .into_iter()
        .map(|vote| (Person::new(vote.person), vote.groups.into_iter().map(GroupName::new).collect()))
        .collect();
    let count = tally(&locked.requirement, &votes);
    if !count.met {
        sqlx::query!("UPDATE actions SET revision = revision + 1 WHERE id = $1", ballot.action.uuid())
            .execute(&mut *tx)
            .await?;
        return Ok(Decided::Counted(count));
    }
    let approved = sqlx::query!(
        "UPDATE actions SET state = 'approved', decided_at = clock_timestamp()
          WHERE id = $1 AND state = 'pending' AND expires_at > clock_timestamp()",
        ballot.action.uuid(),
    )
    .execute(&mut *tx)
    .await?;
    if approved.rows_affected() == 0 {
        // Expired between the two statements; the sweeper says so.
        return Ok(Decided::Late(StateName::Expired));
    }
    sqlx::query!(
        "INSERT INTO tokens (action_id, nonce) VALUES ($1, $2)",
        ballot.action.uuid(),
        &ballot.nonce.bytes()[..],
    )
    .execute(&mut *tx)
    .await?;
    append(tx, ballot, &Event::Approved { action_digest: locked.digest.to_string() }).await?;
    Ok(Decided::Approved)
}

async fn deny(tx: &mut PgConnection, ballot: &Ballot, locked: &Locked) -> Result<Decided> {
    vote(tx, ballot, locked).await?;
    sqlx::query!(
        "UPDATE actions SET state = 'denied', decided_at = clock_timestamp()
          WHERE id = $1 AND state IN ('pending', 'approved')",
        ballot.action.uuid(),
    )
    .execute(&mut *tx)
    .await?;
    let revoked = locked.state == StateName::Approved;
    append(tx, ballot, &Event::Denied { person: ballot.approver.person().clone(), revoked }).await?;
    pause(tx, ballot, locked).await?;
    Ok(Decided::Denied { revoked })
}

/// Pauses the agent when this denial is one too many. Takes the lock by which its asks take turns, so that an identical
/// call that is being parked sees the denial.
async fn pause(tx: &mut PgConnection, ballot: &Ballot, locked: &Locked) -> Result<()> {
    let DenialsPause { count, within, pause_for } = ballot.pause;
    let paused = sqlx::query_scalar!(
        r#"SELECT limits_pause($1, $2, $3, $4, $5) AS "paused!""#,
        ballot.tenant.as_str(),
        locked.agent,
        i32::try_from(count).unwrap_or(i32::MAX),
        interval(within),
        interval(pause_for),
    )
    .fetch_one(&mut *tx)
    .await?;
    if !paused {
        return Ok(());
    }
    let agent = AgentName::new(locked.agent.clone());
    let text = format!(
        "Agent {agent} of {} is paused for {}: {count} denials within {}. It may ask for no approval until then; what is \
         pending stays pending.",
        ballot.tenant,
        human(pause_for),
        human(within),
    );
    append(tx, ballot, &Event::Paused { agent, reason: "denials", seconds: pause_for.as_secs() }).await?;
    queue_alert(tx, ballot.action, &ballot.tenant, &ballot.alert_to, &text).await
}

/// Records the vote; a deny replaces an approve, nothing replaces a deny. `false`: it was there already.
async fn vote(tx: &mut PgConnection, ballot: &Ballot, locked: &Locked) -> Result<bool> {
    let (press, approver) = (&ballot.press, &ballot.approver);
    let groups: Vec<String> = approver.groups().iter().map(|group| group.as_str().to_owned()).collect();
    let cast = sqlx::query!(
        "INSERT INTO votes (action_id, tenant, barred_person, person, verdict, groups, platform, installation, user_id,
                callback_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (action_id, person) DO UPDATE
            SET verdict = 'deny', groups = excluded.groups, platform = excluded.platform,
                installation = excluded.installation, user_id = excluded.user_id, callback_id = excluded.callback_id,
                voted_at = clock_timestamp()
          WHERE votes.verdict = 'approve' AND excluded.verdict = 'deny'",
        ballot.action.uuid(),
        ballot.tenant.as_str(),
        locked.barred,
        approver.person().as_str(),
        press.verdict.as_str(),
        &groups,
        press.account.platform.as_str(),
        press.account.installation.as_str(),
        press.account.user,
        press.callback_id,
    )
    .execute(&mut *tx)
    .await?;
    if cast.rows_affected() == 0 {
        return Ok(false);
    }
    let event = Event::Voted {
        person: approver.person().clone(),
        verdict: press.verdict,
        account: press.account.clone(),
        channel: press.channel.clone(),
        message_id: press.message.clone(),
        callback_id: press.callback_id.clone(),
        groups: approver.groups().iter().cloned().collect(),
        authenticated_by: "click",
        action_digest: locked.digest.to_string(),
    };
    append(tx, ballot, &event).await?;
    Ok(true)
}

async fn append(tx: &mut PgConnection, ballot: &Ballot, event: &Event) -> Result<()> {
    sqlx::query!(
        "INSERT INTO audit_events (tenant, action_id, kind, body) VALUES ($1, $2, $3, $4)",
        ballot.tenant.as_str(),
        ballot.action.uuid(),
        event.kind(),
        &event.body(),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// A press as it is kept in the inbox.
pub(super) fn stored(press: &Press) -> Result<Vec<u8>> {
    bytes(press)
}

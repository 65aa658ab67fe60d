//! Postgres: one file for each aggregate, and SQL nowhere else.
//!
//! Every transition is one conditional statement with the row lock taken first and the clock read after it; the guard
//! trigger repeats the check. The process's clock is never asked. Statements run to their end even when the client that
//! caused them hangs up: whatever needs a transaction runs in a task of its own (`detached`).

mod actions;
mod audit;
mod callbacks;
mod cards;
mod chain;
mod checkpoints;
mod demo;
mod erase;
mod error;
mod examine;
mod intents;
mod listing;
mod notify;
mod outbox;
mod row;
mod verify;
mod votes;

use std::future::Future;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::migrate::{Migrate as _, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, types::PgInterval};
use sqlx::{ConnectOptions as _, Connection as _};

pub use actions::{AskLimit, NewAction, Parked};
pub use callbacks::StoredPress;
pub use cards::{CardRow, PostTarget};
pub use chain::ChainRow;
pub use checkpoints::{Head, HeadToSign};
pub use erase::Erased;
pub use error::Error;
pub use examine::Examined;
pub use intents::{Claim, ClaimRequest, Sending, Swept};
pub use listing::{Listed, Wanted};
pub use notify::{Heard, Listener};
pub use outbox::{Job, JobKind};
pub use votes::{Ballot, Decided};

static MIGRATOR: Migrator = sqlx::migrate!();

/// The result of a storage call.
pub type Result<T> = std::result::Result<T, Error>;

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    pool: PgPool,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Db")
    }
}

impl Db {
    /// Opens a pool with the time limits that every statement needs.
    ///
    /// # Errors
    /// The URL can't be read, or the database can't be reached within a few seconds.
    pub async fn connect(url: &str, max_connections: u32) -> Result<Self> {
        let options = limited(options(url)?);
        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(Duration::from_secs(2))
            // A cancelled `begin` leaves a connection inside a transaction (sqlx 0.9.0). Over the simple protocol the two
            // clocks are equal exactly when none is open; `false` closes the connection, and the server rolls back.
            .after_release(|connection, _| {
                Box::pin(async move {
                    let clean: bool = sqlx::Row::try_get(
                        &sqlx::Executor::fetch_one(
                            connection,
                            sqlx::raw_sql("SELECT now() = statement_timestamp()"),
                        )
                        .await?,
                        0,
                    )?;
                    Ok(clean)
                })
            })
            .connect_with(options)
            .await?;
        Ok(Self { pool })
    }

    /// Applies the migrations on a connection of its own, without the time limits: another replica's may be awaited.
    ///
    /// # Errors
    /// The database can't be reached, or its schema is newer or was edited.
    pub async fn migrate(url: &str) -> Result<()> {
        let mut connection = options(url)?.connect().await?;
        let done = MIGRATOR.run(&mut connection).await.map_err(schema_fault);
        // The migrations are applied or refused by now; how the connection ends changes neither.
        let _ = connection.close().await;
        done
    }

    /// Refuses a schema that is not exactly this binary's.
    ///
    /// # Errors
    /// A migration is missing, unknown or was edited.
    pub async fn check_schema(&self) -> Result<()> {
        let mut connection = self.pool.acquire().await?;
        let applied = connection.list_applied_migrations("_sqlx_migrations").await.map_err(schema_fault)?;
        for migration in MIGRATOR.iter() {
            match applied.iter().find(|done| done.version == migration.version) {
                Some(done) if done.checksum == migration.checksum => {}
                Some(_) => return Err(Error::Schema(format!("migration {} was edited", migration.version))),
                None => {
                    return Err(Error::Schema(format!(
                        "the database lacks migration {}: run `undersign migrate`",
                        migration.version
                    )));
                }
            }
        }
        match applied.iter().find(|done| !MIGRATOR.version_exists(done.version)) {
            Some(newer) => Err(Error::Schema(format!(
                "the database has migration {}, which this version of undersign does not know: run the newer version",
                newer.version
            ))),
            None => Ok(()),
        }
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// It does not, within the pool's time limit.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query_scalar!(r#"SELECT 1 AS "one!""#).fetch_one(&self.pool).await?;
        Ok(())
    }

    /// Closes the pool after the statements under way.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

fn options(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|_| Error::Schema("the database URL can't be read".to_owned()))?;
    Ok(options.application_name("undersign"))
}

fn limited(options: PgConnectOptions) -> PgConnectOptions {
    options.options([
        ("statement_timeout", "5s"),
        ("lock_timeout", "2s"),
        ("idle_in_transaction_session_timeout", "5s"),
        ("synchronous_commit", "on"),
        ("timezone", "UTC"),
    ])
}

fn schema_fault(error: sqlx::migrate::MigrateError) -> Error {
    match error {
        sqlx::migrate::MigrateError::Execute(error) => error.into(),
        other => Error::Schema(other.to_string()),
    }
}

/// Runs work that holds a transaction in a task of its own, so that a client that hangs up can't cancel it half way.
async fn detached<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.unwrap_or(Err(Error::Unavailable))
}

fn interval(duration: Duration) -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX) }
}

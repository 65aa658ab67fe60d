//! What can go wrong with the database, by what the caller can do about it.

/// A storage failure. Never holds values of rows.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A constraint refused the change; its name.
    #[error("constraint {0} refused the change")]
    Conflict(String),
    /// A stored row is in a state that the code never writes.
    #[error("table {table}, column {column}: a stored value is not one that undersign writes")]
    Inconsistent {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// The database can't be reached, is overloaded, or gave up waiting. Whether a change was made is not known.
    #[error("the database does not answer")]
    Unavailable,
    /// The database role lacks a right.
    #[error("the database role may not do this")]
    Forbidden,
    /// The schema is not the one this binary was built for.
    #[error("{0}")]
    Schema(String),
    /// Anything else: a defect.
    #[error("database error {0}")]
    Driver(String),
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(database) => {
                let code = database.code().unwrap_or_default().into_owned();
                match database.constraint() {
                    Some(constraint) => Self::Conflict(constraint.to_owned()),
                    // Connection trouble, read-only database, deadlock, resources, lock and statement time limits, shutdown.
                    None if ["08", "25", "40", "53", "55", "57"]
                        .iter()
                        .any(|class| code.starts_with(class)) =>
                    {
                        Self::Unavailable
                    }
                    None if code == "42501" => Self::Forbidden,
                    // The message may quote values; the code names the fault.
                    None => Self::Driver(code),
                }
            }
            sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Tls(_) => Self::Unavailable,
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::Driver("decode".to_owned()),
            other => Self::Driver(format!("{:?}", std::mem::discriminant(&other))),
        }
    }
}

/// A stored value that the code never writes.
pub(super) fn inconsistent(table: &'static str, column: &'static str) -> Error {
    Error::Inconsistent { table, column }
}

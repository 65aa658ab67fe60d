//! A database for the demo: nobody else's.

use sqlx::{ConnectOptions as _, Connection as _};

use super::{Db, Result, options};

impl Db {
    /// Takes a database for the demo, by a schema of that name. `false`: it holds something that is not the demo's, and
    /// stays as it is.
    ///
    /// # Errors
    /// The database can't be reached.
    pub async fn take_for_demo(url: &str) -> Result<bool> {
        let mut connection = options(url)?.connect().await?;
        let taken = sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM information_schema.schemata WHERE schema_name = 'undersign_demo') AS "taken!""#
        )
        .fetch_one(&mut connection)
        .await?;
        let empty = sqlx::query_scalar!(
            r#"SELECT NOT EXISTS (SELECT FROM information_schema.tables
                WHERE table_schema NOT IN ('pg_catalog', 'information_schema')) AS "empty!""#
        )
        .fetch_one(&mut connection)
        .await?;
        if !taken && empty {
            sqlx::query!("CREATE SCHEMA IF NOT EXISTS undersign_demo").execute(&mut connection).await?;
        }
        // How the connection ends changes nothing.
        let _ = connection.close().await;
        Ok(taken || empty)
    }
}

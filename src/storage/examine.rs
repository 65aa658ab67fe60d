//! What `check --online` asks the database about itself.

use super::{Db, Result};

/// What the database says about itself and about our role.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The role that we are.
    pub role: String,
    /// Its major version.
    pub version: i32,
    /// Whether what it has committed survives a crash of its machine.
    pub durable: bool,
    /// Tables that the role may not read and write.
    pub unusable: Vec<String>,
    /// Whether the role could change audit rows, if a trigger did not refuse.
    pub may_change_audit: bool,
}

impl Db {
    /// Asks for roles, privileges and settings.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn examine(&self) -> Result<Examined> {
        let about = sqlx::query!(
            r#"SELECT current_user AS "role!", current_setting('server_version_num')::int / 10000 AS "version!",
                   current_setting('fsync') = 'on' AS "durable!""#
        )
        .fetch_one(&self.pool)
        .await?;
        let tables = sqlx::query!(
            r#"SELECT relname::text AS "name!",
                   has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') AS "usable!",
                   relname = 'audit_events' AND has_table_privilege(oid, 'UPDATE, DELETE, TRUNCATE') AS "changes_audit!"
               FROM pg_class
               WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
                 AND relname <> '_sqlx_migrations'
               ORDER BY relname"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(Examined {
            role: about.role,
            version: about.version,
            durable: about.durable,
            may_change_audit: tables.iter().any(|table| table.changes_audit),
            unusable: tables.into_iter().filter(|table| !table.usable).map(|table| table.name).collect(),
        })
    }
}

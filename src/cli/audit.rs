//! `undersign audit export`: the audit trail as JSON lines.

use std::io::Write as _;
use std::path::PathBuf;

use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use time::format_description::well_known::Rfc3339;

use super::{Done, Failure, Outcome};
use crate::config;
use crate::domain::ids::Tenant;
use crate::storage::{Db, ExportCursor, ExportedEvent};

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write every event to standard output, one JSON object a line
    Export(ExportArgs),
}

/// Arguments of `audit export`.
#[derive(Debug, clap::Args)]
struct ExportArgs {
    /// The configuration file; only its database section is read.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// One tenant instead of all.
    #[arg(long)]
    tenant: Option<String>,
}

pub(super) async fn run(args: Args) -> Outcome {
    let Command::Export(args) = args.command;
    let database = config::load_database(&args.config)?;
    let db = Db::connect(database.url.expose_secret(), 2).await?;
    db.check_schema().await?;
    let tenant = args.tenant.map(Tenant::new);
    let mut cursor = ExportCursor::default();
    let mut out = std::io::stdout().lock();
    loop {
        let page = db.export_audit(tenant.as_ref(), &mut cursor).await?;
        if page.is_empty() {
            break;
        }
        for event in page {
            writeln!(out, "{}", line(&event))
                .map_err(|error| Failure::no(format!("standard output: {error}")))?;
        }
    }
    Ok(Done)
}

/// One event as an object: where it stands, its own fields, and its erasable members while they are there.
fn line(event: &ExportedEvent) -> Value {
    let mut line = object(&event.body);
    line.insert("id".to_owned(), json!(event.id));
    line.insert("at".to_owned(), json!(event.at.format(&Rfc3339).unwrap_or_default()));
    line.insert("tenant".to_owned(), json!(event.tenant));
    line.insert("kind".to_owned(), json!(event.kind));
    line.insert("action_id".to_owned(), json!(event.action));
    if let (Some(subject), Some(salt)) = (&event.subject, &event.salt) {
        line.extend(object(subject));
        line.insert("salt".to_owned(), json!(hex::encode(salt)));
    }
    Value::Object(line)
}

fn object(bytes: &[u8]) -> Map<String, Value> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

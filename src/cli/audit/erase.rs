//! `undersign audit erase`.

use std::path::PathBuf;

use super::super::{Done, Failure, Outcome};
use super::{action_id, open_at, place_events};
use crate::domain::ids::ActionId;
use crate::storage::{self, Erased};

/// Arguments of `audit erase`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Removes the arguments, preview and facts from the audit trail, and the action's own row with its votes, cards and
upstream result. What stays are the audit rows without them: the digests, who decided, when and how it ended. Chat
messages and database backups are not reached. The role needs the rights of undersign_retention (roles.sql)."
)]
pub(super) struct Args {
    /// The action; it has to be over, and its outcome known.
    #[arg(value_name = "ACTION", value_parser = action_id)]
    action: ActionId,
    /// The configuration file; only its database section is read.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) async fn run(args: Args) -> Outcome {
    let db = open_at(&args.config).await?;
    let id = args.action;
    let erased = match db.erase(id).await {
        Err(storage::Error::Forbidden) => {
            return Err(Failure::no(
                "this database role may not erase: use undersign_retention or the owner (roles.sql)",
            ));
        }
        other => other?,
    };
    match erased {
        Erased::Done => {
            place_events(&db).await?;
            println!("the arguments of action {id} are erased");
            Ok(Done)
        }
        Erased::Already => {
            println!("the arguments of action {id} were erased before");
            Ok(Done)
        }
        Erased::NotOver(state) => Err(Failure::no(format!(
            "action {id} is {state}: only what is over, with a known outcome, can be erased"
        ))),
        Erased::Unknown => Err(Failure::no(format!("the audit trail has no action {id}"))),
    }
}

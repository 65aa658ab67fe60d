//! `undersign demo`: the whole story on this machine, between a played Slack and a played shop. Everything in between is
//! the code of `serve`.

mod agent;
mod set;
mod story;

use super::{Done, Failure, Outcome};
use crate::config;
use crate::demo::cluster::Cluster;
use crate::storage::Db;

use super::with_postgres::cluster_env;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Tell the story in the terminal and exit; exit 0 means that every step came out right
    #[arg(long)]
    headless: bool,
}

pub(super) async fn run(args: Args) -> Outcome {
    if !args.headless {
        return Err(Failure::usage(
            "the demo page is not available in this version: run `undersign demo --headless`",
        ));
    }
    let (url, cluster) = database().await?;
    let told = tell(url).await;
    if let Some(cluster) = cluster {
        let stopped = tokio::task::spawn_blocking(move || cluster.stop()).await;
        if let Ok(Err(error)) = stopped {
            eprintln!("the private Postgres did not stop: {error}");
        }
    }
    told.map(|()| Done)
}

/// The user's database if they name one, a private cluster otherwise.
async fn database() -> Result<(String, Option<Cluster>), Failure> {
    if let Some(url) = config::env("DATABASE_URL") {
        if !Db::take_for_demo(&url).await? {
            return Err(Failure::usage(
                "DATABASE_URL names a database that is in use by something other than the demo, which would get in its \
                 way: unset it, and the demo starts a private Postgres, or let it name an empty database",
            ));
        }
        println!("Using the database that DATABASE_URL names.");
        return Ok((url, None));
    }
    println!("Starting a private Postgres (no port, a socket of its own) ...");
    let started = tokio::task::spawn_blocking(|| Cluster::durable(&cluster_env())).await;
    match started {
        Ok(Ok(cluster)) => Ok((cluster.database_url("undersign"), Some(cluster))),
        Ok(Err(error)) => Err(Failure::usage(error.to_string())),
        Err(_) => Err(Failure::no("starting Postgres failed")),
    }
}

async fn tell(database_url: String) -> Result<(), Failure> {
    let set = set::Set::build(database_url).await?;
    let told = story::tell(&set).await;
    set.strike().await;
    told.map_err(|error| Failure::no(format!("\nThe story went wrong: {error}")))
}

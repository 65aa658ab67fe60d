//! `undersign audit export`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::super::serve::Signals;
use super::super::{Done, Failure, Outcome};
use super::{open_at, place_events};
use crate::domain::ids::Tenant;
use crate::storage::Db;

/// How often `--follow` looks for new events.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// How long a reader that has stopped reading may hold up a `--follow` that is told to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `audit export`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Rows come tenant by tenant in the order of their seq. The last lines are the newest signed checkpoint of each
tenant ({\"undersign\":\"checkpoint/1\", …}); they are left out with --follow, whose rows come as they happen."
)]
pub(super) struct Args {
    /// The configuration file; only its database section is read.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// One tenant instead of all.
    #[arg(long)]
    tenant: Option<String>,
    /// Begin after this seq of the tenant.
    #[arg(long, value_name = "SEQ", requires = "tenant", default_value_t = 0)]
    after: i64,
    /// Go on with new rows as they come, until SIGINT, SIGTERM or a closed pipe.
    #[arg(long)]
    follow: bool,
}

pub(super) async fn run(args: Args) -> Outcome {
    let db = open_at(&args.config).await?;
    let mut export = Export {
        only: args.tenant.clone().map(Tenant::new),
        after: args.after,
        cursors: BTreeMap::new(),
        out: std::io::BufWriter::new(std::io::stdout()),
        gone: 0,
    };
    let ended = if args.follow { follow(&db, &mut export).await } else { once(&db, &mut export).await };
    match ended {
        Ok(()) if export.gone == 0 => Ok(Done),
        Ok(()) => Err(Failure::no(format!("{} events are gone: run `undersign audit verify`", export.gone))),
        Err(Stop::ReaderLeft) => Ok(Done),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

/// Why an export ends early.
enum Stop {
    ReaderLeft,
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

struct Export {
    only: Option<Tenant>,
    after: i64,
    cursors: BTreeMap<Tenant, i64>,
    out: std::io::BufWriter<std::io::Stdout>,
    gone: usize,
}

async fn once(db: &Db, export: &mut Export) -> Result<(), Stop> {
    place_events(db).await?;
    let mut tenants: BTreeSet<Tenant> = db.chained_tenants().await?.into_iter().collect();
    tenants.extend(db.signed_tenants().await?);
    tenants.retain(|tenant| export.wants(tenant));
    let mut checkpoints = Vec::new();
    for tenant in tenants {
        // Before the rows, so that they reach at least as far.
        checkpoints.extend(db.newest_checkpoint(&tenant).await?);
        export.rows(db, &tenant).await?;
    }
    for checkpoint in checkpoints {
        export.write(&Value::Object(checkpoint))?;
    }
    export.flush()
}

async fn follow(db: &Db, export: &mut Export) -> Result<(), Stop> {
    let stop = CancellationToken::new();
    let signalled = stop.clone();
    let mut signals = Signals::new()
        .map_err(|error| Stop::Failed(Failure::usage(format!("no signal can be awaited: {error}"))))?;
    tokio::spawn(async move {
        signals.next().await;
        signalled.cancel();
        // A write to a pipe that nobody reads does not end by itself.
        tokio::time::sleep(PATIENCE).await;
        std::process::exit(0);
    });
    while !stop.is_cancelled() {
        // A database that is away for a while is no reason to lose the place.
        match pass(db, export).await {
            Err(Stop::Failed(failure)) => {
                tracing::warn!(error = failure.message, "nothing could be read; trying again")
            }
            other => other?,
        }
        if reader_left() {
            return Err(Stop::ReaderLeft);
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
        }
    }
    Ok(())
}

async fn pass(db: &Db, export: &mut Export) -> Result<(), Stop> {
    place_events(db).await?;
    for tenant in db.chained_tenants().await? {
        if export.wants(&tenant) {
            export.rows(db, &tenant).await?;
        }
    }
    export.flush()
}

/// Whether the reading end of standard output is closed; what is no pipe has none. Otherwise a stream with nothing to
/// write would never find out.
fn reader_left() -> bool {
    let stdout = std::io::stdout();
    let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
    let looked = poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    looked.is_ok() && ends[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

impl Export {
    fn wants(&self, tenant: &Tenant) -> bool {
        self.only.as_ref().is_none_or(|only| only == tenant)
    }

    async fn rows(&mut self, db: &Db, tenant: &Tenant) -> Result<(), Stop> {
        loop {
            let after = *self.cursors.get(tenant).unwrap_or(&self.after);
            let page = db.chain_page(tenant, after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            let seq = last.seq;
            for row in &page {
                match row.line() {
                    Some(line) => self.write(&Value::Object(line))?,
                    None => {
                        tracing::error!(%tenant, seq = row.seq, "an event is gone from the trail");
                        self.gone += 1;
                    }
                }
            }
            self.cursors.insert(tenant.clone(), seq);
        }
    }

    fn write(&mut self, line: &Value) -> Result<(), Stop> {
        writeln!(self.out, "{line}").map_err(stop)
    }

    fn flush(&mut self) -> Result<(), Stop> {
        self.out.flush().map_err(stop)
    }
}

fn stop(error: std::io::Error) -> Stop {
    if error.kind() == ErrorKind::BrokenPipe {
        Stop::ReaderLeft
    } else {
        Stop::Failed(Failure::usage(format!("standard output: {error}")))
    }
}

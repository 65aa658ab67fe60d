//! `undersign actions`: what operators read and withdraw. Nothing here approves.

use std::path::PathBuf;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{Done, Failure, Outcome};
use crate::config;
use crate::domain::action::{Action, State, StateName};
use crate::domain::answer::rfc3339;
use crate::domain::ids::{ActionId, Tenant};
use crate::domain::visible::{visible, visible_block};
use crate::storage::{Db, Listed, Wanted};

/// Arguments of `actions`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List actions, newest first
    List(ListArgs),
    /// Show one action whole: what was asked, who voted, how it ended
    Show(ShowArgs),
    /// Withdraw an action that is not being executed yet
    Cancel(CancelArgs),
}

/// Where the actions are.
#[derive(Debug, clap::Args)]
struct Source {
    /// The configuration file; only its database section is read.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    source: Source,
    /// Of one tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// In one state, such as pending or outcome_unknown.
    #[arg(long)]
    state: Option<String>,
    /// Of one agent.
    #[arg(long)]
    agent: Option<String>,
    /// Only those older than this action: the last one of the page before.
    #[arg(long, value_name = "ACTION")]
    before: Option<String>,
    /// How many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    source: Source,
    /// The action's id.
    action: String,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct CancelArgs {
    #[command(flatten)]
    source: Source,
    /// The action's id.
    action: String,
    /// Your name, for the audit trail.
    #[arg(long, value_name = "NAME")]
    by: String,
}

pub(super) async fn run(args: Args) -> Outcome {
    match args.command {
        Command::List(args) => list(args).await,
        Command::Show(args) => show(args).await,
        Command::Cancel(args) => cancel(args).await,
    }
}

async fn list(args: ListArgs) -> Outcome {
    let state = match &args.state {
        None => None,
        Some(text) => Some(StateName::parse(text).ok_or_else(|| {
            let known: Vec<_> = StateName::ALL.iter().map(|state| state.as_str()).collect();
            Failure::usage(format!(
                "--state {}: there is no such state; one of {}",
                visible(text),
                known.join(", ")
            ))
        })?),
    };
    let before = args.before.as_deref().map(read_id).transpose()?;
    let wanted = Wanted { tenant: args.tenant.map(Tenant::new), state, agent: args.agent, before };
    let listed = open(&args.source).await?.list_actions(&wanted, args.limit).await?;
    if args.json {
        print(&json!(listed.iter().map(listed_json).collect::<Vec<_>>()));
        return Ok(Done);
    }
    if listed.is_empty() {
        println!("no such action");
    }
    for line in listed {
        println!(
            "{}  {:<15}  {}  {}/{}  {}/{}",
            line.action,
            line.state,
            rfc3339(line.created_at),
            visible(&line.tenant),
            visible(&line.agent),
            visible(&line.upstream),
            visible(&line.tool)
        );
    }
    Ok(Done)
}

fn listed_json(line: &Listed) -> Value {
    json!({
        "action_id": line.action, "state": line.state, "tenant": line.tenant, "agent": line.agent,
        "upstream": line.upstream, "tool": line.tool, "created_at": rfc3339(line.created_at),
        "deadline": rfc3339(line.deadline),
    })
}

async fn show(args: ShowArgs) -> Outcome {
    let (_, action) = find(&args.source, &args.action).await?;
    let shown = action_json(&action);
    if args.json {
        print(&shown);
        return Ok(Done);
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (key, value) in shown.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Array(items) if items.is_empty() => {}
            Value::Array(items) => {
                println!("{key}:");
                for item in items {
                    println!("  {}", visible(&text(item)));
                }
            }
            Value::Object(_) => {
                let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
                println!("{key}:\n{}", visible_block(&pretty));
            }
            value => println!("{key}: {}", visible(&text(value))),
        }
    }
    Ok(Done)
}

fn action_json(action: &Action) -> Value {
    let b = &action.binding;
    let votes: Vec<_> = action
        .votes
        .iter()
        .map(|vote| {
            json!({
                "person": vote.person, "verdict": vote.verdict, "account": vote.account.to_string(),
                "at": rfc3339(vote.at),
            })
        })
        .collect();
    let (reason, outcome) = match &action.state {
        State::Invalidated { reason } | State::Returned { reason } => (Some(reason.as_str()), None),
        State::Executed { outcome } => (outcome.detail(), outcome.result()),
        _ => (None, None),
    };
    let redeem_by = match &action.state {
        State::Approved { redeem_by, .. } => Some(rfc3339(*redeem_by)),
        _ => None,
    };
    json!({
        "action_id": action.id(),
        "state": if action.due { "expired" } else { action.state.name().as_str() },
        "reason": reason,
        "tenant": b.tenant,
        "agent": b.agent,
        "owner": b.owner,
        "run": b.run,
        "upstream": b.upstream,
        "environment": b.environment,
        "tool": b.tool,
        "rules": action.rules,
        "risk": action.risk,
        "requirement": b.requirement.in_words(),
        "created_at": rfc3339(action.created_at),
        "expires_at": rfc3339(action.expires_at),
        "redeem_by": redeem_by,
        "action_digest": action.digest.to_string(),
        "intact": action.is_intact(),
        "votes": votes,
        "cards": action.cards,
        "arguments": b.arguments.value(),
        "result": outcome,
    })
}

async fn cancel(args: CancelArgs) -> Outcome {
    let usable = (1..=64).contains(&args.by.len()) && !args.by.chars().any(char::is_control);
    if !usable {
        return Err(Failure::usage("--by must be a name of 1 to 64 characters"));
    }
    let (db, action) = find(&args.source, &args.action).await?;
    let id = action.id();
    if db.cancel_by_operator(&action.binding.tenant, id, &args.by).await? {
        // Whoever waits for it is told at once; those who miss it look again within seconds.
        db.notify(&[id]).await?;
        println!("{id} is cancelled; nobody can approve or execute it any more");
        return Ok(Done);
    }
    let now = db.action(&action.binding.tenant, id).await?;
    let state = now.map_or("gone", |action| action.state.name().as_str());
    Err(Failure::no(format!("{id} is {state}: only what is pending or approved can be cancelled")))
}

async fn find(source: &Source, action: &str) -> Result<(Db, Action), Failure> {
    let id = read_id(action)?;
    let db = open(source).await?;
    let none = || Failure::no(format!("there is no action {id}"));
    let tenant = db.tenant_of(id).await?.ok_or_else(none)?;
    let action = db.action(&tenant, id).await?.ok_or_else(none)?;
    Ok((db, action))
}

fn read_id(text: &str) -> Result<ActionId, Failure> {
    ActionId::parse(text).ok_or_else(|| {
        Failure::usage(format!(
            "{} is not an action's id: it looks like 01890a5d-ac96-774b-bcce-b302099a8057",
            visible(text)
        ))
    })
}

async fn open(source: &Source) -> Result<Db, Failure> {
    let database = config::load_database(&source.config)?;
    let db = Db::connect(database.url.expose_secret(), 2).await?;
    db.check_schema().await?;
    Ok(db)
}

fn print(value: &Value) {
    println!("{}", serde_json::to_string_pretty(value).unwrap_or_default());
}

//! `undersign check`: every fault of configuration and policy at once, or what each tool would require.

mod doctor;
mod slack;
mod words;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Done, Failure, Outcome};
use crate::config::{self, LoadError};
use crate::domain::policy::Fault;

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Also ask the database, the upstreams and Slack. Nothing is posted and nothing is changed
    #[arg(long)]
    online: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Args) -> Outcome {
    let config = match config::load(&args.config) {
        Ok(config) => config,
        Err(error) if args.json => {
            println!("{}", json!({ "ok": false, "faults": faults(error.faults()) }));
            return Err(failure(&error, counted(error.faults().len(), "fault")));
        }
        Err(LoadError::Refused(faults)) => {
            for fault in &faults {
                println!("{fault}");
            }
            return Err(Failure::no(counted(faults.len(), "fault")));
        }
        // There is no answer, only an error.
        Err(error @ LoadError::Unreadable(_)) => return Err(failure(&error, error.to_string())),
    };
    let findings = if args.online { Some(doctor::ask(&config).await?) } else { None };
    let severe = findings.iter().flatten().filter(|finding| finding.is_fault()).count();
    if args.json {
        let mut answer = json!({
            "ok": severe == 0,
            "tenants": words::as_json(&config),
            "warnings": faults(&config.warnings),
        });
        if let Some(findings) = &findings {
            answer["online"] = json!(findings);
        }
        println!("{answer}");
    } else {
        print!("{}", words::effective(&config));
        for warning in &config.warnings {
            println!("warning: {warning}");
        }
        for finding in findings.iter().flatten() {
            println!("{finding}");
        }
    }
    if severe > 0 {
        return Err(Failure::no(counted(severe, "fault")));
    }
    if !args.json {
        let warned = findings.iter().flatten().filter(|finding| finding.is_warning()).count();
        match config.warnings.len() + warned {
            0 => println!("no faults"),
            warnings => println!("no faults, {}", count(warnings, "warning")),
        }
    }
    Ok(Done)
}

fn failure(error: &LoadError, message: String) -> Failure {
    match error {
        LoadError::Refused(_) => Failure::no(message),
        LoadError::Unreadable(_) => Failure::usage(message),
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{} found", self::count(count, what))
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn faults(faults: &[Fault]) -> Value {
    let faults =
        faults.iter().map(|fault| json!({ "file": fault.file, "key": fault.key, "message": fault.message }));
    faults.collect()
}

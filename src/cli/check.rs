//! `undersign check`: every fault of configuration and policy at once, or what each tool would require.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Done, Failure, Outcome};
use crate::config::{self, Config, LoadError};
use crate::domain::duration::human;
use crate::domain::policy::{Fault, RuleView};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    match config::load(&args.config) {
        Ok(config) => {
            if args.json {
                println!("{}", as_json(&config));
            } else {
                print(&config);
            }
            Ok(Done)
        }
        Err(error) if args.json => {
            println!("{}", faults_as_json(error.faults()));
            Err(failure(&error, counted(error.faults())))
        }
        Err(LoadError::Refused(faults)) => {
            for fault in &faults {
                println!("{fault}");
            }
            Err(Failure::no(counted(&faults)))
        }
        // There is no answer, only an error.
        Err(error @ LoadError::Unreadable(_)) => Err(failure(&error, error.to_string())),
    }
}

fn failure(error: &LoadError, message: String) -> Failure {
    match error {
        LoadError::Refused(_) => Failure::no(message),
        LoadError::Unreadable(_) => Failure::usage(message),
    }
}

fn counted(faults: &[Fault]) -> String {
    format!("{} fault{} found", faults.len(), if faults.len() == 1 { "" } else { "s" })
}

fn faults_as_json(faults: &[Fault]) -> Value {
    let faults: Vec<_> = faults
        .iter()
        .map(|fault| json!({ "file": fault.file, "key": fault.key, "message": fault.message }))
        .collect();
    json!({ "ok": false, "faults": faults })
}

fn as_json(config: &Config) -> Value {
    let tenants: serde_json::Map<_, _> = config
        .tenants
        .iter()
        .map(|(name, tenant)| {
            let rules: Vec<_> = tenant.policy.rules().collect();
            let agents: Vec<_> = tenant.agents.keys().collect();
            let upstreams: Vec<_> = tenant.upstreams.keys().collect();
            (name.to_string(), json!({ "agents": agents, "upstreams": upstreams, "rules": rules }))
        })
        .collect();
    json!({ "ok": true, "tenants": tenants })
}

fn print(config: &Config) {
    for (name, tenant) in &config.tenants {
        let names = |names: Vec<String>| names.join(", ");
        println!("tenant {name}");
        println!("  agents     {}", names(tenant.agents.keys().map(ToString::to_string).collect()));
        println!("  upstreams  {}", names(tenant.upstreams.keys().map(ToString::to_string).collect()));
        println!("  rules");
        for rule in tenant.policy.rules() {
            print_rule(&rule);
        }
        println!("  every other tool: not_allowed");
    }
    println!("no faults");
}

fn print_rule(rule: &RuleView) {
    println!("    {}: {} for {}", rule.name, rule.decision, rule.tools.join(", "));
    if let Some(when) = &rule.when {
        println!("      when    {when}");
    }
    if let Some(approval) = &rule.approval {
        println!("      risk    {}", approval.risk.as_str());
        println!(
            "      needs   {}{}",
            approval.needs,
            if approval.separate_proposer { ", not the agent's owner" } else { "" }
        );
        println!("      asks    {}", approval.post_to.join(", "));
        println!(
            "      within  {} to decide, {} to redeem",
            human(approval.expires),
            human(approval.redeem_within)
        );
    }
}

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
        Err(error) => {
            print_faults(error.faults(), args.json);
            let count = error.faults().len();
            let found = format!("{count} fault{} found", if count == 1 { "" } else { "s" });
            Err(match error {
                LoadError::Unreadable(_) => Failure::usage(found),
                LoadError::Refused(_) => Failure::no(found),
            })
        }
    }
}

fn print_faults(faults: &[Fault], as_json: bool) {
    if as_json {
        let faults: Vec<_> = faults
            .iter()
            .map(|fault| json!({ "file": fault.file, "key": fault.key, "message": fault.message }))
            .collect();
        println!("{}", json!({ "ok": false, "faults": faults }));
    } else {
        for fault in faults {
            println!("{fault}");
        }
    }
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
        println!("      needs   {}{}", approval.needs, if approval.separate_proposer { ", not the agent's owner" } else { "" });
        println!("      asks    {}", approval.post_to.join(", "));
        println!("      within  {} to decide, {} to redeem", human(approval.expires), human(approval.redeem_within));
    }
}

//! `check --online` for Slack: is it our app, may it ask what it must, is the bot in every channel, is there somebody
//! behind every group.

use std::collections::{BTreeMap, BTreeSet};

use super::doctor::Finding;
use crate::app::ports::AccountStanding;
use crate::chat::slack::{Answered, SelfCheck};
use crate::cli::{Failure, serve};
use crate::config::{Config, TenantConfig};
use crate::domain::ids::Installation;
use crate::domain::place::Platform;
use crate::domain::policy::Group;

/// What the policies of all tenants want of one installation.
#[derive(Default)]
struct Wanted {
    channels: BTreeSet<String>,
    usergroups: BTreeSet<String>,
    people: BTreeSet<(String, String)>,
}

pub(super) async fn ask(config: &Config) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let mut members = BTreeMap::new();
    for (name, settings) in &config.slack {
        let about = format!("slack.{name}");
        let check = SelfCheck::new(&serve::slack_app(name, settings))
            .map_err(|error| Failure::usage(format!("[{about}]: no HTTPS client: {error}")))?;
        match check.identity().await {
            Ok(remarks) => {
                findings.push(Finding::ok(&about, "the bot token is accepted"));
                let another = !remarks.is_empty();
                findings.extend(remarks.into_iter().map(|remark| Finding::fault(&about, remark)));
                // What another app or workspace says of channels and people is no news of this one's.
                if another {
                    continue;
                }
            }
            Err(message) => {
                findings.push(Finding::fault(&about, message));
                continue;
            }
        }
        let wanted = wanted(config, name);
        for channel in &wanted.channels {
            findings.push(finding(&format!("slack:{name}/{channel}"), check.channel(channel).await));
        }
        for group in &wanted.usergroups {
            match check.members(group).await {
                Ok(found) => {
                    members.insert((name.clone(), group.clone()), found);
                }
                Err(message) => {
                    findings.push(Finding::fault(&format!("{about}: user group {group}"), message));
                }
            }
        }
        for (person, user) in &wanted.people {
            let about = format!("people.{person}: slack:{name}/{user}");
            match check.account(user).await {
                Ok(AccountStanding::Member) => {}
                Ok(AccountStanding::Outsider) => findings.push(Finding::fault(
                    &about,
                    "is no full member of this workspace (not there, deactivated, a guest or a bot), and can approve \
                     nothing: correct the id, or remove the account",
                )),
                Err(message) => findings.push(Finding::fault(&about, message)),
            }
        }
    }
    for (tenant, settings) in &config.tenants {
        findings.extend(short_groups(tenant.as_str(), settings, &members));
    }
    Ok(findings)
}

fn finding(about: &str, answered: Answered) -> Finding {
    match answered {
        Answered::Good(message) => Finding::ok(about, message),
        Answered::Unknown(message) => Finding::warning(about, message),
        Answered::Bad(message) => Finding::fault(about, message),
    }
}

fn wanted(config: &Config, installation: &Installation) -> Wanted {
    let mut wanted = Wanted::default();
    for tenant in config.tenants.values() {
        for place in tenant.policy.places() {
            if place.platform == Platform::Slack && place.installation == *installation {
                wanted.channels.insert(place.channel);
            }
        }
        for (_, group) in tenant.policy.groups() {
            let here = group.slack_usergroups.iter().filter(|(of, _)| of == installation);
            wanted.usergroups.extend(here.map(|(_, id)| id.clone()));
        }
        for (person, account) in tenant.policy.accounts() {
            if account.platform == Platform::Slack && account.installation == *installation {
                wanted.people.insert((person.to_string(), account.user.clone()));
            }
        }
    }
    wanted
}

/// Groups with fewer people than a rule asks for.
fn short_groups(
    tenant: &str,
    config: &TenantConfig,
    members: &BTreeMap<(Installation, String), BTreeSet<String>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, group) in config.policy.groups().filter(|(_, group)| !group.slack_usergroups.is_empty()) {
        let Some(people) = people(config, group, members) else { continue };
        let needed = config.policy.most_asked_of(name);
        let about = format!("{tenant}: groups.{name}");
        if people < needed {
            let message = format!(
                "has {} now, and a rule asks for {needed}: add members to {}, or lower the count",
                super::count(people, "member"),
                usergroups(group)
            );
            findings.push(Finding::fault(&about, message));
        } else {
            findings.push(Finding::ok(&about, format!("has {} now", super::count(people, "member"))));
        }
    }
    findings
}

fn usergroups(group: &Group) -> String {
    let names = group.slack_usergroups.iter().map(|(installation, id)| format!("slack:{installation}/{id}"));
    names.collect::<Vec<_>>().join(" or ")
}

/// How many people a group has, each counted once; none when one of its user groups could not be asked.
fn people(
    config: &TenantConfig,
    group: &Group,
    members: &BTreeMap<(Installation, String), BTreeSet<String>>,
) -> Option<usize> {
    let mut people: BTreeSet<_> = group.people.iter().cloned().collect();
    for usergroup in &group.slack_usergroups {
        for user in members.get(usergroup)? {
            people.insert(config.policy.person_of(&crate::domain::place::Account {
                platform: Platform::Slack,
                installation: usergroup.0.clone(),
                user: user.clone(),
            }));
        }
    }
    Some(people.len())
}

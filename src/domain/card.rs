//! A card: the platform-neutral content of one chat message about an action, made from committed state alone.
//!
//! What agents wrote arrives here already inert (see [`super::preview`]); names from the configuration are made visible
//! too, as an upstream or a client may have chosen them.

use serde::Serialize;
use time::OffsetDateTime;

use super::action::{Action, State};
use super::intent::Outcome;
use super::place::Account;
use super::press::Verdict;
use super::requirement::tally;
use super::visible::visible;

/// A piece of a line whose rendering differs between platforms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Span {
    /// Words of ours, or text made visible.
    Text(String),
    /// A moment, shown in the reader's own time; Unix seconds.
    Time(i64),
    /// A person's account, shown as a mention that notifies nobody.
    Who(Account),
}

/// Which buttons a card has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Buttons {
    /// Approve and Deny, equal in size.
    Decide,
    /// Revoke alone: approved and not yet redeemed.
    Revoke,
    /// None: decided for good.
    None,
}

/// The content of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Card {
    /// "Approval needed", or what became of it.
    pub heading: &'static str,
    /// The effect in one line.
    pub title: String,
    /// Labelled facts, in reading order.
    pub fields: Vec<(&'static str, String)>,
    /// What to beware of.
    pub warnings: Vec<String>,
    /// The exact arguments, laid out.
    pub arguments: String,
    /// Size of the canonical arguments in bytes.
    pub arguments_bytes: usize,
    /// First 12 hex digits of the action digest.
    pub digest_prefix: String,
    /// Policy version, first 12 hex digits.
    pub policy_prefix: String,
    /// The deadline of the decision, Unix seconds.
    pub expires_at: i64,
    /// What has happened so far, oldest first.
    pub history: Vec<Vec<Span>>,
    /// The buttons.
    pub buttons: Buttons,
    /// One static line for notifications: service words and ids only.
    pub fallback: String,
}

impl Card {
    /// The card of an action as it is now.
    pub fn of(action: &Action) -> Self {
        let binding = &action.binding;
        let preview = &action.preview;
        let mut fields = Vec::new();
        let mut field = |label, text: Option<&str>| {
            if let Some(text) = text {
                fields.push((label, text.to_owned()));
            }
        };
        field("Target", preview.target.as_deref());
        field("Effect", preview.effect.as_deref());
        field("Impact", preview.impact.as_deref());
        field("Data out", preview.data_out.as_deref());
        field("Reversible", Some(&preview.reversible));
        field("Risk", Some(action.risk.as_str()));
        field("Tool", Some(&visible(&format!("{} / {}", binding.upstream, binding.tool))));
        field("Environment", Some(&visible(binding.environment.as_deref().unwrap_or("not set"))));
        field("Agent", Some(&visible(binding.agent.as_str())));
        field("For", Some(&visible(binding.owner.as_ref().map_or("nobody in particular", |o| o.as_str()))));
        field("Tenant", Some(&visible(binding.tenant.as_str())));
        let rules: Vec<_> = action.rules.iter().map(|rule| visible(rule.as_str())).collect();
        field("Rule", Some(&rules.join(", ")));
        let policy_prefix = prefix(&binding.policy_version.to_string());
        field("Policy version", Some(&policy_prefix));
        field("Must approve", Some(&visible(&binding.requirement.in_words())));
        let digest_prefix = prefix(&action.digest.to_string());
        Self {
            heading: heading(&action.state),
            title: preview.title.clone(),
            fields,
            warnings: preview.warnings.clone(),
            arguments: preview.arguments.clone(),
            arguments_bytes: binding.arguments.canonical().len(),
            fallback: format!("{}: action {}, digest {digest_prefix}", heading(&action.state), action.id()),
            digest_prefix,
            policy_prefix,
            expires_at: action.expires_at.unix_timestamp(),
            history: history(action),
            buttons: match action.state {
                State::Pending if !action.due => Buttons::Decide,
                State::Approved { .. } if !action.due => Buttons::Revoke,
                _ => Buttons::None,
            },
        }
    }
}

fn prefix(digest: &str) -> String {
    digest.chars().take(12).collect()
}

fn heading(state: &State) -> &'static str {
    match state {
        State::Pending => "Approval needed",
        State::Approved { .. } => "Approved",
        State::Executing { .. } => "Approved: executing",
        State::Executed { outcome: Outcome::Succeeded { .. } } => "Approved: succeeded",
        State::Executed { outcome: Outcome::Failed { .. } } => "Approved: failed",
        State::Executed { outcome: Outcome::Unknown { .. } } => "Approved: outcome unknown",
        State::Denied { .. } => "Denied",
        State::Expired => "Expired",
        State::Cancelled { .. } => "Cancelled",
        State::Invalidated { .. } => "No longer valid",
        State::Undeliverable => "Not deliverable",
        State::Returned { .. } => "Sent back",
    }
}

fn history(action: &Action) -> Vec<Vec<Span>> {
    let mut lines = Vec::new();
    for vote in &action.votes {
        let said = match vote.verdict {
            Verdict::Approve => "Approved by ",
            Verdict::Deny => "Denied by ",
        };
        lines.push(vec![
            Span::Text(said.to_owned()),
            Span::Who(vote.account.clone()),
            Span::Text(format!(" ({}), ", visible(vote.person.as_str()))),
            Span::Time(vote.at.unix_timestamp()),
        ]);
    }
    let text = |text: String| vec![Span::Text(text)];
    let until = |words: &str, at: OffsetDateTime| {
        vec![Span::Text(words.to_owned()), Span::Time(at.unix_timestamp()), Span::Text(".".to_owned())]
    };
    lines.push(match &action.state {
        State::Pending => {
            let count = tally(&action.binding.requirement, &action.approvals());
            let got: Vec<_> = count
                .progress
                .iter()
                .map(|entry| {
                    format!("{} of {} from {}", entry.got, entry.count, visible(entry.group.as_str()))
                })
                .collect();
            text(format!("Approvals so far: {}.", got.join(", ")))
        }
        State::Approved { redeem_by, .. } => until("Waiting for the agent, until ", *redeem_by),
        State::Executing { .. } => text("Executing.".to_owned()),
        State::Executed { outcome } => text(outcome_line(outcome)),
        State::Denied { .. } => text("The tool was not called.".to_owned()),
        State::Expired => text("Time ran out. The tool was not called.".to_owned()),
        State::Cancelled { by } => text(format!(
            "Withdrawn by {}. The tool was not called.",
            visible(by.as_deref().unwrap_or("the agent"))
        )),
        State::Invalidated { reason } => text(format!("Void: {}. The tool was not called.", visible(reason))),
        State::Undeliverable => text("It could not be shown everywhere. The tool was not called.".to_owned()),
        State::Returned { reason } => {
            text(format!("Sent back: {}. The tool was not called.", visible(reason)))
        }
    });
    lines
}

fn outcome_line(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Succeeded { .. } => "Succeeded: the tool was called once.".to_owned(),
        Outcome::Failed { detail, .. } => format!("Failed ({}). It is not tried again.", detail.as_str()),
        Outcome::Unknown { detail } => format!(
            "Outcome unknown ({}): the tool may or may not have acted. It is not tried again; please look.",
            detail.as_str()
        ),
    }
}

//! Who must approve, who is admitted to vote, and when the requirement is met.
//!
//! [`EligibleApprover`] can only be made by [`admit`]; storage records a vote from nothing else. People are counted,
//! never clicks, and one person fills one place.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::ids::{GroupName, Person};
use super::place::Account;
use super::press::Verdict;

/// Who must approve an action, as it is bound by the action digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// How many people of which group; every entry must be met, by distinct people. Sorted by group.
    pub approvers: Vec<ApproverCount>,
    /// Whether the agent's owner is kept from approving.
    pub separate_proposer: bool,
    /// The second factor that approving asks for.
    pub step_up: Option<StepUp>,
    /// Who is asked as well when nobody decides.
    pub escalate: Option<Escalation>,
    /// An approval given sooner than this many seconds after posting needs one more person.
    pub second_look_s: Option<u64>,
}

/// One entry of a requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApproverCount {
    /// How many people; at least 1.
    pub count: u32,
    /// Of this group.
    pub group: GroupName,
}

/// A second factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepUp {
    /// A time-based one-time code (RFC 6238).
    Totp,
}

/// A second group that may fill the count after a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// Seconds after parking.
    pub after_s: u64,
    /// The group.
    pub group: GroupName,
}

impl Requirement {
    /// The groups whose members may decide.
    pub fn groups(&self) -> impl Iterator<Item = &GroupName> {
        self.approvers.iter().map(|entry| &entry.group)
    }

    /// The requirement of several rules that apply together: every group, the highest count, the strictest flags.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        for entry in other.approvers {
            match self.approvers.iter_mut().find(|mine| mine.group == entry.group) {
                Some(mine) => mine.count = mine.count.max(entry.count),
                None => self.approvers.push(entry),
            }
        }
        self.approvers.sort_by(|a, b| a.group.cmp(&b.group));
        self.separate_proposer |= other.separate_proposer;
        self.step_up = self.step_up.or(other.step_up);
        self.escalate = self.escalate.or(other.escalate);
        self.second_look_s = self.second_look_s.max(other.second_look_s);
        self
    }

    /// The requirement in words: `1 of payments and 2 of legal`.
    pub fn in_words(&self) -> String {
        let entries: Vec<_> = self.approvers.iter().map(|e| format!("{} of {}", e.count, e.group)).collect();
        entries.join(" and ")
    }
}

/// What is known about the person who pressed, resolved from policy and platform just now.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The person.
    pub person: Person,
    /// The account that pressed.
    pub account: Account,
    /// The groups of the requirement that the person is a member of at this moment.
    pub groups: BTreeSet<GroupName>,
    /// The agent's owner, when the action has one.
    pub proposer: Option<Person>,
}

/// A person who may cast this vote. Made by [`admit`] alone.
#[derive(Debug, Clone)]
pub struct EligibleApprover {
    person: Person,
    account: Account,
    groups: BTreeSet<GroupName>,
}

impl EligibleApprover {
    /// The person.
    pub fn person(&self) -> &Person {
        &self.person
    }

    /// The account that pressed.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The groups of the requirement the person counts for.
    pub fn groups(&self) -> &BTreeSet<GroupName> {
        &self.groups
    }
}

/// Why a person may not cast this vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotEligible {
    /// In none of the requirement's groups.
    #[error("not a member of a group that may decide this action")]
    NotAMember,
    /// The agent works for this person, and the rule separates the two.
    #[error("the agent works for this person, who may deny but not approve")]
    Proposer,
}

/// Admits a person to vote.
///
/// # Errors
/// The person is in none of the groups, or approves for an agent of their own where that is separated.
pub fn admit(
    requirement: &Requirement,
    candidate: Candidate,
    verdict: Verdict,
) -> Result<EligibleApprover, NotEligible> {
    let proposer = candidate.proposer.as_ref() == Some(&candidate.person);
    if verdict == Verdict::Approve && requirement.separate_proposer && proposer {
        return Err(NotEligible::Proposer);
    }
    let groups: BTreeSet<_> =
        requirement.groups().filter(|group| candidate.groups.contains(*group)).cloned().collect();
    // The owner may always withdraw their own agent's call by denying it (DESIGN.md section 12).
    if groups.is_empty() && !(proposer && verdict == Verdict::Deny && requirement.separate_proposer) {
        return Err(NotEligible::NotAMember);
    }
    Ok(EligibleApprover { person: candidate.person, account: candidate.account, groups })
}

/// How far one group's entry is met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The group.
    pub group: GroupName,
    /// People counted for it.
    pub got: u32,
    /// People needed.
    pub count: u32,
}

/// The state of an approval count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// One entry for each group of the requirement.
    pub progress: Vec<Progress>,
    /// Whether every entry is met by distinct people.
    pub met: bool,
}

/// Counts approving people against the requirement, each person in one place.
///
/// With several groups this is an assignment problem: a member of both may be needed in either. Augmenting paths
/// (Kuhn's algorithm) find the largest assignment; the numbers are a handful of people.
pub fn tally(requirement: &Requirement, approvals: &[(Person, BTreeSet<GroupName>)]) -> Tally {
    let mut people: Vec<&(Person, BTreeSet<GroupName>)> = Vec::new();
    for approval in approvals {
        if !people.iter().any(|(person, _)| *person == approval.0) {
            people.push(approval);
        }
    }
    let places: Vec<&GroupName> = requirement
        .approvers
        .iter()
        .flat_map(|entry| std::iter::repeat_n(&entry.group, entry.count as usize))
        .collect();
    let mut holder: Vec<Option<usize>> = vec![None; places.len()];
    for person in 0..people.len() {
        let mut tried = vec![false; places.len()];
        place(person, &people, &places, &mut holder, &mut tried);
    }
    let progress = requirement
        .approvers
        .iter()
        .map(|entry| Progress {
            group: entry.group.clone(),
            got: u32::try_from(
                places.iter().zip(&holder).filter(|(g, h)| **g == &entry.group && h.is_some()).count(),
            )
            .unwrap_or(u32::MAX),
            count: entry.count,
        })
        .collect();
    Tally { progress, met: !places.is_empty() && holder.iter().all(Option::is_some) }
}

fn place(
    person: usize,
    people: &[&(Person, BTreeSet<GroupName>)],
    places: &[&GroupName],
    holder: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    for seat in 0..places.len() {
        if tried[seat] || !people[person].1.contains(places[seat]) {
            continue;
        }
        tried[seat] = true;
        let free = match holder[seat] {
            None => true,
            Some(other) => place(other, people, places, holder, tried),
        };
        if free {
            holder[seat] = Some(person);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::place::Platform;

    fn requirement(entries: &[(&str, u32)]) -> Requirement {
        Requirement {
            approvers: entries.iter().map(|(g, c)| ApproverCount { count: *c, group: (*g).into() }).collect(),
            separate_proposer: true,
            step_up: None,
            escalate: None,
            second_look_s: None,
        }
    }

    fn vote(person: &str, groups: &[&str]) -> (Person, BTreeSet<GroupName>) {
        (person.into(), groups.iter().map(|g| GroupName::from(*g)).collect())
    }

    fn candidate(person: &str, groups: &[&str]) -> Candidate {
        Candidate {
            person: person.into(),
            account: Account {
                platform: Platform::Slack,
                installation: "main".into(),
                user: "U1".to_owned(),
            },
            groups: groups.iter().map(|g| GroupName::from(*g)).collect(),
            proposer: Some("ana".into()),
        }
    }

    #[test]
    fn one_person_counts_once_however_often_they_vote() {
        let tally = tally(&requirement(&[("pay", 2)]), &[vote("ana", &["pay"]), vote("ana", &["pay"])]);
        assert!(!tally.met);
        assert_eq!(tally.progress[0].got, 1);
    }

    #[test]
    fn a_member_of_both_groups_takes_the_place_that_lets_the_other_in() {
        let votes = [vote("both", &["legal", "pay"]), vote("legal-only", &["legal"])];
        assert!(tally(&requirement(&[("legal", 1), ("pay", 1)]), &votes).met);
        assert!(
            !tally(&requirement(&[("legal", 1), ("pay", 1)]), &votes[..1]).met,
            "one person fills one place"
        );
    }

    #[test]
    fn nothing_required_is_never_met() {
        assert!(!tally(&requirement(&[]), &[vote("ana", &["pay"])]).met);
    }

    #[test]
    fn the_proposer_may_deny_but_not_approve() {
        let rule = requirement(&[("pay", 1)]);
        assert_eq!(
            admit(&rule, candidate("ana", &["pay"]), Verdict::Approve).unwrap_err(),
            NotEligible::Proposer
        );
        assert!(admit(&rule, candidate("ana", &[]), Verdict::Deny).is_ok());
        let together = Requirement { separate_proposer: false, ..rule };
        assert!(admit(&together, candidate("ana", &["pay"]), Verdict::Approve).is_ok());
    }

    #[test]
    fn membership_of_another_group_admits_nobody() {
        let refused = admit(&requirement(&[("pay", 1)]), candidate("bob", &["legal"]), Verdict::Deny);
        assert_eq!(refused.unwrap_err(), NotEligible::NotAMember);
    }

    #[test]
    fn merging_takes_every_group_and_the_highest_count() {
        let merged = requirement(&[("pay", 1)]).merge(requirement(&[("legal", 1), ("pay", 2)]));
        assert_eq!(merged.in_words(), "1 of legal and 2 of pay");
    }
}

//! Who a person is and which groups they are in, resolved from policy and platform at the click and again at the
//! redemption. Closed when the platform can't be asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::App;
use super::ports::{AccountStanding, Directory, DirectoryDown};
use crate::domain::ids::{GroupName, Installation, Person};
use crate::domain::place::{Account, Platform};
use crate::domain::policy::{Group, Policy};
use crate::domain::requirement::{Candidate, Requirement};

impl App {
    /// The candidate behind an account. `None`: a guest, a bot, deactivated, or of another workspace.
    pub(super) async fn candidate(
        &self,
        policy: &Policy,
        requirement: &Requirement,
        account: &Account,
        home: Option<&str>,
        proposer: Option<&Person>,
    ) -> Result<Option<Candidate>, DirectoryDown> {
        let directory = self.directory(account.platform, &account.installation)?;
        if directory.standing(&account.user, home).await? == AccountStanding::Outsider {
            return Ok(None);
        }
        let person = policy.person_of(account);
        let accounts = policy.accounts_of(&person, account);
        let mut groups = BTreeSet::<GroupName>::new();
        for name in requirement.groups() {
            // A group that policy no longer defines has no members.
            let Some(group) = policy.group(name) else { continue };
            if self.is_member(group, &person, &accounts).await? {
                groups.insert(name.clone());
            }
        }
        Ok(Some(Candidate { person, account: account.clone(), groups, proposer: proposer.cloned() }))
    }

    async fn is_member(
        &self,
        group: &Group,
        person: &Person,
        accounts: &[Account],
    ) -> Result<bool, DirectoryDown> {
        if group.people.contains(person) {
            return Ok(true);
        }
        for (installation, usergroup) in &group.slack_usergroups {
            let of_here = |account: &&Account| {
                account.platform == Platform::Slack && account.installation == *installation
            };
            let mine: Vec<_> = accounts.iter().filter(of_here).collect();
            if mine.is_empty() {
                continue;
            }
            let members = self.directory(Platform::Slack, installation)?.members(usergroup).await?;
            if mine.iter().any(|account| members.contains(&account.user)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn directory(
        &self,
        platform: Platform,
        installation: &Installation,
    ) -> Result<Arc<dyn Directory>, DirectoryDown> {
        let chats = self.chats.load();
        let entry = chats.get(&(platform, installation.clone())).ok_or(DirectoryDown)?;
        Ok(entry.directory.clone())
    }
}

//! Reloading while the service runs: on SIGHUP, and when a policy file has changed.
//!
//! What can be exchanged under a running service is: policies, agents and their keys, token keys, and the secrets of chat
//! installations. All of it or, if anything in the files is refused, none of it; the old stays in force then and
//! `/readyz` says why. What else has changed waits for the next start, and `/readyz` says so too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Service;
use super::parts::{announce, callers, chats};
use crate::config::{self, Config};
use crate::domain::digest::sha256;

/// How often the policy files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// For so long they must have stayed as they are before they are loaded.
const SETTLE: Duration = Duration::from_secs(1);

/// What only a start can change, by the key that it stands under.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fixed(BTreeMap<String, String>);

impl Fixed {
    pub(super) fn of(config: &Config) -> Self {
        let mut fixed = BTreeMap::new();
        fixed.insert("server".to_owned(), format!("{:?}", config.server));
        let database = (config.database.max_connections, config.database.migrate);
        fixed.insert("database".to_owned(), format!("{database:?}"));
        for (name, slack) in &config.slack {
            let kept = (&slack.team_id, &slack.app_id, &slack.enterprise_id, &slack.api_url);
            fixed.insert(format!("slack.{name}"), format!("{kept:?}"));
        }
        for (tenant, configured) in &config.tenants {
            fixed.insert(format!("tenants.{tenant}"), String::new());
            for (name, upstream) in &configured.upstreams {
                // Of a secret its hash, to see that it is another.
                let headers: Vec<_> = upstream
                    .headers
                    .iter()
                    .map(|(name, value)| (name, sha256(value.expose_secret().as_bytes())))
                    .collect();
                let kept = (&upstream.url, headers, upstream.timeout, &upstream.environment);
                fixed.insert(format!("tenants.{tenant}.upstreams.{name}"), format!("{kept:?}"));
            }
        }
        Self(fixed)
    }

    /// The keys that differ, in order.
    fn differing(&self, other: &Self) -> Vec<String> {
        let keys = self.0.keys().chain(other.0.keys());
        let mut differing: Vec<String> =
            keys.filter(|key| self.0.get(*key) != other.0.get(*key)).cloned().collect();
        differing.sort();
        differing.dedup();
        differing
    }
}

/// What a reload came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reloaded {
    /// It is in force, or refused for what is in the files: nothing more to do until they change.
    Done,
    /// Something outside the files failed: it is to be tried again.
    Again,
}

impl Service {
    /// Puts a configuration in force that was loaded anew, as far as a running service can; one that was refused leaves
    /// everything as it is.
    pub async fn reload(&self, loaded: Result<Config, String>) -> Reloaded {
        let config = match loaded {
            Ok(config) => config,
            Err(fault) => {
                tracing::error!(
                    "the configuration was not reloaded and the old one stays in force:\n{fault}"
                );
                self.shared.app.reloaded(Some(fault));
                return Reloaded::Done;
            }
        };
        match self.exchange(config).await {
            Ok(waiting) => {
                let told = (!waiting.is_empty())
                    .then(|| format!("restart to put in force what has changed in: {}", waiting.join(", ")));
                tracing::info!(waits = told.as_deref(), "the configuration was reloaded");
                self.shared.app.reloaded(told);
                Reloaded::Done
            }
            Err(fault) => {
                tracing::error!(
                    "the configuration was not reloaded yet, and the old one stays in force: {fault}"
                );
                self.shared.app.reloaded(Some(fault));
                Reloaded::Again
            }
        }
    }

    /// What waits for a restart, or why nothing was exchanged.
    async fn exchange(&self, config: Config) -> Result<Vec<String>, String> {
        let waiting = self.fixed.differing(&Fixed::of(&config));
        // Which workspaces there are waits for a restart; their secrets do not.
        let mut slack = self.slack.clone();
        for (name, kept) in &mut slack {
            if let Some(new) = config.slack.get(name) {
                kept.signing_secrets.clone_from(&new.signing_secrets);
                kept.bot_token = new.bot_token.clone();
            }
        }
        let (apps, clients) = chats(&slack).map_err(|error| error.to_string())?;
        let app = &self.shared.app;
        // On record first, all at once: no policy is in force that is not on record.
        let changed: Vec<_> = config
            .tenants
            .iter()
            .filter(|(tenant, configured)| {
                app.policy(tenant).is_some_and(|policy| policy.source() != configured.policy.source())
            })
            .collect();
        announce(&self.app.db, changed).await.map_err(|error| format!("the database: {error}"))?;
        let callers = callers(&config.tenants);
        for (tenant, configured) in config.tenants {
            app.put_policy(&tenant, configured.policy);
        }
        app.put_keys(config.token_keys);
        app.put_chats(clients);
        self.shared.keys.put(callers);
        self.shared.slack.store(Arc::new(apps));
        Ok(waiting)
    }
}

/// Says when to reload, and loads.
pub(super) struct Watch {
    path: PathBuf,
    hangup: Signal,
    /// The files as they were when the configuration in force was loaded.
    seen: Files,
    again: bool,
}

impl Watch {
    /// Looks at the policy files as they are now and listens for SIGHUP from now on. To be made before the configuration
    /// is loaded, so that nothing that changes after that is missed.
    ///
    /// # Errors
    /// No signals can be had.
    pub(super) async fn new(path: &Path) -> std::io::Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        Ok(Self { seen: look(path).await, path: path.to_owned(), hangup, again: false })
    }

    /// Has the configuration loaded once more at the next look.
    pub(super) fn again(&mut self) {
        self.again = true;
    }

    /// The next configuration that was loaded: on SIGHUP, when a policy file has changed, or when it is to be loaded
    /// once more.
    pub(super) async fn next(&mut self) -> Result<Config, String> {
        loop {
            let asked = tokio::select! {
                _ = self.hangup.recv() => true,
                () = tokio::time::sleep(LOOK) => std::mem::take(&mut self.again),
            };
            let mut now = look(&self.path).await;
            if !asked && now == self.seen {
                continue;
            }
            // Somebody may be in the middle of writing: a file that ends early may say less than it should.
            loop {
                tokio::time::sleep(SETTLE).await;
                let then = look(&self.path).await;
                if then == now {
                    break;
                }
                now = then;
            }
            let file = self.path.clone();
            let loaded = tokio::task::spawn_blocking(move || config::load(&file)).await;
            if look(&self.path).await != now {
                self.again = true;
                continue;
            }
            self.seen = now;
            return match loaded {
                Ok(loaded) => loaded.map_err(|error| error.to_string()),
                Err(_) => {
                    Err("the configuration could not be loaded because of a fault in undersign".to_owned())
                }
            };
        }
    }
}

/// Names and hashes.
type Files = Vec<(PathBuf, Option<[u8; 32]>)>;

/// The policy files as they are now: names and hashes. By content, since mounted files are exchanged by links.
async fn look(config: &Path) -> Files {
    let config = config.to_owned();
    let looked = tokio::task::spawn_blocking(move || {
        let mut files: Vec<_> = config::policy_files(&config)
            .into_iter()
            .map(|file| {
                let hash = std::fs::read(&file).ok().map(|content| sha256(&content));
                (file, hash)
            })
            .collect();
        files.sort();
        files
    });
    looked.await.unwrap_or_default()
}

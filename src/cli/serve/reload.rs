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
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Service;
use super::parts::{announce, callers, chats};
use crate::config::{self, Config, LoadError};
use crate::domain::digest::sha256;

/// How often the policy files are looked at.
const LOOK: Duration = Duration::from_secs(2);

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

impl Service {
    /// Puts a configuration in force that was loaded anew, as far as a running service can; one that was refused leaves
    /// everything as it is.
    pub async fn reload(&self, loaded: Result<Config, LoadError>) {
        let told = match loaded {
            Ok(config) => self.exchange(config).await,
            Err(error) => Err(error.to_string()),
        };
        let fault = match told {
            Ok(waiting) if waiting.is_empty() => {
                tracing::info!("the configuration was reloaded");
                None
            }
            Ok(waiting) => {
                let told = format!("restart to put in force what has changed in: {}", waiting.join(", "));
                tracing::warn!("the configuration was reloaded; {told}");
                Some(told)
            }
            Err(fault) => {
                tracing::error!(
                    "the configuration was not reloaded and the old one stays in force:\n{fault}"
                );
                Some(fault)
            }
        };
        self.shared.app.reloaded(fault);
    }

    /// What waits for a restart, or why nothing was exchanged.
    async fn exchange(&self, config: Config) -> Result<Vec<String>, String> {
        let waiting = self.fixed.differing(&Fixed::of(&config));
        let (apps, clients) = chats(&config.slack).map_err(|error| error.to_string())?;
        let app = &self.shared.app;
        // On record first: no policy is in force that is not on record.
        for (tenant, configured) in &config.tenants {
            if app.policy(tenant).is_some_and(|policy| policy.source() != configured.policy.source()) {
                announce(&self.app.db, tenant, configured)
                    .await
                    .map_err(|error| format!("the database: {error}"))?;
            }
        }
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
pub(super) struct Watch(mpsc::Receiver<Result<Config, LoadError>>);

impl Watch {
    /// Listens for SIGHUP and watches the configuration's policy files.
    pub(super) fn start(path: PathBuf) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
            let mut seen = look(&path).await;
            loop {
                let asked = tokio::select! {
                    _ = hangup.recv() => true,
                    () = tokio::time::sleep(LOOK) => false,
                };
                let now = look(&path).await;
                if !asked && now == seen {
                    continue;
                }
                // Looked at before it is loaded: what changes in between is loaded again.
                seen = now;
                let file = path.clone();
                let Ok(loaded) = tokio::task::spawn_blocking(move || config::load(&file)).await else {
                    return;
                };
                if sender.send(loaded).await.is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// The next configuration that was loaded.
    pub(super) async fn next(&mut self) -> Result<Config, LoadError> {
        match self.0.recv().await {
            Some(loaded) => loaded,
            None => std::future::pending().await,
        }
    }
}

/// The policy files as they are now: names and hashes. By content, since mounted files are exchanged by links.
async fn look(config: &Path) -> Vec<(PathBuf, Option<[u8; 32]>)> {
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

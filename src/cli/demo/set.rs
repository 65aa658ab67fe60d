//! The stage: a Slack workspace, a shop, a configuration in a temporary directory, and the real service.

use std::path::PathBuf;

use super::agent::Agent;
use crate::cli::serve::Service;
use crate::cli::source::{SystemClock, SystemEntropy};
use crate::cli::{Failure, serve};
use crate::config;
use crate::demo::shop::FakeShop;
use crate::demo::slack::{FakeSlack, SlackChannel, SlackSetup, SlackUser, SlackUsergroup};
use crate::domain::digest::sha256;
use crate::domain::source::{Clock as _, Entropy as _};

/// The channel that the cards go to.
pub(super) const CHANNEL: &str = "C0PAYMENTS";
/// In the approver group, and the person the agent works for.
pub(super) const ANA: &str = "U0ANA";
/// In the approver group.
pub(super) const BEN: &str = "U0BEN";
/// In the channel, not in the group.
pub(super) const MALLORY: &str = "U0MALLORY";

const TEAM: &str = "T0ACME";
const APP: &str = "A0UNDERSIGN";

/// The policy of the demo.
pub(super) const POLICY: &str = include_str!("policy.toml");

/// Everything that a story needs.
pub(super) struct Set {
    pub(super) slack: FakeSlack,
    pub(super) shop: FakeShop,
    pub(super) agent: Agent,
    pub(super) other_agent: Agent,
    /// Marks this run's calls, so that an earlier run's denials are not remembered against it.
    pub(super) run: String,
    service: Service,
    directory: PathBuf,
}

impl Set {
    pub(super) async fn build(database_url: String) -> Result<Self, Failure> {
        let io = |error: std::io::Error| Failure::no(format!("the demo's set can't be built: {error}"));
        let secret = || hex::encode(random::<32>());
        let (signing_secret, bot_token, token_key) = (secret(), format!("xoxb-{}", secret()), secret());
        let (key, other_key) = (format!("usk_{}", secret()), format!("usk_{}", secret()));
        let member = |id, name| SlackUser::member(id, name, TEAM);
        let slack = FakeSlack::start(SlackSetup {
            app_id: APP.to_owned(),
            team_id: TEAM.to_owned(),
            enterprise_id: None,
            org_install: false,
            bot_token: bot_token.clone(),
            signing_secret: signing_secret.clone(),
            now: SystemClock.unix_seconds(),
            channels: vec![SlackChannel::new(CHANNEL, "payments", &[ANA, BEN, MALLORY])],
            users: vec![member(ANA, "ana"), member(BEN, "ben"), member(MALLORY, "mallory")],
            usergroups: vec![SlackUsergroup::new("S0PAY", &[BEN])],
        })
        .await
        .map_err(io)?;
        let shop = FakeShop::start(None).await.map_err(io)?;
        let directory = std::env::temp_dir().join(format!("undersign-demo-{}", hex::encode(random::<8>())));
        std::fs::create_dir_all(directory.join("policy")).map_err(io)?;
        std::fs::write(directory.join("policy/payments.toml"), POLICY).map_err(io)?;
        let hash = |key: &str| hex::encode(sha256(key.as_bytes()));
        let text = format!(
            "{}api_url = \"{}\"\n{}key_sha256 = [\"{}\"]\nowner = \"ana\"\n[tenants.acme.agents.other-bot]\n\
             key_sha256 = [\"{}\"]\n[tenants.acme.upstreams.shop]\nurl = \"{}\"\nenvironment = \"production\"\n",
            include_str!("server.toml"),
            slack.api_url(),
            "[tenants.acme]\npolicy = \"policy\"\n[tenants.acme.agents.support-bot]\n",
            hash(&key),
            hash(&other_key),
            shop.url(),
        );
        std::fs::write(directory.join("undersign.toml"), text).map_err(io)?;
        let lookup = move |name: &str| match name {
            "DATABASE_URL" => Some(database_url.clone()),
            "SLACK_SIGNING_SECRET" => Some(signing_secret.clone()),
            "SLACK_BOT_TOKEN" => Some(bot_token.clone()),
            "TOKEN_KEY" => Some(token_key.clone()),
            _ => None,
        };
        let config = config::load_with(&directory.join("undersign.toml"), &lookup)?;
        let service = serve::Service::start(config).await?;
        let url = format!("http://{}/mcp", service.agents());
        Ok(Self {
            agent: Agent::new(url.clone(), key)?,
            other_agent: Agent::new(url, other_key)?,
            slack,
            shop,
            run: hex::encode(random::<4>()),
            service,
            directory,
        })
    }

    /// Where the played Slack sends its callbacks.
    pub(super) fn callback_url(&self) -> String {
        format!("http://{}/callbacks/slack/main", self.service.callbacks())
    }

    pub(super) async fn strike(self) {
        self.service.stop().await;
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            eprintln!("{} is left over: {error}", self.directory.display());
        }
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemEntropy.fill(&mut bytes);
    bytes
}

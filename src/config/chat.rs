//! `[slack.*]`: one installation of one Slack app each.

use std::collections::BTreeMap;

use secrecy::SecretString;
use toml::Table;
use url::Url;

use super::Environment;
use super::reader::{Reader, Section, is_name};
use super::secret::{self, Rules};
use crate::domain::ids::Installation;

/// `[slack.NAME]`.
#[derive(Debug, Clone)]
pub struct SlackConfig {
    /// `T…` id of the workspace.
    pub team_id: String,
    /// `A…` id of the app.
    pub app_id: String,
    /// `E…` id of the organisation, on Enterprise Grid.
    pub enterprise_id: Option<String>,
    /// One, or two during a rotation.
    pub signing_secrets: Vec<SecretString>,
    /// The bot's token.
    pub bot_token: SecretString,
    /// The Web API's base, without a slash at the end.
    pub api_url: String,
}

/// Reads every `[slack.*]`.
pub(super) fn slack(
    reader: &mut Reader,
    tables: Vec<(String, Table)>,
    environment: &Environment<'_>,
) -> BTreeMap<Installation, SlackConfig> {
    let mut all = BTreeMap::new();
    let mut seen = BTreeMap::<(String, String), String>::new();
    for (name, table) in tables {
        let mut section = Section::new(reader, "slack.*", format!("slack.{name}"), table);
        // It is a part of the callbacks' path and of `slack:NAME/C…`.
        if !is_name(&name) {
            section.fault("", "must have a name of 1 to 32 characters a-z, 0-9, '-' and '_'");
        }
        if let Some(config) = installation(&mut section, environment) {
            let ids = (config.team_id.clone(), config.app_id.clone());
            if let Some(first) = seen.insert(ids, name.clone()) {
                section.fault(
                    "app_id",
                    format!("is the same app in the same workspace as [slack.{first}]: keep one of the two"),
                );
            }
            all.insert(Installation::new(name), config);
        }
        section.end();
    }
    all
}

fn installation(section: &mut Section<'_>, environment: &Environment<'_>) -> Option<SlackConfig> {
    let team_id = id(section, "team_id", 'T', true);
    let app_id = id(section, "app_id", 'A', true);
    let enterprise_id = id(section, "enterprise_id", 'E', false);
    let signing_secrets = secret::one_or_two(section, "signing_secret", Rules::PLATFORM, environment);
    let bot_token = secret::required(section, "bot_token", Rules::PLATFORM, environment);
    section.not_built(&["app_token"]);
    let api_url: String = section.optional("api_url").unwrap_or_else(|| "https://slack.com/api".to_owned());
    let usable = Url::parse(&api_url).is_ok_and(|url| {
        let loopback = url.host_str().is_some_and(|host| matches!(host, "127.0.0.1" | "localhost" | "[::1]"));
        let bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        bare && (url.scheme() == "https" || (url.scheme() == "http" && loopback))
    });
    if !usable || api_url.ends_with('/') {
        section.fault(
            "api_url",
            "must be an https address without a slash at the end (http for loopback alone)",
        );
    }
    Some(SlackConfig {
        team_id: team_id?,
        app_id: app_id?,
        enterprise_id,
        signing_secrets: (!signing_secrets.is_empty()).then_some(signing_secrets)?,
        bot_token: bot_token?,
        api_url,
    })
}

fn id(section: &mut Section<'_>, key: &'static str, initial: char, required: bool) -> Option<String> {
    let text: String = if required { section.required(key)? } else { section.optional(key)? };
    let usable = text.starts_with(initial)
        && text.len() > 1
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    if !usable {
        section.fault(key, format!("must be an id such as \"{initial}0123ABCD\""));
        return None;
    }
    Some(text)
}

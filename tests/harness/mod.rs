//! A world for one test: a database of its own, a played Slack, a played shop, and the real program between them.
//!
//! The program is started from configuration files through the same function as `undersign serve`; everything is
//! reached over HTTP as its users reach it.

#![expect(dead_code, reason = "each test binary uses its own part of the harness")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a harness that can't go on fails its test")]

mod agent;
mod checker;
pub mod process;
pub mod wire;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::StatusCode;
use serde_json::Value;
use sqlx::postgres::{PgPool, PgPoolOptions};
use undersign::cli::serve::Service;
use undersign::demo::shop::FakeShop;
use undersign::demo::slack::{FakeSlack, Message, SlackChannel, SlackSetup, SlackUser, SlackUsergroup};
use undersign::http::Tuning;

pub use agent::{Agent, Answer};

pub const TEAM: &str = "T0HOME0001";
pub const APP: &str = "A0APP00001";
pub const CHANNEL: &str = "C0PAY00001";
/// Owner of the agent `support-bot`, in the group.
pub const ANA: &str = "U0ANA00001";
/// In the group.
pub const BEN: &str = "U0BEN00001";
/// In the group, through the Slack user group alone.
pub const CYD: &str = "U0CYD00001";
/// In the channel, in another tool's group.
pub const EVE: &str = "U0EVE00001";
/// In the channel, in no group.
pub const MAL: &str = "U0MAL00001";
/// In the group by name, but a guest.
pub const GIL: &str = "U0GIL00001";

pub const SIGNING_SECRET: &str = "3c59dc048e8850243be8079a5c74d079";
const BOT_TOKEN: &str = "xoxb-harness-0123456789";

/// The key of `acme`'s `support-bot`.
pub const BOT_KEY: &str = "usk_support-bot-of-acme-0123456789abcdefghi";
/// The key of `acme`'s `other-bot`.
pub const OTHER_KEY: &str = "usk_other-bot-of-acme-0123456789abcdefghijk";
/// The key of `globex`'s `support-bot`.
pub const GLOBEX_KEY: &str = "usk_support-bot-of-globex-0123456789abcdefg";

/// Who is who, in every world.
pub const PEOPLE: &str = r#"
[people.ana]
slack = ["main/U0ANA00001"]
[people.ben]
slack = ["main/U0BEN00001"]
[people.eve]
slack = ["main/U0EVE00001"]
[people.gil]
slack = ["main/U0GIL00001"]
[groups.payments]
people = ["ana", "ben", "gil"]
slack_usergroups = ["main/S0PAY00001"]
[groups.deployers]
people = ["eve"]
"#;

/// What is gated, unless a test says otherwise.
pub const RULES: &str = r#"
[thresholds]
refund_auto = 5000
[[rules]]
name = "read-only"
tools = ["shop/get_*", "shop/list_*"]
decision = "allow"
[[rules]]
name = "small-refunds"
tools = ["shop/refund_order"]
when = "args.amount_cents <= thresholds.refund_auto"
decision = "allow"
[[rules]]
name = "large-refunds"
tools = ["shop/refund_order"]
when = "args.amount_cents > thresholds.refund_auto"
decision = "require_approval"
risk = "high"
approvers = [{ group = "payments", count = 1 }]
post_to = ["slack:main/C0PAY00001"]
[rules.preview]
title = "Refund order {{ args.order_id }}"
target = "order {{ args.order_id }}"
effect = "pays {{ args.amount_cents }} cents back"
reversible = "no"
[[rules]]
name = "deletions"
tools = ["shop/delete_customer"]
decision = "require_approval"
risk = "high"
approvers = [{ group = "payments", count = 2 }]
post_to = ["slack:main/C0PAY00001"]
[[rules]]
name = "deployments"
tools = ["shop/deploy"]
decision = "require_approval"
risk = "high"
approvers = [{ group = "deployers", count = 1 }]
post_to = ["slack:main/C0PAY00001"]
"#;

/// Far beyond what a test asks for, unless it is about limits.
pub const NO_LIMITS: &str = "\n[limits]\nasks_per_minute = 100000\npending_per_agent = 100000\n\
    denials_pause = { count = 1000, within = \"1m\", pause_for = \"1m\" }\n";

/// The refund that needs approval in every world.
pub fn refund() -> Value {
    serde_json::json!({ "order_id": "A-17", "amount_cents": 12_000 })
}

pub struct World {
    pub slack: FakeSlack,
    pub shop: FakeShop,
    pub db: PgPool,
    pub replicas: Vec<Service>,
    dir: TempDir,
    database_url: String,
}

impl World {
    /// The usual world: one replica.
    pub async fn start() -> Self {
        Self::with_rules(RULES).await
    }

    /// One replica, these rules.
    pub async fn with_rules(rules: &str) -> Self {
        let mut world = Self::prepare(rules).await;
        world.add_replica().await;
        world
    }

    /// The usual world with other limits.
    pub async fn with_tuning(tuning: Tuning) -> Self {
        let mut world = Self::prepare(RULES).await;
        world.add_replica_with(tuning).await;
        world
    }

    /// Everything but the program.
    pub async fn prepare(rules: &str) -> Self {
        // The first caller installs it; the same provider again is no fault.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (database_url, db) = database().await;
        let slack = FakeSlack::start(setup()).await.unwrap();
        let shop = FakeShop::start(Some("upstream-credential-0123456789".to_owned())).await.unwrap();
        let dir = TempDir::new();
        let world = Self { slack, shop, db, replicas: Vec::new(), dir, database_url };
        world.write_policy(rules);
        world.write("secrets/k1", "0123456789abcdef0123456789abcdef0123456789");
        world.write("undersign.toml", &world.config());
        world
    }

    /// Replaces the policy of both tenants; a replica started afterwards has it. Rules without `[limits]` get none.
    pub fn write_policy(&self, rules: &str) {
        let limits = if rules.contains("[limits]") { "" } else { NO_LIMITS };
        self.write("policy/acme/team.toml", &format!("{rules}\n{limits}\n{PEOPLE}"));
        self.write("policy/globex/team.toml", &format!("{rules}\n{limits}\n{PEOPLE}"));
    }

    pub fn config(&self) -> String {
        let tenant = |tenant: &str, agents: &[(&str, &str, bool)]| {
            let mut text = format!("[tenants.{tenant}]\npolicy = \"policy/{tenant}\"\n");
            for (agent, key, owned) in agents {
                let hash = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(key.as_bytes()));
                text.push_str(
                    &["[tenants.", tenant, ".agents.", agent, "]\nkey_sha256 = [\"", &hash, "\"]\n"].concat(),
                );
                if *owned {
                    text += "owner = \"ana\"\n";
                }
            }
            let upstream = format!(
                "[tenants.{tenant}.upstreams.shop]\nurl = \"{}\"\nenvironment = \"production\"\ntimeout = \"3s\"\n\
                 headers = {{ Authorization = {{ env = \"SHOP_TOKEN\" }} }}\n",
                self.shop.url()
            );
            text + &upstream
        };
        format!(
            "[server]\nagents_listen = \"127.0.0.1:0\"\ncallbacks_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
             public_url = \"http://127.0.0.1:8080\"\nhold = \"0s\"\n\
             [database]\nurl = {{ env = \"DATABASE_URL\" }}\nmax_connections = 12\n\
             [[token_keys]]\nid = \"k1\"\nsecret = {{ file = \"secrets/k1\" }}\n\
             [slack.main]\nteam_id = \"{TEAM}\"\napp_id = \"{APP}\"\nsigning_secret = {{ env = \"SLACK_SIGNING_SECRET\" }}\n\
             bot_token = {{ env = \"SLACK_BOT_TOKEN\" }}\napi_url = \"{}\"\n{}{}",
            self.slack.api_url(),
            tenant("acme", &[("support-bot", BOT_KEY, true), ("other-bot", OTHER_KEY, false)]),
            tenant("globex", &[("support-bot", GLOBEX_KEY, false)]),
        )
    }

    pub fn write(&self, path: &str, content: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// One more upstream of `acme`; a replica started afterwards has it.
    pub fn add_upstream(&self, name: &str, url: &str) {
        let upstream = format!("[tenants.acme.upstreams.{name}]\nurl = \"{url}\"\n");
        self.write("undersign.toml", &(self.read("undersign.toml") + &upstream));
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(path)).unwrap()
    }

    pub fn config_path(&self) -> PathBuf {
        self.path("undersign.toml")
    }

    /// A file of the world's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The environment that the configuration names.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("DATABASE_URL", self.database_url.clone()),
            ("SLACK_SIGNING_SECRET", SIGNING_SECRET.to_owned()),
            ("SLACK_BOT_TOKEN", BOT_TOKEN.to_owned()),
            ("SHOP_TOKEN", "Bearer upstream-credential-0123456789".to_owned()),
        ]
    }

    /// Where the world's database is.
    pub fn database_url(&self) -> String {
        self.database_url.clone()
    }

    /// The configuration from the files as they are now.
    pub fn load(&self) -> Result<undersign::config::Config, undersign::config::LoadError> {
        let environment = self.environment();
        let lookup = move |name: &str| {
            environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
        };
        undersign::config::load_with(&self.config_path(), &lookup)
    }

    /// Has every replica reload the files as they are now.
    pub async fn reload(&self) {
        for replica in &self.replicas {
            replica.reload(self.load().map_err(|error| error.to_string())).await;
        }
    }

    /// One more replica on the same database, from the files as they are now.
    pub async fn add_replica(&mut self) {
        self.add_replica_with(Tuning::default()).await;
    }

    /// The same with other limits.
    pub async fn add_replica_with(&mut self, tuning: Tuning) {
        let config = self.load().unwrap_or_else(|error| panic!("the configuration is refused: {error}"));
        let service = Service::start_with(config, tuning).await;
        self.replicas.push(service.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Stops every replica and starts one from the files as they are now.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.add_replica().await;
    }

    /// An agent that talks to the first replica.
    pub fn agent(&self, key: &str) -> Agent {
        self.agent_at(0, key)
    }

    /// An agent that talks to one replica.
    pub fn agent_at(&self, replica: usize, key: &str) -> Agent {
        Agent::new(format!("http://{}/mcp/shop", self.replicas[replica].agents()), key)
    }

    /// Where Slack sends callbacks.
    pub fn callback_url(&self, replica: usize) -> String {
        format!("http://{}/callbacks/slack/main", self.replicas[replica].callbacks())
    }

    /// A press of the card's button by this person, signed now.
    pub async fn press(&self, user: &str, card: &Message, button: &str) -> StatusCode {
        self.press_at(0, user, card, button).await
    }

    pub async fn press_at(&self, replica: usize, user: &str, card: &Message, button: &str) -> StatusCode {
        let payload = self
            .slack
            .click_payload(user, &card.channel, &card.ts, button)
            .unwrap_or_else(|error| panic!("{error}"));
        self.deliver(replica, &payload).await
    }

    /// A press of a button that the card had when this test saw it.
    pub async fn press_stale(&self, user: &str, card: &Message, button: &str) -> StatusCode {
        let payload = self
            .slack
            .stale_click_payload(user, &card.channel, &card.ts, button, 0)
            .unwrap_or_else(|error| panic!("{error}"));
        self.deliver(0, &payload).await
    }

    /// A press of a button of the version of the card that this test saw last.
    pub async fn press_stale_version(&self, user: &str, card: &Message, button: &str) -> StatusCode {
        let version = card.versions.len() - 1;
        let payload = self
            .slack
            .stale_click_payload(user, &card.channel, &card.ts, button, version)
            .unwrap_or_else(|error| panic!("{error}"));
        self.deliver(0, &payload).await
    }

    /// Signs a payload as Slack does, now, and sends it.
    pub async fn deliver(&self, replica: usize, payload: &Value) -> StatusCode {
        let request = self.slack.sign(payload, now());
        self.slack.send(&self.callback_url(replica), request).await.unwrap()
    }

    /// The first card of the channel.
    pub async fn card(&self) -> Message {
        self.card_where(|_| true).await
    }

    pub async fn card_where(&self, wanted: impl Fn(&Message) -> bool) -> Message {
        self.slack.wait_message(CHANNEL, wanted).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// The card once it shows these words.
    pub async fn card_showing(&self, words: &str) -> Message {
        self.card_where(|card| card.as_text().contains(words)).await
    }

    /// The private note that this person gets.
    pub async fn note_to(&self, user: &str) -> String {
        let note = self.slack.wait_ephemeral(|note| note.user == user).await;
        note.unwrap_or_else(|| panic!("{user} got no private note")).text
    }

    /// The state of an action, from the database.
    pub async fn state(&self, action: &str) -> String {
        sqlx::query_scalar("SELECT state FROM actions WHERE id = $1::uuid")
            .bind(action)
            .fetch_one(&self.db)
            .await
            .unwrap()
    }

    /// The state of an action, unless its row is gone.
    pub async fn state_or_none(&self, action: &str) -> Option<String> {
        sqlx::query_scalar("SELECT state FROM actions WHERE id = $1::uuid")
            .bind(action)
            .fetch_optional(&self.db)
            .await
            .unwrap()
    }

    /// Audit events of a kind, oldest first.
    pub async fn audit(&self, kind: &str) -> Vec<Value> {
        let rows: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT body FROM audit_events WHERE kind = $1 ORDER BY id")
                .bind(kind)
                .fetch_all(&self.db)
                .await
                .unwrap();
        rows.iter().map(|row| serde_json::from_slice(row).unwrap()).collect()
    }

    /// Audit events of a kind, once there are so many.
    pub async fn wait_audit(&self, kind: &str, at_least: usize) -> Vec<Value> {
        for _ in 0..600 {
            let found = self.audit(kind).await;
            if found.len() >= at_least {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("fewer than {at_least} audit events {kind}")
    }

    /// Moves an action's deadlines, past the guard, as only a superuser can.
    pub async fn rewrite(&self, statement: &str) {
        let mut connection = self.db.acquire().await.unwrap();
        let sql = format!(
            "SET session_replication_role = replica; {statement}; SET session_replication_role = DEFAULT"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *connection).await.unwrap();
    }

    /// Parks the usual refund and returns its answer and its card.
    pub async fn park(&self) -> (Answer, Message) {
        let parked = self.agent(BOT_KEY).call("refund_order", refund()).await;
        assert_eq!(parked.code(), "approval_pending", "{}", parked.text());
        let id = parked.action_id();
        let card = self.card_where(|card| card.text.contains(&id)).await;
        (parked, card)
    }

    /// Parks the usual refund, has Ben approve it, and returns the action id and the token.
    pub async fn approved(&self) -> (String, String) {
        let (parked, card) = self.park().await;
        assert_eq!(self.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
        let granted = self.agent(BOT_KEY).approval(&parked.action_id(), 30).await;
        assert_eq!(granted.code(), "approval_granted", "{}", granted.text());
        (parked.action_id(), granted.token().unwrap())
    }

    /// Another refund, approved by Ben.
    pub async fn approved_other(&self) -> (String, String) {
        let arguments = serde_json::json!({ "order_id": "A-17", "amount_cents": 9_500 });
        let agent = self.agent(BOT_KEY);
        let id = agent.call("refund_order", arguments).await.action_id();
        let card = self.card_where(|card| card.text.contains(&id)).await;
        self.press(BEN, &card, "undersign_approve").await;
        let token = agent.approval(&id, 30).await.token().unwrap();
        (id, token)
    }

    /// Runs the binary with the world's configuration and environment; the configuration's path is the last argument.
    pub fn run(&self, arguments: &[&str]) -> std::process::Output {
        std::process::Command::new(env!("CARGO_BIN_EXE_undersign"))
            .args(arguments)
            .arg(self.config_path())
            .envs(self.environment())
            .output()
            .unwrap()
    }

    /// What `audit export` writes, line by line; the arguments go before `--config`.
    pub fn export(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.run(&[&["audit", "export"], arguments, &["--config"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The exit code of `audit verify --json` and its report; the arguments go before `--config`.
    pub fn verify(&self, arguments: &[&str]) -> (i32, Value) {
        let output = self.run(&[&["audit", "verify", "--json"], arguments, &["--config"]].concat());
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().unwrap(), report)
    }

    /// The same as text, for a command line.
    pub fn path_text(&self, file: &str) -> String {
        self.path(file).display().to_string()
    }

    /// From now on the program logs in as this role, and leaves migrations to others.
    pub fn log_in_as(&mut self, role: &str) {
        let mut url = url::Url::parse(&self.database_url).unwrap();
        url.set_username(role).unwrap();
        self.database_url = url.into();
        let config = self.read("undersign.toml");
        if !config.contains("migrate = false") {
            self.write("undersign.toml", &config.replace("[database]\n", "[database]\nmigrate = false\n"));
        }
    }

    pub async fn stop(&mut self) {
        for replica in self.replicas.drain(..) {
            replica.stop().await;
        }
    }

    /// Stops the replicas, then checks what must hold after every story.
    pub async fn finish(self) {
        let url = self.database_url.clone();
        self.finish_with_another_trail().await;
        checker::check_audit(&url).await;
        drop_database(&url).await;
    }

    /// The same for a story that has changed the audit trail past the program.
    pub async fn finish_with_another_trail(mut self) {
        self.stop().await;
        checker::check(&self.db, &self.shop).await;
    }
}

fn setup() -> SlackSetup {
    let member = |id: &str, name: &str| SlackUser::member(id, name, TEAM);
    let mut guest = member(GIL, "gil");
    guest.is_restricted = true;
    SlackSetup {
        app_id: APP.to_owned(),
        team_id: TEAM.to_owned(),
        enterprise_id: None,
        org_install: false,
        bot_token: BOT_TOKEN.to_owned(),
        signing_secret: SIGNING_SECRET.to_owned(),
        now: now(),
        channels: vec![
            SlackChannel::new(CHANNEL, "payments", &[ANA, BEN, CYD, EVE, MAL, GIL]),
            SlackChannel::new("C0OTHER001", "other", &[ANA, BEN]),
        ],
        users: vec![
            member(ANA, "ana"),
            member(BEN, "ben"),
            member(CYD, "cyd"),
            member(EVE, "eve"),
            member(MAL, "mal"),
            guest,
        ],
        usergroups: vec![SlackUsergroup::new("S0PAY00001", &[CYD])],
    }
}

/// Unix seconds.
pub fn now() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test plays the world outside, whose clock is the real one"
    )]
    let now = std::time::SystemTime::now();
    i64::try_from(now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// A database of its own for this test.
async fn database() -> (String, PgPool) {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    #[expect(clippy::disallowed_methods, reason = "tests/run.sh hands the server over this way")]
    let server =
        std::env::var("DATABASE_URL").expect("DATABASE_URL: run tests/run.sh, which arranges Postgres");
    let name = format!("t_{}_{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let mut admin = <sqlx::PgConnection as sqlx::Connection>::connect(&server).await.unwrap();
    for statement in [format!("DROP DATABASE IF EXISTS {name}"), format!("CREATE DATABASE {name}")] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut admin).await.unwrap();
    }
    let mut url = url::Url::parse(&server).unwrap();
    url.set_path(&name);
    let pool = PgPoolOptions::new().max_connections(4).connect_lazy(url.as_str()).unwrap();
    (url.into(), pool)
}

/// A thousand databases fill a disk. That of a test which failed stays, to be looked at.
async fn drop_database(url: &str) {
    #[expect(clippy::disallowed_methods, reason = "tests/run.sh hands the server over this way")]
    let server = std::env::var("DATABASE_URL").unwrap();
    let url = url::Url::parse(url).unwrap();
    let sql = format!("DROP DATABASE {} WITH (FORCE)", url.path().trim_start_matches('/'));
    let mut admin = <sqlx::PgConnection as sqlx::Connection>::connect(&server).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
}

struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("undersign-test-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover in the system's temporary directory is no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs so many tasks at once and collects what they return.
pub async fn at_once<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(tokio::sync::Barrier::new(count));
    let tasks: Vec<_> = (0..count)
        .map(|index| {
            let (start, work) = (start.clone(), task(index));
            tokio::spawn(async move {
                start.wait().await;
                work.await
            })
        })
        .collect();
    let mut results = Vec::with_capacity(count);
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

/// A transaction of the test's own.
pub async fn begin(db: &PgPool) -> sqlx::Transaction<'static, sqlx::Postgres> {
    #[expect(clippy::disallowed_methods, reason = "the ban is for the program's pool")]
    db.begin().await.unwrap()
}

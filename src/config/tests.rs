use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use secrecy::ExposeSecret as _;

use super::*;

/// A configuration without a fault.
pub(super) const GOOD: &str = r#"
[server]
agents_listen = "127.0.0.1:8080"
public_url = "http://127.0.0.1:8080"
[database]
url = { env = "DATABASE_URL" }
[[token_keys]]
id = "k1"
secret = { file = "secrets/k1" }
[slack.main]
team_id = "T0ACME"
app_id = "A0UNDERSIGN"
signing_secret = { env = "SLACK_SIGNING_SECRET" }
bot_token = { env = "SLACK_BOT_TOKEN" }
[tenants.acme]
policy = "policy/acme"
[tenants.acme.agents.support-bot]
key_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
owner = "ana"
[tenants.acme.upstreams.shop]
url = "http://127.0.0.1:9001/mcp"
headers = { Authorization = { env = "SHOP_TOKEN" } }
"#;

const POLICY: &str = r#"
[people.ana]
slack = ["main/U0ANA"]
[[rules]]
name = "read-only"
tools = ["shop/get_*"]
decision = "allow"
"#;

const HASH: &str = r#"["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]"#;

/// What no message and no Debug output may hold.
const CANARIES: [&str; 5] = [
    "canary-password",
    "canary0signing0secret",
    "xoxb-canary-token",
    "canary-credential",
    "canary-token-key-of-32-bytes",
];

/// Files of one test.
pub(super) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(super) fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("undersign-config-{}-{serial}", std::process::id()));
        let files = Self { dir };
        files.write("secrets/k1", "canary-token-key-of-32-bytes-0123456789\n", 0o640);
        files.write("policy/acme/team.toml", POLICY, 0o644);
        files.write("undersign.toml", GOOD, 0o644);
        files
    }

    pub(super) fn write(&self, path: &str, content: &str, mode: u32) {
        let path = self.dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn load_in(&self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Config, LoadError> {
        load_with(&self.dir.join("undersign.toml"), lookup)
    }

    pub(super) fn load(&self) -> Result<Config, LoadError> {
        self.load_in(&environment)
    }

    /// Loads the good configuration with replacements; the faults, without this test's directory.
    fn edited(&self, edits: &[(&str, &str)]) -> String {
        let mut text = GOOD.to_owned();
        for (from, to) in edits {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        self.write("undersign.toml", &text, 0o644);
        self.outcome(self.load())
    }

    pub(super) fn outcome(&self, loaded: Result<Config, LoadError>) -> String {
        let text = match loaded {
            Ok(_) => return "accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_no_canary(&text);
        let file = format!("{}/undersign.toml: ", self.dir.display());
        text.replace(&file, "").replace(&format!("{}/", self.dir.display()), "")
    }

    /// One line for each edit: what was written, and what came of it.
    fn table(&self, edits: &[(&str, &str)]) -> String {
        let lines = edits.iter().map(|edit| format!("{}\n  -> {}", edit.1.trim(), self.edited(&[*edit])));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn environment(name: &str) -> Option<String> {
    let value = match name {
        "DATABASE_URL" => "postgres://undersign:canary-password@db.example/undersign",
        "SLACK_SIGNING_SECRET" => "canary0signing0secret0of032digits",
        "SLACK_BOT_TOKEN" => "xoxb-canary-token",
        "SHOP_TOKEN" => "Bearer canary-credential",
        _ => return None,
    };
    Some(value.to_owned())
}

fn assert_no_canary(text: &str) {
    for canary in CANARIES {
        assert!(!text.contains(canary), "{canary} in {text}");
    }
}

#[test]
fn a_good_file_is_accepted_with_its_defaults() {
    let files = Files::new();
    let config = files.load().unwrap();
    assert_eq!(config.server.callbacks_listen.to_string(), "127.0.0.1:8081");
    assert_eq!(config.server.admin_listen.to_string(), "127.0.0.1:9090");
    assert_eq!((config.database.max_connections, config.database.migrate), (16, true));
    let slack = &config.slack[&Installation::from("main")];
    assert_eq!(slack.api_url, "https://slack.com/api");
    assert_eq!(slack.signing_secrets.len(), 1);
    let tenant = &config.tenants[&Tenant::from("acme")];
    let shop = &tenant.upstreams[&"shop".into()];
    assert_eq!((shop.timeout, shop.environment.as_deref()), (std::time::Duration::from_secs(30), None));
    assert_eq!(tenant.agents[&"support-bot".into()].key_sha256, [[0xaa; 32]]);
    assert_eq!(shop.headers["Authorization"].expose_secret(), "Bearer canary-credential");
}

#[test]
fn debug_output_shows_no_secret() {
    let config = Files::new().load().unwrap();
    let text = format!("{:?} {:?} {:?} {:?}", config.server, config.database, config.slack, config.tenants);
    assert!(text.contains("A0UNDERSIGN"), "{text}");
    assert_no_canary(&text);
}

#[test]
fn all_faults_come_at_once() {
    let files = Files::new();
    files.write("policy/acme/team.toml", &POLICY.replace("\"allow\"", "\"ask\""), 0o644);
    let faults = files.edited(&[
        ("agents_listen = \"127.0.0.1:8080\"", "agents_listen = \"8080\"\ncolour = 1"),
        ("\"DATABASE_URL\"", "\"NO_SUCH_URL\""),
        ("secrets/k1", "secrets/none"),
        ("T0ACME", "ACME"),
        ("\"SLACK_SIGNING_SECRET\"", "\"NO_SUCH_SECRET\""),
        (HASH, "[\"abc\"]"),
        ("http://127.0.0.1:9001/mcp", "http://shop.example/mcp"),
    ]);
    insta::assert_snapshot!(faults, @r#"
    server.agents_listen: must be an address and a port, such as "127.0.0.1:8080"
    server.colour: is not a known key: remove it, or correct its spelling
    database.url: the environment variable NO_SUCH_URL is not set: set it for this process, or name another
    token_keys[0].secret: the file can't be read: entity not found; its path is relative to this file's directory
    slack.main.team_id: must be an id such as "T0123ABCD"
    slack.main.signing_secret: the environment variable NO_SUCH_SECRET is not set: set it for this process, or name another
    tenants.acme.agents.support-bot.key_sha256: must be 64 hex digits, as `undersign agent-key` prints them
    tenants.acme.upstreams.shop.url: is plain http to another host: use https, or set allow_insecure = true
    policy/acme/team.toml: rules.read-only.decision: must be "allow", "require_approval" or "deny"
    "#);
}

#[test]
fn server_and_database_are_checked() {
    let files = Files::new();
    let server = "agents_listen = \"127.0.0.1:8080\"";
    let url = "url = { env = \"DATABASE_URL\" }";
    let table = files.table(&[
        (server, "agents_listen = \"localhost:8080\""),
        (server, "agents_listen = 8080"),
        (server, "agents_listen = \"127.0.0.1:9090\""),
        (server, "admin_listen = \"0.0.0.0:9090\""),
        (server, "listen = \"127.0.0.1:8080\""),
        (server, "hold = \"25s\""),
        (server, "hold = \"0s\""),
        (server, "hold = \"51s\""),
        (server, "hold = \"soon\""),
        (server, "allowed_hosts = [\"*\"]"),
        (server, "allowed_hosts = [\"gate.example\", \"gate.example:8443\", \"[::1]:80\"]"),
        (server, "allowed_origins = [\"*\"]"),
        (server, "allowed_origins = [\"app.example\"]"),
        (server, "allowed_origins = [\"https://app.example\"]"),
        (server, "trusted_proxies = [\"10.0.0.0/8\", \"::1\"]"),
        (server, "trusted_proxies = [\"10.1.2.3/8\"]"),
        (server, "trusted_proxies = [\"proxy.example\"]"),
        ("http://127.0.0.1:8080", "ftp://gate.example"),
        ("http://127.0.0.1:8080", "https://user:word@gate.example"),
        (url, "url = \"postgres://undersign@localhost/undersign\""),
        (url, "max_connections = 16"),
        (url, "url = { env = \"SHOP_TOKEN\" }"),
        (url, "url = { env = \"DATABASE_URL\" }\nmax_connections = 1"),
        (url, "url = { env = \"DATABASE_URL\" }\nmigrate = \"no\""),
        ("[database]\nurl = { env = \"DATABASE_URL\" }", ""),
    ]);
    insta::assert_snapshot!(table, @r#"
    agents_listen = "localhost:8080"
      -> server.agents_listen: must be an address and a port, such as "127.0.0.1:8080"
    agents_listen = 8080
      -> server.agents_listen: must be a string, such as "127.0.0.1:8080"
    agents_listen = "127.0.0.1:9090"
      -> server.admin_listen: is another listener's address already: give it a port of its own
    admin_listen = "0.0.0.0:9090"
      -> server.admin_listen: must be a loopback address: it has no authentication
    listen = "127.0.0.1:8080"
      -> server.listen: is not a known key: remove it, or correct its spelling
    hold = "25s"
      -> accepted
    hold = "0s"
      -> accepted
    hold = "51s"
      -> server.hold: must be from 0s to 50s: many clients give a request up after a minute
    hold = "soon"
      -> server.hold: must be a duration such as "25s", "10m" or "24h"
    allowed_hosts = ["*"]
      -> server.allowed_hosts: must list names such as "gate.example" or "gate.example:8443"
    allowed_hosts = ["gate.example", "gate.example:8443", "[::1]:80"]
      -> accepted
    allowed_origins = ["*"]
      -> server.allowed_origins: must list origins such as "https://app.example", each of them whole
    allowed_origins = ["app.example"]
      -> server.allowed_origins: must list origins such as "https://app.example", each of them whole
    allowed_origins = ["https://app.example"]
      -> accepted
    trusted_proxies = ["10.0.0.0/8", "::1"]
      -> accepted
    trusted_proxies = ["10.1.2.3/8"]
      -> server.trusted_proxies: must list addresses or networks such as "10.0.0.7" or "10.0.0.0/8" (nothing set behind the prefix)
    trusted_proxies = ["proxy.example"]
      -> server.trusted_proxies: must list addresses or networks such as "10.0.0.7" or "10.0.0.0/8" (nothing set behind the prefix)
    ftp://gate.example
      -> server.public_url: must be an http or https address, such as "https://undersign.example"
    https://user:word@gate.example
      -> server.public_url: must be an http or https address, such as "https://undersign.example"
    url = "postgres://undersign@localhost/undersign"
      -> database.url: must be { file = "…" } or { env = "…" }: a secret is never written here itself
    max_connections = 16
      -> database.url: is missing: add url = { env = "DATABASE_URL" }
    url = { env = "SHOP_TOKEN" }
      -> database.url: must be a postgres:// address
    url = { env = "DATABASE_URL" }
    max_connections = 1
      -> database.max_connections: must be from 2 to 1000
    url = { env = "DATABASE_URL" }
    migrate = "no"
      -> database.migrate: must be true or false

      -> database: is missing: add [database] with url = { env = "DATABASE_URL" }
    "#);
}

#[test]
fn a_database_url_names_a_user() {
    let files = Files::new();
    let url = |name: &str| match name {
        "DATABASE_URL" => Some("postgres://localhost/undersign".to_owned()),
        _ => environment(name),
    };
    let refused = files.outcome(files.load_in(&url));
    insta::assert_snapshot!(refused, @"database.url: names no user: write postgres://USER@HOST/DATABASE");
}

#[test]
fn the_environment_is_not_asked_for_what_looks_like_a_secret() {
    let files = Files::new();
    let table = files.table(&[
        ("\"SLACK_BOT_TOKEN\"", "\"xoxb-canary-token\""),
        ("{ env = \"SLACK_BOT_TOKEN\" }", "\"xoxb-canary-token\""),
        ("env = \"SLACK_BOT_TOKEN\"", "file = \"xoxb-canary-token\""),
        ("env = \"SLACK_BOT_TOKEN\"", "value = \"xoxb-canary-token\""),
        ("env = \"SLACK_BOT_TOKEN\"", "env = \"SLACK_BOT_TOKEN\", file = \"xoxb-canary-token\""),
    ]);
    let table = table.lines().filter(|line| line.starts_with("  ->")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(table, @r#"
    -> slack.main.bot_token: names an environment variable that is not set: a secret itself has no place here
    -> slack.main.bot_token: must be { file = "…" } or { env = "…" }: a secret is never written here itself
    -> slack.main.bot_token: the file can't be read: entity not found; its path is relative to this file's directory
    -> slack.main.bot_token: must be { file = "…" } or { env = "…" }, one of the two
    -> slack.main.bot_token: must be { file = "…" } or { env = "…" }, one of the two
    "#);
}

#[test]
fn a_secret_is_refused_for_what_it_is_and_not_shown() {
    let files = Files::new();
    let refused = |secret: &str| {
        let lookup = |name: &str| match name {
            "SLACK_SIGNING_SECRET" => Some(secret.to_owned()),
            _ => environment(name),
        };
        let text = files.outcome(files.load_in(&lookup));
        if secret.len() > 1 {
            assert!(!text.contains(secret.trim()), "{text}");
        }
        format!("{secret:?}\n  -> {text}")
    };
    let table = [
        "",
        "8f742231b10e888",
        "8f742231b10e8888",
        "8f742231b10e8888abcd99yyyzzz85a5\n",
        " 8f742231b10e8888abcd99yyyzzz85a5",
        "8f742231b10e8888 abcd99yyyzzz85a5",
        "8f742231b10e8888\nabcd99yyyzzz85a5",
        "changeme-changeme",
        "xxxxxxxxxxxxxxxxxxxx",
        "xoxb-xxxx-xxxx-xxxx",
        "your-signing-secret",
        "<the signing secret>",
        "<thesigningsecret>",
    ];
    insta::assert_snapshot!(table.map(refused).join("\n"), @r#"
    ""
      -> slack.main.signing_secret: is empty: put the secret there
    "8f742231b10e888"
      -> slack.main.signing_secret: is too short: put the whole secret there, which has at least 16 characters
    "8f742231b10e8888"
      -> accepted
    "8f742231b10e8888abcd99yyyzzz85a5\n"
      -> slack.main.signing_secret: has white space around it, or a line end or control character in it (one line end at the end of a file is taken off): remove that
    " 8f742231b10e8888abcd99yyyzzz85a5"
      -> slack.main.signing_secret: has white space around it, or a line end or control character in it (one line end at the end of a file is taken off): remove that
    "8f742231b10e8888 abcd99yyyzzz85a5"
      -> slack.main.signing_secret: has white space in it: put the secret alone there
    "8f742231b10e8888\nabcd99yyyzzz85a5"
      -> slack.main.signing_secret: has white space around it, or a line end or control character in it (one line end at the end of a file is taken off): remove that
    "changeme-changeme"
      -> slack.main.signing_secret: is a placeholder: put the real secret there
    "xxxxxxxxxxxxxxxxxxxx"
      -> slack.main.signing_secret: is a placeholder: put the real secret there
    "xoxb-xxxx-xxxx-xxxx"
      -> slack.main.signing_secret: is a placeholder: put the real secret there
    "your-signing-secret"
      -> slack.main.signing_secret: is a placeholder: put the real secret there
    "<the signing secret>"
      -> slack.main.signing_secret: has white space in it: put the secret alone there
    "<thesigningsecret>"
      -> slack.main.signing_secret: is a placeholder: put the real secret there
    "#);
}

#[test]
fn a_secrets_file_is_closed_to_others_and_loses_one_line_end() {
    let files = Files::new();
    let key = "abcdefghijklmnopqrstuvwxyz012345";
    let mut lines = Vec::new();
    for (content, mode) in [
        (key.to_owned(), 0o600),
        (format!("{key}\n"), 0o440),
        (format!("{key}\r\n"), 0o660),
        (format!("{key}\n\n"), 0o600),
        (key.to_owned(), 0o644),
        (key.to_owned(), 0o604),
        (key[1..].to_owned(), 0o600),
    ] {
        files.write("secrets/k1", &content, mode);
        lines.push(format!("{mode:o} {content:?}: {}", files.outcome(files.load())));
    }
    std::fs::write(files.dir.join("secrets/k1"), [0xff; 40]).unwrap();
    lines.push(format!("bytes: {}", files.outcome(files.load())));
    insta::assert_snapshot!(lines.join("\n"), @r#"
    600 "abcdefghijklmnopqrstuvwxyz012345": accepted
    440 "abcdefghijklmnopqrstuvwxyz012345\n": accepted
    660 "abcdefghijklmnopqrstuvwxyz012345\r\n": accepted
    600 "abcdefghijklmnopqrstuvwxyz012345\n\n": token_keys[0].secret: has white space around it, or a line end or control character in it (one line end at the end of a file is taken off): remove that
    644 "abcdefghijklmnopqrstuvwxyz012345": token_keys[0].secret: the file can be read by everybody: chmod o-rw it
    604 "abcdefghijklmnopqrstuvwxyz012345": token_keys[0].secret: the file can be read by everybody: chmod o-rw it
    600 "bcdefghijklmnopqrstuvwxyz012345": token_keys[0].secret: is too short: put the whole secret there, which has at least 32 characters
    bytes: token_keys[0].secret: the file is not text: write the secret in base64 or hex
    "#);
}

#[test]
fn token_keys_and_slack_are_checked() {
    let files = Files::new();
    let (id, app) = ("id = \"k1\"", "app_id = \"A0UNDERSIGN\"");
    let signing = "signing_secret = { env = \"SLACK_SIGNING_SECRET\" }";
    let twice = "signing_secret = [{ env = \"SLACK_SIGNING_SECRET\" }, { env = \"SLACK_BOT_TOKEN\" }]";
    let table = files.table(&[
        (id, "id = \"k.1\""),
        (id, ""),
        (id, "id = \"k1\"\nalgorithm = \"none\""),
        ("[slack.main]", "[[token_keys]]\nid = \"k1\"\nsecret = { file = \"secrets/k1\" }\n[slack.main]"),
        ("[[token_keys]]\nid = \"k1\"\nsecret = { file = \"secrets/k1\" }", ""),
        (app, ""),
        (app, "app_id = \"a0undersign\""),
        (app, "app_id = \"A0UNDERSIGN\"\nenterprise_id = \"T0\""),
        (app, "app_id = \"A0UNDERSIGN\"\napp_token = { env = \"SLACK_APP_TOKEN\" }"),
        (app, "app_id = \"A0UNDERSIGN\"\napi_url = \"http://slack.example/api\""),
        (app, "app_id = \"A0UNDERSIGN\"\napi_url = \"https://slack.example/api/\""),
        (app, "app_id = \"A0UNDERSIGN\"\napi_url = \"http://127.0.0.1:4455/api\""),
        (signing, ""),
        (signing, "signing_secret = []"),
        (signing, twice),
        (signing, "signing_secret = [\"a\", \"b\", \"c\"]"),
        ("[slack.main]", "[slack.\"Ma/in\"]"),
        ("[slack.main]", "[discord.ops]\nguild_id = \"1\"\n[slack.main]"),
    ]);
    insta::assert_snapshot!(table, @r#"
    id = "k.1"
      -> token_keys[0].id: must be 1 to 32 letters, digits, '-' or '_'

      -> token_keys[0].id: is missing: add id = "k1"
    id = "k1"
    algorithm = "none"
      -> token_keys[0].algorithm: is not a known key: remove it, or correct its spelling
    [[token_keys]]
    id = "k1"
    secret = { file = "secrets/k1" }
    [slack.main]
      -> token_keys[1].id: is used twice: every key needs an id of its own

      -> token_keys: is missing: add [[token_keys]] with id and secret = { file = "…" }

      -> slack.main.app_id: is missing: add app_id = "A0123ABCD"
    app_id = "a0undersign"
      -> slack.main.app_id: must be an id such as "A0123ABCD"
    app_id = "A0UNDERSIGN"
    enterprise_id = "T0"
      -> slack.main.enterprise_id: must be an id such as "E0123ABCD"
    app_id = "A0UNDERSIGN"
    app_token = { env = "SLACK_APP_TOKEN" }
      -> slack.main.app_token: is not available in this version: remove it
    app_id = "A0UNDERSIGN"
    api_url = "http://slack.example/api"
      -> slack.main.api_url: must be an https address without a slash at the end (http for loopback alone)
    app_id = "A0UNDERSIGN"
    api_url = "https://slack.example/api/"
      -> slack.main.api_url: must be an https address without a slash at the end (http for loopback alone)
    app_id = "A0UNDERSIGN"
    api_url = "http://127.0.0.1:4455/api"
      -> accepted

      -> slack.main.signing_secret: is missing: add signing_secret = { env = "SLACK_SIGNING_SECRET" }
    signing_secret = []
      -> slack.main.signing_secret: must be one secret, or a list of two during a rotation
    signing_secret = [{ env = "SLACK_SIGNING_SECRET" }, { env = "SLACK_BOT_TOKEN" }]
      -> accepted
    signing_secret = ["a", "b", "c"]
      -> slack.main.signing_secret: must be one secret, or a list of two during a rotation
    [slack."Ma/in"]
      -> slack.Ma/in: must have a name of 1 to 32 characters a-z, 0-9, '-' and '_'
    policy/acme/team.toml: people.ana.slack: there is no installation 'main': add [slack.main] to the server's configuration
    [discord.ops]
    guild_id = "1"
    [slack.main]
      -> discord: is not available in this version: remove it
    "#);
}

#[test]
fn tenants_and_agents_are_checked() {
    let files = Files::new();
    let policy = "policy = \"policy/acme\"";
    let owner = "owner = \"ana\"";
    let other = format!("owner = \"ana\"\n[tenants.acme.agents.other]\nkey_sha256 = {HASH}");
    let agents = format!("[tenants.acme.agents.support-bot]\nkey_sha256 = {HASH}\nowner = \"ana\"");
    let table = files.table(&[
        (policy, ""),
        (policy, "policy = \"policy/none\""),
        (policy, "policy = \"policy\""),
        (policy, "policy = \"policy/acme\"\nregion = \"eu\""),
        (owner, "owner = \"zoe\""),
        (owner, "jwt = { issuer = \"https://id.example\" }"),
        (owner, "owner_claim = \"sub\""),
        (owner, &other),
        (HASH, "[]"),
        (HASH, "[\"zz\", \"abcd\"]"),
        (HASH, "\"usk_canary-credential\""),
        ("agents.support-bot", "agents.\"support bot\""),
        (&agents, ""),
        ("[tenants.acme.upstreams.shop]\nurl = \"http://127.0.0.1:9001/mcp\"\nheaders = { Authorization = { env = \"SHOP_TOKEN\" } }", ""),
    ]);
    insta::assert_snapshot!(table, @r#"

      -> tenants.acme.policy: is missing: add policy = "policy/acme"
    policy = "policy/none"
      -> tenants.acme.policy: the directory can't be read: entity not found
    policy = "policy"
      -> tenants.acme.policy: the directory holds no *.toml file: write at least one
    policy = "policy/acme"
    region = "eu"
      -> tenants.acme.region: is not a known key: remove it, or correct its spelling
    owner = "zoe"
      -> tenants.acme.agents.support-bot.owner: is nobody of the policy's [people]: add [people.NAME] to a policy file, or correct the name
    jwt = { issuer = "https://id.example" }
      -> tenants.acme.agents.support-bot.jwt: is not available in this version: remove it
    owner_claim = "sub"
      -> tenants.acme.agents.support-bot.owner_claim: is not available in this version: remove it
    owner = "ana"
    [tenants.acme.agents.other]
    key_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
      -> tenants.acme.agents.support-bot.key_sha256: is another agent's already: every agent needs a key of its own
    []
      -> tenants.acme.agents.support-bot.key_sha256: must list one hash, or two during a rotation
    ["zz", "abcd"]
      -> tenants.acme.agents.support-bot.key_sha256: must be 64 hex digits, as `undersign agent-key` prints them
    tenants.acme.agents.support-bot.key_sha256: must be 64 hex digits, as `undersign agent-key` prints them
    "usk_canary-credential"
      -> tenants.acme.agents.support-bot.key_sha256: must be a list of strings, such as ["64 hex digits"]
    agents."support bot"
      -> tenants.acme.agents.support bot: must have a name of 1 to 64 letters, digits, '.', '-' and '_'

      -> tenants.acme.agents: is missing: add [tenants.acme.agents.NAME] with key_sha256

      -> tenants.acme.upstreams: is missing: add [tenants.acme.upstreams.NAME] with url
    policy/acme/team.toml: rules.read-only.tools: 'shop/get_*' is for no upstream of this tenant: add [tenants.NAME.upstreams.shop] to the server's configuration, or name another
    "#);
}

#[test]
fn a_public_address_without_agents_and_a_file_without_tenants_are_refused() {
    let files = Files::new();
    let at = GOOD.find("[tenants.acme]").unwrap();
    let faults = files.edited(&[("127.0.0.1:8080", "0.0.0.0:8080"), (&GOOD[at..], "")]);
    insta::assert_snapshot!(faults, @r#"
    tenants: is missing: add [tenants.NAME] with policy, agents and upstreams
    server.agents_listen: is open to others and no agent is configured: add [tenants.NAME.agents.NAME] with key_sha256, or listen on 127.0.0.1
    "#);
    // With agents it is only a policy that is at fault, and nothing else is said.
    assert_eq!(files.edited(&[("127.0.0.1:8080", "0.0.0.0:8080")]), "accepted");
    let faults = files.edited(&[("127.0.0.1:8080", "0.0.0.0:8080"), ("policy/acme", "policy/none")]);
    assert_eq!(faults, "tenants.acme.policy: the directory can't be read: entity not found");
}

#[test]
fn upstream_addresses_are_checked() {
    let files = Files::new();
    let good = "http://127.0.0.1:9001/mcp";
    let table = files.table(&[
        (good, "https://shop.example/mcp"),
        (good, "http://localhost:9001/mcp"),
        (good, "http://[::1]:9001/mcp"),
        (good, "http://127.0.0.1/mcp"),
        (good, "http://127.0.0.1:9001"),
        (good, "http://127.0.0.1?x"),
        (good, "http://0x7f000001/mcp"),
        (good, "http://2130706433/127.0.0.1"),
        (good, "http://0177.0.0.1/mcp"),
        (good, "http://127.1/mcp"),
        (good, "http://[::ffff:127.0.0.1]/mcp"),
        (good, "shop.example"),
        (good, "file:///etc/passwd"),
        (good, "unix:@abstract"),
        (good, "ws://127.0.0.1/mcp"),
        (good, "http://shop.example/mcp"),
        (good, "http://localhost.example/mcp"),
        (good, "http://10.0.0.1/mcp"),
        (good, "https://user@shop.example/mcp"),
        (good, "https://:word@shop.example/mcp"),
        (good, "https://shop.example/mcp#x"),
    ]);
    insta::assert_snapshot!(table, @r#"
    https://shop.example/mcp
      -> accepted
    http://localhost:9001/mcp
      -> accepted
    http://[::1]:9001/mcp
      -> accepted
    http://127.0.0.1/mcp
      -> accepted
    http://127.0.0.1:9001
      -> accepted
    http://127.0.0.1?x
      -> accepted
    http://0x7f000001/mcp
      -> tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    http://2130706433/127.0.0.1
      -> tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    http://0177.0.0.1/mcp
      -> tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    http://127.1/mcp
      -> tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    http://[::ffff:127.0.0.1]/mcp
      -> tenants.acme.upstreams.shop.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    shop.example
      -> tenants.acme.upstreams.shop.url: is not an address, such as "http://127.0.0.1:9001/mcp"
    file:///etc/passwd
      -> tenants.acme.upstreams.shop.url: must begin with https:// or, on this machine, http://
    unix:@abstract
      -> tenants.acme.upstreams.shop.url: must begin with https:// or, on this machine, http://
    ws://127.0.0.1/mcp
      -> tenants.acme.upstreams.shop.url: must begin with https:// or, on this machine, http://
    http://shop.example/mcp
      -> tenants.acme.upstreams.shop.url: is plain http to another host: use https, or set allow_insecure = true
    http://localhost.example/mcp
      -> tenants.acme.upstreams.shop.url: is plain http to another host: use https, or set allow_insecure = true
    http://10.0.0.1/mcp
      -> tenants.acme.upstreams.shop.url: is plain http to another host: use https, or set allow_insecure = true
    https://user@shop.example/mcp
      -> tenants.acme.upstreams.shop.url: must not hold a user name or password: use headers
    https://:word@shop.example/mcp
      -> tenants.acme.upstreams.shop.url: must not hold a user name or password: use headers
    https://shop.example/mcp#x
      -> tenants.acme.upstreams.shop.url: must not have a '#' in it
    "#);
}

#[test]
fn upstreams_are_not_where_metadata_services_hide() {
    let files = Files::new();
    let good = "http://127.0.0.1:9001/mcp";
    let table = files.table(&[
        (good, "https://0.0.0.0/mcp"),
        (good, "https://[::]/mcp"),
        (good, "https://169.254.169.254/mcp"),
        (good, "https://2852039166/mcp"),
        (good, "https://0251.0376.0251.0376/mcp"),
        (good, "https://0xa9fea9fe/mcp"),
        (good, "https://[::ffff:169.254.169.254]/mcp"),
        (good, "https://[::169.254.169.254]/mcp"),
        (good, "https://[64:ff9b::169.254.169.254]/mcp"),
        (good, "https://[2002:a9fe:a9fe::]/mcp"),
        (good, "https://[fe80::1]/mcp"),
        (good, "https://[ff02::1]/mcp"),
        (good, "https://[fd00:ec2::254]/mcp"),
        (good, "https://100.100.100.200/mcp"),
        (good, "https://metadata.google.internal./mcp"),
        (good, "http://169.254.169.254/mcp\"\nallow_insecure = true\n#\""),
        (good, "http://10.0.0.1/mcp\"\nallow_insecure = true\n#\""),
    ]);
    insta::assert_snapshot!(table, @r#"
    https://0.0.0.0/mcp
      -> tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    https://[::]/mcp
      -> tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    https://169.254.169.254/mcp
      -> tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    https://2852039166/mcp
      -> tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    https://0251.0376.0251.0376/mcp
      -> tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    https://0xa9fea9fe/mcp
      -> tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    https://[::ffff:169.254.169.254]/mcp
      -> tenants.acme.upstreams.shop.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    https://[::169.254.169.254]/mcp
      -> tenants.acme.upstreams.shop.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    https://[64:ff9b::169.254.169.254]/mcp
      -> tenants.acme.upstreams.shop.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    https://[2002:a9fe:a9fe::]/mcp
      -> tenants.acme.upstreams.shop.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    https://[fe80::1]/mcp
      -> tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    https://[ff02::1]/mcp
      -> tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    https://[fd00:ec2::254]/mcp
      -> tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    https://100.100.100.200/mcp
      -> tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    https://metadata.google.internal./mcp
      -> tenants.acme.upstreams.shop.url: must not be a metadata service
    http://169.254.169.254/mcp"
    allow_insecure = true
    #"
      -> tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    http://10.0.0.1/mcp"
    allow_insecure = true
    #"
      -> accepted
    "#);
}

#[test]
fn the_rest_of_an_upstream_is_checked() {
    let files = Files::new();
    let (url, headers) =
        ("url = \"http://127.0.0.1:9001/mcp\"", "{ Authorization = { env = \"SHOP_TOKEN\" } }");
    let table = files.table(&[
        (url, ""),
        (url, "command = [\"npx\"]\nenv = {}"),
        (url, "url = \"http://127.0.0.1:9001/mcp\"\nread_only = [\"get_*\"]\npass = []"),
        (url, "url = \"http://127.0.0.1:9001/mcp\"\ntimeout = \"500ms\""),
        (url, "url = \"http://127.0.0.1:9001/mcp\"\ntimeout = \"6m\""),
        (url, "url = \"http://127.0.0.1:9001/mcp\"\ntimeout = \"5m\""),
        (url, "url = \"http://127.0.0.1:9001/mcp\"\nenvironment = \"\""),
        (url, "url = \"http://127.0.0.1:9001/mcp\"\nenvironment = \"prodüction\""),
        (headers, "{ \"Author ization\" = { env = \"SHOP_TOKEN\" } }"),
        (headers, "{ Mcp-Session-Id = { env = \"SHOP_TOKEN\" } }"),
        (headers, "{ X-Key = { env = \"SHOP_TOKEN\" }, x-key = { env = \"SHOP_TOKEN\" } }"),
        (headers, "{ Authorization = \"Bearer canary-credential\" }"),
        ("upstreams.shop", "upstreams.Shop"),
        ("upstreams.shop", "upstreams.sh__op"),
        ("upstreams.shop", "upstreams.shop_"),
    ]);
    // What was written holds a canary; what came of it may not.
    insta::assert_snapshot!(table.replace("canary-credential", "…"), @r#"

      -> tenants.acme.upstreams.shop.url: is missing: add url = "http://127.0.0.1:9001/mcp"
    command = ["npx"]
    env = {}
      -> tenants.acme.upstreams.shop.command: is not available in this version: remove it
    tenants.acme.upstreams.shop.env: is not available in this version: remove it
    url = "http://127.0.0.1:9001/mcp"
    read_only = ["get_*"]
    pass = []
      -> tenants.acme.upstreams.shop.read_only: is not available in this version: remove it
    tenants.acme.upstreams.shop.pass: is not available in this version: remove it
    url = "http://127.0.0.1:9001/mcp"
    timeout = "500ms"
      -> tenants.acme.upstreams.shop.timeout: must be from 1s to 5m
    url = "http://127.0.0.1:9001/mcp"
    timeout = "6m"
      -> tenants.acme.upstreams.shop.timeout: must be from 1s to 5m
    url = "http://127.0.0.1:9001/mcp"
    timeout = "5m"
      -> accepted
    url = "http://127.0.0.1:9001/mcp"
    environment = ""
      -> tenants.acme.upstreams.shop.environment: must be 1 to 64 printable ASCII characters, such as "production"
    url = "http://127.0.0.1:9001/mcp"
    environment = "prodüction"
      -> tenants.acme.upstreams.shop.environment: must be 1 to 64 printable ASCII characters, such as "production"
    { "Author ization" = { env = "SHOP_TOKEN" } }
      -> tenants.acme.upstreams.shop.headers.Author ization: is not a header's name
    { Mcp-Session-Id = { env = "SHOP_TOKEN" } }
      -> tenants.acme.upstreams.shop.headers.Mcp-Session-Id: is set by undersign itself: remove it
    { X-Key = { env = "SHOP_TOKEN" }, x-key = { env = "SHOP_TOKEN" } }
      -> tenants.acme.upstreams.shop.headers.x-key: is there twice: header names differ in more than case
    { Authorization = "Bearer …" }
      -> tenants.acme.upstreams.shop.headers.Authorization: must be { file = "…" } or { env = "…" }: a secret is never written here itself
    upstreams.Shop
      -> tenants.acme.upstreams.Shop: must have a name of 1 to 32 characters a-z, 0-9, '-' and '_', without '__' and no '_' at its end
    policy/acme/team.toml: rules.read-only.tools: 'shop/get_*' is for no upstream of this tenant: add [tenants.NAME.upstreams.shop] to the server's configuration, or name another
    upstreams.sh__op
      -> tenants.acme.upstreams.sh__op: must have a name of 1 to 32 characters a-z, 0-9, '-' and '_', without '__' and no '_' at its end
    policy/acme/team.toml: rules.read-only.tools: 'shop/get_*' is for no upstream of this tenant: add [tenants.NAME.upstreams.shop] to the server's configuration, or name another
    upstreams.shop_
      -> tenants.acme.upstreams.shop_: must have a name of 1 to 32 characters a-z, 0-9, '-' and '_', without '__' and no '_' at its end
    policy/acme/team.toml: rules.read-only.tools: 'shop/get_*' is for no upstream of this tenant: add [tenants.NAME.upstreams.shop] to the server's configuration, or name another
    "#);
}

#[test]
fn what_cannot_be_read_or_parsed_is_told_apart_from_what_is_refused() {
    let files = Files::new();
    let unreadable = |error: &LoadError| matches!(error, LoadError::Unreadable(_));
    let missing = load_with(&files.dir.join("none.toml"), &environment).err().unwrap();
    assert!(
        unreadable(&missing) && missing.to_string().ends_with("none.toml: can't be read: entity not found")
    );
    files.write("undersign.toml", "[server]\nsecret = canary-password", 0o644);
    let broken = files.load().err().unwrap();
    assert!(unreadable(&broken));
    assert_eq!(
        files.outcome(Err(broken)),
        "line 2 is not TOML: string values must be quoted, expected literal string"
    );
    files.write("undersign.toml", &GOOD.replace("T0ACME", "ACME"), 0o644);
    files.write("policy/acme/other.toml", "[[rules]\n", 0o644);
    let policy = files.load().err().unwrap();
    assert!(unreadable(&policy));
    insta::assert_snapshot!(files.outcome(Err(policy)), @r#"
    slack.main.team_id: must be an id such as "T0123ABCD"
    policy/acme/other.toml: line 1 is not TOML: unclosed array table, expected `]`
    "#);
    files.write("policy/acme/other.toml", "", 0o644);
    assert!(!unreadable(&files.load().err().unwrap()));
}

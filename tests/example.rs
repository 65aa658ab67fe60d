//! What the README shows is accepted as it stands, and what `check` says is what people will read.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn check(config: &Path, environment: &[(&str, &str)]) -> Output {
    check_with(config, environment, &[])
}

fn check_with(config: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_undersign"))
        .args(["check", "--config"])
        .arg(config)
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn example() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/example/undersign.toml")
}

const ENVIRONMENT: &[(&str, &str)] = &[
    ("DATABASE_URL", "postgres://undersign:pw-canary@db.internal/undersign"),
    ("UNDERSIGN_TOKEN_KEY", "token-key-canary-0123456789abcdef0123456789"),
    ("SLACK_SIGNING_SECRET", "signing-canary-0123456789abcdef"),
    ("SLACK_BOT_TOKEN", "xoxb-canary-0123456789"),
    ("SHOP_AUTHORIZATION", "Bearer shop-canary"),
];

#[test]
fn the_example_is_accepted_and_explained() {
    let output = check(&example(), ENVIRONMENT);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(said, @r#"
    tenant acme
      agents     support-bot
      upstreams  shop
      rules
        deletions: require_approval for shop/delete_*
          risk    high
          needs   2 of data-owners, not the agent's owner
          asks    slack:main/C0DATA
          within  10m to decide, 10m to redeem
        large-refunds: require_approval for shop/refund_order
          when    args.amount_cents > thresholds.refund_auto
          risk    high
          needs   1 of payments, not the agent's owner
          asks    slack:main/C0PAY
          within  10m to decide, 10m to redeem
        never-drop: deny for shop/drop_*
        read-only: allow for shop/get_*, shop/list_*
        small-refunds: allow for shop/refund_order
          when    args.amount_cents <= thresholds.refund_auto
      every other tool: not_allowed
    no faults
    "#);
    assert!(!said.contains("canary"));
}

#[test]
fn a_missing_environment_names_every_variable_and_no_value() {
    let output = check(&example(), &ENVIRONMENT[..1]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap().replace(env!("CARGO_MANIFEST_DIR"), "");
    insta::assert_snapshot!(said, @r#"
    /deploy/example/undersign.toml: token_keys[0].secret: the environment variable UNDERSIGN_TOKEN_KEY is not set
    /deploy/example/undersign.toml: slack.main.signing_secret: the environment variable SLACK_SIGNING_SECRET is not set
    /deploy/example/undersign.toml: slack.main.bot_token: the environment variable SLACK_BOT_TOKEN is not set
    /deploy/example/undersign.toml: tenants.acme.upstreams.shop.headers.Authorization: the environment variable SHOP_AUTHORIZATION is not set
    "#);
    assert!(!said.contains("canary"));
}

#[test]
fn faults_of_every_section_come_at_once() {
    let directory = std::env::temp_dir().join(format!("undersign-check-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("policy")).unwrap();
    std::fs::write(directory.join("world-readable"), "0123456789abcdef0123456789abcdef").unwrap();
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(directory.join("world-readable"), mode).unwrap();
    std::fs::write(
        directory.join("policy/team.toml"),
        "[[rules]]\nname = \"r\"\ntools = [\"shop/*\"]\ndecision = \"allow\"\n",
    )
    .unwrap();
    let config = r#"
        colour = "blue"
        [server]
        agents_listen = "0.0.0.0"
        hold = "51s"
        [database]
        url = "postgres://user:pw-canary@localhost/db"
        [[token_keys]]
        id = "k 1"
        secret = { env = "SHORT" }
        [[token_keys]]
        id = "k2"
        secret = { file = "world-readable" }
        [slack.main]
        team_id = "acme"
        app_id = "A0UNDERSIGN"
        signing_secret = { env = "PLACEHOLDER" }
        bot_token = { env = "SPACED" }
        app_token = { env = "X" }
        [discord.ops]
        guild_id = "1"
        [tenants.acme]
        policy = "policy"
        [tenants.acme.agents.bot]
        key_sha256 = ["123"]
        owner = "nobody"
        [tenants.acme.upstreams.shop]
        url = "http://169.254.169.254/mcp"
        [tenants.acme.upstreams.octal]
        url = "http://0251.0376.0251.0376/mcp"
        [tenants.acme.upstreams.mapped]
        url = "http://[::ffff:169.254.169.254]/mcp"
        [tenants.acme.upstreams.user]
        url = "https://me:pw-canary@shop.example/mcp"
        [tenants.acme.upstreams.plain]
        url = "http://shop.example/mcp"
        [tenants.acme.upstreams.file]
        url = "file:///etc/passwd"
        [tenants.acme.upstreams.a__b]
        command = ["npx"]
        url = "http://127.0.0.1/mcp"
        [tenants.empty]
        policy = "nowhere"
    "#;
    std::fs::write(directory.join("undersign.toml"), config).unwrap();
    let output = check(
        &directory.join("undersign.toml"),
        &[
            ("SHORT", "short"),
            ("PLACEHOLDER", "changeme-changeme-changeme"),
            ("SPACED", "xoxb-canary-0123456789\n"),
        ],
    );
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap().replace(&format!("{}/", directory.display()), "");
    insta::assert_snapshot!(said, @r#"
    undersign.toml: discord: is not available in this version: remove it
    undersign.toml: colour: is not a known key: remove it, or correct its spelling
    undersign.toml: server.agents_listen: must be an address and a port, such as "127.0.0.1:8080"
    undersign.toml: server.hold: must be from 0s to 50s: many clients give a request up after a minute
    undersign.toml: database.url: must be { file = "…" } or { env = "…" }: a secret is never written here itself
    undersign.toml: token_keys[0].secret: is too short: it must have at least 32 characters
    undersign.toml: token_keys[0].id: must be 1 to 32 letters, digits, '-' or '_'
    undersign.toml: token_keys[1].secret: the file can be read by everybody: chmod o-r it
    undersign.toml: slack.main.team_id: must be an id such as "T0123ABCD"
    undersign.toml: slack.main.signing_secret: is a placeholder: put the real secret there
    undersign.toml: slack.main.bot_token: has white space around it or a line end or control character in it: remove that
    undersign.toml: slack.main.app_token: is not available in this version: remove it
    undersign.toml: tenants.acme.agents.bot.key_sha256: must be 64 hex digits, as `undersign agent-key` prints them
    undersign.toml: tenants.acme.upstreams.a__b: must have a name of 1 to 32 characters a-z, 0-9, '-' and '_', without '__' and no '_' at its end
    undersign.toml: tenants.acme.upstreams.a__b.command: is not available in this version: remove it
    undersign.toml: tenants.acme.upstreams.file.url: must be http or https
    undersign.toml: tenants.acme.upstreams.mapped.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    undersign.toml: tenants.acme.upstreams.octal.url: must have its address written with four decimal numbers, such as 127.0.0.1
    undersign.toml: tenants.acme.upstreams.plain.url: is plain http to another host: use https, or set allow_insecure = true
    undersign.toml: tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    undersign.toml: tenants.acme.upstreams.user.url: must not hold a user name or password: use headers
    undersign.toml: tenants.acme.agents.bot.owner: is nobody of the policy's [people]: add the person there, or correct the name
    undersign.toml: tenants.empty.agents: is missing: add [tenants.empty.agents.NAME] with key_sha256
    undersign.toml: tenants.empty.upstreams: is missing: add [tenants.empty.upstreams.NAME] with url
    undersign.toml: tenants.empty.policy: the directory can't be read: entity not found
    "#);
    assert!(!said.contains("canary") && !said.contains("changeme"));
}

#[test]
fn a_file_that_cannot_be_read_is_another_exit_code() {
    let output = check(Path::new("/nowhere/undersign.toml"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "/nowhere/undersign.toml: can't be read: entity not found\n"
    );
}

#[test]
fn a_policy_that_cannot_be_parsed_is_that_exit_code_too() {
    let directory = std::env::temp_dir().join(format!("undersign-unparsable-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("policy/acme")).unwrap();
    std::fs::copy(example(), directory.join("undersign.toml")).unwrap();
    std::fs::write(directory.join("policy/acme/team.toml"), "[people.ana]\nslack = canary\n").unwrap();
    let text = check(&directory.join("undersign.toml"), ENVIRONMENT);
    let json = check_with(&directory.join("undersign.toml"), ENVIRONMENT, &["--json"]);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!((text.status.code(), json.status.code()), (Some(2), Some(2)));
    let said = String::from_utf8(text.stderr).unwrap().replace(&format!("{}/", directory.display()), "");
    assert_eq!(said, "policy/acme/team.toml: line 2 is not TOML\n");
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert_eq!(report["faults"][0]["message"], "line 2 is not TOML");
}

#[test]
fn the_effective_policy_is_given_as_json() {
    let output = check_with(&example(), ENVIRONMENT, &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["ok"]), (Some(0), &Value::Bool(true)));
    let rules = report["tenants"]["acme"]["rules"].as_array().unwrap();
    let refunds = rules.iter().find(|rule| rule["name"] == "large-refunds").unwrap();
    assert_eq!(refunds["decision"], "require_approval");
    assert_eq!(refunds["approval"]["needs"], "1 of payments");
    assert_eq!(refunds["approval"]["post_to"][0], "slack:main/C0PAY");
}

#[test]
fn a_usage_error_is_2() {
    let status = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_undersign")).args(arguments).output().unwrap().status.code()
    };
    assert_eq!((status(&["check"]), status(&["approve"]), status(&["--help"])), (Some(2), Some(2), Some(0)));
}

#[test]
fn an_agents_key_is_fresh_and_its_hash_is_its_own() {
    let key = || -> Value {
        let output =
            Command::new(env!("CARGO_BIN_EXE_undersign")).args(["agent-key", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (one, two) = (key(), key());
    assert_ne!(one["key"], two["key"]);
    let text = one["key"].as_str().unwrap();
    let random = text.strip_prefix("usk_").unwrap();
    assert_eq!(random.len(), 43);
    assert!(random.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
    let hash = <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    assert_eq!(one["key_sha256"], hex::encode(hash));
}

#[test]
fn the_readme_shows_the_example_files_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let readme = read("README.md");
    for path in ["deploy/example/undersign.toml", "deploy/example/policy/acme/payments.toml"] {
        let block = format!("```toml\n{}```", read(path));
        assert!(readme.contains(&block), "README.md does not show {path} as it is");
    }
}

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

/// What `explain` prints for a call of the example's shop.
fn explain(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_undersign"))
        .args(["explain", "--config"])
        .arg(example())
        .args(arguments)
        .env_clear()
        .envs(ENVIRONMENT.iter().copied())
        .output()
        .unwrap();
    let said = format!(
        "{}{}exit {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status.code().unwrap()
    );
    assert!(!said.contains("canary"), "{said}");
    // It covers the address and the rules, and is another one for any change of them.
    let hex = |line: &str| line.split_once("policy_version  ").map(|(_, version)| version.to_owned());
    match said.lines().find_map(hex) {
        Some(version) => said.replace(&version, &format!("({} digits)", version.len())),
        None => said,
    }
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
    let said = String::from_utf8(output.stdout).unwrap().replace(env!("CARGO_MANIFEST_DIR"), ".");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(said, @r#"
    tenant acme
      agents     support-bot (works for ana)
      upstreams  shop (production)
      groups
        data-owners: ana, ben, cleo
        payments: ana, ben, whoever is in slack:main/S0PAY
      thresholds
        refund_auto = 5000
      limits
        asks     5 a minute; waiting at most 20 of one agent
        denials  3 within 10m pause an agent for 10m; each is remembered for 1day
        alerts   slack:main/C0SEC
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
          when    args.amount_cents >= 0 && args.amount_cents <= thresholds.refund_auto
      tools
        shop/delete_*
          needs 2 of data-owners (deletions)
        shop/drop_*
          denied (never-drop)
        shop/get_*
          allowed (read-only)
        shop/list_*
          allowed (read-only)
        shop/refund_order
          needs 1 of payments when args.amount_cents > thresholds.refund_auto (large-refunds)
          allowed when args.amount_cents >= 0 && args.amount_cents <= thresholds.refund_auto (small-refunds)
          otherwise not_allowed
        every other tool: not_allowed
    warning: ./deploy/example/undersign.toml: secrets come from the environment (DATABASE_URL, SHOP_AUTHORIZATION, SLACK_BOT_TOKEN, SLACK_SIGNING_SECRET, UNDERSIGN_TOKEN_KEY), which every process of this user and every crash report may read: { file = "…" } with mode 0600 keeps them closer
    no faults, 1 warning
    "#);
    assert!(!said.contains("canary"));
}

#[test]
fn a_missing_environment_names_every_variable_and_no_value() {
    let output = check(&example(), &ENVIRONMENT[..1]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap().replace(env!("CARGO_MANIFEST_DIR"), "");
    insta::assert_snapshot!(said, @r#"
    /deploy/example/undersign.toml: token_keys[0].secret: the environment variable UNDERSIGN_TOKEN_KEY is not set: set it for this process, or name another
    /deploy/example/undersign.toml: slack.main.signing_secret: the environment variable SLACK_SIGNING_SECRET is not set: set it for this process, or name another
    /deploy/example/undersign.toml: slack.main.bot_token: the environment variable SLACK_BOT_TOKEN is not set: set it for this process, or name another
    /deploy/example/undersign.toml: tenants.acme.upstreams.shop.headers.Authorization: the environment variable SHOP_AUTHORIZATION is not set: set it for this process, or name another
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
    undersign.toml: token_keys[0].secret: is too short: put the whole secret there, which has at least 32 characters
    undersign.toml: token_keys[0].id: must be 1 to 32 letters, digits, '-' or '_'
    undersign.toml: token_keys[1].secret: the file can be read by everybody: chmod o-rw it
    undersign.toml: slack.main.team_id: must be an id such as "T0123ABCD"
    undersign.toml: slack.main.signing_secret: is a placeholder: put the real secret there
    undersign.toml: slack.main.bot_token: has white space around it, or a line end or control character in it (one line end at the end of a file is taken off): remove that
    undersign.toml: slack.main.app_token: is not available in this version: remove it
    undersign.toml: tenants.acme.agents.bot.key_sha256: must be 64 hex digits, as `undersign agent-key` prints them
    undersign.toml: tenants.acme.upstreams.a__b: must have a name of 1 to 32 characters a-z, 0-9, '-' and '_', without '__' and no '_' at its end
    undersign.toml: tenants.acme.upstreams.a__b.command: is not available in this version: remove it
    undersign.toml: tenants.acme.upstreams.file.url: must begin with https:// or, on this machine, http://
    undersign.toml: tenants.acme.upstreams.mapped.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    undersign.toml: tenants.acme.upstreams.octal.url: must have its address written with four decimal numbers, such as 127.0.0.1
    undersign.toml: tenants.acme.upstreams.plain.url: is plain http to another host: use https, or set allow_insecure = true
    undersign.toml: tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    undersign.toml: tenants.acme.upstreams.user.url: must not hold a user name or password: use headers
    undersign.toml: tenants.acme.agents.bot.owner: is nobody of the policy's [people]: add [people.NAME] to a policy file, or correct the name
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
    assert_eq!(
        said,
        "policy/acme/team.toml: line 2 is not TOML: string values must be quoted, expected literal string\n"
    );
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert_eq!(
        report["faults"][0]["message"],
        "line 2 is not TOML: string values must be quoted, expected literal string"
    );
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

/// What `explain` prints for a refund of this amount, as JSON.
fn refund(amount: &str) -> String {
    let call = format!("{{\"order_id\": \"A-17\u{202e}\", \"amount_cents\": {amount}}}");
    explain(&["--tenant", "acme", "--agent", "support-bot", "--tool", "shop/refund_order", "--args", &call])
}

#[test]
fn a_call_is_explained_rule_by_rule() {
    insta::assert_snapshot!(refund("12000"), @r#"
    tenant acme: support-bot, who works for ana, calls shop/refund_order
    rules
      deletions: require_approval: is for other tools
      large-refunds: require_approval: counts: args.amount_cents > thresholds.refund_auto holds
      never-drop: deny: is for other tools
      read-only: allow: is for other tools
      small-refunds: allow: does not count: args.amount_cents >= 0 && args.amount_cents <= thresholds.refund_auto does not hold
    decision
      require_approval: large-refunds
      risk    high
      needs   1 of payments, not the agent's owner
      asks    slack:main/C0PAY
      within  10m to decide, 10m to redeem
    bound besides the call itself
      policy_version  (64 digits)
      upstream        http://127.0.0.1:9001/mcp
      environment     production
      tool_version    the tool's definition as the upstream lists it then
    preview
      title       Refund order A-17\u{202e}
      target      order A-17\u{202e}
      effect      pays 12000 cents back; up to 5000 need no approval
      data out    nothing leaves the shop
      reversible  no
      arguments
        {
          "amount_cents": 12000,
          "order_id": "A-17\u{202e}"
        }
      beware: Contains invisible or direction-changing characters, shown as \u{…}.
    exit 0
    "#);
    insta::assert_snapshot!(refund("1200"), @r#"
    tenant acme: support-bot, who works for ana, calls shop/refund_order
    rules
      deletions: require_approval: is for other tools
      large-refunds: require_approval: does not count: args.amount_cents > thresholds.refund_auto does not hold
      never-drop: deny: is for other tools
      read-only: allow: is for other tools
      small-refunds: allow: counts: args.amount_cents >= 0 && args.amount_cents <= thresholds.refund_auto holds
    decision
      allow: relayed without anybody being asked
    exit 0
    "#);
}

#[test]
fn a_condition_that_cannot_be_evaluated_is_explained() {
    insta::assert_snapshot!(refund("\"a lot\""), @r#"
    tenant acme: support-bot, who works for ana, calls shop/refund_order
    rules
      deletions: require_approval: is for other tools
      large-refunds: require_approval: counts: args.amount_cents > thresholds.refund_auto can't be evaluated (found no matching overload for '_>_' applied to '(string, int)'), and that counts against the call
      never-drop: deny: is for other tools
      read-only: allow: is for other tools
      small-refunds: allow: does not count: args.amount_cents >= 0 && args.amount_cents <= thresholds.refund_auto can't be evaluated (found no matching overload for '_<=_' applied to '(string, int)'), and so allows nothing
    decision
      require_approval: large-refunds
      risk    high
      needs   1 of payments, not the agent's owner
      asks    slack:main/C0PAY
      within  10m to decide, 10m to redeem
    bound besides the call itself
      policy_version  (64 digits)
      upstream        http://127.0.0.1:9001/mcp
      environment     production
      tool_version    the tool's definition as the upstream lists it then
    preview
      title       Refund order A-17\u{202e}
      target      order A-17\u{202e}
      effect      pays a lot cents back; up to 5000 need no approval
      data out    nothing leaves the shop
      reversible  no
      arguments
        {
          "amount_cents": "a lot",
          "order_id": "A-17\u{202e}"
        }
      beware: Contains invisible or direction-changing characters, shown as \u{…}.
    exit 0
    "#);
    insta::assert_snapshot!(explain(&["--tool", "shop/refund_order"]), @r#"
    tenant acme: support-bot, who works for ana, calls shop/refund_order
    rules
      deletions: require_approval: is for other tools
      large-refunds: require_approval: counts: args.amount_cents > thresholds.refund_auto can't be evaluated (No such key: amount_cents), and that counts against the call
      never-drop: deny: is for other tools
      read-only: allow: is for other tools
      small-refunds: allow: does not count: args.amount_cents >= 0 && args.amount_cents <= thresholds.refund_auto can't be evaluated (No such key: amount_cents), and so allows nothing
    decision
      require_approval: large-refunds
      risk    high
      needs   1 of payments, not the agent's owner
      asks    slack:main/C0PAY
      within  10m to decide, 10m to redeem
    bound besides the call itself
      policy_version  (64 digits)
      upstream        http://127.0.0.1:9001/mcp
      environment     production
      tool_version    the tool's definition as the upstream lists it then
    preview
      title       Refund order (not given)
      target      order (not given)
      effect      pays (not given) cents back; up to 5000 need no approval
      data out    nothing leaves the shop
      reversible  no
      arguments
        {}
    exit 0
    "#);
}

#[test]
fn a_call_that_no_person_is_asked_about_is_explained() {
    insta::assert_snapshot!(explain(&["--tool", "shop/drop_tables"]), @r#"
    tenant acme: support-bot, who works for ana, calls shop/drop_tables
    rules
      deletions: require_approval: is for other tools
      large-refunds: require_approval: is for other tools
      never-drop: deny: counts: names the tool, and has no condition
      read-only: allow: is for other tools
      small-refunds: allow: is for other tools
    decision
      deny: never-drop
    exit 0
    "#);
    insta::assert_snapshot!(explain(&["--tool", "shop/unheard_of"]), @r#"
    tenant acme: support-bot, who works for ana, calls shop/unheard_of
    rules
      deletions: require_approval: is for other tools
      large-refunds: require_approval: is for other tools
      never-drop: deny: is for other tools
      read-only: allow: is for other tools
      small-refunds: allow: is for other tools
    decision
      not_allowed: no rule counts for this call
    exit 0
    "#);
}

#[test]
fn what_cannot_be_explained_is_told() {
    let lines = [
        explain(&["--tenant", "globex", "--tool", "shop/x"]),
        explain(&["--agent", "zoe", "--tool", "shop/x"]),
        explain(&["--tool", "files/x"]),
        explain(&["--tool", "x"]),
        explain(&["--tool", "shop/x", "--args", "[1]"]),
        explain(&["--tool", "shop/x", "--args", "{\"n\": 9007199254740993}"]),
        explain(&["--tool", "shop/x", "--args", "{\"n\": 1, \"n\": 2}"]),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r#"
    --tenant: there is no 'globex'; the configuration has acme
    exit 2
    --agent: there is no 'zoe'; the configuration has support-bot
    exit 2
    --tool: there is no 'files'; the configuration has shop
    exit 2
    --tool: write upstream/tool, such as shop/refund_order
    exit 2
    --args: must be a JSON object, such as '{"order_id": "A-17"}'
    exit 2
    --args: the number at byte 6 is an integer beyond 2^53-1, which not every program reads alike: send it as a string; a call that needs approval is refused for it, as unsupported_value
    exit 2
    --args: an object has the same name twice, again at byte 9
    exit 2
    "#);
}

#[test]
fn an_explanation_is_json_as_well() {
    let said = explain(&["--tool", "shop/delete_customer", "--args", "{\"customer_id\": \"C-3\"}", "--json"]);
    let (json, exit) = said.split_once('\n').unwrap();
    assert_eq!(exit, "exit 0");
    let mut answer: Value = serde_json::from_str(json).unwrap();
    let version = answer["policy_version"].take();
    assert_eq!(version.as_str().map(str::len), Some(64), "{version}");
    for rule in answer["rules"].as_array_mut().unwrap() {
        let file = rule["file"].as_str().unwrap().replace(env!("CARGO_MANIFEST_DIR"), "");
        assert_eq!(file, "/deploy/example/policy/acme/payments.toml");
        rule.as_object_mut().unwrap().remove("file");
    }
    insta::assert_snapshot!(format!("{answer:#}"), @r#"
    {
      "address": "http://127.0.0.1:9001/mcp",
      "agent": "support-bot",
      "decision": "require_approval",
      "environment": "production",
      "expires_seconds": 600,
      "owner": "ana",
      "policy_version": null,
      "post_to": [
        "slack:main/C0DATA"
      ],
      "preview": {
        "arguments": "{\n  \"customer_id\": \"C-3\"\n}",
        "data_out": null,
        "effect": null,
        "impact": null,
        "reversible": "not stated",
        "target": null,
        "title": "Call shop/delete_customer",
        "warnings": []
      },
      "redeem_within_seconds": 600,
      "requirement": {
        "approvers": [
          {
            "count": 2,
            "group": "data-owners"
          }
        ],
        "escalate": null,
        "second_look_s": null,
        "separate_proposer": true,
        "step_up": null
      },
      "risk": "high",
      "rules": [
        {
          "counts": true,
          "decision": "require_approval",
          "held": null,
          "name": "deletions",
          "names_the_tool": true,
          "when": null
        },
        {
          "counts": false,
          "decision": "require_approval",
          "held": null,
          "name": "large-refunds",
          "names_the_tool": false,
          "when": "args.amount_cents > thresholds.refund_auto"
        },
        {
          "counts": false,
          "decision": "deny",
          "held": null,
          "name": "never-drop",
          "names_the_tool": false,
          "when": null
        },
        {
          "counts": false,
          "decision": "allow",
          "held": null,
          "name": "read-only",
          "names_the_tool": false,
          "when": null
        },
        {
          "counts": false,
          "decision": "allow",
          "held": null,
          "name": "small-refunds",
          "names_the_tool": false,
          "when": "args.amount_cents >= 0 && args.amount_cents <= thresholds.refund_auto"
        }
      ],
      "tenant": "acme",
      "too_large_to_preview": null,
      "tool": "delete_customer",
      "upstream": "shop"
    }
    "#);
}

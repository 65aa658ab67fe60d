//! `undersign check --online` against a played Slack, a played shop and a real database: each finding says what to do,
//! and nothing is posted, called or changed.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::fmt::Write as _;

use harness::{BEN, CHANNEL, CYD, RULES, World};
use serde_json::{Value, json};
use undersign::demo::slack::{Fault, SlackChannel, SlackUser, SlackUsergroup};

/// Runs the program beside the fakes that it asks.
async fn check(world: &World, arguments: &[&str]) -> std::process::Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_undersign"))
        .args(["check", "--online"])
        .args(arguments)
        .arg("--config")
        .arg(world.config_path())
        .envs(world.environment())
        .output()
        .await
        .unwrap()
}

/// What was found, without what is as it should be, and the exit code.
async fn found(world: &World) -> (Vec<String>, i32) {
    let output = check(world, &[]).await;
    let said = String::from_utf8(output.stdout).unwrap();
    for secret in world.environment() {
        assert!(!said.contains(&secret.1), "{said}");
    }
    // How the test's own server is set up is no news of the program.
    let news = |line: &&str| {
        ["fault: ", "warning: ", "ok: "].iter().any(|level| line.starts_with(level))
            && !line.contains("fsync")
            && !line.contains("owns the audit rows")
            && !line.contains("from the environment")
    };
    (said.lines().filter(news).map(str::to_owned).collect(), output.status.code().unwrap())
}

async fn bad(world: &World) -> String {
    let (lines, code) = found(world).await;
    let bad: Vec<_> = lines.into_iter().filter(|line| !line.starts_with("ok: ")).collect();
    assert_eq!(code == 1, bad.iter().any(|line| line.starts_with("fault: ")), "exit {code}: {bad:?}");
    bad.join("\n")
}

async fn world() -> World {
    // Gil, a guest, is named in every other world for what he may not do.
    let world = World::prepare(RULES).await;
    world.write(
        "policy/globex/team.toml",
        "[[rules]]\nname = \"all\"\ntools = [\"shop/*\"]\ndecision = \"deny\"\n",
    );
    let acme = world.read("policy/acme/team.toml");
    let acme = acme.replace("[people.gil]\nslack = [\"main/U0GIL00001\"]\n", "").replace(", \"gil\"", "");
    world.write("policy/acme/team.toml", &acme);
    assert!(world.run(&["migrate", "--config"]).status.success());
    world
}

/// Nothing but questions was asked of the world.
fn untouched(world: &World) {
    assert!(world.shop.ledger().is_empty() && world.slack.messages(CHANNEL).is_empty());
    let asked = world.slack.requests();
    assert!(!asked.is_empty() && asked.iter().all(|call| call.http_method == "GET"), "{asked:?}");
}

#[tokio::test]
async fn what_is_well_is_said_and_each_tool_has_its_requirement() {
    let world = world().await;
    let (lines, code) = found(&world).await;
    insta::assert_snapshot!(lines.join("\n"), @r#"
    ok: database: its schema is this version's
    ok: slack.main: the bot token is accepted
    ok: slack:main/C0PAY00001: the bot is in it
    ok: acme: groups.payments: has 3 members now
    ok: acme/shop: lists 5 tools
    ok: acme/shop/get_order: allowed (read-only)
    ok: acme/shop/list_orders: allowed (read-only)
    ok: acme/shop/refund_order: needs 1 of payments when args.amount_cents > thresholds.refund_auto (large-refunds); allowed when args.amount_cents <= thresholds.refund_auto (small-refunds); otherwise not_allowed
    ok: acme/shop/delete_customer: needs 2 of payments (deletions)
    ok: acme/shop/deploy: needs 1 of deployers (deployments)
    ok: globex/shop: lists 5 tools
    ok: globex/shop/get_order: denied (all)
    ok: globex/shop/list_orders: denied (all)
    ok: globex/shop/refund_order: denied (all)
    ok: globex/shop/delete_customer: denied (all)
    ok: globex/shop/deploy: denied (all)
    "#);
    assert_eq!(code, 0);
    untouched(&world);
    let output = check(&world, &["--json"]).await;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["ok"], true, "{answer}");
    let tool = answer["online"]
        .as_array()
        .unwrap()
        .iter()
        .find(|found| found["about"] == "acme/shop/deploy")
        .unwrap();
    assert_eq!(
        tool,
        &json!({"level": "ok", "about": "acme/shop/deploy", "message": "needs 1 of deployers (deployments)"})
    );
}

#[tokio::test]
async fn slack_that_is_not_as_configured_is_found() {
    let world = world().await;
    let good = world.read("undersign.toml");
    let edited = async |from: &str, to: &str| {
        world.write("undersign.toml", &good.replace(from, to));
        let said = bad(&world).await;
        world.write("undersign.toml", &good);
        format!("{to}\n{said}\n")
    };
    let mut said = edited("T0HOME0001", "T0AWAY0001").await;
    said += &edited("A0APP00001", "A0OTHER0001").await;
    said += &edited("app_id", "enterprise_id = \"E0ACME\"\napp_id").await;
    said += &edited("{ env = \"SLACK_BOT_TOKEN\" }", "{ file = \"secrets/k1\" }").await;
    insta::assert_snapshot!(said, @r#"
    T0AWAY0001
    fault: slack.main: bot_token is of the workspace T0HOME0001, and team_id says T0AWAY0001: correct team_id, or take the token of that workspace
    A0OTHER0001
    fault: slack.main: bot_token is of the app A0APP00001, and app_id says A0OTHER0001: correct app_id ("Basic Information" shows it), or take that app's token
    enterprise_id = "E0ACME"
    app_id
    fault: slack.main: the workspace belongs to no organisation: remove enterprise_id
    { file = "secrets/k1" }
    fault: slack.main: Slack refuses bot_token (invalid_auth): copy it again from "OAuth & Permissions" of the app, after installing it
    "#);

    let faulty = async |method: &str, fault: Fault| {
        world.slack.fail(method, 8, &fault);
        let said = bad(&world).await;
        world.slack.recover(method);
        format!("{method} {fault:?}\n{said}\n")
    };
    let error = |code: &str| Fault::Error(code.to_owned());
    let mut said = faulty("auth.test", Fault::Drop).await;
    said += &faulty("bots.info", error("missing_scope")).await;
    said += &faulty("users.info", error("missing_scope")).await;
    said += &faulty("usergroups.users.list", error("missing_scope")).await;
    said += &faulty("usergroups.users.list", error("plan_upgrade_required")).await;
    said += &faulty("usergroups.users.list", Fault::RateLimited(30)).await;
    said += &faulty("conversations.info", error("missing_scope")).await;
    insta::assert_snapshot!(said, @r#"
    auth.test Drop
    fault: slack.main: Slack can't be asked (connection_lost): see that https requests to api_url leave this machine
    bots.info Error("missing_scope")
    fault: slack.main: which app the token is of can't be asked: the app lacks the bot scope users:read: add it under "OAuth & Permissions", and install the app again
    users.info Error("missing_scope")
    fault: people.ana: slack:main/U0ANA00001: the app lacks the bot scope users:read: add it under "OAuth & Permissions", and install the app again
    fault: people.ben: slack:main/U0BEN00001: the app lacks the bot scope users:read: add it under "OAuth & Permissions", and install the app again
    fault: people.eve: slack:main/U0EVE00001: the app lacks the bot scope users:read: add it under "OAuth & Permissions", and install the app again
    usergroups.users.list Error("missing_scope")
    fault: slack.main: user group S0PAY00001: the app lacks the bot scope usergroups:read: add it under "OAuth & Permissions", and install the app again
    usergroups.users.list Error("plan_upgrade_required")
    fault: slack.main: user group S0PAY00001: user groups need a paid plan of Slack: name people instead
    usergroups.users.list RateLimited(30)
    fault: slack.main: user group S0PAY00001: Slack asks for patience (ratelimited): try again in a minute
    conversations.info Error("missing_scope")
    warning: slack:main/C0PAY00001: is there; whether the bot is in it can't be asked without the scope channels:read (groups:read for a private one): if cards don't arrive, invite it there with /invite
    "#);
    untouched(&world);
}

#[tokio::test]
async fn a_channel_without_the_bot_and_a_group_without_people_are_found() {
    let world = world().await;
    let mut channel = SlackChannel::new(CHANNEL, "payments", &[BEN]);
    channel.members.remove(undersign::demo::slack::BOT_USER);
    world.slack.set_channel(channel.clone());
    let mut said = format!("not invited\n{}\n", bad(&world).await);
    channel.private = true;
    world.slack.set_channel(channel.clone());
    writeln!(said, "private\n{}", bad(&world).await).unwrap();
    world.slack.set_channel(SlackChannel::new(CHANNEL, "payments", &[BEN]));
    world.slack.archive(CHANNEL);
    writeln!(said, "archived\n{}", bad(&world).await).unwrap();
    world.slack.set_channel(SlackChannel::new(CHANNEL, "payments", &[BEN]));
    insta::assert_snapshot!(said, @r#"
    not invited
    fault: slack:main/C0PAY00001: the bot is not in it: invite it there with /invite
    private
    fault: slack:main/C0PAY00001: there is no such channel, or it is private and the bot is not in it: correct the id in post_to, or invite the bot there with /invite
    archived
    fault: slack:main/C0PAY00001: is archived: unarchive it, or name another channel in post_to
    "#);

    // Ana and Ben are two of payments by name; without them the user group has to have two.
    let acme = world.read("policy/acme/team.toml");
    world.write("policy/acme/team.toml", &acme.replace("people = [\"ana\", \"ben\"]\n", ""));
    let mut said = format!("one member\n{}\n", bad(&world).await);
    let mut group = SlackUsergroup::new("S0PAY00001", &[CYD, BEN]);
    world.slack.set_usergroup(group.clone());
    assert_eq!(bad(&world).await, "");
    group.disabled = true;
    world.slack.set_usergroup(group);
    writeln!(said, "disabled\n{}", bad(&world).await).unwrap();
    world.write("policy/acme/team.toml", &acme.replace("S0PAY00001", "S0NONE0001"));
    writeln!(said, "not there\n{}", bad(&world).await).unwrap();
    world.write("policy/acme/team.toml", &acme);
    let mut ben = SlackUser::member(BEN, "ben", harness::TEAM);
    ben.deleted = true;
    world.slack.set_user(ben);
    writeln!(said, "ben has left\n{}", bad(&world).await).unwrap();
    insta::assert_snapshot!(said, @r#"
    one member
    fault: acme: groups.payments: has 1 member now, and a rule asks for 2: add members to slack:main/S0PAY00001, or lower the count
    disabled
    fault: acme: groups.payments: has 0 members now, and a rule asks for 2: add members to slack:main/S0PAY00001, or lower the count
    not there
    fault: slack.main: user group S0NONE0001: there is none: correct the id in slack_usergroups (the group's menu in Slack copies it)
    ben has left
    fault: people.ben: slack:main/U0BEN00001: is no full member of this workspace (not there, deactivated, a guest or a bot), and can approve nothing: correct the id, or remove the account
    "#);
    untouched(&world);
}

#[tokio::test]
async fn what_an_upstream_lists_is_compared_with_the_policy() {
    let world = world().await;
    let acme = world.read("policy/acme/team.toml");
    let acme = acme.replace("\"shop/delete_customer\"", "\"shop/delete_c*\", \"shop/undersign_*\"");
    let idle = "[[rules]]\nname = \"purges\"\ntools = [\"shop/purge_*\"]\ndecision = \"deny\"\n";
    world.write("policy/acme/team.toml", &format!("{idle}{acme}"));
    let schema = json!({"type": "object", "properties": {"approval_token": {"type": "string"}}});
    world.shop.edit_tool("deploy", |tool| tool["inputSchema"] = schema).unwrap();
    world.shop.edit_tool("refund_order", |tool| tool["inputSchema"]["allOf"] = json!([])).unwrap();
    world.shop.edit_tool("get_order", |tool| tool["annotations"] = json!({"destructiveHint": true})).unwrap();
    world.shop.edit_tool("list_orders", |tool| tool["name"] = json!("undersign_cancel")).unwrap();
    let long = format!("delete_customer_{}", "x".repeat(50));
    world.shop.edit_tool("delete_customer", |tool| tool["name"] = json!(long)).unwrap();
    insta::assert_snapshot!(bad(&world).await, @r#"
    warning: acme/shop/get_order: is allowed without approval, and says of itself that it destroys: see that this is meant
    warning: acme/shop/undersign_cancel: has the name of a tool of undersign's own, and is not offered: rename it at the upstream
    warning: acme/shop/refund_order: composes its inputSchema ($ref, oneOf, anyOf or allOf at its root), where a client may refuse the argument approval_token: send the token in _meta, or list the properties at the root
    warning: acme/shop/delete_customer_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: is called shop__delete_customer_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx on /mcp, which is longer than 64 characters, and some clients refuse that: use /mcp/shop, or shorten the upstream's name
    warning: acme/shop/deploy: has a property approval_token of its own, and is not offered: rename the property at the upstream
    warning: acme: rules.purges: matches no tool that is listed now: correct tools = ["shop/purge_*"], or remove the rule if it is not kept for later
    "#);
    untouched(&world);

    world.shop.stop().await;
    insta::assert_snapshot!(bad(&world).await, @r#"
    fault: acme/shop: can't be reached, or gives no list of tools: see that its url answers MCP over streamable HTTP, and that its headers hold a credential that it takes
    fault: globex/shop: can't be reached, or gives no list of tools: see that its url answers MCP over streamable HTTP, and that its headers hold a credential that it takes
    "#);
}

#[tokio::test]
async fn a_database_that_cannot_serve_is_found() {
    let world = World::prepare(RULES).await;
    let acme = world.read("policy/acme/team.toml");
    world.write(
        "policy/acme/team.toml",
        &acme.replace("slack = [\"main/U0GIL00001\"]", "slack = [\"main/U0CYD00001\"]"),
    );
    world.write(
        "policy/globex/team.toml",
        "[[rules]]\nname = \"all\"\ntools = [\"shop/*\"]\ndecision = \"deny\"\n",
    );
    let good = world.read("undersign.toml");
    let mut said = format!("no schema\n{}\n", bad(&world).await);
    world.write("undersign.toml", &good.replace("max_connections = 12", "migrate = false"));
    writeln!(said, "no schema, migrate = false\n{}", bad(&world).await).unwrap();
    world.write("secrets/url", "postgres://nobody:canary@127.0.0.1:1/none");
    world.write("undersign.toml", &good.replace("{ env = \"DATABASE_URL\" }", "{ file = \"secrets/url\" }"));
    writeln!(said, "not there\n{}", bad(&world).await).unwrap();
    assert!(!said.contains("canary"), "{said}");
    insta::assert_snapshot!(said, @r#"
    no schema
    warning: database: database error 42P01; `undersign serve` would migrate it, or refuse to start
    no schema, migrate = false
    fault: database: database error 42P01
    not there
    fault: database: the database does not answer: see that database.url is right, and that Postgres takes connections from here
    "#);
}

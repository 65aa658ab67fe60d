//! What careless operators write (THREATS.md group O and N07): refused at start, all at once, each with file, key and
//! what to write instead, and never a secret's value. Whoever changes a message here reads it as somebody who has never
//! seen the product.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use undersign::config::{self, Config, LoadError};

const SERVER: &str = r#"
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
policy = "policy"
[tenants.acme.agents.support-bot]
key_sha256 = ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
owner = "ana"
[tenants.acme.upstreams.shop]
url = "http://127.0.0.1:9001/mcp"
headers = { Authorization = { env = "SHOP_AUTHORIZATION" } }
"#;

const TEAM: &str = r#"
[thresholds]
refund_auto = 5000
[people.ana]
slack = ["main/U0ANA"]
[people.ben]
slack = ["main/U0BEN"]
[groups.payments]
people = ["ana", "ben"]
[[rules]]
name = "read-only"
tools = ["shop/get_*"]
decision = "allow"
[[rules]]
name = "refunds"
tools = ["shop/refund_order"]
when = "args.amount_cents > thresholds.refund_auto"
decision = "require_approval"
approvers = [{ group = "payments", count = 1 }]
post_to = ["slack:main/C0PAY"]
"#;

/// What no message may repeat.
const SIGNING_SECRET: &str = "canary1signing2secret3of4digits5";

/// The files of one configuration, gone afterwards.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Files {
    fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let files =
            Self(std::env::temp_dir().join(format!("undersign-operators-{}-{serial}", std::process::id())));
        files.write("secrets/k1", "canary-token-key-of-32-bytes-0123456789\n", 0o640);
        files.write("undersign.toml", SERVER, 0o644);
        files.write("policy/payments.toml", TEAM, 0o644);
        files
    }

    fn write(&self, path: &str, content: &str, mode: u32) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        self.chmod(path.strip_prefix(&self.0).unwrap().to_str().unwrap(), mode);
    }

    fn chmod(&self, path: &str, mode: u32) {
        std::fs::set_permissions(self.0.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn load(&self) -> Result<Config, LoadError> {
        self.load_in(&|name| environment(name, SIGNING_SECRET))
    }

    fn load_in(&self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Config, LoadError> {
        config::load_with(&self.0.join("undersign.toml"), lookup)
    }

    /// What `check` says, without this test's directory.
    fn said(&self, loaded: Result<Config, LoadError>) -> String {
        let lines = match loaded {
            Ok(config) => {
                let real = config.warnings.iter().filter(|warning| !warning.message.contains("environment"));
                let warnings: Vec<_> = real.map(|warning| format!("warning: {warning}")).collect();
                if warnings.is_empty() { "accepted".to_owned() } else { warnings.join("\n     ") }
            }
            Err(error) => error.faults().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n     "),
        };
        assert!(!lines.contains("canary"), "{lines}");
        lines.replace(&format!("{}/", self.0.display()), "")
    }

    /// One entry for each edit of the server's file: what was written, and what came of it.
    fn server(&self, edits: &[(&str, &str)]) -> String {
        self.table("undersign.toml", SERVER, edits)
    }

    /// The same for the team's file.
    fn team(&self, edits: &[(&str, &str)]) -> String {
        self.table("policy/payments.toml", TEAM, edits)
    }

    fn table(&self, path: &str, base: &str, edits: &[(&str, &str)]) -> String {
        let mut lines = Vec::new();
        for (from, to) in edits {
            assert!(base.contains(from), "{from}");
            self.write(path, &base.replacen(from, to, 1), 0o644);
            lines.push(format!("{}\n  -> {}", to.trim().replace('\n', "; "), self.said(self.load())));
        }
        self.write(path, base, 0o644);
        lines.join("\n")
    }
}

fn environment(name: &str, signing_secret: &str) -> Option<String> {
    let value = match name {
        "DATABASE_URL" => "postgres://undersign:canary-password@db.example/undersign",
        "SLACK_SIGNING_SECRET" => signing_secret,
        "SLACK_BOT_TOKEN" => "xoxb-canary-token",
        "SHOP_AUTHORIZATION" => "Bearer canary-credential",
        _ => return None,
    };
    Some(value.to_owned())
}

#[test]
fn o01_a_signing_secret_that_is_none_and_a_gated_tool_without_a_chat_are_refused() {
    let files = Files::new();
    assert_eq!(files.said(files.load()), "accepted");
    let refused = |secret: &str| {
        let said = files.said(files.load_in(&|name| environment(name, secret)));
        assert!(secret.is_empty() || !said.contains(secret.trim()), "{said}");
        format!("{secret:?}\n  -> {said}")
    };
    let secrets = [
        "",
        "too-short-15-ch",
        "3c59dc048e8850243be8079a5c74d079\n",
        "changeme-changeme",
        "your-secret-here",
        "xxxxxxxxxxxxxxxxxxxx",
        "8f742231b10e8888abcd99yyyzzz85a5",
    ];
    insta::assert_snapshot!(secrets.map(refused).join("\n"), @r#"
    ""
      -> undersign.toml: slack.main.signing_secret: is empty: put the secret there
    "too-short-15-ch"
      -> undersign.toml: slack.main.signing_secret: is too short: put the whole secret there, which has at least 16 characters
    "3c59dc048e8850243be8079a5c74d079\n"
      -> undersign.toml: slack.main.signing_secret: has white space around it, or a line end or control character in it (one line end at the end of a file is taken off): remove that
    "changeme-changeme"
      -> undersign.toml: slack.main.signing_secret: is a placeholder: put the real secret there
    "your-secret-here"
      -> undersign.toml: slack.main.signing_secret: is a placeholder: put the real secret there
    "xxxxxxxxxxxxxxxxxxxx"
      -> undersign.toml: slack.main.signing_secret: is a placeholder: put the real secret there
    "8f742231b10e8888abcd99yyyzzz85a5"
      -> undersign.toml: slack.main.signing_secret: is the example of public documentation: put the real secret there
    "#);
    files.write("secrets/signing", "3c59dc048e8850243be8079a5c74d079 \n", 0o600);
    let signing = "{ env = \"SLACK_SIGNING_SECRET\" }";
    let slack = "[slack.main]\nteam_id = \"T0ACME\"\napp_id = \"A0UNDERSIGN\"\nsigning_secret = { env = \"SLACK_SIGNING_SECRET\" }\nbot_token = { env = \"SLACK_BOT_TOKEN\" }\n";
    insta::assert_snapshot!(files.server(&[
        (signing, "{ env = \"SLACK_SECRET\" }"),
        (signing, "{ file = \"secrets/signing\" }"),
        (signing, "{ file = \"secrets/none\" }"),
        (signing, "[]"),
        (signing, "\"3c59dc048e8850243be8079a5c74d079\""),
        ("signing_secret = { env = \"SLACK_SIGNING_SECRET\" }\n", ""),
        (slack, ""),
        (slack, "[discord.ops]\npublic_key = \"00\"\n"),
        ("[slack.main]", &format!("{}\n[slack.main]", slack.replace("main", "twin"))),
    ]), @r#"
    { env = "SLACK_SECRET" }
      -> undersign.toml: slack.main.signing_secret: the environment variable SLACK_SECRET is not set: set it for this process, or name another
    { file = "secrets/signing" }
      -> undersign.toml: slack.main.signing_secret: has white space around it, or a line end or control character in it (one line end at the end of a file is taken off): remove that
    { file = "secrets/none" }
      -> undersign.toml: slack.main.signing_secret: the file can't be read: entity not found; its path is relative to this file's directory
    []
      -> undersign.toml: slack.main.signing_secret: must be one secret, or a list of two during a rotation
    "3c59dc048e8850243be8079a5c74d079"
      -> undersign.toml: slack.main.signing_secret: must be { file = "…" } or { env = "…" }: a secret is never written here itself

      -> undersign.toml: slack.main.signing_secret: is missing: add signing_secret = { env = "SLACK_SIGNING_SECRET" }

      -> policy/payments.toml: people.ana.slack: there is no installation 'main': add [slack.main] to the server's configuration
         policy/payments.toml: people.ben.slack: there is no installation 'main': add [slack.main] to the server's configuration
         policy/payments.toml: rules.refunds.post_to: there is no installation 'main': add [slack.main] to the server's configuration
    [discord.ops]; public_key = "00"
      -> undersign.toml: discord: is not available in this version: remove it
         policy/payments.toml: people.ana.slack: there is no installation 'main': add [slack.main] to the server's configuration
         policy/payments.toml: people.ben.slack: there is no installation 'main': add [slack.main] to the server's configuration
         policy/payments.toml: rules.refunds.post_to: there is no installation 'main': add [slack.main] to the server's configuration
    [slack.twin]; team_id = "T0ACME"; app_id = "A0UNDERSIGN"; signing_secret = { env = "SLACK_SIGNING_SECRET" }; bot_token = { env = "SLACK_BOT_TOKEN" }; ; [slack.main]
      -> undersign.toml: slack.twin.app_id: is the same app in the same workspace as [slack.main]: keep one of the two
    "#);
}

#[test]
fn o02_approvers_that_are_nobody_or_everybody_or_too_few_are_refused() {
    let files = Files::new();
    let (group, approvers) = ("people = [\"ana\", \"ben\"]", "[{ group = \"payments\", count = 1 }]");
    let place = "[\"slack:main/C0PAY\"]";
    insta::assert_snapshot!(files.team(&[
        (group, ""),
        (group, "people = []"),
        (group, "people = [\"*\"]"),
        (group, "people = [\"anna\"]"),
        (group, "people = [\"ana\"]"),
        (group, "people = [\"ana\"]\nslack_usergroups = [\"main/S0PAY\"]"),
        (group, "slack_usergroups = [\"main/*\"]"),
        (group, "slack_usergroups = [\"S0PAY\"]"),
        (group, "slack_usergroups = [\"other/S0PAY\"]"),
        ("[groups.payments]", "[groups.\"*\"]"),
        ("[\"main/U0BEN\"]", "[\"main/@ben\"]"),
        ("[\"main/U0BEN\"]", "[\"main/U0ANA\"]"),
        ("[\"main/U0BEN\"]", "[]"),
        (approvers, "[]"),
        (approvers, "[{ group = \"*\" }]"),
        (approvers, "[{ group = \"payment\" }]"),
        (approvers, "[{ group = \"payments\", count = 0 }]"),
        (approvers, "[{ group = \"payments\", count = -1 }]"),
        (approvers, "[{ group = \"payments\", count = 2 }]"),
        (approvers, "[{ group = \"payments\", count = 3 }]"),
        (approvers, "[{ group = \"payments\", count = 2 }]\nseparate_proposer = false"),
        (approvers, "{ group = \"payments\" }"),
        (place, "[]"),
        (place, "[\"*\"]"),
        (place, "[\"#payments\"]"),
        (place, "[\"slack:main/#payments\"]"),
        (place, "[\"slack:other/C0PAY\"]"),
    ]), @r##"

      -> policy/payments.toml: groups.payments: is empty, and nobody could approve: add people = ["…"] or slack_usergroups = ["NAME/S…"]
    people = []
      -> policy/payments.toml: groups.payments: is empty, and nobody could approve: add people = ["…"] or slack_usergroups = ["NAME/S…"]
    people = ["*"]
      -> policy/payments.toml: groups.payments.people: '*' stands for nobody: name each person, or use slack_usergroups
    people = ["anna"]
      -> policy/payments.toml: groups.payments.people: 'anna' is nobody: add [people.anna], or correct the name
    people = ["ana"]
      -> policy/payments.toml: rules.refunds.approvers: asks for 1 of payments, which has 1; the agent support-bot works for ana, who can't approve its calls, and without ana nobody could: add people, or set separate_proposer = false
    people = ["ana"]; slack_usergroups = ["main/S0PAY"]
      -> accepted
    slack_usergroups = ["main/*"]
      -> policy/payments.toml: groups.payments.slack_usergroups: 'main/*' is not a user group: write "NAME/S…", the name of [slack.NAME] and the user group's id
    slack_usergroups = ["S0PAY"]
      -> policy/payments.toml: groups.payments.slack_usergroups: 'S0PAY' is not a user group: write "NAME/S…", the name of [slack.NAME] and the user group's id
    slack_usergroups = ["other/S0PAY"]
      -> policy/payments.toml: groups.payments.slack_usergroups: there is no installation 'other': add [slack.other] to the server's configuration
    [groups."*"]
      -> policy/payments.toml: groups.*: must be named in 1 to 64 visible characters, without '*' and without white space around them
         policy/payments.toml: rules.refunds.approvers: there is no group 'payments': add [groups.payments], or correct the name
    ["main/@ben"]
      -> policy/payments.toml: people.ben.slack: 'main/@ben' is not an account: write "NAME/U…", the name of [slack.NAME] and the person's member id
    ["main/U0ANA"]
      -> policy/payments.toml: people.ben.slack: 'main/U0ANA' is ana's account already: keep it with one of the two, as people are counted and not accounts
    []
      -> policy/payments.toml: people.ben: has no account: add slack = ["NAME/U…"], the name of [slack.NAME] and the person's member id
    []
      -> policy/payments.toml: rules.refunds.approvers: is empty: write approvers = [{ group = "…", count = 1 }]
    [{ group = "*" }]
      -> policy/payments.toml: rules.refunds.approvers: '*' stands for no group: write the name of one of [groups.NAME]
    [{ group = "payment" }]
      -> policy/payments.toml: rules.refunds.approvers: there is no group 'payment': add [groups.payment], or correct the name
    [{ group = "payments", count = 0 }]
      -> policy/payments.toml: rules.refunds.approvers: asks for 0 of payments: count must be from 1 to 100
    [{ group = "payments", count = -1 }]
      -> policy/payments.toml: rules.refunds.approvers.count: must be a whole number, such as 1
    [{ group = "payments", count = 2 }]
      -> policy/payments.toml: rules.refunds.approvers: asks for 2 of payments, which has 2; the agent support-bot works for ana, who can't approve its calls, and without ana nobody could: add people, or set separate_proposer = false
    [{ group = "payments", count = 3 }]
      -> policy/payments.toml: rules.refunds.approvers: asks for 3 of payments, which has 2: different people could never meet that; lower a count or add people
    [{ group = "payments", count = 2 }]; separate_proposer = false
      -> accepted
    { group = "payments" }
      -> policy/payments.toml: rules.refunds.approvers: must be a list of tables, each below a heading in [[…]] or within [{ … }], such as [{ group = "payments", count = 1 }]
    []
      -> policy/payments.toml: rules.refunds.post_to: is empty, and nobody could be asked: write post_to = ["slack:NAME/C…"], the name of [slack.NAME] and the channel's id
    ["*"]
      -> policy/payments.toml: rules.refunds.post_to: '*' is not a place: write "slack:NAME/C…", the name of [slack.NAME] and the channel's id
    ["#payments"]
      -> policy/payments.toml: rules.refunds.post_to: '#payments' is not a place: write "slack:NAME/C…", the name of [slack.NAME] and the channel's id
    ["slack:main/#payments"]
      -> policy/payments.toml: rules.refunds.post_to: 'slack:main/#payments' is not a place: write "slack:NAME/C…", the name of [slack.NAME] and the channel's id
    ["slack:other/C0PAY"]
      -> policy/payments.toml: rules.refunds.post_to: there is no installation 'other': add [slack.other] to the server's configuration
    "##);
    insta::assert_snapshot!(files.server(&[("owner = \"ana\"", "owner = \"zoe\"")]), @r#"
    owner = "zoe"
      -> undersign.toml: tenants.acme.agents.support-bot.owner: is nobody of the policy's [people]: add [people.NAME] to a policy file, or correct the name
    "#);
    // For an agent of somebody else's, Ana alone is enough.
    let one = TEAM.replace("[\"ana\", \"ben\"]", "[\"ana\"]");
    files.write(
        "policy/payments.toml",
        &one.replace("args.amount_cents >", "agent != 'support-bot' && args.amount_cents >"),
        0o644,
    );
    assert_eq!(files.said(files.load()), "accepted");
    files.write("policy/payments.toml", &one, 0o644);
    assert_eq!(files.server(&[("owner = \"ana\"", "")]), "\n  -> accepted");
}

#[test]
fn o03_unknown_keys_and_names_that_are_there_twice_are_refused_and_idle_rules_are_told() {
    let files = Files::new();
    insta::assert_snapshot!(files.server(&[
        ("[server]", "colour = \"blue\"\n[server]"),
        ("agents_listen", "agent_listen"),
        ("bot_token", "bottoken"),
        ("[tenants.acme]", "[tenant.acme]"),
        ("owner", "Owner"),
        ("[server]", "[server"),
    ]), @r#"
    colour = "blue"; [server]
      -> undersign.toml: colour: is not a known key: remove it, or correct its spelling
    agent_listen
      -> undersign.toml: server.agent_listen: is not a known key: did you mean agents_listen?
    bottoken
      -> undersign.toml: slack.main.bot_token: is missing: add bot_token = { env = "SLACK_BOT_TOKEN" }
         undersign.toml: slack.main.bottoken: is not a known key: did you mean bot_token?
    [tenant.acme]
      -> undersign.toml: tenant: is not a known key: did you mean tenants?
         undersign.toml: tenants.acme.policy: is missing: add policy = "policy/acme"
    Owner
      -> undersign.toml: tenants.acme.agents.support-bot.Owner: is not a known key: did you mean owner?
    [server
      -> undersign.toml: line 2 is not TOML: unclosed table, expected `]`
    "#);
    insta::assert_snapshot!(files.team(&[
        ("post_to", "post-to"),
        ("[[rules]]", "[[rule]]"),
        ("[[rules]]\nname = \"read-only\"", "[rules]\nname = \"read-only\""),
        ("decision = \"allow\"", "decision = \"permit\""),
        ("decision = \"allow\"", "decision = \"allow\"\nexpires = \"10m\""),
        ("name = \"read-only\"", ""),
        ("name = \"read-only\"", "name = \"refunds\""),
        ("[thresholds]", "[thresholds]\n\"refund-max\" = 1"),
        ("refund_auto = 5000", "refund_auto = \"5000\""),
        ("shop/get_*", "files/get_*"),
        ("shop/get_*", "get_*"),
        ("thresholds.refund_auto", "thresholds.refund_limit"),
        ("args.amount_cents > thresholds", "amount > thresholds"),
        ("post_to = [\"slack:main/C0PAY\"]", "post_to = [\"slack:main/C0PAY\"]\n[rules.preview]\ntitle = \"Refund {{ order }}\""),
    ]), @r#"
    post-to
      -> policy/payments.toml: rules.refunds.post_to: is missing: add post_to = ["slack:main/C0PAY"]
         policy/payments.toml: rules.refunds.post-to: is not a known key: did you mean post_to?
    [[rule]]
      -> policy/payments.toml: rule: is not a known key: did you mean rules?
    [rules]; name = "read-only"
      -> policy/payments.toml: line 14 is not TOML: duplicate key
    decision = "permit"
      -> policy/payments.toml: rules.read-only.decision: must be "allow", "require_approval" or "deny"
    decision = "allow"; expires = "10m"
      -> policy/payments.toml: rules.read-only.expires: means nothing with decision = "allow": remove it

      -> policy/payments.toml: rules[0].name: is missing: every rule needs a name of its own, such as name = "large-refunds"
    name = "refunds"
      -> policy/payments.toml: rules.refunds: is defined in policy/payments.toml already: keep one of the two
    [thresholds]; "refund-max" = 1
      -> policy/payments.toml: thresholds.refund-max: can't be named in a condition: use letters, digits and '_', not beginning with a digit
    refund_auto = "5000"
      -> policy/payments.toml: thresholds.refund_auto: must be a number
    files/get_*
      -> policy/payments.toml: rules.read-only.tools: 'files/get_*' is for no upstream of this tenant: add [tenants.NAME.upstreams.files] to the server's configuration, or name another
    get_*
      -> policy/payments.toml: rules.read-only.tools: 'get_*' must be "upstream/tool", where '*' stands for any text without '/'
    thresholds.refund_limit
      -> policy/payments.toml: rules.refunds.when: uses thresholds.refund_limit: add refund_limit to [thresholds]
    amount > thresholds
      -> policy/payments.toml: rules.refunds.when: uses amount; known are args, thresholds, agent, tenant, tool, environment
    post_to = ["slack:main/C0PAY"]; [rules.preview]; title = "Refund {{ order }}"
      -> policy/payments.toml: rules.refunds.preview.title: uses order; known are args and thresholds
    "#);
    files.write("policy/legal.toml", "[people.ana]\nslack = [\"main/U0ANN\"]\n[[rules]]\nname = \"refunds\"\ntools = [\"shop/x\"]\ndecision = \"deny\"\n", 0o644);
    insta::assert_snapshot!(files.said(files.load()), @r#"
    policy/payments.toml: people.ana: is defined in policy/legal.toml already: keep one of the two
         policy/payments.toml: rules.refunds: is defined in policy/legal.toml already: keep one of the two
    "#);
    std::fs::remove_file(files.0.join("policy/legal.toml")).unwrap();

    let rule = "[[rules]]\nname = \"read-only\"";
    let deny = |tools: &str| {
        format!("[[rules]]\nname = \"never\"\ntools = [\"{tools}\"]\ndecision = \"deny\"\n{rule}")
    };
    let (all, some, exact) = (deny("shop/*"), deny("shop/refund_[ab]"), deny("shop/refund_order"));
    insta::assert_snapshot!(files.team(&[
        (rule, &all),
        (rule, &some),
        (rule, &exact),
        ("tools = [\"shop/get_*\"]", "tools = [\"shop/get_*\"]\nwhen = \"1 > 2\""),
        ("tools = [\"shop/get_*\"]", "tools = [\"shop/get_*\"]\nwhen = \"true\""),
        ("when = \"args.amount_cents > thresholds.refund_auto\"", "when = \"args.amount_cents > 5000\""),
        ("tools = [\"shop/refund_order\"]\nwhen = \"args.amount_cents > thresholds.refund_auto\"", "tools = [\"shop/*\"]"),
        ("[groups.payments]", "[groups.legal]\npeople = [\"ben\"]\n[groups.payments]"),
    ]), @r#"
    [[rules]]; name = "never"; tools = ["shop/*"]; decision = "deny"; [[rules]]; name = "read-only"
      -> warning: policy/payments.toml: rules.read-only: can never decide anything, as the rule 'never' denies all of its tools, always: narrow the tools there, or remove this rule
         warning: policy/payments.toml: rules.refunds: can never decide anything, as the rule 'never' denies all of its tools, always: narrow the tools there, or remove this rule
    [[rules]]; name = "never"; tools = ["shop/refund_[ab]"]; decision = "deny"; [[rules]]; name = "read-only"
      -> accepted
    [[rules]]; name = "never"; tools = ["shop/refund_order"]; decision = "deny"; [[rules]]; name = "read-only"
      -> warning: policy/payments.toml: rules.refunds: can never decide anything, as the rule 'never' denies all of its tools, always: narrow the tools there, or remove this rule
    tools = ["shop/get_*"]; when = "1 > 2"
      -> warning: policy/payments.toml: rules.read-only.when: never holds, so the rule can never match: correct it, or remove the rule
    tools = ["shop/get_*"]; when = "true"
      -> warning: policy/payments.toml: rules.read-only.when: always holds: remove it
    when = "args.amount_cents > 5000"
      -> warning: policy/payments.toml: thresholds.refund_auto: is used by no rule: use it in a condition or a preview, or remove it
    tools = ["shop/*"]
      -> warning: policy/payments.toml: rules.read-only: changes nothing, as the rule 'refunds' asks people about all of its tools, always, and an allow never loosens that: narrow the tools there or give it a when, or remove this rule
         warning: policy/payments.toml: thresholds.refund_auto: is used by no rule: use it in a condition or a preview, or remove it
    [groups.legal]; people = ["ben"]; [groups.payments]
      -> warning: policy/payments.toml: groups.legal: is asked by no rule: name it in approvers, or remove it
    "#);
}

#[test]
fn o04_a_public_address_without_agents_and_open_files_are_refused() {
    let files = Files::new();
    let agents = "[tenants.acme.agents.support-bot]\nkey_sha256 = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]\nowner = \"ana\"\n";
    let hash = "[\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]";
    insta::assert_snapshot!(files.server(&[
        ("agents_listen = \"127.0.0.1:8080\"", "agents_listen = \"0.0.0.0:8080\""),
        ("http://127.0.0.1:8080", "http://gate.example"),
        ("agents_listen = \"127.0.0.1:8080\"", "admin_listen = \"0.0.0.0:9090\""),
        (agents, ""),
        (hash, "[\"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"]"),
        (hash, "[\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"]"),
        (hash, "[\"usk_canary\"]"),
    ]), @r#"
    agents_listen = "0.0.0.0:8080"
      -> warning: undersign.toml: server.public_url: is an address on this machine, and agents_listen is open to others: write the address that they use
    http://gate.example
      -> warning: undersign.toml: server.public_url: is plain http to another host, and agents send their keys there: put TLS in front, and write https
    admin_listen = "0.0.0.0:9090"
      -> undersign.toml: server.admin_listen: must be a loopback address: it has no authentication

      -> undersign.toml: tenants.acme.agents: is missing: add [tenants.acme.agents.NAME] with key_sha256
    ["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
      -> undersign.toml: tenants.acme.agents.support-bot.key_sha256: is the hash of a word that anybody could guess: make a key with `undersign agent-key`
    ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
      -> undersign.toml: tenants.acme.agents.support-bot.key_sha256: is the hash of a word that anybody could guess: make a key with `undersign agent-key`
    ["usk_canary"]
      -> undersign.toml: tenants.acme.agents.support-bot.key_sha256: must be 64 hex digits, as `undersign agent-key` prints them
    "#);
    let public = SERVER.replace("127.0.0.1:8080", "0.0.0.0:8080").replace(agents, "");
    files.write("undersign.toml", &public, 0o644);
    insta::assert_snapshot!(files.said(files.load()), @r#"
    undersign.toml: server.agents_listen: is open to others and no agent is configured: add [tenants.NAME.agents.NAME] with key_sha256, or listen on 127.0.0.1
         undersign.toml: tenants.acme.agents: is missing: add [tenants.acme.agents.NAME] with key_sha256
    "#);
    files.write("undersign.toml", SERVER, 0o644);
    let mut lines = Vec::new();
    for (path, mode, back) in [
        ("secrets/k1", 0o604, 0o600),
        ("secrets/k1", 0o602, 0o600),
        ("secrets/k1", 0o660, 0o600),
        ("undersign.toml", 0o646, 0o644),
        ("undersign.toml", 0o664, 0o644),
        ("policy/payments.toml", 0o666, 0o644),
        ("policy", 0o777, 0o755),
        ("policy", 0o775, 0o755),
    ] {
        files.chmod(path, mode);
        lines.push(format!("{path} {mode:o}\n  -> {}", files.said(files.load())));
        files.chmod(path, back);
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    secrets/k1 604
      -> undersign.toml: token_keys[0].secret: the file can be read by everybody: chmod o-rw it
    secrets/k1 602
      -> undersign.toml: token_keys[0].secret: the file can be changed by everybody: chmod o-rw it
    secrets/k1 660
      -> accepted
    undersign.toml 646
      -> undersign.toml: (permissions): can be changed by everybody: chmod o-w it
    undersign.toml 664
      -> accepted
    policy/payments.toml 666
      -> policy/payments.toml: (permissions): can be changed by everybody: chmod o-w it
    policy 777
      -> undersign.toml: tenants.acme.policy: the directory can be changed by everybody: chmod o-w it
    policy 775
      -> accepted
    "#);
}

#[test]
fn o05_a_threshold_has_one_place() {
    let files = Files::new();
    files.write("policy/legal.toml", "[thresholds]\nrefund_auto = 500000\n", 0o644);
    insta::assert_snapshot!(files.said(files.load()), @"policy/payments.toml: thresholds.refund_auto: is defined in policy/legal.toml already: keep one of the two");
    // Caps, which a threshold could be above, are refused by name until they are there.
    files.write("policy/legal.toml", "[[caps]]\nname = \"refunds\"\nabove = [\"refund_auto\"]\n", 0o644);
    insta::assert_snapshot!(files.said(files.load()), @"policy/legal.toml: caps: is not available in this version: remove it");
}

#[test]
fn o06_times_are_within_limits_and_ten_minutes_where_nothing_is_said() {
    let files = Files::new();
    let config = files.load().unwrap();
    let rules: Vec<_> = config.tenants[&"acme".into()].policy.rules().collect();
    let approval = rules.iter().find_map(|rule| rule.approval.as_ref()).unwrap();
    assert_eq!((approval.expires.as_secs(), approval.redeem_within.as_secs()), (600, 600));
    let post_to = "post_to = [\"slack:main/C0PAY\"]";
    let with = |line: &str| format!("{post_to}\n{line}");
    let written = ["0s", "-10m", "9s", "24h 1s", "2d", "10", "soon", "10s", "24h"];
    let mut edits: Vec<_> = written.iter().map(|time| with(&format!("expires = \"{time}\""))).collect();
    edits.push(with("expires = 600"));
    edits.extend(["0s", "-1s", "61m", "1h"].iter().map(|time| with(&format!("redeem_within = \"{time}\""))));
    let edits: Vec<_> = edits.iter().map(|edit| (post_to, edit.as_str())).collect();
    insta::assert_snapshot!(files.team(&edits), @r#"
    post_to = ["slack:main/C0PAY"]; expires = "0s"
      -> policy/payments.toml: rules.refunds.expires: must be from 10s to 24h
    post_to = ["slack:main/C0PAY"]; expires = "-10m"
      -> policy/payments.toml: rules.refunds.expires: must be a duration such as "25s", "10m" or "24h"
    post_to = ["slack:main/C0PAY"]; expires = "9s"
      -> policy/payments.toml: rules.refunds.expires: must be from 10s to 24h
    post_to = ["slack:main/C0PAY"]; expires = "24h 1s"
      -> policy/payments.toml: rules.refunds.expires: must be from 10s to 24h
    post_to = ["slack:main/C0PAY"]; expires = "2d"
      -> policy/payments.toml: rules.refunds.expires: must be from 10s to 24h
    post_to = ["slack:main/C0PAY"]; expires = "10"
      -> policy/payments.toml: rules.refunds.expires: must be a duration such as "25s", "10m" or "24h"
    post_to = ["slack:main/C0PAY"]; expires = "soon"
      -> policy/payments.toml: rules.refunds.expires: must be a duration such as "25s", "10m" or "24h"
    post_to = ["slack:main/C0PAY"]; expires = "10s"
      -> accepted
    post_to = ["slack:main/C0PAY"]; expires = "24h"
      -> accepted
    post_to = ["slack:main/C0PAY"]; expires = 600
      -> policy/payments.toml: rules.refunds.expires: must be a duration such as "25s", "10m" or "24h"
    post_to = ["slack:main/C0PAY"]; redeem_within = "0s"
      -> policy/payments.toml: rules.refunds.redeem_within: must be from 1s to 1h
    post_to = ["slack:main/C0PAY"]; redeem_within = "-1s"
      -> policy/payments.toml: rules.refunds.redeem_within: must be a duration such as "25s", "10m" or "24h"
    post_to = ["slack:main/C0PAY"]; redeem_within = "61m"
      -> policy/payments.toml: rules.refunds.redeem_within: must be from 1s to 1h
    post_to = ["slack:main/C0PAY"]; redeem_within = "1h"
      -> accepted
    "#);
    let url = "url = \"http://127.0.0.1:9001/mcp\"";
    insta::assert_snapshot!(files.server(&[
        (url, &format!("{url}\ntimeout = \"0s\"")),
        (url, &format!("{url}\ntimeout = \"6m\"")),
        (url, &format!("{url}\ntimeout = 30")),
    ]), @r#"
    url = "http://127.0.0.1:9001/mcp"; timeout = "0s"
      -> undersign.toml: tenants.acme.upstreams.shop.timeout: must be from 1s to 5m
    url = "http://127.0.0.1:9001/mcp"; timeout = "6m"
      -> undersign.toml: tenants.acme.upstreams.shop.timeout: must be from 1s to 5m
    url = "http://127.0.0.1:9001/mcp"; timeout = 30
      -> undersign.toml: tenants.acme.upstreams.shop.timeout: must be a duration such as "25s", "10m" or "24h"
    "#);
}

#[test]
fn n07_an_upstream_is_where_its_address_says_and_not_where_secrets_hide() {
    let files = Files::new();
    let addresses = [
        "http://shop.example/mcp",
        "http://10.0.0.1/mcp",
        "https://user:canary@shop.example/mcp",
        "file:///etc/passwd",
        "unix:@abstract",
        "http+unix://%2Frun%2Fshop.sock/mcp",
        "http://169.254.169.254/mcp",
        "https://[fe80::1]/mcp",
        "https://[::ffff:10.0.0.1]/mcp",
        "http://[::ffff:127.0.0.1]/mcp",
        "http://2130706433/mcp",
        "http://0x7f.1/mcp",
        "http://0177.0.0.1/mcp",
        "http://127.1/mcp",
        "http://１２７.0.0.1/mcp",
        "https://metadata.google.internal/mcp",
        "shop.example/mcp",
        "https://shop.example/mcp",
        "http://[::1]:9001/mcp",
    ];
    let good = "\"http://127.0.0.1:9001/mcp\"";
    let plain: Vec<_> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    let edits: Vec<_> = plain.iter().map(|address| (good, address.as_str())).collect();
    insta::assert_snapshot!(files.server(&edits).replace(":canary@", ":…@"), @r#"
    "http://shop.example/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: is plain http to another host: use https, or set allow_insecure = true
    "http://10.0.0.1/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: is plain http to another host: use https, or set allow_insecure = true
    "https://user:…@shop.example/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must not hold a user name or password: use headers
    "file:///etc/passwd"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must begin with https:// or, on this machine, http://
    "unix:@abstract"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must begin with https:// or, on this machine, http://
    "http+unix://%2Frun%2Fshop.sock/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must begin with https:// or, on this machine, http://
    "http://169.254.169.254/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    "https://[fe80::1]/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must not be a link-local, multicast, unspecified or metadata address
    "https://[::ffff:10.0.0.1]/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    "http://[::ffff:127.0.0.1]/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must not have an IPv4 address within an IPv6 one: write the IPv4 address itself
    "http://2130706433/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    "http://0x7f.1/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    "http://0177.0.0.1/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    "http://127.1/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    "http://１２７.0.0.1/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must have its address written with four decimal numbers, such as 127.0.0.1
    "https://metadata.google.internal/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: must not be a metadata service
    "shop.example/mcp"
      -> undersign.toml: tenants.acme.upstreams.shop.url: is not an address, such as "http://127.0.0.1:9001/mcp"
    "https://shop.example/mcp"
      -> accepted
    "http://[::1]:9001/mcp"
      -> accepted
    "#);
    // `allow_insecure` is for plain http alone.
    let insecure: Vec<_> =
        addresses.iter().map(|address| format!("\"{address}\"\nallow_insecure = true")).collect();
    for (address, edit) in addresses.iter().zip(&insecure) {
        let said = files.server(&[(good, edit)]);
        let expected = address.starts_with("https://shop")
            || ["http://shop.example/mcp", "http://10.0.0.1/mcp", "http://[::1]:9001/mcp"].contains(address);
        assert_eq!(said.ends_with("-> accepted"), expected, "{said}");
    }
    let headers = "{ Authorization = { env = \"SHOP_AUTHORIZATION\" } }";
    let ours = [
        "Accept",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
        "Last-Event-ID",
        "Content-Type",
        "Host",
        "Mcp-Name",
        "Content-Length",
        "Transfer-Encoding",
        "Keep-Alive",
    ];
    for header in ours {
        let said =
            files.server(&[(headers, &format!("{{ {header} = {{ env = \"SHOP_AUTHORIZATION\" }} }}"))]);
        assert!(
            said.ends_with(&format!("headers.{header}: is set by undersign itself: remove it")),
            "{said}"
        );
    }
}

#[test]
fn o09_the_program_has_no_switch_for_tests_and_check_prints_the_policy_in_force() {
    // Each is a whole word of the tools that such switches are made with, or of routes that debuggers have.
    const SUSPECT: [&str; 9] = [
        "FAILPOINTS",
        "failpoint",
        "test_clock",
        "TEST_CLOCK",
        "fake_time",
        "/debug/pprof",
        "/debug/vars",
        "/test/clock",
        "tokio-console",
    ];
    let binary = env!("CARGO_BIN_EXE_undersign");
    let bytes = std::fs::read(binary).unwrap();
    let strings = String::from_utf8_lossy(&bytes);
    for word in SUSPECT {
        assert!(!strings.contains(word), "{word} is in the program");
    }
    assert!(strings.contains("/callbacks/slack/"), "the scan sees strings");
    let routes: Vec<_> = undersign::http::ROUTES.iter().map(|(_, path, _)| *path).collect();
    let known = ["/mcp", "/callbacks/", "/healthz", "/readyz", "/metrics"];
    for route in &routes {
        assert!(known.iter().any(|known| route.starts_with(known)), "{route} is no route of the contract");
    }

    let files = Files::new();
    let output = Command::new(binary)
        .args(["check", "--config"])
        .arg(files.0.join("undersign.toml"))
        .env_clear()
        .envs(
            ["DATABASE_URL", "SLACK_SIGNING_SECRET", "SLACK_BOT_TOKEN", "SHOP_AUTHORIZATION"]
                .map(|name| (name, environment(name, SIGNING_SECRET).unwrap())),
        )
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !said.contains("canary"), "{said}");
    insta::assert_snapshot!(said.replace(&format!("{}/", files.0.display()), ""), @r#"
    tenant acme
      agents     support-bot (works for ana)
      upstreams  shop
      groups
        payments: ana, ben
      thresholds
        refund_auto = 5000
      limits
        asks     5 a minute; waiting at most 20 of one agent
        denials  3 within 10m pause an agent for 10m; each is remembered for 1day
        alerts   nobody
      rules
        read-only: allow for shop/get_*
        refunds: require_approval for shop/refund_order
          when    args.amount_cents > thresholds.refund_auto
          risk    high
          needs   1 of payments, not the agent's owner
          asks    slack:main/C0PAY
          within  10m to decide, 10m to redeem
      tools
        shop/get_*
          allowed (read-only)
        shop/refund_order
          needs 1 of payments when args.amount_cents > thresholds.refund_auto (refunds)
          otherwise not_allowed
        every other tool: not_allowed
    warning: undersign.toml: secrets come from the environment (DATABASE_URL, SHOP_AUTHORIZATION, SLACK_BOT_TOKEN, SLACK_SIGNING_SECRET), which every process of this user and every crash report may read: { file = "…" } with mode 0600 keeps them closer
    no faults, 1 warning
    "#);
}

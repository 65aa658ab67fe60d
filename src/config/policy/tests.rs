use std::fmt::Write as _;

use serde_json::json;

use super::*;
use crate::domain::ids::{AgentName, ToolName, UpstreamName};
use crate::domain::policy::{CallFacts, Decision};

/// Everything of a policy file that this version has.
const TEAM: &str = r#"
[thresholds]
refund_auto = 5000
refund_cap  = 100000

[people.ana]
slack = ["main/U0ANA"]
[people.ben]
slack = ["main/W0BEN"]

[groups.payments]
people           = ["ana", "ben"]
slack_usergroups = ["main/S0PAY"]

[[rules]]
name     = "read-only"
tools    = ["shop/get_*", "shop/list_*"]
decision = "allow"

[[rules]]
name     = "large-refunds"
tools    = ["shop/refund_order"]
when     = "args.amount_cents > thresholds.refund_auto"
decision = "require_approval"
risk     = "high"
approvers = [{ group = "payments", count = 1 }]
separate_proposer = true
post_to  = ["slack:main/C0PAY"]
expires  = "10m"
redeem_within = "10m"

[rules.preview]
title      = "Refund order {{ args.order_id }}"
target     = "order {{ args.order_id }}"
effect     = "pays {{ args.amount_cents }} cents back"
impact     = "{{ args.amount_cents }} cents of at most {{ thresholds.refund_cap }} a day"
data_out   = "nothing leaves the shop"
reversible = "no"
"#;

fn known() -> Known {
    Known { slack: ["main".into()].into(), upstreams: ["shop".into()].into(), ..Known::default() }
}

/// A directory of policy files that is gone afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("undersign-policy-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Self(path)
    }

    fn load(&self) -> Result<Policy, String> {
        load("acme".into(), &self.0, &known()).map_err(|faults| {
            let lines: Vec<_> = faults.iter().map(ToString::to_string).collect();
            lines.join("\n").replace(&self.0.display().to_string(), "DIR")
        })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_whole_of_a_policy_file_loads_and_means_what_it_says() {
    let policy =
        Directory::new("whole", &[("team.toml", TEAM), ("notes.txt", "not a policy")]).load().unwrap();
    let (agent, upstream, tool): (AgentName, UpstreamName, ToolName) =
        ("bot".into(), "shop".into(), "refund_order".into());
    let arguments = json!({"order_id": "A-17", "amount_cents": 12_000});
    let decision = policy.decide(&CallFacts {
        agent: &agent,
        owner: None,
        upstream: &upstream,
        upstream_address: "http://shop/mcp",
        environment: None,
        tool: &tool,
        arguments: arguments.as_object().unwrap(),
    });
    let Decision::RequireApproval(gate) = decision else { panic!("{decision:?}") };
    assert_eq!(gate.requirement.in_words(), "1 of payments");
    assert_eq!((gate.risk, gate.expires, gate.redeem_within), (Risk::High, EXPIRES, REDEEM_WITHIN));
    assert_eq!(gate.post_to[0].to_string(), "slack:main/C0PAY");
    let call =
        crate::domain::call::Arguments::parse(Some(arguments.to_string().as_bytes())).unwrap().arguments;
    let preview = gate.preview(&call, policy.thresholds(), "shop/refund_order");
    assert_eq!(preview.title, "Refund order A-17");
    assert_eq!(preview.impact.as_deref(), Some("12000 cents of at most 100000 a day"));
}

#[test]
fn what_a_rule_does_not_say_is_the_strict_choice() {
    let (definition, faults) = read(
        "team.toml",
        "[[rules]]\nname = 'r'\ntools = ['shop/x']\ndecision = 'require_approval'\napprovers = [{ group = 'pay' }]\npost_to = []",
    );
    assert_eq!(faults, []);
    let EffectDefinition::RequireApproval(approval) = &definition.unwrap().rules[0].effect else { panic!() };
    assert_eq!((approval.risk, approval.separate_proposer), (Risk::High, true));
    assert_eq!((approval.expires, approval.redeem_within), (EXPIRES, REDEEM_WITHIN));
    assert_eq!(approval.approvers, [("pay".to_owned(), 1)]);
}

#[test]
fn keys_of_other_versions_are_refused_by_name() {
    let of_a_rule = [
        "second_look = '5s'",
        "audit_forwarded = 'sync'",
        "step_up = 'totp'",
        "remind_after = '3m'",
        "escalate = { after = '5m' }",
        "idempotency_argument = 'key'",
        "facts.order = { tool = 'shop/get_order' }",
        "preconditions = { unchanged = ['/order/version'] }",
        "reconcile = { fact = 'order' }",
        "undo = { tool = 'shop/cancel_refund' }",
    ];
    let mut texts: Vec<String> = of_a_rule
        .iter()
        .map(|key| TEAM.replace("\n[rules.preview]", &format!("\n{key}\n[rules.preview]")))
        .collect();
    for (before, key) in [
        ("[people.ben]", "discord = ['ops/1']"),
        ("[people.ben]", "subjects = ['ana@acme.example']"),
        ("[people.ben]", "totp = { file = 'x' }"),
        ("[[rules]]", "discord_roles = ['ops/1']"),
        ("[[rules]]", "[[caps]]\nname = 'refunds'"),
    ] {
        texts.push(TEAM.replacen(before, &format!("{key}\n{before}"), 1));
    }
    texts.push(format!("{TEAM}must_show = ['/amount']"));
    texts.push(format!("{TEAM}redact = ['/card']"));
    texts.push(TEAM.replace("slack:main/C0PAY", "discord:ops/15"));
    let mut said = String::new();
    for text in texts {
        let faults = Directory::new("others", &[("team.toml", &text)]).load().unwrap_err();
        let fault = faults.lines().find(|line| line.contains("not available")).unwrap_or(&faults);
        writeln!(said, "{}", fault.trim_start_matches("DIR/")).unwrap();
    }
    insta::assert_snapshot!(said, @r#"
    team.toml: rules.large-refunds.second_look: is not available in this version: remove it
    team.toml: rules.large-refunds.audit_forwarded: is not available in this version: remove it
    team.toml: rules.large-refunds.step_up: is not available in this version: remove it
    team.toml: rules.large-refunds.remind_after: is not available in this version: remove it
    team.toml: rules.large-refunds.escalate: is not available in this version: remove it
    team.toml: rules.large-refunds.idempotency_argument: is not available in this version: remove it
    team.toml: rules.large-refunds.facts: is not available in this version: remove it
    team.toml: rules.large-refunds.preconditions: is not available in this version: remove it
    team.toml: rules.large-refunds.reconcile: is not available in this version: remove it
    team.toml: rules.large-refunds.undo: is not available in this version: remove it
    team.toml: people.ana.discord: is not available in this version: remove it
    team.toml: people.ana.subjects: is not available in this version: remove it
    team.toml: people.ana.totp: is not available in this version: remove it
    team.toml: groups.payments.discord_roles: is not available in this version: remove it
    team.toml: caps: is not available in this version: remove it
    team.toml: rules.large-refunds.preview.must_show: is not available in this version: remove it
    team.toml: rules.large-refunds.preview.redact: is not available in this version: remove it
    team.toml: rules.large-refunds.post_to: 'discord:ops/15': Discord is not available in this version
    "#);
}

#[test]
fn the_faults_of_all_files_come_at_once() {
    let broken = TEAM
        .replace("risk     = \"high\"", "risk = \"huge\"")
        .replace("expires  = \"10m\"", "expires = \"25h\"");
    let directory = Directory::new(
        "faults",
        &[
            ("a.toml", "[groups.legal]\npeople = [\"zoe\"]\n[groups.empty]\n"),
            ("b.toml", &broken),
            ("c.toml", "[[rules]]\nname = "),
            (
                "d.toml",
                "[[rules]]\nname = \"read-only\"\ntools = []\ndecision = \"deny\"\nwhen = \"x > thresholds.y\"",
            ),
        ],
    );
    std::fs::create_dir(directory.0.join("e.toml")).unwrap();
    insta::assert_snapshot!(directory.load().unwrap_err(), @r#"
    DIR/b.toml: rules.large-refunds.risk: must be "medium" or "high"
    DIR/c.toml: line 2 is not TOML: string values must be quoted, expected literal string
    DIR/e.toml: can't be read: is a directory
    DIR/a.toml: groups.empty: is empty, and nobody could approve: add people = ["…"] or slack_usergroups = ["NAME/S…"]
    DIR/b.toml: rules.large-refunds.expires: must be from 10s to 24h
    DIR/d.toml: rules.read-only: is defined in DIR/b.toml already: keep one of the two
    DIR/d.toml: rules.read-only.tools: is empty: name tools as "upstream/tool"; '*' stands for any text without '/'
    DIR/d.toml: rules.read-only.when: uses x; known are args, thresholds, agent, tenant, tool, environment
    "#);
}

#[test]
fn a_directory_without_a_policy_is_a_fault() {
    insta::assert_snapshot!(Directory::new("none", &[]).load().unwrap_err(), @"DIR: holds no *.toml file: write at least one");
    let gone = Directory::new("gone", &[]);
    std::fs::remove_dir(&gone.0).unwrap();
    insta::assert_snapshot!(gone.load().unwrap_err(), @"DIR: can't be read: entity not found");
    insta::assert_snapshot!(Directory::new("empty", &[("a.toml", "")]).load().unwrap_err(), @"DIR/a.toml: rules: has no rule: no tool could ever be called; add [[rules]]");
}

#[test]
fn every_fault_of_a_file_is_named_at_once() {
    let text = r#"
        color = "red"
        [thresholds]
        cap = "many"
        [people.ana]
        slack = "main/U1"
        totp = { file = "x" }
        [[rules]]
        tools = ["a/b"]
        [[rules]]
        name = "r"
        tools = ["shop/x"]
        decision = "ask"
        step_up = "totp"
        [[rules]]
        name = "s"
        decision = "require_approval"
        risk = "huge"
        expires = "soon"
        approvers = [{ gruop = "pay" }]
        [rules.preview]
        must_show = ["/x"]
        [[rules]]
        name = "t"
        tools = ["shop/x"]
        decision = "allow"
        expires = "10m"
    "#;
    let (_, faults) = read("team.toml", text);
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    team.toml: thresholds.cap: must be a number
    team.toml: color: is not a known key: remove it, or correct its spelling
    team.toml: people.ana.slack: must be a list of strings, such as ["main/U0ANA"]
    team.toml: people.ana.totp: is not available in this version: remove it
    team.toml: rules[0].name: is missing: every rule needs a name of its own, such as name = "large-refunds"
    team.toml: rules.r.step_up: is not available in this version: remove it
    team.toml: rules.r.decision: must be "allow", "require_approval" or "deny"
    team.toml: rules.s.tools: is missing: add tools = ["shop/refund_order"]
    team.toml: rules.s.risk: must be "medium" or "high"
    team.toml: rules.s.approvers.group: is missing: add group = "payments"
    team.toml: rules.s.approvers.gruop: is not a known key: did you mean group?
    team.toml: rules.s.post_to: is missing: add post_to = ["slack:main/C0PAY"]
    team.toml: rules.s.expires: must be a duration such as "25s", "10m" or "24h"
    team.toml: rules.s.preview.must_show: is not available in this version: remove it
    team.toml: rules.t.expires: means nothing with decision = "allow": remove it
    "#);
}

#[test]
fn broken_toml_names_its_line_and_not_its_content() {
    let (definition, faults) = read("team.toml", "a = 1\nsecret = hunter2");
    assert_eq!(definition, None);
    assert_eq!(
        faults[0].to_string(),
        "team.toml: line 2 is not TOML: string values must be quoted, expected literal string"
    );
}

#[test]
fn critical_is_refused_as_long_as_nothing_asks_a_second_time() {
    let text = "[[rules]]\nname = \"r\"\ntools = [\"shop/x\"]\ndecision = \"require_approval\"\nrisk = \"critical\"\n\
                approvers = [{ group = \"pay\" }]\npost_to = [\"slack:main/C1\"]\n";
    let (_, faults) = super::read("team.toml", text);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].message.contains("asks each approver a second time"), "{}", faults[0]);
}

#[test]
fn limits_are_read_and_their_faults_say_what_to_write() {
    let mut said = String::new();
    for (at, limits) in [
        "asks_per_minute = 0",
        "asks_per_minute = \"many\"",
        "pending_per_group = 2000000",
        "denial_memory = \"always\"",
        "denial_memory = \"400d\"",
        "denial_memory = \"forever\"",
        "denials_pause = { count = 0 }",
        "denials_pause = { count = 3, whithin = \"10m\" }",
        "alert_to = [\"slack:other/C0SEC\"]",
        "alert_to = [\"#security\"]",
        "alert_to = [\"slack:main/C0SEC\"]",
        "pending = 3",
    ]
    .into_iter()
    .enumerate()
    {
        let text = TEAM.replacen("[[rules]]", &format!("[limits]\n{limits}\n[[rules]]"), 1);
        let directory = Directory::new(&format!("limits-{at}"), &[("team.toml", &text)]);
        let fault = directory.load().err().unwrap_or_else(|| "accepted".to_owned());
        writeln!(said, "{limits}\n  -> {}", fault.trim_start_matches("DIR/")).unwrap();
    }
    insta::assert_snapshot!(said, @r##"
    asks_per_minute = 0
      -> team.toml: limits.asks_per_minute: must be from 1 to 1000000
    asks_per_minute = "many"
      -> team.toml: limits.asks_per_minute: must be a whole number, such as 5
    pending_per_group = 2000000
      -> team.toml: limits.pending_per_group: must be from 1 to 1000000
    denial_memory = "always"
      -> team.toml: limits.denial_memory: must be a duration such as "24h", or "forever"
    denial_memory = "400d"
      -> team.toml: limits.denial_memory: must be at most 366 days, or "forever"
    denial_memory = "forever"
      -> accepted
    denials_pause = { count = 0 }
      -> team.toml: limits.denials_pause: must have a count from 1 to 1000 and times of more than 0s
    denials_pause = { count = 3, whithin = "10m" }
      -> team.toml: limits.denials_pause.whithin: is not a known key: did you mean within?
    alert_to = ["slack:other/C0SEC"]
      -> team.toml: limits.alert_to: there is no installation 'other': add [slack.other] to the server's configuration
    alert_to = ["#security"]
      -> team.toml: limits.alert_to: '#security' is not a place: write "slack:NAME/C…", the name of [slack.NAME] and the channel's id
    alert_to = ["slack:main/C0SEC"]
      -> accepted
    pending = 3
      -> team.toml: limits.pending: is not a known key: remove it, or correct its spelling
    "##);
}

#[test]
fn a_limit_is_set_in_one_file() {
    let other = "[limits]\nasks_per_minute = 7\n";
    let team = TEAM.replacen("[[rules]]", "[limits]\nasks_per_minute = 5\n[[rules]]", 1);
    let faults = Directory::new("twice", &[("a.toml", &team), ("b.toml", other)]).load().unwrap_err();
    insta::assert_snapshot!(faults, @r#"
    DIR/b.toml: limits.asks_per_minute: is set in DIR/a.toml already: keep one of the two
    "#);
}

/// The names that others refer to are all there, so what is missing is told beside what can't be read.
#[test]
fn a_value_of_a_rule_that_cannot_be_read_hides_no_missing_name() {
    let text = TEAM
        .replace("expires  = \"10m\"", "expires  = \"soon\"")
        .replace("people           = [\"ana\", \"ben\"]", "people           = [\"ana\", \"bern\"]");
    let faults = Directory::new("hidden", &[("team.toml", &text)]).load().unwrap_err();
    assert!(faults.contains("rules.large-refunds.expires: must be a duration"), "{faults}");
    assert!(faults.contains("groups.payments.people: 'bern' is nobody"), "{faults}");
}

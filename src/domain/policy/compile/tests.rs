use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::domain::ids::{AgentName, ToolName};
use crate::domain::policy::{CallFacts, Decision, Offer, PersonDefinition, PreviewDefinition};

fn known() -> Known {
    Known { slack: ["main".into()].into(), upstreams: ["shop".into()].into() }
}

fn asking(name: &str, tools: &str, group: &str) -> RuleDefinition {
    RuleDefinition {
        name: name.to_owned(),
        tools: vec![tools.to_owned()],
        when: None,
        effect: EffectDefinition::RequireApproval(Box::new(ApprovalDefinition {
            risk: Risk::High,
            approvers: vec![(group.to_owned(), 1)],
            separate_proposer: true,
            post_to: vec!["slack:main/C1".to_owned()],
            expires: Duration::from_secs(600),
            redeem_within: Duration::from_secs(600),
            preview: PreviewDefinition::default(),
        })),
    }
}

fn plain(name: &str, tools: &str, effect: EffectDefinition) -> RuleDefinition {
    RuleDefinition { name: name.to_owned(), tools: vec![tools.to_owned()], when: None, effect }
}

fn definition(rules: Vec<RuleDefinition>) -> Definition {
    let person = |user: &str| PersonDefinition { slack: vec![format!("main/{user}")] };
    Definition {
        thresholds: [("limit".to_owned(), 5000.0)].into(),
        people: [("ana".to_owned(), person("U1")), ("ben".to_owned(), person("U2"))].into(),
        groups: [
            (
                "pay".to_owned(),
                GroupDefinition { people: vec!["ana".into(), "ben".into()], slack_usergroups: vec![] },
            ),
            ("legal".to_owned(), GroupDefinition { people: vec!["ben".into()], slack_usergroups: vec![] }),
        ]
        .into(),
        rules,
    }
}

fn compiled(definition: Definition) -> Result<Policy, Vec<Fault>> {
    compile("acme".into(), &[("team.toml".to_owned(), definition)], &known())
}

fn decide(policy: &Policy, tool: &str, arguments: &Value) -> Decision {
    decide_at(policy, tool, arguments, "http://shop/mcp")
}

fn decide_at(policy: &Policy, tool: &str, arguments: &Value, address: &str) -> Decision {
    let (agent, upstream, tool): (AgentName, UpstreamName, ToolName) =
        ("bot".into(), "shop".into(), tool.into());
    let empty = Map::new();
    policy.decide(&CallFacts {
        agent: &agent,
        owner: None,
        upstream: &upstream,
        upstream_address: address,
        environment: None,
        tool: &tool,
        arguments: arguments.as_object().unwrap_or(&empty),
    })
}

fn gate(decision: Decision) -> crate::domain::policy::Gate {
    let Decision::RequireApproval(gate) = decision else { panic!("{decision:?}") };
    *gate
}

#[test]
fn all_faults_come_at_once_with_file_and_key() {
    let mut rule = asking("r", "files/x", "nobody");
    let EffectDefinition::RequireApproval(approval) = &mut rule.effect else { panic!("an approval") };
    approval.post_to = vec!["slack:other/C1".to_owned(), "somewhere".to_owned()];
    approval.expires = Duration::from_secs(5);
    approval.preview.title = Some("{{ facts.x }} {{ thresholds.cap }}".to_owned());
    rule.when = Some("args.x > thresholds.absent".to_owned());
    let mut definition = definition(vec![rule, asking("q", "shop", "pay")]);
    definition.groups.insert("empty".to_owned(), GroupDefinition::default());
    definition
        .groups
        .insert("typo".to_owned(), GroupDefinition { people: vec!["anna".into()], ..Default::default() });
    definition
        .people
        .insert("twin".to_owned(), PersonDefinition { slack: vec!["main/U1".into(), "U9".into()] });
    let faults = compiled(definition).unwrap_err();
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    team.toml: people.twin.slack: 'main/U1' is ana's account already: a person is one person
    team.toml: people.twin.slack: 'U9' is not an account: write "installation/U…"
    team.toml: groups.empty: is empty, and nobody could approve: add people = ["…"] or slack_usergroups = ["installation/S…"]
    team.toml: groups.typo.people: 'anna' is nobody: add [people.anna]
    team.toml: rules.r.tools: 'files/x': this tenant has no upstream 'files'
    team.toml: rules.r: uses thresholds.absent, which [thresholds] does not have
    team.toml: rules.r: uses thresholds.cap, which [thresholds] does not have
    team.toml: rules.r.approvers: there is no group 'nobody': add [groups.nobody]
    team.toml: rules.r.post_to: no [slack.other] is configured
    team.toml: rules.r.post_to: 'somewhere' is not a place: write "slack:installation/C…"
    team.toml: rules.r.expires: must be from 10s to 24h
    team.toml: rules.r.preview.title: uses facts (known are args and thresholds), thresholds.cap, which [thresholds] does not have
    team.toml: rules.q.tools: 'shop' names no upstream: write "upstream/tool"
    "#);
}

#[test]
fn one_name_in_two_files_names_both() {
    let files = [
        ("a.toml".to_owned(), definition(vec![plain("r", "shop/x", EffectDefinition::Allow)])),
        (
            "b.toml".to_owned(),
            Definition { rules: vec![plain("r", "shop/y", EffectDefinition::Allow)], ..Default::default() },
        ),
    ];
    let faults = compile("acme".into(), &files, &known()).unwrap_err();
    assert_eq!(faults[0].to_string(), "b.toml: rules.r: is defined in a.toml already: keep one of the two");
}

#[test]
fn a_quorum_beyond_its_group_is_refused() {
    let mut rule = asking("r", "shop/x", "legal");
    let EffectDefinition::RequireApproval(approval) = &mut rule.effect else { panic!("an approval") };
    approval.approvers = vec![("legal".to_owned(), 2)];
    let faults = compiled(definition(vec![rule])).unwrap_err();
    assert!(faults[0].message.contains("asks for 2 of legal, which has 1 people"), "{faults:?}");
}

#[test]
fn the_strictest_matching_rule_wins_and_requirements_add_up() {
    let policy = compiled(definition(vec![
        plain("allow", "shop/*", EffectDefinition::Allow),
        asking("pay", "shop/refund", "pay"),
        asking("legal", "shop/re*", "legal"),
        plain("never", "shop/drop_*", EffectDefinition::Deny),
    ]))
    .unwrap();
    assert!(matches!(decide(&policy, "get", &json!({})), Decision::Allow(_)));
    assert!(matches!(decide(&policy, "drop_all", &json!({})), Decision::Deny { .. }));
    let both = gate(decide(&policy, "refund", &json!({})));
    assert_eq!(both.requirement.in_words(), "1 of legal and 1 of pay");
    let other = compiled(definition(vec![plain("x", "shop/get_*", EffectDefinition::Allow)])).unwrap();
    assert!(matches!(decide(&other, "refund", &json!({})), Decision::NotAllowed));
    assert_eq!(policy.offer(&"shop".into(), &"refund".into()), Offer::Gated);
    assert_eq!(policy.offer(&"shop".into(), &"drop_all".into()), Offer::Never);
    assert_eq!(other.offer(&"shop".into(), &"get_x".into()), Offer::Ungated);
    assert!(matches!(decide(&policy, "a/b", &json!({})), Decision::NotAllowed), "'*' does not cross '/'");
}

#[test]
fn a_condition_that_cannot_be_evaluated_counts_against_the_call() {
    let mut allow = plain("allow", "shop/*", EffectDefinition::Allow);
    allow.when = Some("args.n < 5".to_owned());
    let mut ask = asking("ask", "shop/*", "pay");
    ask.when = Some("args.n >= 5".to_owned());
    let policy = compiled(definition(vec![allow, ask])).unwrap();
    assert!(matches!(decide(&policy, "x", &json!({"n": 1})), Decision::Allow(_)));
    for strange in [json!({}), json!({"n": "1"}), json!({"n": null})] {
        assert!(matches!(decide(&policy, "x", &strange), Decision::RequireApproval(_)), "{strange}");
    }
}

#[test]
fn the_policy_version_covers_what_decided_and_nothing_else() {
    let mut rule = asking("r", "shop/x", "pay");
    rule.when = Some("args.n > thresholds.limit".to_owned());
    let base = definition(vec![rule]);
    let call = json!({"n": 9999});
    let version = |definition: &Definition| {
        gate(decide(&compiled(definition.clone()).unwrap(), "x", &call)).policy_version
    };
    let original = version(&base);
    let mut elsewhere = base.clone();
    elsewhere.thresholds.insert("other".to_owned(), 1.0);
    elsewhere.rules.push(plain("unrelated", "shop/y", EffectDefinition::Allow));
    elsewhere.groups.get_mut("legal").unwrap().people.push("ana".to_owned());
    assert_eq!(version(&elsewhere), original);
    let mut threshold = base.clone();
    threshold.thresholds.insert("limit".to_owned(), 4000.0);
    let mut group = base.clone();
    group.groups.get_mut("pay").unwrap().people.pop();
    let mut preview = base.clone();
    let EffectDefinition::RequireApproval(approval) = &mut preview.rules[0].effect else {
        panic!("an approval")
    };
    approval.preview.title = Some("other words".to_owned());
    for changed in [threshold, group, preview] {
        assert_ne!(version(&changed), original);
    }
    let moved = decide_at(&compiled(base).unwrap(), "x", &call, "http://elsewhere/mcp");
    assert_ne!(gate(moved).policy_version, original);
}

fn strictness(decision: &Decision) -> u8 {
    match decision {
        Decision::Allow(_) => 0,
        Decision::RequireApproval(_) => 1,
        Decision::NotAllowed => 2,
        Decision::Deny { .. } => 3,
    }
}

fn any_rule() -> impl Strategy<Value = RuleDefinition> {
    let tools = prop_oneof![Just("shop/*"), Just("shop/refund"), Just("shop/re*"), Just("shop/other")];
    let when = prop_oneof![Just(None), Just(Some("args.n > 5")), Just(Some("args.absent == 1"))];
    (tools, when, 0..3_u8).prop_map(|(tools, when, kind)| {
        let mut rule = match kind {
            0 => plain("x", tools, EffectDefinition::Allow),
            1 => asking("x", tools, "pay"),
            _ => plain("x", tools, EffectDefinition::Deny),
        };
        rule.when = when.map(str::to_owned);
        rule
    })
}

proptest! {
    #[test]
    fn order_decides_nothing_and_no_rule_loosens_another(
        mut rules in prop::collection::vec(any_rule(), 1..6),
        extra in any_rule(),
        n in 0..10_i64,
    ) {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule.name = format!("r{index}");
        }
        let call = json!({"n": n});
        let before = decide(&compiled(definition(rules.clone())).unwrap(), "refund", &call);
        let mut reversed = rules.clone();
        reversed.reverse();
        let turned = decide(&compiled(definition(reversed)).unwrap(), "refund", &call);
        prop_assert_eq!(strictness(&before), strictness(&turned));
        if let (Decision::RequireApproval(a), Decision::RequireApproval(b)) = (&before, &turned) {
            prop_assert_eq!(a.policy_version, b.policy_version);
        }
        rules.push(extra);
        let after = decide(&compiled(definition(rules)).unwrap(), "refund", &call);
        // A new rule may open what nothing named; what some rule asked about or denied it can't loosen.
        if !matches!(before, Decision::NotAllowed) {
            prop_assert!(strictness(&after) >= strictness(&before));
        }
    }
}

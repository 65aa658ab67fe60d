use std::time::Duration;

use globset::GlobBuilder;
use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::domain::ids::{AgentName, ToolName};
use crate::domain::policy::{
    ApprovalDefinition, CallFacts, Decision, EffectDefinition, LimitsDefinition, Offer, PersonDefinition,
    PreviewDefinition, RuleDefinition,
};

fn known() -> Known {
    Known { slack: ["main".into()].into(), upstreams: ["shop".into()].into(), ..Known::default() }
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
            expires: Duration::from_mins(10),
            redeem_within: Duration::from_mins(10),
            preview: PreviewDefinition::default(),
            cosmetic: Cosmetic::default(),
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
        limits: LimitsDefinition::default(),
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
    team.toml: people.twin.slack: 'main/U1' is ana's account already: keep it with one of the two, as people are counted and not accounts
    team.toml: people.twin.slack: 'U9' is not an account: write "NAME/U…", the name of [slack.NAME] and the person's member id
    team.toml: groups.empty: is empty, and nobody could approve: add people = ["…"] or slack_usergroups = ["NAME/S…"]
    team.toml: groups.typo.people: 'anna' is nobody: add [people.anna], or correct the name
    team.toml: rules.r.tools: 'files/x' is for no upstream of this tenant: add [tenants.NAME.upstreams.files] to the server's configuration, or name another
    team.toml: rules.r.when: uses thresholds.absent: add absent to [thresholds]
    team.toml: rules.r.approvers: there is no group 'nobody': add [groups.nobody], or correct the name
    team.toml: rules.r.post_to: there is no installation 'other': add [slack.other] to the server's configuration
    team.toml: rules.r.post_to: 'somewhere' is not a place: write "slack:NAME/C…", the name of [slack.NAME] and the channel's id
    team.toml: rules.r.expires: must be from 10s to 24h
    team.toml: rules.r.preview.title: uses facts; known are args and thresholds
    team.toml: rules.r.preview.title: uses thresholds.cap: add cap to [thresholds]
    team.toml: rules.q.tools: 'shop' must be "upstream/tool", where '*' stands for any text without '/'
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

fn approval(rule: &mut RuleDefinition) -> &mut ApprovalDefinition {
    let EffectDefinition::RequireApproval(approval) = &mut rule.effect else { panic!("an approval") };
    approval
}

/// The faults of a definition with one change.
fn fault_of(change: impl FnOnce(&mut Definition, &mut RuleDefinition)) -> String {
    let mut rule = asking("r", "shop/x", "pay");
    let mut definition = definition(vec![]);
    change(&mut definition, &mut rule);
    definition.rules.push(rule);
    let faults = compiled(definition).unwrap_err();
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn approvers_that_could_never_be_met_are_refused() {
    let approvers = |entries: &[(&str, u32)]| {
        let entries = entries.iter().map(|(group, count)| ((*group).to_owned(), *count)).collect();
        fault_of(|_, rule| approval(rule).approvers = entries)
    };
    insta::assert_snapshot!(approvers(&[]), @r#"team.toml: rules.r.approvers: is empty: write approvers = [{ group = "…", count = 1 }]"#);
    insta::assert_snapshot!(approvers(&[("legal", 2)]), @"team.toml: rules.r.approvers: asks for 2 of legal, which has 1: different people could never meet that; lower a count or add people");
    insta::assert_snapshot!(approvers(&[("pay", 2), ("legal", 1)]), @"team.toml: rules.r.approvers: asks for 1 of legal, which has 1, and 2 of pay, which has 2: different people could never meet that; lower a count or add people");
    insta::assert_snapshot!(approvers(&[("pay", 0)]), @"team.toml: rules.r.approvers: asks for 0 of pay: count must be from 1 to 100");
    insta::assert_snapshot!(approvers(&[("pay", 4_000_000_000)]), @"team.toml: rules.r.approvers: asks for 4000000000 of pay: count must be from 1 to 100");
    insta::assert_snapshot!(approvers(&[("pay", 1), ("pay", 1)]), @"team.toml: rules.r.approvers: names pay twice: write one entry with the count that is meant");
    let open = fault_of(|definition, rule| {
        // A user group's members are not known now; only the other fault is left.
        definition.groups.get_mut("legal").unwrap().slack_usergroups.push("main/S1".to_owned());
        approval(rule).approvers = vec![("legal".to_owned(), 9)];
        approval(rule).post_to.clear();
    });
    insta::assert_snapshot!(open, @r#"team.toml: rules.r.post_to: is empty, and nobody could be asked: write post_to = ["slack:NAME/C…"], the name of [slack.NAME] and the channel's id"#);
}

#[test]
fn ids_have_the_form_that_the_platform_gives_them() {
    let account = |text: &str| {
        fault_of(|definition, _| definition.people.get_mut("ana").unwrap().slack = vec![text.to_owned()])
    };
    insta::assert_snapshot!(account("main/S0PAY"), @r#"team.toml: people.ana.slack: 'main/S0PAY' is not an account: write "NAME/U…", the name of [slack.NAME] and the person's member id"#);
    insta::assert_snapshot!(account("main/ana"), @r#"team.toml: people.ana.slack: 'main/ana' is not an account: write "NAME/U…", the name of [slack.NAME] and the person's member id"#);
    insta::assert_snapshot!(account("other/U1"), @"team.toml: people.ana.slack: there is no installation 'other': add [slack.other] to the server's configuration");
    let usergroup = fault_of(|definition, _| {
        definition.groups.get_mut("pay").unwrap().slack_usergroups = vec!["main/U1".to_owned()];
    });
    insta::assert_snapshot!(usergroup, @r#"team.toml: groups.pay.slack_usergroups: 'main/U1' is not a user group: write "NAME/S…", the name of [slack.NAME] and the user group's id"#);
    let place = |text: &str| fault_of(|_, rule| approval(rule).post_to = vec![text.to_owned()]);
    insta::assert_snapshot!(place("slack:main/#payments"), @r#"team.toml: rules.r.post_to: 'slack:main/#payments' is not a place: write "slack:NAME/C…", the name of [slack.NAME] and the channel's id"#);
    insta::assert_snapshot!(place("slack:main/U1"), @r#"team.toml: rules.r.post_to: 'slack:main/U1' is not a place: write "slack:NAME/C…", the name of [slack.NAME] and the channel's id"#);
    insta::assert_snapshot!(place("discord:ops/1"), @"team.toml: rules.r.post_to: 'discord:ops/1': Discord is not available in this version");
    insta::assert_snapshot!(place("slack:other/C1"), @"team.toml: rules.r.post_to: there is no installation 'other': add [slack.other] to the server's configuration");
}

#[test]
fn times_outside_their_range_are_refused() {
    for (expires, redeem_within) in [(9, 600), (86_401, 600), (600, 0), (600, 3601)] {
        let fault = fault_of(|_, rule| {
            approval(rule).expires = Duration::from_secs(expires);
            approval(rule).redeem_within = Duration::from_secs(redeem_within);
        });
        let expected = match expires {
            600 => "team.toml: rules.r.redeem_within: must be from 1s to 1h",
            _ => "team.toml: rules.r.expires: must be from 10s to 24h",
        };
        assert_eq!(fault, expected);
    }
    for (expires, redeem_within) in [(10, 1), (86_400, 3600)] {
        let mut rule = asking("r", "shop/x", "pay");
        approval(&mut rule).expires = Duration::from_secs(expires);
        approval(&mut rule).redeem_within = Duration::from_secs(redeem_within);
        assert!(compiled(definition(vec![rule])).is_ok());
    }
}

#[test]
fn patterns_name_tools_of_known_upstreams() {
    let pattern = |text: &str| fault_of(|_, rule| rule.tools = vec![text.to_owned()]);
    insta::assert_snapshot!(pattern("refund"), @r#"team.toml: rules.r.tools: 'refund' must be "upstream/tool", where '*' stands for any text without '/'"#);
    insta::assert_snapshot!(pattern("shop/"), @r#"team.toml: rules.r.tools: 'shop/' must be "upstream/tool", where '*' stands for any text without '/'"#);
    insta::assert_snapshot!(pattern("files/x"), @"team.toml: rules.r.tools: 'files/x' is for no upstream of this tenant: add [tenants.NAME.upstreams.files] to the server's configuration, or name another");
    insta::assert_snapshot!(pattern("shp*/x"), @"team.toml: rules.r.tools: 'shp*/x' is for no upstream of this tenant: add [tenants.NAME.upstreams.shp*] to the server's configuration, or name another");
    insta::assert_snapshot!(pattern("shop/[a"), @"team.toml: rules.r.tools: 'shop/[a' is not a glob: '*' stands for any text without '/', {a,b} for one of several");
    insta::assert_snapshot!(pattern("{shop/a,shop/b}"), @"team.toml: rules.r.tools: '{shop/a,shop/b}' is not a glob: '*' stands for any text without '/', {a,b} for one of several");
    insta::assert_snapshot!(fault_of(|_, rule| rule.tools.clear()), @r#"team.toml: rules.r.tools: is empty: name tools as "upstream/tool"; '*' stands for any text without '/'"#);
    for text in ["shop/*", "*/delete_*", "{shop,files}/x", "shop/{a,b}", "shop/[ab]?"] {
        let rule = plain("r", text, EffectDefinition::Deny);
        assert!(compiled(definition(vec![rule])).is_ok(), "{text}");
    }
}

#[test]
fn conditions_and_names_are_checked() {
    insta::assert_snapshot!(fault_of(|_, rule| rule.when = Some("args.x >".to_owned())), @"team.toml: rules.r.when: is not a CEL expression; for example: args.amount_cents > thresholds.refund_auto");
    insta::assert_snapshot!(fault_of(|_, rule| rule.when = Some("args.x > thresholds.cap".to_owned())), @"team.toml: rules.r.when: uses thresholds.cap: add cap to [thresholds]");
    let nobody = fault_of(|definition, _| {
        definition.people.insert("slack:main/U9".to_owned(), PersonDefinition::default());
    });
    insta::assert_snapshot!(nobody, @r#"
    team.toml: people.slack:main/U9: must not contain ':' or '/': those mark accounts
    team.toml: people.slack:main/U9: has no account: add slack = ["NAME/U…"], the name of [slack.NAME] and the person's member id
    "#);
    insta::assert_snapshot!(fault_of(|definition, _| _ = definition.thresholds.insert("x".to_owned(), f64::NAN)), @"team.toml: thresholds.x: must be a finite number");
    let faults = compiled(definition(vec![])).unwrap_err();
    insta::assert_snapshot!(faults[0], @"team.toml: rules: has no rule: no tool could ever be called; add [[rules]]");
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
    approval(&mut preview.rules[0]).preview.title = Some("other words".to_owned());
    let mut count = base.clone();
    approval(&mut count.rules[0]).approvers[0].1 = 2;
    let mut time = base.clone();
    approval(&mut time.rules[0]).expires = Duration::from_mins(1);
    for changed in [threshold, group, preview, count, time] {
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

fn patterns() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec!["a", "b", ".", "*", "?", "**", "/", "[ab]", "{a,b.}", "_"]),
        1..6,
    )
    .prop_map(|parts| format!("shop/{}", parts.concat()))
}

#[test]
fn a_tool_that_is_no_name_of_a_file_is_never_allowed() {
    let rules = vec![
        plain("all", "shop/**", EffectDefinition::Allow),
        plain("dots", "shop/*.", EffectDefinition::Deny),
    ];
    let policy = compiled(definition(rules)).unwrap();
    for tool in ["..", "a/.."] {
        assert!(matches!(decide(&policy, tool, &json!({})), Decision::NotAllowed), "{tool}");
        assert_eq!(policy.offer(&"shop".into(), &tool.into()), Offer::Never);
    }
    for (tool, denied) in [(".", true), ("a.", true), ("a..", true), ("..a", false), ("a", false)] {
        assert_eq!(matches!(decide(&policy, tool, &json!({})), Decision::Deny { .. }), denied, "{tool}");
    }
}

proptest! {
    // Compiling policies takes most of the time, and the rules that there can be are few.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One set for all patterns is quick because it looks at ends of names first; it must find what each would alone.
    #[test]
    fn one_set_of_patterns_matches_as_each_would_alone(
        patterns in prop::collection::vec(patterns(), 1..8),
        tool in "[ab./_]{1,6}",
    ) {
        prop_assume!(!tool.ends_with("/..") && tool != "..");
        let glob = |text: &String| GlobBuilder::new(text).literal_separator(true).build();
        let alone = patterns.iter().filter_map(|text| glob(text).ok());
        let expected = alone.map(|glob| glob.compile_matcher()).any(|glob| glob.is_match(format!("shop/{tool}")));
        let rules = patterns
            .iter()
            .filter(|text| glob(text).is_ok())
            .enumerate()
            .map(|(index, text)| plain(&format!("r{index}"), text, EffectDefinition::Deny))
            .chain([plain("other", "shop/zzz", EffectDefinition::Allow)])
            .collect();
        let decision = decide(&compiled(definition(rules)).unwrap(), &tool, &json!({}));
        prop_assert_eq!(matches!(decision, Decision::Deny { .. }), expected, "{:?} on {}", patterns, tool);
    }

    #[test]
    fn an_allow_never_loosens_and_a_deny_always_denies(
        mut rules in prop::collection::vec(any_rule(), 0..6),
        n in 0..10_i64,
    ) {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule.name = format!("r{index}");
        }
        let call = json!({"n": n});
        let with = |effect: EffectDefinition| {
            let extra = plain("extra", "shop/refund", effect);
            decide(&compiled(definition([&rules[..], &[extra]].concat())).unwrap(), "refund", &call)
        };
        let denied = matches!(with(EffectDefinition::Deny), Decision::Deny { .. });
        prop_assert!(denied);
        if rules.is_empty() {
            return Ok(());
        }
        let before = decide(&compiled(definition(rules.clone())).unwrap(), "refund", &call);
        let after = with(EffectDefinition::Allow);
        match (before, after) {
            (Decision::RequireApproval(a), Decision::RequireApproval(b)) => {
                prop_assert_eq!(a.policy_version, b.policy_version);
            }
            (Decision::Deny { .. }, Decision::Deny { .. })
            | (Decision::Allow(_) | Decision::NotAllowed, Decision::Allow(_)) => {}
            (before, after) => prop_assert!(false, "{:?} became {:?}", before, after),
        }
    }

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

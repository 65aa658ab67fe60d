use super::*;
use crate::domain::cosmetic::Cosmetic;
use crate::domain::digest::PolicyVersion;
use crate::domain::policy::Risk;
use crate::domain::requirement::Requirement;
use std::sync::Arc;
use std::time::Duration;

fn templates(definition: &PreviewDefinition) -> PreviewTemplates {
    let (templates, faults) = PreviewTemplates::compile(definition);
    assert_eq!(faults, []);
    templates
}

fn title(template: &str) -> PreviewDefinition {
    PreviewDefinition { title: Some(template.to_owned()), ..PreviewDefinition::default() }
}

fn preview(rules: &[PreviewDefinition], arguments: &str) -> Preview {
    let gate = Gate {
        rules: Vec::new(),
        risk: Risk::High,
        requirement: Requirement {
            approvers: Vec::new(),
            separate_proposer: true,
            step_up: None,
            escalate: None,
            second_look_s: None,
        },
        post_to: Vec::new(),
        expires: Duration::from_mins(10),
        redeem_within: Duration::from_mins(10),
        policy_version: PolicyVersion::of(&Value::Null),
        templates: rules.iter().map(templates).map(Arc::new).collect(),
        cosmetic: Cosmetic::default(),
    };
    let arguments = Arguments::parse(Some(arguments.as_bytes())).unwrap().arguments;
    gate.preview(&arguments, &[("cap".to_owned(), 5000.0), ("rate".to_owned(), 0.5)].into(), "shop/refund")
}

fn rendered(template: &str, arguments: &str) -> String {
    preview(&[title(template)], arguments).title
}

#[test]
fn values_are_written_plainly() {
    for (template, arguments, expected) in [
        ("Refund {{ args.id }}", r#"{"id":"A-17"}"#, "Refund A-17"),
        (
            "{{ args.n }} of {{ thresholds.cap }} at {{ thresholds.rate }}",
            r#"{"n":1.2e4}"#,
            "12000 of 5000 at 0.5",
        ),
        ("{{ args.a }}, {{ args.b.c.d }}", "{}", "(not given), (not given)"),
        ("{{ args.a }}", r#"{"a":null}"#, "null"),
        ("{{ args.a }}", r#"{"a":""}"#, "(empty)"),
        ("{{ args.a }}", r#"{"a":"  "}"#, "(empty)"),
        ("to {{ args.a }}", r#"{"a":"<b>&amp; *x* <!channel>"}"#, "to <b>&amp; *x* <!channel>"),
        ("{{ args.a }}", r#"{"a":"{{ thresholds.cap }}{% raw %}"}"#, "{{ thresholds.cap }}{% raw %}"),
        ("{{ args.a }}", r#"{"a":"x\ny\u202ez"}"#, "x\\u{a}y\\u{202e}z"),
        ("{% if args.n > 5 %}many{% else %}few{% endif %}", r#"{"n":9}"#, "many"),
        ("{{ args.a | upper }} {{ args.b | default('none') }}", r#"{"a":"x"}"#, "X none"),
    ] {
        assert_eq!(rendered(template, arguments), expected, "{template} on {arguments}");
    }
}

#[test]
fn what_no_template_says_has_a_word_of_its_own() {
    let preview = preview(&[PreviewDefinition::default()], r#"{"b":[1],"a":"x"}"#);
    assert_eq!(preview.title, "Call shop/refund");
    assert_eq!(preview.reversible, "not stated");
    assert_eq!((preview.target, preview.effect, preview.impact, preview.data_out), (None, None, None, None));
    assert_eq!(preview.arguments, "{\n  \"a\": \"x\",\n  \"b\": [\n    1\n  ]\n}");
    assert_eq!(preview.warnings, Vec::<String>::new());
}

#[test]
fn of_several_rules_the_first_with_a_key_gives_it() {
    let second = PreviewDefinition { effect: Some("b's effect".to_owned()), ..title("b's title") };
    let preview = preview(&[title("a's title"), second], "{}");
    assert_eq!((preview.title.as_str(), preview.effect.as_deref()), ("a's title", Some("b's effect")));
}

#[test]
fn arguments_cannot_make_a_preview_endless() {
    for (template, arguments) in [
        ("{{ 'x' * args.n }}", r#"{"n":4000000000}"#),
        (
            "{% for a in args.l %}{% for b in args.l %}{{ a }}{{ b }}{% endfor %}{% endfor %}",
            &*format!("{{\"l\":[{}1]}}", "1,".repeat(50_000)),
        ),
        ("{{ args.s | replace('a', args.s) }}", &*format!("{{\"s\":\"{}\"}}", "a".repeat(200_000))),
    ] {
        let preview = preview(&[title(template)], arguments);
        assert_eq!(preview.title, FAILED, "{template}");
        assert!(
            preview.warnings.iter().any(|warning| warning.contains("could not be rendered")),
            "{template}"
        );
    }
}

#[test]
fn tricks_in_names_and_nested_values_are_warned_about() {
    for arguments in [r#"{"a":[{"b":"x\u200by"}]}"#, r#"{"a\u200b":1}"#] {
        assert!(!preview(&[title("x")], arguments).warnings.is_empty(), "{arguments}");
    }
}

#[test]
fn faults_of_the_author_are_found_at_load() {
    let fault = |template: &str| {
        let (_, faults) = PreviewTemplates::compile(&title(template));
        let [(key, message)] = &faults[..] else { panic!("{template}: {faults:?}") };
        format!("{key} {message}")
    };
    insta::assert_snapshot!(fault("Refund {{ args.id"), @"title is not a template; for example: Refund order {{ args.order_id }}");
    insta::assert_snapshot!(fault("{{ facts.order.id }} {{ name }}"), @"title uses facts, name; known are args and thresholds");
    insta::assert_snapshot!(fault("{% for i in range(args.n) %}x{% endfor %}"), @"title uses range; known are args and thresholds");
    insta::assert_snapshot!(fault("{{ args.id | shout }}"), @"title can't be rendered: filter shout is unknown");
    insta::assert_snapshot!(fault("{% include 'x' %}"), @"title is not a template; for example: Refund order {{ args.order_id }}");
    insta::assert_snapshot!(fault("  "), @"title is empty: say it, or remove the key");
}

#[test]
fn thresholds_are_known_by_name_or_may_be_any() {
    let named = |template: &str| {
        let templates = templates(&title(template));
        (templates.thresholds().members.iter().cloned().collect::<Vec<_>>(), templates.thresholds().any)
    };
    assert_eq!(
        named("{{ thresholds.cap }} {{ args.thresholds.x }} thresholds.y"),
        (vec!["cap".to_owned()], false)
    );
    assert!(named("{{ thresholds[args.k] }}").1);
    assert!(named("{% set t = thresholds %}{{ t.cap }}").1);
    assert!(named("{{ thresholds.cap }} {{ thresholds | length }}").1);
    assert!(named("{% for k in thresholds %}{{ k }}{% endfor %}").1);
}

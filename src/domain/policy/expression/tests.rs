use serde_json::json;

use super::*;
use crate::domain::ids::{AgentName, ToolName, UpstreamName};

/// A condition could not be evaluated; why is told to people alone.
#[derive(Debug, PartialEq)]
struct NotEvaluable;

fn holds(source: &str, arguments: Value) -> Result<bool, NotEvaluable> {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    let (agent, upstream, tool): (AgentName, UpstreamName, ToolName) =
        ("bot".into(), "shop".into(), "refund".into());
    let call = CallFacts {
        agent: &agent,
        owner: None,
        upstream: &upstream,
        upstream_address: "",
        environment: Some("production"),
        tool: &tool,
        arguments: &arguments,
    };
    let thresholds = [("limit".to_owned(), 5000.0), ("rate".to_owned(), 0.5)].into();
    Expression::parse(source)
        .unwrap()
        .evaluate(&Facts::of(&"acme".into(), &thresholds, &call))
        .map_err(|_| NotEvaluable)
}

fn thresholds(source: &str) -> (Vec<String>, bool) {
    let expression = Expression::parse(source).unwrap();
    (expression.thresholds.members.into_iter().collect(), expression.thresholds.any)
}

#[test]
fn numbers_compare_whatever_their_spelling() {
    for (amount, expected) in [
        (json!(12000), true),
        (json!(12000.0), true),
        (json!(12000.5), true),
        (json!(4999.5), false),
        (json!(5000), false),
        (json!(5000.5), true),
        (json!(-12000), false),
        (json!(1e300), true),
        (json!(18_446_744_073_709_551_615_u64), true),
        (json!(9_223_372_036_854_775_807_u64), true),
    ] {
        assert_eq!(
            holds("args.amount > thresholds.limit", json!({"amount": amount})),
            Ok(expected),
            "{amount}"
        );
        assert_eq!(
            holds("args.amount <= thresholds.limit", json!({"amount": amount})),
            Ok(!expected),
            "{amount}"
        );
    }
    assert_eq!(holds("args.share > thresholds.rate", json!({"share": 1})), Ok(true));
    assert_eq!(holds("args.n == 5 && args.n == 5.0", json!({"n": 5.0})), Ok(true));
    assert_eq!(holds("args.n == 5", json!({"n": 5.5})), Ok(false));
    assert_eq!(holds("double(args.n) * 1.5 > 14.0", json!({"n": 10})), Ok(true));
}

#[test]
fn text_lists_and_names_can_be_asked_for() {
    assert_eq!(holds("args.env in ['prod', 'live']", json!({"env": "prod"})), Ok(true));
    assert_eq!(holds("tool == 'shop/refund' && agent == 'bot' && tenant == 'acme'", json!({})), Ok(true));
    assert_eq!(holds("environment == 'production'", json!({})), Ok(true));
    assert_eq!(holds("args.items.exists(i, i.price > 10)", json!({"items": [{"price": 11}]})), Ok(true));
    assert_eq!(
        holds("args.items.all(i, i.tags.exists(t, t == 'x'))", json!({"items": [{"tags": ["x"]}]})),
        Ok(true)
    );
    assert_eq!(
        holds("size(args.items.filter(i, i > 1).map(i, i * 2)) == 1", json!({"items": [1, 2]})),
        Ok(true)
    );
    assert_eq!(holds("has(args.force) && args.force", json!({})), Ok(false));
    assert_eq!(holds("args.?force.orValue(false)", json!({})), Ok(false));
    assert_eq!(holds("type(args.n) == int && args.s.startsWith('a')", json!({"n": 1, "s": "ab"})), Ok(true));
}

#[test]
fn what_cannot_be_evaluated_is_neither_true_nor_false() {
    for (source, arguments) in [
        ("args.amount > 5", json!({})),
        ("args.amount > 5", json!({"amount": "9"})),
        ("args.amount > 5", json!({"amount": null})),
        ("args.amount > 5", json!({"amount": [9]})),
        ("args.amount", json!({"amount": 9})),
        ("args.a.b.c == 1", json!({"a": 1})),
        ("1 / args.zero == 1", json!({"zero": 0})),
        ("args.n + 9223372036854775807 > 0", json!({"n": 1})),
        ("args.items[9] == 1", json!({"items": []})),
    ] {
        assert_eq!(holds(source, arguments.clone()), Err(NotEvaluable), "{source} on {arguments}");
    }
}

#[test]
fn faults_of_the_author_are_found_at_load() {
    let fault = |source: &str| Expression::parse(source).unwrap_err();
    insta::assert_snapshot!(fault("args.amount >"), @"is not a CEL expression; for example: args.amount_cents > thresholds.refund_auto");
    insta::assert_snapshot!(fault(""), @"is not a CEL expression; for example: args.amount_cents > thresholds.refund_auto");
    insta::assert_snapshot!(fault("arguments.amount > 5 || owner == 'ana'"), @"uses arguments, owner; known are args, thresholds, agent, tenant, tool, environment");
    insta::assert_snapshot!(fault("args.items.exists(i, j.price > 1)"), @"uses j; known are args, thresholds, agent, tenant, tool, environment");
    insta::assert_snapshot!(fault("args.items.exists(i, i.price > 1) && i == 1"), @"uses i; known are args, thresholds, agent, tenant, tool, environment");
    insta::assert_snapshot!(fault("args.name.matches('^a')"), @"calls matches, which there is not");
}

#[test]
fn thresholds_are_known_by_name_or_may_be_any() {
    let none = Vec::<String>::new();
    assert_eq!(thresholds("args.n > thresholds.limit"), (vec!["limit".to_owned()], false));
    assert_eq!(thresholds("has(thresholds.rate)"), (vec!["rate".to_owned()], false));
    assert_eq!(thresholds("args.thresholds.limit > 1 && args.s == 'thresholds.x'"), (none.clone(), false));
    assert_eq!(thresholds("args.n > thresholds[args.kind]"), (none.clone(), true));
    assert_eq!(
        thresholds("[1].all(thresholds, thresholds.x > 0)"),
        (none, false),
        "a loop's variable of that name"
    );
}

#[test]
fn work_that_grows_faster_than_the_arguments_is_bounded() {
    let many: Vec<i64> = (0..100_000).collect();
    let large = json!({"items": many, "allowed": many});
    assert_eq!(holds("args.items.all(i, i >= 0)", large.clone()), Ok(true), "one pass is paid for");
    for source in [
        "args.items.all(i, i in args.allowed)",
        "args.items.all(i, args.items.exists(j, i == j))",
        "args.items.all(i, args.items == args.allowed)",
        "args.items.all(i, size(args.allowed.filter(j, j > i)) >= 0)",
    ] {
        assert_eq!(holds(source, large.clone()), Err(NotEvaluable), "{source}");
    }
    let few = json!({"items": [1, 2], "allowed": [1, 2, 3]});
    assert_eq!(holds("args.items.all(i, i in args.allowed)", few), Ok(true));
}

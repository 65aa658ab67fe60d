//! CEL conditions over a call. Parsed at load; a condition that fails to evaluate is a failure, never a guess.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr};
use cel::{Context, IdedExpr, Program, Value as Cel};
use serde_json::Value;

use super::CallFacts;
use crate::domain::ids::Tenant;

/// The names that a condition may begin with.
pub(super) const ROOTS: [&str; 6] = ["args", "thresholds", "agent", "tenant", "tool", "environment"];

/// A parsed condition.
#[derive(Debug)]
pub(super) struct Expression {
    program: Program,
}

/// A condition failed to evaluate: an absent value, a wrong type, no truth value at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotEvaluable;

impl Expression {
    /// Parses a condition; the error is for the policy's author.
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        // The parser is somebody else's: whatever it does with strange input, loading ends with a fault.
        let parsed = catch_unwind(AssertUnwindSafe(|| Program::compile(source)));
        let Ok(Ok(program)) = parsed else {
            return Err(
                "is not a CEL expression; for example: args.amount_cents > thresholds.refund_auto".to_owned()
            );
        };
        let unknown: Vec<String> = {
            let references = program.references();
            let mut bound = BTreeSet::new();
            bound_names(program.expression(), &mut bound);
            let mut names: Vec<_> = references
                .variables()
                .into_iter()
                .filter(|name| !ROOTS.contains(name) && !bound.contains(name) && !name.starts_with('@'))
                .map(str::to_owned)
                .collect();
            names.sort();
            names
        };
        if unknown.is_empty() {
            Ok(Self { program })
        } else {
            Err(format!("uses {}; known are {}", unknown.join(", "), ROOTS.join(", ")))
        }
    }

    /// Whether the condition holds.
    pub(super) fn holds(
        &self,
        tenant: &Tenant,
        thresholds: &BTreeMap<String, f64>,
        call: &CallFacts<'_>,
    ) -> Result<bool, NotEvaluable> {
        let text = |text: &str| Cel::String(Arc::new(text.to_owned()));
        let args: HashMap<String, Cel> =
            call.arguments.iter().map(|(name, value)| (name.clone(), convert(value))).collect();
        let limits: HashMap<String, Cel> =
            thresholds.iter().map(|(name, value)| (name.clone(), number(*value))).collect();
        let evaluated = catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::default();
            context.add_variable_from_value("args", args);
            context.add_variable_from_value("thresholds", limits);
            context.add_variable_from_value("agent", text(call.agent.as_str()));
            context.add_variable_from_value("tenant", text(tenant.as_str()));
            context.add_variable_from_value("tool", text(&format!("{}/{}", call.upstream, call.tool)));
            context.add_variable_from_value("environment", call.environment.map_or(Cel::Null, text));
            self.program.execute(&context)
        }));
        match evaluated {
            Ok(Ok(Cel::Bool(holds))) => Ok(holds),
            _ => Err(NotEvaluable),
        }
    }
}

/// The names that macros such as `exists` bind inside an expression.
fn bound_names<'e>(expression: &'e IdedExpr, names: &mut BTreeSet<&'e str>) {
    let mut visit = |inner: &'e IdedExpr| bound_names(inner, names);
    match &expression.expr {
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).for_each(visit),
        Expr::List(list) => list.elements.iter().for_each(visit),
        Expr::Map(map) => map.entries.iter().for_each(|entry| entry_names(&entry.expr, names)),
        Expr::Struct(fields) => fields.entries.iter().for_each(|entry| entry_names(&entry.expr, names)),
        Expr::Select(select) => visit(&select.operand),
        Expr::Comprehension(inner) => {
            [&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
                .into_iter()
                .for_each(visit);
            names.insert(&inner.iter_var);
            names.extend(inner.iter_var2.as_deref());
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

fn entry_names<'e>(entry: &'e EntryExpr, names: &mut BTreeSet<&'e str>) {
    match entry {
        EntryExpr::StructField(field) => bound_names(&field.value, names),
        EntryExpr::MapEntry(entry) => {
            bound_names(&entry.key, names);
            bound_names(&entry.value, names);
        }
    }
}

/// Whole numbers become integers whatever their spelling, so that `12000.0` and `12000` compare alike.
fn number(value: f64) -> Cel {
    #[expect(clippy::float_cmp, reason = "whether the double is integral is an exact question")]
    let integral = value.trunc() == value && value.abs() < 9_007_199_254_740_992.0;
    if integral {
        #[expect(clippy::cast_possible_truncation, reason = "integral and below 2^53")]
        return Cel::Int(value as i64);
    }
    Cel::Float(value)
}

fn convert(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match n.as_i64() {
            Some(i) => Cel::Int(i),
            None => number(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(s) => Cel::String(Arc::new(s.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(convert).collect())),
        Value::Object(members) => {
            let map: HashMap<String, Cel> =
                members.iter().map(|(name, value)| (name.clone(), convert(value))).collect();
            map.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AgentName, ToolName, UpstreamName};
    use serde_json::json;

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
        Expression::parse(source).unwrap().holds(&"acme".into(), &thresholds, &call)
    }

    #[test]
    fn numbers_compare_whatever_their_spelling() {
        for (amount, expected) in [
            (json!(12000), true),
            (json!(12000.0), true),
            (json!(12000.5), true),
            (json!(4999.5), false),
            (json!(5000), false),
            (json!(18_446_744_073_709_551_615_u64), true),
        ] {
            assert_eq!(
                holds("args.amount > thresholds.limit", json!({"amount": amount})),
                Ok(expected),
                "{amount}"
            );
        }
        assert_eq!(holds("args.share > thresholds.rate", json!({"share": 1})), Ok(true));
    }

    #[test]
    fn text_lists_and_names_can_be_asked_for() {
        assert_eq!(holds("args.env in ['prod', 'live']", json!({"env": "prod"})), Ok(true));
        assert_eq!(holds("tool == 'shop/refund' && agent == 'bot' && tenant == 'acme'", json!({})), Ok(true));
        assert_eq!(holds("environment == 'production'", json!({})), Ok(true));
        assert_eq!(holds("args.items.exists(i, i.price > 10)", json!({"items": [{"price": 11}]})), Ok(true));
        assert_eq!(holds("has(args.force) && args.force", json!({})), Ok(false));
    }

    #[test]
    fn what_cannot_be_evaluated_is_neither_true_nor_false() {
        for (source, arguments) in [
            ("args.amount > 5", json!({})),
            ("args.amount > 5", json!({"amount": "9"})),
            ("args.amount", json!({"amount": 9})),
            ("args.a.b.c == 1", json!({"a": 1})),
            ("1 / args.zero == 1", json!({"zero": 0})),
        ] {
            assert_eq!(holds(source, arguments.clone()), Err(NotEvaluable), "{source} on {arguments}");
        }
    }

    #[test]
    fn faults_of_the_author_are_found_at_load() {
        assert!(Expression::parse("args.amount >").is_err());
        assert!(Expression::parse("arguments.amount > 5").unwrap_err().contains("uses arguments"));
        assert!(Expression::parse("").is_err());
    }
}

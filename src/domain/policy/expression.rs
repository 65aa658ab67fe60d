//! CEL conditions over a call. Parsed at load; a condition that fails to evaluate is a failure, never a guess.
//!
//! Numbers of arguments and thresholds are integers wherever they are whole, whatever their spelling, and compare with
//! fractions; arithmetic does not mix the two, so a condition that multiplies by 1.5 says `double(args.n) * 1.5`.

mod names;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, Value as Cel};
use serde_json::{Map, Value};

use super::CallFacts;
use crate::domain::ids::Tenant;
use names::Names;

pub(super) use names::{Named, ROOTS};

/// The most steps that a condition may take where its work grows faster than the arguments: about a second.
const MAX_STEPS: u64 = 25_000_000;

/// The functions and types of the language; no others are added.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A parsed condition.
#[derive(Debug)]
pub(super) struct Expression {
    program: Program,
    thresholds: Named,
    power: u32,
    roots: BTreeSet<&'static str>,
}

/// A condition failed to evaluate.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotEvaluable {
    /// More steps than it may take.
    #[error("it would take too many steps over arguments of this size")]
    TooMuchWork,
    /// No truth value at the end.
    #[error("it comes to {0}, not to true or false")]
    NoTruthValue(cel::objects::ValueType),
    /// An absent value or a wrong type.
    #[error("{0}")]
    Failed(cel::ExecutionError),
    /// The interpreter gave up.
    #[error("the interpreter gave up")]
    Panicked,
}

/// A call as conditions see it: converted once for all the rules that look at it.
pub(super) struct Facts {
    context: Context<'static, 'static>,
    weight: u64,
}

impl Facts {
    /// Of a call under a policy.
    pub(super) fn of(tenant: &Tenant, thresholds: &BTreeMap<String, f64>, call: &CallFacts<'_>) -> Self {
        let text = |text: &str| Cel::String(Arc::new(text.to_owned()));
        let mut weight = 0;
        let args = members(call.arguments, &mut weight);
        let limits: HashMap<String, Cel> =
            thresholds.iter().map(|(name, value)| (name.clone(), number(*value))).collect();
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.add_variable_from_value("args", args);
        context.add_variable_from_value("thresholds", limits);
        context.add_variable_from_value("agent", text(call.agent.as_str()));
        context.add_variable_from_value("tenant", text(tenant.as_str()));
        context.add_variable_from_value("tool", text(&format!("{}/{}", call.upstream, call.tool)));
        context.add_variable_from_value("environment", call.environment.map_or(Cel::Null, text));
        Self { context, weight }
    }
}

impl Expression {
    /// Parses a condition; the error is for the policy's author.
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        // The parser is somebody else's: whatever it does with strange input, loading ends with a fault.
        let parsed = catch_unwind(AssertUnwindSafe(|| ENVIRONMENT.compile(source)));
        let Ok(Ok(program)) = parsed else {
            return Err(
                "is not a CEL expression; for example: args.amount_cents > thresholds.refund_auto".to_owned()
            );
        };
        let names = Names::of(program.expression());
        if !names.unknown.is_empty() {
            return Err(format!("uses {}; known are {}", list(names.unknown), ROOTS.join(", ")));
        }
        if !names.unknown_functions.is_empty() {
            return Err(format!("calls {}, which there is not", list(names.unknown_functions)));
        }
        Ok(Self { program, thresholds: names.thresholds, power: names.power, roots: names.roots })
    }

    /// The thresholds it depends on.
    pub(super) fn thresholds(&self) -> &Named {
        &self.thresholds
    }

    /// Whether it looks at this root: `agent`, say.
    pub(super) fn looks_at(&self, root: &str) -> bool {
        self.roots.contains(root)
    }

    /// Whether it looks at nothing at all, and so comes to the same for every call.
    pub(super) fn is_constant(&self) -> bool {
        self.roots.is_empty()
    }

    /// Whether the condition holds.
    pub(super) fn evaluate(&self, facts: &Facts) -> Result<bool, NotEvaluable> {
        // One pass over the arguments is paid for by sending them.
        if self.power > 1 && facts.weight.checked_pow(self.power).is_none_or(|steps| steps > MAX_STEPS) {
            return Err(NotEvaluable::TooMuchWork);
        }
        match catch_unwind(AssertUnwindSafe(|| self.program.execute(&facts.context))) {
            Ok(Ok(Cel::Bool(holds))) => Ok(holds),
            Ok(Ok(other)) => Err(NotEvaluable::NoTruthValue(other.type_of())),
            Ok(Err(error)) => Err(NotEvaluable::Failed(error)),
            Err(_) => Err(NotEvaluable::Panicked),
        }
    }
}

fn list(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
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

/// Converts, and adds up what there is to look at: one for each value, and one for every 64 bytes of text.
fn convert(value: &Value, weight: &mut u64) -> Cel {
    *weight += 1;
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match n.as_i64() {
            Some(i) => Cel::Int(i),
            None => number(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(s) => {
            *weight += s.len() as u64 / 64;
            Cel::String(Arc::new(s.clone()))
        }
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(|item| convert(item, weight)).collect())),
        Value::Object(object) => members(object, weight).into(),
    }
}

fn members(object: &Map<String, Value>, weight: &mut u64) -> HashMap<String, Cel> {
    object.iter().map(|(name, value)| (name.clone(), convert(value, weight))).collect()
}

#[cfg(test)]
mod tests;

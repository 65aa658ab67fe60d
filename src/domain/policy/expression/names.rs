//! What a condition refers to, read from its syntax tree: names, functions, thresholds, and how its work grows.
//!
//! The parser's own list of names also has the variables of loops, as in `args.items.exists(i, i.price > 10)`; this one
//! knows their scope.

use std::collections::BTreeSet;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators};

/// The names that a condition may begin with.
pub(in crate::domain::policy) const ROOTS: [&str; 6] =
    ["args", "thresholds", "agent", "tenant", "tool", "environment"];

/// The functions that a condition may call, besides operators and the macros that the parser expands.
const FUNCTIONS: [&str; 16] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "hasValue",
    "int",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
    "value",
];

/// Names of types, for `type(args.x) == string`.
const TYPES: [&str; 9] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"];

/// The thresholds that a rule depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::domain::policy) struct Named {
    /// By name.
    pub(in crate::domain::policy) members: BTreeSet<String>,
    /// In a way that does not name them: it may be any.
    pub(in crate::domain::policy) any: bool,
}

impl Named {
    pub(in crate::domain::policy) fn add(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        self.any |= other.any;
    }
}

/// What a condition refers to.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Names that nothing defines.
    pub(super) unknown: BTreeSet<String>,
    /// Functions that there are not.
    pub(super) unknown_functions: BTreeSet<String>,
    /// Thresholds.
    pub(super) thresholds: Named,
    /// The power of the arguments' size with which the work grows: 2 for a search within a loop.
    pub(super) power: u32,
    /// The roots it depends on.
    pub(super) roots: BTreeSet<&'static str>,
}

impl Names {
    pub(super) fn of(expression: &IdedExpr) -> Self {
        let mut names = Self::default();
        names.visit(expression, &mut Vec::new(), 0);
        names
    }

    /// `scope` are the variables of the enclosing loops, `power` is that of the enclosing loops' work.
    fn visit<'e>(&mut self, expression: &'e IdedExpr, scope: &mut Vec<&'e str>, power: u32) {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => self.name(name, scope),
            Expr::Select(select) => {
                if is_thresholds(&select.operand, scope) {
                    self.thresholds.members.insert(select.field.clone());
                    self.roots.insert("thresholds");
                } else {
                    self.visit(&select.operand, scope, power);
                }
            }
            Expr::Call(call) => self.call(call, scope, power),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, scope, power),
            Expr::List(list) => list.elements.iter().for_each(|element| self.visit(element, scope, power)),
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr), scope, power),
            Expr::Struct(value) => {
                self.unknown.insert(value.type_name.clone());
                self.entries(value.entries.iter().map(|entry| &entry.expr), scope, power);
            }
        }
    }

    fn entries<'e>(
        &mut self,
        entries: impl Iterator<Item = &'e EntryExpr>,
        scope: &mut Vec<&'e str>,
        power: u32,
    ) {
        for entry in entries {
            match entry {
                EntryExpr::StructField(field) => self.visit(&field.value, scope, power),
                EntryExpr::MapEntry(entry) => {
                    self.visit(&entry.key, scope, power);
                    self.visit(&entry.value, scope, power);
                }
            }
        }
    }

    fn name(&mut self, name: &str, scope: &[&str]) {
        if name.starts_with('@') || scope.contains(&name) || TYPES.contains(&name) {
            return;
        }
        match ROOTS.into_iter().find(|root| *root == name) {
            Some(root) => {
                self.thresholds.any |= root == "thresholds";
                self.roots.insert(root);
            }
            None => _ = self.unknown.insert(name.to_owned()),
        }
    }

    fn call<'e>(&mut self, call: &'e CallExpr, scope: &mut Vec<&'e str>, power: u32) {
        let name = call.func_name.as_str();
        let operator = name.starts_with(['_', '!', '-', '@']);
        if !operator && !FUNCTIONS.contains(&name) {
            self.unknown_functions.insert(name.to_owned());
        }
        if searches(call) {
            self.power = self.power.max(power + 1);
        }
        if let Some(target) = &call.target {
            self.visit(target, scope, power);
        }
        call.args.iter().for_each(|argument| self.visit(argument, scope, power));
    }

    fn comprehension<'e>(&mut self, loop_: &'e ComprehensionExpr, scope: &mut Vec<&'e str>, power: u32) {
        self.visit(&loop_.iter_range, scope, power);
        self.visit(&loop_.accu_init, scope, power);
        // Going through a part of what the loop around it goes through: together that is one pass over the arguments.
        let innermost = scope.last().copied();
        let within = innermost.is_some_and(|variable| path_root(&loop_.iter_range) == Some(variable));
        let literal = matches!(loop_.iter_range.expr, Expr::List(_) | Expr::Map(_));
        let inner = if within || literal { power } else { power + 1 };
        self.power = self.power.max(inner);
        let outside = scope.len();
        scope.push(&loop_.iter_var);
        scope.extend(loop_.iter_var2.as_deref());
        self.visit(&loop_.loop_cond, scope, inner);
        self.visit(&loop_.loop_step, scope, inner);
        scope.truncate(outside);
        self.visit(&loop_.result, scope, power);
    }
}

fn is_thresholds(expression: &IdedExpr, scope: &[&str]) -> bool {
    matches!(&expression.expr, Expr::Ident(name) if name == "thresholds") && !scope.contains(&"thresholds")
}

/// The name that `a.b.c` begins with.
fn path_root(mut expression: &IdedExpr) -> Option<&str> {
    loop {
        match &expression.expr {
            Expr::Ident(name) => return Some(name),
            Expr::Select(select) => expression = &select.operand,
            _ => return None,
        }
    }
}

/// Whether a call may look at all of a large value. Comparing with a literal stops at the literal's size.
fn searches(call: &CallExpr) -> bool {
    let literal = call.args.iter().any(|argument| matches!(argument.expr, Expr::Literal(_)));
    match call.func_name.as_str() {
        operators::IN => {
            !call.args.last().is_some_and(|list| matches!(list.expr, Expr::List(_) | Expr::Map(_)))
        }
        operators::EQUALS | operators::NOT_EQUALS => !literal,
        operators::ADD => {
            !call
                .args
                .iter()
                .any(|argument| matches!(&argument.expr, Expr::Ident(name) if name.starts_with('@')))
                && !literal
        }
        name => FUNCTIONS.contains(&name),
    }
}

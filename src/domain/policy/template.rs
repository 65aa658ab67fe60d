//! Preview templates: MiniJinja over `args` and `thresholds`, plain text out, made visible before anyone sees it.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::value::{Serde, Value as Jinja};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use serde_json::{Map, Value, json};

use super::expression::Named;
use super::{Gate, PreviewDefinition};
use crate::domain::call::Arguments;
use crate::domain::preview::{Preview, lay_out, text_warnings};
use crate::domain::visible::visible;

/// What one template may spend on steps and on text; arguments can't make a preview endless.
const FUEL: u64 = 50_000;

/// The names that a template may begin with.
const ROOTS: [&str; 2] = ["args", "thresholds"];

/// What stands for a template that the arguments made fail.
const FAILED: &str = "(could not be rendered)";

/// The compiled templates of one rule's `[rules.preview]`.
pub struct PreviewTemplates {
    environment: Environment<'static>,
    named: Vec<(&'static str, Named)>,
    thresholds: Named,
}

impl std::fmt::Debug for PreviewTemplates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PreviewTemplates")
    }
}

impl PreviewTemplates {
    /// Compiles; the faults are for the policy's author, each with its key.
    pub(super) fn compile(definition: &PreviewDefinition) -> (Self, Vec<(&'static str, String)>) {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_formatter(format);
        environment.set_fuel(Some(FUEL));
        let mut templates = Self { environment, named: Vec::new(), thresholds: Named::default() };
        let mut faults = Vec::new();
        for (key, template) in definition.entries() {
            if let Some(template) = template
                && let Err(message) = templates.add(key, template.trim())
            {
                faults.push((key, message));
            }
        }
        (templates, faults)
    }

    fn add(&mut self, key: &'static str, template: &str) -> Result<(), String> {
        if template.is_empty() {
            return Err("is empty: say it, or remove the key".to_owned());
        }
        self.environment
            .add_template_owned(key, template.to_owned())
            .map_err(|_| "is not a template; for example: Refund order {{ args.order_id }}".to_owned())?;
        let compiled = self.environment.get_template(key).map_err(|_| "is not a template".to_owned())?;
        let (mut unknown, mut named) = (BTreeSet::new(), Named::default());
        for path in compiled.undeclared_variables(true) {
            let (root, member) = path.split_once('.').unwrap_or((&path, ""));
            match (root, member.split('.').next().unwrap_or_default()) {
                ("thresholds", "") => named.any = true,
                ("thresholds", member) => _ = named.members.insert(member.to_owned()),
                (root, _) if ROOTS.contains(&root) => {}
                (root, _) => _ = unknown.insert(root.to_owned()),
            }
        }
        self.thresholds.add(&named);
        self.named.push((key, named));
        if !unknown.is_empty() {
            let unknown: Vec<_> = unknown.into_iter().collect();
            return Err(format!("uses {}; known are {}", unknown.join(", "), ROOTS.join(" and ")));
        }
        // The engine finds a filter or a test that there is not when it gets to it, and so late would be too late.
        let empty = context(&Map::new(), &BTreeMap::new());
        if let Err(error) = compiled.render(&empty)
            && let ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownMethod = error.kind()
        {
            return Err(format!(
                "can't be rendered: {}",
                error.detail().unwrap_or("something in it is unknown")
            ));
        }
        Ok(())
    }

    /// The thresholds that all templates together depend on.
    pub(super) fn thresholds(&self) -> &Named {
        &self.thresholds
    }

    /// The thresholds that each template depends on.
    pub(super) fn named(&self) -> &[(&'static str, Named)] {
        &self.named
    }

    /// Renders a template; `None` where the rule has none of this key.
    fn render(&self, key: &str, context: &Jinja) -> Option<Result<String, Error>> {
        let template = self.environment.get_template(key).ok()?;
        Some(template.render(context))
    }
}

fn context(arguments: &Map<String, Value>, thresholds: &BTreeMap<String, f64>) -> Jinja {
    Jinja::from(Serde(json!({ "args": arguments, "thresholds": whole(thresholds) })))
}

/// An absent value is told, not left blank; nothing is escaped, since nothing here is markup.
fn format(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Jinja) -> Result<(), Error> {
    let text = if value.is_undefined() {
        "(not given)".to_owned()
    } else if value.is_none() {
        "null".to_owned()
    } else {
        value.to_string()
    };
    out.write_str(&text).map_err(Error::from)
}

impl Gate {
    /// Renders what people are shown. Never fails: an absent value is `(not given)`, an empty text `(empty)`, and a
    /// template that the arguments make fail is told as such, with a warning. Of several rules' templates, the first
    /// rule that has one gives it. Nothing is cut: [`Preview::check_size`] is the caller's.
    pub fn preview(&self, arguments: &Arguments, thresholds: &BTreeMap<String, f64>, tool: &str) -> Preview {
        let canonical = String::from_utf8_lossy(arguments.canonical());
        // The canonical form's numbers, so that templates and the arguments below them spell a number alike.
        let values = serde_json::from_str(&canonical).unwrap_or_else(|_| arguments.value().clone());
        let context = context(&values, thresholds);
        let mut failed = false;
        let mut render = |key: &str| {
            let rendered = self.templates.iter().find_map(|templates| templates.render(key, &context))?;
            failed |= rendered.is_err();
            let text = visible(rendered.as_deref().unwrap_or(FAILED));
            Some(if text.trim().is_empty() { "(empty)".to_owned() } else { text })
        };
        let title = render("title").unwrap_or_else(|| visible(&format!("Call {tool}")));
        let (target, effect, impact) = (render("target"), render("effect"), render("impact"));
        let (data_out, reversible) = (render("data_out"), render("reversible"));
        let mut texts = Vec::new();
        collect(&Value::Object(values), &mut texts);
        texts.push(tool.to_owned());
        let mut warnings = text_warnings(texts.iter().map(String::as_str));
        if failed {
            warnings.push("A part of this preview could not be rendered from these arguments.".to_owned());
        }
        Preview {
            title,
            target,
            effect,
            impact,
            data_out,
            reversible: reversible.unwrap_or_else(|| "not stated".to_owned()),
            arguments: lay_out(&canonical),
            warnings,
        }
    }
}

/// Thresholds as a reader writes them: `5000`, not `5000.0`.
fn whole(thresholds: &BTreeMap<String, f64>) -> BTreeMap<&str, Value> {
    let written = |value: &f64| serde_json::from_str(&value.to_string()).unwrap_or(Value::Null);
    thresholds.iter().map(|(name, value)| (name.as_str(), written(value))).collect()
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(members) => {
            for (name, value) in members {
                texts.push(name.clone());
                collect(value, texts);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;

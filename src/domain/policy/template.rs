//! Preview templates: MiniJinja over `args` and `thresholds`, plain text out, made visible before anyone sees it.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::value::Value as Jinja;
use minijinja::{Environment, Error, Output, State, UndefinedBehavior};
use serde_json::Value;

use super::{Gate, PreviewDefinition};
use crate::domain::call::Arguments;
use crate::domain::preview::{Preview, lay_out, text_warnings};
use crate::domain::visible::visible;

/// Steps that one template may take; arguments can't make a preview endless.
const FUEL: u64 = 50_000;

/// The names that a template may begin with.
const ROOTS: [&str; 2] = ["args", "thresholds"];

/// The compiled templates of one rule's `[rules.preview]`.
pub struct PreviewTemplates {
    environment: Environment<'static>,
}

impl std::fmt::Debug for PreviewTemplates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PreviewTemplates")
    }
}

impl PreviewTemplates {
    /// Compiles; the errors are for the policy's author, each with its key.
    pub(super) fn compile(
        definition: &PreviewDefinition,
        thresholds: &BTreeSet<&str>,
    ) -> Result<Self, Vec<(&'static str, String)>> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_formatter(format);
        environment.set_fuel(Some(FUEL));
        let mut faults = Vec::new();
        for (key, template) in definition.entries() {
            let Some(template) = template else { continue };
            if environment.add_template_owned(key, template.to_owned()).is_err() {
                faults.push((
                    key,
                    "is not a template; for example: Refund order {{ args.order_id }}".to_owned(),
                ));
                continue;
            }
            let Ok(compiled) = environment.get_template(key) else { continue };
            let mut unknown = BTreeSet::new();
            for path in compiled.undeclared_variables(true) {
                let mut parts = path.split('.');
                let (root, member) = (parts.next().unwrap_or_default(), parts.next());
                if !ROOTS.contains(&root) {
                    unknown.insert(format!("{root} (known are {})", ROOTS.join(" and ")));
                } else if root == "thresholds" && member.is_some_and(|name| !thresholds.contains(name)) {
                    unknown.insert(format!("{path}, which [thresholds] does not have"));
                }
            }
            if !unknown.is_empty() {
                let names: Vec<_> = unknown.into_iter().collect();
                faults.push((key, format!("uses {}", names.join(", "))));
            }
        }
        if faults.is_empty() { Ok(Self { environment }) } else { Err(faults) }
    }

    fn render(&self, key: &str, context: &Jinja) -> Option<String> {
        let template = self.environment.get_template(key).ok()?;
        let rendered = template.render(context).unwrap_or_else(|_| "(could not be rendered)".to_owned());
        Some(visible(rendered.trim()))
    }
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
    /// Renders what people are shown. Never fails: an absent value is `(not given)`. Of several rules' templates, the
    /// first rule that has one gives it.
    pub fn preview(&self, arguments: &Arguments, thresholds: &BTreeMap<String, f64>, tool: &str) -> Preview {
        let context = Jinja::from(minijinja::value::Serde(
            serde_json::json!({ "args": arguments.value(), "thresholds": whole(thresholds) }),
        ));
        let render = |key: &str| self.templates.iter().find_map(|templates| templates.render(key, &context));
        let canonical = String::from_utf8_lossy(arguments.canonical());
        let mut texts = Vec::new();
        collect(&Value::Object(arguments.value().clone()), &mut texts);
        texts.push(tool.to_owned());
        Preview {
            title: render("title").unwrap_or_else(|| visible(&format!("Call {tool}"))),
            target: render("target"),
            effect: render("effect"),
            impact: render("impact"),
            data_out: render("data_out"),
            reversible: render("reversible").unwrap_or_else(|| "not stated".to_owned()),
            arguments: lay_out(&canonical),
            warnings: text_warnings(texts.iter().map(String::as_str)),
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

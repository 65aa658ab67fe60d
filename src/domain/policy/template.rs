//! Preview templates.

use std::collections::BTreeMap;

use super::Gate;
use crate::domain::call::Arguments;
use crate::domain::preview::Preview;

/// The compiled templates of one rule's `[rules.preview]`.
#[derive(Debug)]
pub struct PreviewTemplates;

impl Gate {
    /// Renders what people are shown. Never fails: an absent value is `(not given)`.
    pub fn preview(
        &self,
        _arguments: &Arguments,
        _thresholds: &BTreeMap<String, f64>,
        _tool: &str,
    ) -> Preview {
        Preview {
            title: String::new(),
            target: None,
            effect: None,
            impact: None,
            data_out: None,
            reversible: String::new(),
            arguments: String::new(),
            warnings: Vec::new(),
        }
    }
}

//! Whether two calls amount to the same proposal: equal once spelling that carries no meaning is set aside.
//!
//! Used for the memory of denials alone. It binds nothing: what is approved and executed is the exact call.

use std::cmp::Ordering;

use serde::Serialize;
use serde_json::{Map, Value, json};
use unicode_normalization::UnicodeNormalization as _;

use super::canonical::canonical;
use super::digest::{Binding, sha256};
use super::visible::is_invisible;

/// What of a tool's arguments carries no meaning, as its rules say: JSON Pointers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cosmetic {
    /// Values that are left out.
    pub ignore: Vec<String>,
    /// Lists whose order means nothing.
    pub unordered: Vec<String>,
}

impl Cosmetic {
    /// What both leave out.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        for pointer in &other.ignore {
            if !self.ignore.contains(pointer) {
                self.ignore.push(pointer.clone());
            }
        }
        for pointer in &other.unordered {
            if !self.unordered.contains(pointer) {
                self.unordered.push(pointer.clone());
            }
        }
        self
    }

    /// SHA-256 over tenant, agent, upstream, tool and the arguments with what carries no meaning set aside.
    pub fn digest(&self, binding: &Binding) -> [u8; 32] {
        let arguments = self.reduced(&Value::Object(binding.arguments.value().clone()), "");
        let subject = json!({
            "undersign": "cosmetic/1",
            "tenant": binding.tenant,
            "agent": binding.agent,
            "upstream": binding.upstream,
            "tool": binding.tool,
            "arguments": arguments.unwrap_or_default(),
        });
        // The arguments passed the gate, and folding changes text alone.
        #[expect(clippy::expect_used, reason = "gated values have a canonical form")]
        sha256(&canonical(&subject).expect("gated values have a canonical form"))
    }

    fn reduced(&self, value: &Value, pointer: &str) -> Option<Value> {
        if self.ignore.iter().any(|ignored| ignored == pointer && !pointer.is_empty()) {
            return None;
        }
        Some(match value {
            Value::String(text) => Value::String(folded(text)),
            Value::Array(items) => {
                let mut items: Vec<Value> = items
                    .iter()
                    .enumerate()
                    .filter_map(|(at, item)| self.reduced(item, &format!("{pointer}/{at}")))
                    .collect();
                if self.unordered.iter().any(|unordered| unordered == pointer) {
                    items.sort_by(by_text);
                }
                Value::Array(items)
            }
            Value::Object(map) => {
                let mut reduced = Map::new();
                for (key, item) in map {
                    let pointer = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                    if let Some(item) = self.reduced(item, &pointer) {
                        reduced.insert(key.clone(), item);
                    }
                }
                Value::Object(reduced)
            }
            other => other.clone(),
        })
    }
}

fn by_text(a: &Value, b: &Value) -> Ordering {
    a.to_string().cmp(&b.to_string())
}

/// Compatibility forms, case, white space and what can't be seen set aside.
fn folded(text: &str) -> String {
    let plain: String = text.nfkc().filter(|c| c.is_whitespace() || !is_invisible(*c)).collect();
    // Lower case of upper case comes close to full case folding: it takes ß and SS, ſ and s together.
    let folded: String = plain.to_uppercase().to_lowercase().nfkc().collect();
    folded.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(cosmetic: &Cosmetic, value: &Value) -> Value {
        cosmetic.reduced(value, "").unwrap()
    }

    #[test]
    fn spelling_is_set_aside_and_meaning_is_not() {
        let plain = Cosmetic::default();
        let same = [
            json!({"note": "Straße  nach\nrom"}),
            json!({"note": " STRASSE nach Rom "}),
            json!({"note": "stra\u{200b}sse\u{a0}nach ro\u{ff4d}"}),
        ];
        for other in &same[1..] {
            assert_eq!(reduced(&plain, &same[0]), reduced(&plain, other));
        }
        for other in [
            json!({"note": "strasse nach paris"}),
            json!({"Note": "strasse nach rom"}),
            json!({"note": ["strasse nach rom"]}),
            json!({"note": "strassenach rom"}),
        ] {
            assert_ne!(reduced(&plain, &same[0]), reduced(&plain, &other), "{other}");
        }
        assert_ne!(reduced(&plain, &json!({"n": 1})), reduced(&plain, &json!({"n": "1"})));
        assert_ne!(reduced(&plain, &json!({"l": [1, 2]})), reduced(&plain, &json!({"l": [2, 1]})));
    }

    #[test]
    fn a_rule_says_what_else_means_nothing() {
        let cosmetic = Cosmetic {
            ignore: vec!["/note".to_owned(), "/a~1b/~0c".to_owned()],
            unordered: vec!["/to".to_owned()],
        };
        let one = json!({"note": 1, "to": ["ana", "BEN"], "a/b": {"~c": 1, "d": 2}, "inner": {"note": 1}});
        let other = json!({"to": ["ben", "Ana"], "a/b": {"~c": 7, "d": 2}, "inner": {"note": 1}});
        assert_eq!(reduced(&cosmetic, &one), reduced(&cosmetic, &other));
        let deeper = json!({"to": ["ben", "Ana"], "a/b": {"d": 2}, "inner": {"note": 2}});
        assert_ne!(reduced(&cosmetic, &one), reduced(&cosmetic, &deeper));
    }

    #[test]
    fn an_empty_pointer_leaves_nothing_out() {
        let cosmetic = Cosmetic { ignore: vec![String::new()], unordered: vec![String::new()] };
        assert_eq!(reduced(&cosmetic, &json!({"a": 1})), json!({"a": 1}));
    }
}

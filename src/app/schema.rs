//! Validates arguments against a tool's listed `inputSchema`: no card is posted for what can't be executed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::App;
use crate::domain::call::{Arguments, ToolDefinition};
use crate::domain::visible::visible;

/// How long one check may take. A schema is the upstream's, and may be made to cost.
const PATIENCE: Duration = Duration::from_secs(2);

impl App {
    /// Checks arguments beside the tasks that serve requests, a few at a time: a schema that was made to cost holds up
    /// other checks and nothing else.
    pub(super) async fn validate(
        &self,
        tool: &ToolDefinition,
        arguments: &Arguments,
    ) -> Result<(), SchemaFault> {
        let check = async {
            let turn = Arc::clone(&self.0.checks).acquire_owned().await.ok()?;
            let (schema, arguments) = (tool.input_schema().clone(), arguments.clone());
            let work = tokio::task::spawn_blocking(move || {
                let checked = validate(&schema, arguments.value());
                drop(turn);
                checked
            });
            work.await.ok()
        };
        tokio::time::timeout(PATIENCE, check).await.ok().flatten().unwrap_or(Err(SchemaFault::Unusable))
    }
}

/// Why arguments were not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SchemaFault {
    /// The schema itself can't be used: not a schema, or it refers to somewhere else.
    Unusable,
    /// The arguments do not fit; where.
    Unfit(String),
}

fn validate(schema: &Value, arguments: &Map<String, Value>) -> Result<(), SchemaFault> {
    if schema.is_null() {
        return Ok(());
    }
    // The linear-time engine: an upstream's pattern can't make a check endless. Nothing remote is resolved: the crate is
    // built without resolvers.
    let validator = jsonschema::options()
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(schema)
        .map_err(|_| SchemaFault::Unusable)?;
    let arguments = Value::Object(arguments.clone());
    match validator.iter_errors(&arguments).next() {
        None => Ok(()),
        // The error's own text quotes values; the place alone does not.
        Some(error) => {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the arguments object".to_owned() } else { visible(&place) };
            // The rule is the schema's own text, which the agent has been given.
            Err(SchemaFault::Unfit(format!(
                "{place}, by the schema's {}",
                visible(&error.schema_path().to_string())
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, arguments: Value) -> Result<(), SchemaFault> {
        let Value::Object(map) = arguments else { panic!("an object") };
        validate(schema, &map)
    }

    #[test]
    fn the_place_is_named_and_the_value_is_not() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
        assert_eq!(check(&schema, json!({"n": 1})), Ok(()));
        assert_eq!(
            check(&schema, json!({"n": "secret"})),
            Err(SchemaFault::Unfit("/n, by the schema's /properties/n/type".to_owned()))
        );
        assert_eq!(
            check(&schema, json!({"x": 1})),
            Err(SchemaFault::Unfit("the arguments object, by the schema's /additionalProperties".to_owned()))
        );
    }

    #[test]
    fn a_reference_to_elsewhere_is_unusable() {
        let schema = json!({"$ref": "http://127.0.0.1:1/schema.json"});
        assert_eq!(check(&schema, json!({})), Err(SchemaFault::Unusable));
    }
}

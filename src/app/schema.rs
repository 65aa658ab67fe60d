//! Validates arguments against a tool's listed `inputSchema`: no card is posted for what can't be executed.

use serde_json::{Map, Value};

/// Why arguments were not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SchemaFault {
    /// The schema itself can't be used: not a schema, or it refers to somewhere else.
    Unusable,
    /// The arguments do not fit; where.
    Unfit(String),
}

pub(super) fn validate(schema: &Value, arguments: &Map<String, Value>) -> Result<(), SchemaFault> {
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
            Err(SchemaFault::Unfit(if place.is_empty() { "the arguments object".to_owned() } else { place }))
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
        assert_eq!(check(&schema, json!({"n": "secret"})), Err(SchemaFault::Unfit("/n".to_owned())));
        assert_eq!(
            check(&schema, json!({"x": 1})),
            Err(SchemaFault::Unfit("the arguments object".to_owned()))
        );
    }

    #[test]
    fn a_reference_to_elsewhere_is_unusable() {
        let schema = json!({"$ref": "http://127.0.0.1:1/schema.json"});
        assert_eq!(check(&schema, json!({})), Err(SchemaFault::Unusable));
    }
}

use std::collections::BTreeSet;

use super::*;
use crate::config::reader::ASKED;
use crate::config::tests::{Files, GOOD};

/// A policy whose rules have every shape that a rule can have.
const TEAM: &str = r#"
[thresholds]
limit = 1
[people.ana]
slack = ["main/U0ANA"]
[groups.pay]
people = ["ana"]
[[rules]]
name = "read-only"
tools = ["shop/get_*"]
decision = "allow"
[[rules]]
name = "ask"
tools = ["shop/refund"]
decision = "require_approval"
separate_proposer = false
approvers = [{ group = "pay" }]
post_to = ["slack:main/C1"]
[rules.preview]
title = "x"
[limits]
denials_pause = { count = 3 }
"#;

#[test]
fn the_readers_ask_for_exactly_the_keys_of_the_table() {
    let files = Files::new();
    files.write("policy/acme/team.toml", TEAM, 0o644);
    files.write("undersign.toml", GOOD, 0o644);
    ASKED.take();
    assert_eq!(files.outcome(files.load()), "accepted");
    let asked = ASKED.take();
    let sections = CONFIG.iter().chain(POLICY);
    let listed: BTreeSet<_> = sections
        .flat_map(|section| section.keys.iter().map(|key| (section.name, key.name)))
        .filter(|(_, key)| *key != "*")
        .collect();
    let unlisted: Vec<_> = asked.difference(&listed).collect();
    let unread: Vec<_> = listed.difference(&asked).collect();
    assert!(unlisted.is_empty(), "read, and not in src/config/reference: {unlisted:?}");
    assert!(unread.is_empty(), "in src/config/reference, and read by nothing: {unread:?}");
}

#[test]
fn every_named_section_is_there_and_every_example_is_toml() {
    for sections in [CONFIG, POLICY] {
        let names: Vec<_> = sections.iter().map(|section| section.name).collect();
        for key in sections.iter().flat_map(|section| section.keys) {
            if let Kind::Table(name) | Kind::Tables(name) | Kind::List(name) = key.kind {
                assert!(names.contains(&name), "{name} is described nowhere");
            }
            let values = [key.example, if let Absent::Value(value) = key.absent { value } else { "" }];
            for value in values.into_iter().filter(|value| !value.is_empty()) {
                // The one default that is said in words on the card.
                let parsed = format!("x = {value}").parse::<toml::Table>();
                assert!(parsed.is_ok(), "{}: {value}", key.name);
            }
        }
    }
}

#[test]
fn the_reference_file_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/REFERENCE.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == markdown(), "run: cargo run -- schema markdown > deploy/REFERENCE.md");
}

#[test]
fn the_schemas_take_the_example_and_refuse_a_wrong_spelling() {
    let accepts = |sections, text: &str| {
        let value: serde_json::Value = serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
        jsonschema::options().build(&json_schema(sections)).unwrap().is_valid(&value)
    };
    assert!(accepts(CONFIG, GOOD));
    assert!(accepts(POLICY, TEAM));
    assert!(!accepts(CONFIG, &GOOD.replace("team_id", "team")));
    assert!(!accepts(POLICY, &TEAM.replace("tools", "tool")));
    assert!(!accepts(POLICY, &TEAM.replace("\"allow\"", "\"alow\"")));
}

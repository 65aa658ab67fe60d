use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::domain::ijson::scan_arguments;

fn text(value: &impl Serialize) -> String {
    String::from_utf8(canonical(value).unwrap()).unwrap()
}

#[test]
fn what_is_no_number_has_no_form() {
    assert_eq!(canonical(&f64::NAN), Err(CanonicalError));
    assert_eq!(canonical(&f64::INFINITY), Err(CanonicalError));
}

/// The doubles of the ES6 number list that comes with the official vectors: a fixed beginning, two thousand neighbours,
/// then what a chain of SHA-256 yields.
fn es6_numbers() -> impl Iterator<Item = f64> {
    let first = include_str!("../../../tests/data/jcs/es6-first.txt");
    let first = first.lines().map(|line| u64::from_str_radix(line, 16).unwrap());
    let neighbours = (0..2000).map(|step| 0x0010_0000_0000_0000 + step);
    let chain = std::iter::successors(Some([0_u8; 32]), |block| Some(Sha256::digest(block).into())).skip(1);
    let words = chain.flat_map(|block| {
        let words: Vec<u64> =
            block.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        words
    });
    let random = words.map(f64::from_bits).filter(|value| value.is_finite() && *value != 0.0);
    first.chain(neighbours).map(f64::from_bits).chain(random)
}

#[test]
fn the_es6_number_list_has_its_published_digest() {
    let mut list = String::new();
    for value in es6_numbers().take(10_000) {
        writeln!(list, "{:x},{}", value.to_bits(), text(&value)).unwrap();
    }
    assert_eq!(list.len(), 399_022);
    assert_eq!(
        hex::encode(Sha256::digest(&list)),
        "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892"
    );
}

#[test]
fn names_are_sorted_by_utf_16_units() {
    assert_eq!(text(&json!({"\u{fb33}": 1, "\u{1f602}": 2})), "{\"\u{1f602}\":2,\"\u{fb33}\":1}");
    assert_eq!(text(&json!({"a!": 2, "a ": 3, "a": 1, "": 0})), r#"{"":0,"a":1,"a ":3,"a!":2}"#);
    assert_eq!(text(&json!({"\t": 1, "\u{7f}": 2, "A": 3})), "{\"\\t\":1,\"A\":3,\"\u{7f}\":2}");
}

#[test]
fn one_call_has_one_form_whatever_its_spelling() {
    let form = |raw: &str| {
        assert_eq!(scan_arguments(raw.as_bytes()), Ok(()), "{raw}");
        text(&serde_json::from_str::<Value>(raw).unwrap())
    };
    let expected = r#"{"A":1,"b":[100,0]}"#;
    for raw in [
        r#"{"A":1,"b":[100,0]}"#,
        r#"{"b":[1e2,0e5],"A":1.0}"#,
        r#" { "\u0062" : [ 100.00 , 0.0 ] , "\u0041" : 100e-2 } "#,
    ] {
        assert_eq!(form(raw), expected, "{raw}");
    }
    assert_ne!(form("{\"a\":\"\u{e9}\"}"), form("{\"a\":\"e\u{301}\"}"), "NFC and NFD are different calls");
    assert_ne!(form("{\"a\":\"a\"}"), form("{\"a\":\"\u{430}\"}"));
    assert_ne!(form("{\"a\":\"a\"}"), form("{\"a\":\"a\u{200b}\"}"));
}

/// What the gate lets through, built as values: any string without U+0000, and numbers that a double carries.
fn value() -> impl Strategy<Value = Value> {
    let whole = (-((1_i64 << 53) - 1)..1 << 53).prop_map(Value::from);
    let double = any::<f64>().prop_filter_map("finite", |number| {
        let unsafe_integer =
            number.fract() == 0.0 && number.abs() >= 9_007_199_254_740_992.0 && number.abs() < 1e21;
        let changed = unsafe_integer || (number == 0.0 && number.is_sign_negative());
        (number.is_finite() && !changed).then(|| Value::from(number))
    });
    let string =
        prop::collection::vec(prop::char::range('\u{1}', char::MAX), 0..6).prop_map(String::from_iter);
    let leaf = prop_oneof![
        whole,
        double,
        string.clone().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null)
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(string.clone(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The second implementation agrees, the output passes the gate, and it is its own canonical form.
    #[test]
    fn two_implementations_agree_on_a_fixed_point(value in value()) {
        let bytes = canonical(&value).unwrap();
        prop_assert_eq!(&serde_json_canonicalizer::to_vec(&value).unwrap(), &bytes);
        prop_assert_eq!(scan_arguments(&bytes), Ok(()));
        let again: Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(canonical(&again).unwrap(), bytes);
    }
}

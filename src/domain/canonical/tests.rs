use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::domain::ijson::scan_arguments;

macro_rules! vectors {
    ($($name:literal),*) => {
        [$((
            $name,
            include_bytes!(concat!("../../../tests/data/jcs/", $name, ".input.json")).as_slice(),
            include_bytes!(concat!("../../../tests/data/jcs/", $name, ".output.json")).as_slice(),
        )),*]
    };
}

fn text(value: &impl Serialize) -> String {
    String::from_utf8(canonical(value).unwrap()).unwrap()
}

#[test]
fn the_official_vectors_pass_the_gate_and_come_out_byte_for_byte() {
    for (name, input, expected) in vectors!["arrays", "french", "structures", "unicode", "values", "weird"] {
        assert_eq!(scan_arguments(input), Ok(()), "{name}");
        let value: Value = serde_json::from_slice(input).unwrap();
        assert_eq!(canonical(&value).unwrap(), expected, "{name}");
        assert_eq!(scan_arguments(expected), Ok(()), "{name}");
        let again: Value = serde_json::from_slice(expected).unwrap();
        assert_eq!(canonical(&again).unwrap(), expected, "{name}");
    }
}

/// RFC 8785, appendix B.
#[test]
fn numbers_are_printed_as_the_rfc_lists_them() {
    let samples: &[(u64, &str)] = &[
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in samples {
        assert_eq!(text(&f64::from_bits(*bits)), *expected, "{bits:x}");
    }
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

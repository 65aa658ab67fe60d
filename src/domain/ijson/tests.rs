use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::domain::canonical::canonical;

fn verdict(value: &str) -> &'static str {
    match scan_arguments(format!("{{\"v\":{value}}}").as_bytes()) {
        Ok(()) => "accept",
        Err(Fault::Value(_)) => "value",
        Err(Fault::Envelope(_)) => "envelope",
    }
}

#[test]
fn numbers_are_judged_by_their_text() {
    for accepted in [
        "1",
        "1.0",
        "1e0",
        "100e-2",
        "0",
        "0.0",
        "0e5",
        "9007199254740991",
        "-9007199254740991",
        "1e21",
        "1.5e300",
        "0.1",
        "333333333.33333329",
        "1.00000000000000000000",
        "5e-324",
        "2.2250738585072014e-308",
        "0.00000000000000000000e999999999999999999999",
    ] {
        assert_eq!(verdict(accepted), "accept", "{accepted}");
    }
    for refused in [
        "-0",
        "-0.0",
        "-0e5",
        "9007199254740992",
        "9007199254740993",
        "18446744073709551615",
        "-9007199254740992",
        "9007199254740992.0",
        "1e20",
        "0.1000000000000000055511151231257827",
        "1e-400",
        "4e-324",
        "1e400",
        "12345678901234567890123",
        "1e99999999999999999999",
    ] {
        assert_eq!(verdict(refused), "value", "{refused}");
    }
    for broken in ["01", "+1", "1.", ".5", "NaN", "Infinity", "1e", "1e+", "-", "0x1", "1 2"] {
        assert_eq!(verdict(broken), "envelope", "{broken}");
    }
}

#[test]
fn strings_are_judged_after_unescaping() {
    for accepted in [r#""\ud83d\ude00""#, r#""é""#, "\"\u{2028}\u{200b}\"", r#""\u0041\/\b""#] {
        assert_eq!(verdict(accepted), "accept", "{accepted}");
    }
    assert_eq!(verdict(r#""\u0000""#), "value");
    assert_eq!(verdict(r#"{"a\u0000":1}"#), "value");
    for refused in [
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""\ud800x""#,
        r#""\ud800\u0041""#,
        "\"\u{1}\"",
        r#""\x""#,
        r#""\u12""#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"$serde_json::private::RawValue":"[1]"}"#,
        r#"{"$serde_json::private::anything":1}"#,
        "[1,]",
        "{\"a\":1,}",
        "[1 2]",
        "{1:2}",
        "// c\n1",
        "[}",
        "\"",
    ] {
        assert_eq!(verdict(refused), "envelope", "{refused}");
    }
}

#[test]
fn many_names_are_still_compared() {
    let mut names: Vec<String> = (0..1000).map(|i| format!("\"n{i}\":{i}")).collect();
    assert_eq!(scan_arguments(format!("{{{}}}", names.join(",")).as_bytes()), Ok(()));
    names.push("\"n3\":0".to_owned());
    let twice = scan_arguments(format!("{{{}}}", names.join(",")).as_bytes());
    assert!(matches!(twice, Err(Fault::Envelope(EnvelopeFault::DuplicateName { .. }))));
}

#[test]
fn depth_is_counted_from_the_arguments_object_and_over_the_body() {
    let nest = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert_eq!(scan_arguments(nest(64).as_bytes()), Ok(()));
    assert!(scan_arguments(nest(65).as_bytes()).is_err());
    let body = |levels| format!(r#"{{"params":{{"arguments":{}}}}}"#, nest(levels));
    assert!(scan_body(body(64).as_bytes()).is_ok());
    assert!(scan_body(body(65).as_bytes()).is_err());
    let elsewhere =
        |levels: usize| format!(r#"{{"x":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert!(scan_body(elsewhere(80).as_bytes()).is_ok());
    assert!(scan_body(elsewhere(81).as_bytes()).is_err());
    assert!(scan_body("[".repeat(100_000).as_bytes()).is_err());
    assert!(scan_body(format!("{{\"a\":{}", "{\"a\":".repeat(100_000)).as_bytes()).is_err());
}

#[test]
fn the_arguments_are_found_where_they_are_and_nowhere_else() {
    let found = |body: &str| {
        scan_body(body.as_bytes()).map(|envelope| envelope.arguments.map(|range| body[range].to_owned()))
    };
    let some = |text: &str| Ok(Some(text.to_owned()));
    assert_eq!(found(r#"{"params":{"name":"x","arguments": {"a":[1]} },"id":1}"#), some(r#"{"a":[1]}"#));
    assert_eq!(found(r#"{"par\u0061ms":{"\u0061rguments":7}}"#), some("7"));
    assert_eq!(found(r#"{"arguments":{"a":1},"params":{"x":{"arguments":{}}}}"#), Ok(None));
    assert_eq!(found(r#"{"params":[{"arguments":{}}]}"#), Ok(None));
    assert_eq!(found(r#"{"x":{"params":{"arguments":{}}}}"#), Ok(None));
    assert_eq!(found(r#"[{"params":{"arguments":{}}}]"#), Err(EnvelopeFault::Batch));
    assert_eq!(found("{\"params\":{\"arguments\":{\"v\":-0}}}").map(|a| a.is_some()), Ok(true));
}

#[test]
fn size_encoding_and_marks() {
    assert!(matches!(scan_body(&vec![b' '; MAX_BODY + 1]), Err(EnvelopeFault::TooLarge { .. })));
    assert_eq!(scan_body(b"\xef\xbb\xbf{}"), Err(EnvelopeFault::ByteOrderMark));
    assert_eq!(scan_body(b"{\"a\":\"\xff\"}"), Err(EnvelopeFault::NotUtf8 { at: 6 }));
    assert!(scan_body(b"").is_err());
    assert!(scan_body(b"{} {}").is_err());
}

#[test]
fn no_message_repeats_what_was_sent() {
    let secret = "swordfish";
    for text in [
        format!("{{\"{secret}\":1,\"{secret}\":2}}"),
        format!("{{\"a\":\"{secret}\\u0000\"}}"),
        secret.to_owned(),
    ] {
        let fault = scan_arguments(text.as_bytes()).unwrap_err();
        assert!(!fault.to_string().contains(secret) && !format!("{fault:?}").contains(secret));
    }
}

fn json_text() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:e}")),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?",
    ];
    let string = prop_oneof![
        "[a-c\\\\u00e9\u{1f600}]{0,4}".prop_map(|s| Value::from(s).to_string()),
        Just(r#""\u0061""#.to_owned())
    ];
    let leaf = prop_oneof![number, string, Just("null".to_owned()), Just("true".to_owned())];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" ,"))),
            prop::collection::vec(("[a-d]{1,2}", inner), 0..4).prop_map(|members| {
                let members: Vec<_> = members.iter().map(|(n, v)| format!("\"{n}\" : {v}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// What the gate accepts, serde_json accepts; its canonical form passes again and is a fixed point; and the second
    /// implementation of RFC 8785 agrees on it.
    #[test]
    fn accepted_text_has_one_stable_canonical_form(text in json_text()) {
        if scan_arguments(text.as_bytes()).is_ok() {
            let value: Value = serde_json::from_str(&text).unwrap();
            let bytes = canonical(&value).unwrap();
            prop_assert_eq!(scan_arguments(&bytes), Ok(()));
            let again: Value = serde_json::from_slice(&bytes).unwrap();
            prop_assert_eq!(&canonical(&again).unwrap(), &bytes);
            prop_assert_eq!(serde_json_canonicalizer::to_vec(&value).unwrap(), bytes);
        }
    }

    /// The gate finds no fault of grammar in what serde_json takes, and takes nothing that serde_json refuses.
    #[test]
    fn the_grammar_is_serde_jsons(text in json_text(), cut in any::<prop::sample::Index>(), extra in "[\\[\\]{},:\"0-9a-z\\\\ ]?") {
        let mut mutated = text.clone();
        let mut at = cut.index(text.len() + 1);
        while !mutated.is_char_boundary(at) { at -= 1; }
        mutated.insert_str(at, &extra);
        let gate = scan_arguments(mutated.as_bytes());
        let parsed = serde_json::from_str::<Value>(&mutated);
        if gate.is_ok() {
            prop_assert!(parsed.is_ok(), "{}", mutated);
        }
        if parsed.is_ok() {
            let grammar = matches!(gate, Err(Fault::Envelope(EnvelopeFault::Grammar { .. })));
            prop_assert!(!grammar, "{}: {:?}", mutated, gate);
        }
    }
}

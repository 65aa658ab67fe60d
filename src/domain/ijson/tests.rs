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
fn digits_are_compared_not_spellings() {
    for accepted in [
        "0.1000000000000000000",
        "1000000000000000000000000000e-30",
        "0.000000000000000000000000000001e30",
        "1.7976931348623157e308",
        "5.0e-324",
        "0.5e-323",
        "9007199254740991.0",
        "1e0000000000000000000000000000001",
    ] {
        assert_eq!(verdict(accepted), "accept", "{accepted}");
    }
    for refused in
        ["4.94065645841246544e-324", "2.2250738585072011e-308", "0.10000000000000000001", "-1e-400"]
    {
        assert_eq!(verdict(refused), "value", "{refused}");
    }
}

#[test]
fn a_value_fault_says_where_without_quoting() {
    let pointer = |raw: &str| match scan_arguments(raw.as_bytes()) {
        Err(Fault::Value(fault)) => fault.pointer().as_str().to_owned(),
        other => panic!("{raw}: {other:?}"),
    };
    assert_eq!(pointer(r#"{"a":[1,{"b":2,"c":-0}]}"#), "/a/1/c");
    assert_eq!(pointer(r#"{"x":[[],{}],"a/b~c":{"\u0064":[0,"\u0000"]}}"#), "/a~1b~0c/d/1");
    assert_eq!(pointer(r#"{"x":1,"y":{"z":2,"\u0000":3}}"#), "/y", "a name has no pointer of its own");
    assert_eq!(pointer(r#"{"":-0}"#), "/");
    assert_eq!(pointer("-0"), "");
    assert_eq!(pointer(r#"{"a":-0,"b":1e400}"#), "/a", "the first fault is told");
    let long = "n".repeat(10_000);
    assert_eq!(
        pointer(&format!(r#"{{"a":{{"{long}":{{"b":-0}}}}}}"#)),
        "/a",
        "an enclosing value stands for it"
    );
}

#[test]
fn an_envelope_fault_comes_before_a_value_fault() {
    let fault = scan_arguments(br#"{"a":-0,"b":1,"b":2}"#);
    assert_eq!(fault, Err(Fault::Envelope(EnvelopeFault::DuplicateName { at: 14 })));
}

#[test]
fn a_body_is_not_judged_by_its_values() {
    let body = r#"{"id":18446744073709551615,"params":{"arguments":{"v":[-0,1e400,"\u0000"],"\u0000":1}}}"#;
    let range = scan_body(body.as_bytes()).unwrap().arguments.unwrap();
    assert!(matches!(scan_arguments(&body.as_bytes()[range]), Err(Fault::Value(_))));
    for other in ["1", "\"text\"", "null", " true "] {
        assert_eq!(scan_body(other.as_bytes()), Ok(Envelope { arguments: None }), "{other}");
    }
}

#[test]
fn a_hostile_text_is_refused_by_its_first_bytes_or_read_once() {
    let names = |count: usize| {
        let members: Vec<String> = (0..count).map(|i| format!("\"{i:x}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    assert_eq!(scan_body(names(1_000_000).as_bytes()), Err(EnvelopeFault::TooLarge { limit: MAX_BODY }));
    assert!(scan_body(names(100_000).as_bytes()).is_ok());
    assert_eq!(
        scan_body("{\"a\":".repeat(100_000).as_bytes()),
        Err(EnvelopeFault::TooDeep { at: 5 * MAX_BODY_DEPTH, limit: MAX_BODY_DEPTH }),
    );
}

#[test]
fn long_literals_are_judged_by_magnitude() {
    let zeros = |count: usize| "0".repeat(count);
    for (accepted, double) in [
        (format!("0.{}1e250001", zeros(250_000)), 1_f64),
        (format!("1{}e-250000", zeros(250_000)), 1.0),
        (format!("0.{}1e65537", zeros(65_536)), 1.0),
        (format!("1e{}1", zeros(250_000)), 10.0),
        (format!("1.{}", zeros(250_000)), 1.0),
    ] {
        assert_eq!(verdict(&accepted), "accept");
        assert_eq!(serde_json::from_str::<f64>(&accepted).unwrap().to_bits(), double.to_bits());
    }
    let fault = |literal: String| scan_arguments(literal.as_bytes()).unwrap_err();
    for large in [
        format!("0.{}1e700000", zeros(69_999)),
        format!("0.{}1e{}", zeros(200_000), "9".repeat(60_000)),
        format!("1{}.5", zeros(309)),
        "1.8e308".to_owned(),
    ] {
        assert!(matches!(fault(large), Fault::Value(ValueFault::NotFinite { .. })));
    }
    for small in [
        format!("1{}e-700000", zeros(70_000)),
        format!("1{}e-{}", zeros(200_000), "9".repeat(60_000)),
        format!("0.{}5", zeros(324)),
    ] {
        assert!(matches!(fault(small), Fault::Value(ValueFault::Inexact { .. })));
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

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("{n:e}")),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?",
        "-?0\\.0{0,330}[0-9]{1,20}",
        "-?[0-9]{1,3}(\\.[0-9]{0,4})?[eE][+-]?[0-9]{1,24}",
    ]
}

fn json_text() -> impl Strategy<Value = String> {
    let string = prop_oneof![
        "[a-c\\\\u00e9\u{1f600}]{0,4}".prop_map(|s| Value::from(s).to_string()),
        "\"([a\\\\u]|\\\\u[dD][89abcdefABCDEF][0-9a-f]{2}|\\\\[\"\\\\/bfnrtux]|\\\\u00[0-9a-f]{2}|.){0,6}\"",
    ];
    let leaf = prop_oneof![number(), string, Just("null".to_owned()), Just("true".to_owned())];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" ,"))),
            prop::collection::vec(("[a-d]|\\\\u006[1-4]|[a-d]{2}", inner), 0..4).prop_map(|members| {
                let members: Vec<_> = members.iter().map(|(n, v)| format!("\"{n}\" : {v}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

/// Objects and arrays in which the names on the way to the arguments stand at every level, in several spellings.
fn body_text() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "params",
        "par\\u0061ms",
        "params ",
        "Params",
        "arguments",
        "argument\\u0073",
        "arguments\\u0000",
        "name",
        "",
    ]);
    let leaf =
        prop::sample::select(vec!["0", "-0", "null", "\"arguments\"", "\"}\"", "\"\\\"\"", "[]", "{}"]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 40, 4, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            4 => prop::collection::vec((name.clone(), inner), 0..4).prop_map(|members| {
                let members: Vec<_> = members.iter().map(|(n, v)| format!("\"{n}\" :\n{v}")).collect();
                format!("{{ {} }}", members.join(" ,\t"))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// What is checked as the arguments is what a parser reads as the arguments.
    #[test]
    fn the_arguments_are_those_that_a_parser_finds(params in body_text(), other in body_text(), rest in body_text()) {
        for body in [
            params.clone(),
            format!("{{\"params\":{params},\"x\":{other}}}"),
            format!("{{\"x\":{other},\"params\":{{\"name\":{rest},\"arguments\" : {params} }}}}"),
        ] {
            if let Ok(envelope) = scan_body(body.as_bytes()) {
                let parsed: Value = serde_json::from_str(&body).unwrap();
                let expected = parsed.get("params").filter(|params| params.is_object()).and_then(|p| p.get("arguments"));
                let found = envelope.arguments.map(|range| serde_json::from_str::<Value>(&body[range]).unwrap());
                prop_assert_eq!(found.as_ref(), expected, "{}", body);
            }
        }
    }

    /// Any bytes: nothing panics, and nothing passes that serde_json refuses.
    #[test]
    fn bytes_that_are_no_json_do_not_pass(
        text in json_text(),
        cut in any::<prop::sample::Index>(),
        removed in 0_usize..3,
        extra in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let mut bytes = text.into_bytes();
        let from = cut.index(bytes.len() + 1);
        let to = (from + removed).min(bytes.len());
        bytes.splice(from..to, extra);
        let gate = scan_arguments(&bytes);
        match serde_json::from_slice::<Value>(&bytes) {
            Err(_) => prop_assert!(gate.is_err(), "{:?}", bytes),
            Ok(_) => prop_assert!(
                !matches!(gate, Err(Fault::Envelope(EnvelopeFault::Grammar { .. } | EnvelopeFault::NotUtf8 { .. }))),
                "{:?}", bytes
            ),
        }
    }

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

    /// A number that the gate takes is the same double to every parser, and what is printed for it is that double.
    #[test]
    fn accepted_numbers_are_one_double(literal in number()) {
        if scan_arguments(literal.as_bytes()).is_ok() {
            let double: f64 = literal.parse().unwrap();
            prop_assert_eq!(serde_json::from_str::<f64>(&literal).unwrap().to_bits(), double.to_bits());
            let printed = canonical(&serde_json::from_str::<Value>(&literal).unwrap()).unwrap();
            prop_assert_eq!(serde_json::from_slice::<f64>(&printed).unwrap().to_bits(), double.to_bits());
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

//! RFC 8785: official vectors, the number table of its appendix B, and a second implementation on random documents.

use proptest::prelude::*;
use serde_json::{Map, Number, Value};
use undersign::domain::canonical::canonical;
use undersign::domain::ijson::scan_arguments;

macro_rules! vectors {
    ($($name:literal),*) => {
        [$((
            $name,
            include_str!(concat!("data/jcs/", $name, ".input.json")),
            include_str!(concat!("data/jcs/", $name, ".output.json")),
        )),*]
    };
}

#[test]
fn b08_the_official_vectors_and_numbers_come_out_byte_for_byte() {
    for (name, input, output) in vectors!("arrays", "french", "structures", "unicode", "values", "weird") {
        let value: Value = serde_json::from_str(input).unwrap();
        assert_eq!(String::from_utf8(canonical(&value).unwrap()).unwrap(), output, "{name}");
        assert_eq!(scan_arguments(input.as_bytes()), Ok(()), "{name}: the byte gate takes it");
        assert_eq!(scan_arguments(output.as_bytes()), Ok(()), "{name}: and takes its canonical form");
    }
    for (bits, printed) in [
        (0x0000_0000_0000_0000_u64, "0"),
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
    ] {
        let number = Number::from_f64(f64::from_bits(bits)).unwrap();
        assert_eq!(canonical(&Value::Number(number)).unwrap(), printed.as_bytes(), "{bits:016x}");
    }
    // Names sort by UTF-16 units, not by code points or bytes (THREATS.md K3).
    let names = serde_json::json!({"\u{fb33}": 1, "\u{1f602}": 2, "a!": 3, "a": 4, "a ": 5});
    let expected = "{\"a\":4,\"a \":5,\"a!\":3,\"\u{1f602}\":2,\"\u{fb33}\":1}";
    assert_eq!(String::from_utf8(canonical(&names).unwrap()).unwrap(), expected);
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |n| Number::from_f64(n).map(Value::Number)),
        any::<u64>()
            .prop_filter_map("finite", |bits| Number::from_f64(f64::from_bits(bits)).map(Value::Number)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn a_second_implementation_agrees(value in document()) {
        prop_assert_eq!(canonical(&value).unwrap(), serde_json_canonicalizer::to_vec(&value).unwrap());
    }
}

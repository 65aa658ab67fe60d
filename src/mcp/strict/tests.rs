use http::HeaderValue;

use super::*;

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a": 1.0 }}}"#;

fn headers(content_type: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
    headers
}

fn read(body: &str) -> Result<Checked, Refusal> {
    check(&headers("application/json"), Bytes::copy_from_slice(body.as_bytes()))
}

fn refusal(body: &str) -> (u16, i32) {
    let refusal = read(body).unwrap_err();
    (refusal.status().as_u16(), refusal.code())
}

#[test]
fn the_arguments_are_handed_on_as_they_were_written() {
    let checked = read(CALL).unwrap();
    assert_eq!(checked.body, CALL);
    assert_eq!(checked.arguments.as_deref(), Some(br#"{"a": 1.0 }"#.as_slice()));
    let without = read(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#).unwrap();
    assert_eq!(without.arguments, None);
}

#[test]
fn the_content_type_is_json_in_utf_8_whatever_its_case() {
    for accepted in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/json ; charset=\"utf-8\"",
    ] {
        check(&headers(accepted), CALL.into()).unwrap();
    }
    for refused in [
        "application/json;charset=utf-7",
        "application/json; charset=utf-16",
        "application/json; boundary=x",
        "application/json;",
        "application/jsonp",
        "application/json-rpc",
        "text/plain",
        "text/plain, application/json",
        "",
    ] {
        assert_eq!(check(&headers(refused), CALL.into()).unwrap_err().status(), 415, "{refused}");
    }
    assert_eq!(check(&HeaderMap::new(), CALL.into()).unwrap_err(), Refusal::MediaType);
    let mut twice = headers("application/json");
    twice.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    assert_eq!(check(&twice, CALL.into()).unwrap_err(), Refusal::MediaType);
}

#[test]
fn an_encoded_body_is_refused_even_when_the_encoding_does_nothing() {
    for encoding in ["gzip", "identity", "br", ""] {
        let mut headers = headers("application/json");
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap());
        assert_eq!(check(&headers, CALL.into()).unwrap_err(), Refusal::Encoded, "{encoding}");
    }
}

#[test]
fn the_members_of_the_envelope_have_one_spelling() {
    for name in ["Method", "METHOD", "method\u{200b}"] {
        assert_eq!(refusal(&format!(r#"{{"jsonrpc":"2.0","id":1,"{name}":"tools/call"}}"#)), (400, -32600));
        let both = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","{name}":"tools/call"}}"#);
        assert_eq!(refusal(&both), (400, -32600));
    }
    assert_eq!(refusal(r#"{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{}}"#), (400, -32600));
    assert_eq!(refusal(r#"{"id":1,"method":"ping"}"#), (400, -32600));
    for text in ["5", "\"ping\"", "null", "{}"] {
        assert_eq!(refusal(text), (400, -32600), "{text}");
    }
}

#[test]
fn a_batch_is_refused_however_small() {
    assert_eq!(refusal("[]"), (400, -32600));
    assert_eq!(refusal(&format!(" [{CALL}]")), (400, -32600));
    assert_eq!(refusal(&format!("{CALL}{CALL}")), (400, -32700));
}

#[test]
fn a_name_that_occurs_twice_is_refused_wherever_it_is() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","n\u0061me":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[{"y":1,"y":2}]}}}"#,
    ] {
        assert_eq!(refusal(body), (400, -32600), "{body}");
    }
}

#[test]
fn text_that_is_no_json_is_a_parse_error() {
    for body in ["", "{", "{'a':1}", "nul", "\u{feff}{}", "{\"jsonrpc\":\"2.0\",}"] {
        assert_eq!(refusal(body), (400, -32700), "{body}");
    }
    let not_utf8 = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}");
    let refusal = check(&headers("application/json"), not_utf8).unwrap_err();
    assert_eq!((refusal.status().as_u16(), refusal.code()), (400, -32700));
}

#[test]
fn depth_and_size_have_limits() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{open}{close}}}}}"#)
    };
    read(&nested(ijson::MAX_BODY_DEPTH - 2)).unwrap();
    assert_eq!(refusal(&nested(ijson::MAX_BODY_DEPTH - 1)), (400, -32600));
    assert_eq!(refusal(&nested(100_000)), (400, -32600));
    assert_eq!(refusal(&format!("{CALL}{}", " ".repeat(ijson::MAX_BODY))), (413, -32600));
}

#[test]
fn the_answer_says_what_is_wrong_and_quotes_nothing() {
    let body = read(r#"{"jsonrpc":"2.0","secret":"s3cr3t"}"#).unwrap_err().body();
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        answer,
        json!({"jsonrpc": "2.0", "error": {"code": -32600, "message": "the text is not one JSON-RPC 2.0 message"}})
    );
}

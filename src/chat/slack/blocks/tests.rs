use proptest::prelude::*;

use super::*;
use crate::chat::slack::tests::{approved_card, card, hostile_card, vote_line};

const HANDLE: &str = "q3Zk0m3nT1y7uVtqk9c8Yw";

fn post(card: &Card) -> Result<Content, CardTooLarge> {
    posted(card, HANDLE, &"main".into())
}

fn edit(card: &Card) -> Result<Content, CardTooLarge> {
    edited(card, HANDLE, &"main".into())
}

fn pretty(content: &Content) -> String {
    let message = json!({"text": content.text, "blocks": content.blocks});
    serde_json::to_string_pretty(&message).unwrap()
}

/// Every object in the blocks.
fn objects(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => std::iter::once(value).chain(fields.values().flat_map(objects)).collect(),
        Value::Array(items) => items.iter().flat_map(objects).collect(),
        _ => Vec::new(),
    }
}

/// The preformatted texts, joined, as a reader sees them.
fn shown_arguments(content: &Content) -> String {
    let blocks = json!(content.blocks);
    let parts = objects(&blocks).into_iter().filter(|object| object["type"] == "rich_text_preformatted");
    parts.map(|part| read(part["elements"][0]["text"].as_str().unwrap())).collect()
}

/// What a reader sees of a text: Slack reads its three entities.
fn read(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

#[test]
fn pending() {
    insta::assert_snapshot!(pretty(&post(&card()).unwrap()));
}

#[test]
fn approved() {
    insta::assert_snapshot!(pretty(&edit(&approved_card()).unwrap()));
}

#[test]
fn denied() {
    let denied = Card {
        heading: "Denied",
        history: vec![
            vote_line("Denied by ", "U0CLICKER1", "alice"),
            vec![Span::Text("The tool was not called.".to_owned())],
        ],
        buttons: Buttons::None,
        ..card()
    };
    insta::assert_snapshot!(pretty(&edit(&denied).unwrap()));
}

#[test]
fn hostile() {
    insta::assert_snapshot!(pretty(&post(&hostile_card()).unwrap()));
}

#[test]
fn no_block_is_parsed_for_markup_and_the_only_buttons_are_ours() {
    for card in [card(), approved_card(), hostile_card()] {
        let content = edit(&card).unwrap();
        assert_eq!(content.blocks[0]["text"]["text"], card.heading);
        let blocks = json!(content.blocks);
        for object in objects(&blocks) {
            let kind = object["type"].as_str();
            assert_ne!(kind, Some("mrkdwn"));
            assert_ne!(kind, Some("link"));
            if kind == Some("plain_text") {
                assert_eq!(object["emoji"], false);
            }
            if kind == Some("user") {
                assert_eq!(object["user_id"], "U0CLICKER1");
            }
        }
        let buttons: Vec<_> =
            objects(&blocks).into_iter().filter(|object| object["type"] == "button").collect();
        for button in &buttons {
            assert_eq!(button["value"], HANDLE);
            assert!(button.get("style").is_none() && button.get("url").is_none());
        }
        let ids: Vec<_> = buttons.iter().map(|button| button["action_id"].as_str().unwrap()).collect();
        match card.buttons {
            Buttons::Decide => assert_eq!(ids, ["undersign_approve", "undersign_deny"]),
            Buttons::Revoke => assert_eq!(ids, ["undersign_revoke"]),
            Buttons::None => assert!(ids.is_empty()),
        }
        assert_eq!(shown_arguments(&content), card.arguments);
    }
}

#[test]
fn entities_are_shown_as_they_were_written() {
    for (written, sent) in [
        ("a & b < c > d", "a & b < c > d"),
        ("&lt;b&gt;", "&amp;lt;b&amp;gt;"),
        ("&amp;lt;", "&amp;amp;lt;"),
        ("&&amp;&am", "&&amp;amp;&am"),
        ("&quot;", "&quot;"),
    ] {
        assert_eq!(exact(written), sent);
        assert_eq!(read(sent), written);
    }
}

#[test]
fn the_notification_text_is_escaped() {
    let card = Card { fallback: "<!channel> & <@U1>".to_owned(), ..card() };
    assert_eq!(post(&card).unwrap().text, "&lt;!channel&gt; &amp; &lt;@U1&gt;");
}

#[test]
fn long_arguments_are_split_at_line_ends() {
    use std::fmt::Write as _;
    let mut arguments = String::new();
    for i in 0..160 {
        writeln!(arguments, "  \"member_{i:03}\": \"{}\",", "v".repeat(20)).unwrap();
    }
    let content = post(&Card { arguments: arguments.clone(), arguments_bytes: 6000, ..card() }).unwrap();
    assert_eq!(shown_arguments(&content), arguments);
    let parts = split(&arguments);
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|part| part.ends_with('\n') && counted(part) <= PART_BUDGET));
    assert!(pretty(&content).contains("Arguments, 6000 bytes, part 2 of 3:"));
}

#[test]
fn a_long_line_is_split_where_it_must_be_and_says_so() {
    for filler in ["x", " ", "<", "&", "&lt;", "😀", "\u{301}"] {
        let line = filler.repeat(4_000 / counted(filler));
        let content = post(&Card { arguments: line.clone(), ..card() }).unwrap();
        assert_eq!(shown_arguments(&content), line, "{filler}");
        assert!(pretty(&content).contains(", in the same line:"), "{filler}");
        let blocks = json!(content.blocks);
        for object in objects(&blocks).into_iter().filter(|object| object["type"] == "text") {
            assert!(counted(object["text"].as_str().unwrap()) < 3_000, "{filler}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_and_never_cut() {
    let too_large = |card: Card| post(&card).unwrap_err().what;
    assert_eq!(too_large(Card { arguments: "x".repeat(10_000), ..card() }), "the whole");
    // 3,000 characters, each of which Slack makes four.
    assert_eq!(too_large(Card { arguments: "<".repeat(3_000), ..card() }), "the whole");
    assert_eq!(too_large(Card { fields: vec![("Rule", "r".repeat(2_000))], ..card() }), "a field");
    let lines = vec![vec![Span::Text("x".to_owned())]; 300];
    assert_eq!(too_large(Card { history: lines, ..card() }), "the whole");
    let many = vec![("Rule", "r".to_owned()); 500];
    assert_eq!(too_large(Card { fields: many, ..card() }), "the number of blocks");
}

#[test]
fn votes_never_keep_the_buttons_on_a_card() {
    let largest = (0..).map(|n| Card { arguments: "x".repeat(n * 100), ..card() });
    let mut fitting = largest.take_while(|card| post(card).is_ok()).last().unwrap();
    assert!(fitting.arguments.len() > 7_000);
    fitting.history = vec![vote_line("Approved by ", "U0CLICKER1", "alice"); 40];
    fitting.history.push(vec![Span::Text("Succeeded: the tool was called once.".to_owned())]);
    fitting.buttons = Buttons::None;
    let content = edit(&fitting).unwrap();
    assert_eq!(shown_arguments(&content), fitting.arguments);
    let shown = pretty(&content);
    assert!(shown.contains("earlier lines are in the audit log."));
    assert!(shown.contains("Succeeded: the tool was called once."));
    assert!(!shown.contains("undersign_"));
}

#[test]
fn empty_and_odd_values_make_no_invalid_block() {
    let odd = Card {
        title: String::new(),
        fields: Vec::new(),
        digest_prefix: String::new(),
        expires_at: i64::MIN,
        history: vec![Vec::new(), vec![Span::Text(String::new()), Span::Time(i64::MAX)]],
        buttons: Buttons::None,
        ..card()
    };
    let content = post(&odd).unwrap();
    let blocks = json!(content.blocks);
    for object in objects(&blocks) {
        assert_ne!(object["text"], "");
        assert_ne!(object["elements"], json!([]));
        assert_ne!(object["fields"], json!([]));
    }
    assert!(pretty(&content).contains("9223372036854775807 s after 1970-01-01 UTC"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_parts_joined_are_the_arguments(arguments in "([a-z<>&\n 😀]|&lt;|\n){0,1500}") {
        let parts = split(&arguments);
        prop_assert_eq!(&parts.concat(), &arguments);
        prop_assert!(parts.iter().all(|part| !part.is_empty() && counted(&exact(part)) <= PART_BUDGET));
    }

    #[test]
    fn a_text_is_read_as_it_was_written(words in "([a-z&<>;]|&lt;|&amp;|amp;|lt;){0,40}") {
        // Slack escapes what is no entity yet, and the reader's client reads the three entities.
        let sent = exact(&words);
        let mut seen = String::new();
        let mut rest = sent.as_str();
        while let Some(c) = rest.chars().next() {
            let entity = [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>')].into_iter().find(|(e, _)| rest.starts_with(e));
            let (taken, shown) = entity.map_or((c.len_utf8(), c), |(entity, shown)| (entity.len(), shown));
            seen.push(shown);
            rest = &rest[taken..];
        }
        prop_assert_eq!(seen, words);
    }
}

use proptest::prelude::*;

use super::*;

/// Reads our escapes back. The first `\u{` is always one of ours.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\\u{") {
        out.push_str(&rest[..at]);
        let end = at + rest[at..].find('}').unwrap();
        let code = u32::from_str_radix(&rest[at + 3..end], 16).unwrap();
        out.push(char::from_u32(code).unwrap());
        rest = &rest[end + 1..];
    }
    out + rest
}

/// `Default_Ignorable_Code_Point` as DerivedCoreProperties.txt of Unicode lists it.
const DEFAULT_IGNORABLE: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1_bca0, 0x1_bca3),
    (0x1_d173, 0x1_d17a),
    (0xe_0000, 0xe_0fff),
];

/// What may stand on a card as itself, said apart from the code: letters, marks, numbers, punctuation and symbols that
/// are not default-ignorable, and the ordinary space.
fn may_be_shown(c: char) -> bool {
    use Category as C;
    let code = u32::from(c);
    let ignorable = DEFAULT_IGNORABLE.iter().any(|(first, last)| (*first..=*last).contains(&code));
    let inked = matches!(
        c.general_category(),
        C::UppercaseLetter
            | C::LowercaseLetter
            | C::TitlecaseLetter
            | C::ModifierLetter
            | C::OtherLetter
            | C::NonspacingMark
            | C::SpacingMark
            | C::EnclosingMark
            | C::DecimalNumber
            | C::LetterNumber
            | C::OtherNumber
            | C::ConnectorPunctuation
            | C::DashPunctuation
            | C::OpenPunctuation
            | C::ClosePunctuation
            | C::InitialPunctuation
            | C::FinalPunctuation
            | C::OtherPunctuation
            | C::MathSymbol
            | C::CurrencySymbol
            | C::ModifierSymbol
            | C::OtherSymbol
    );
    c == ' ' || (inked && !ignorable)
}

#[test]
fn every_code_point_is_shown_as_itself_or_escaped() {
    let mut escaped = 0;
    for c in '\0'..=char::MAX {
        let text = format!("a{c}b");
        let shown = visible(&text);
        assert_eq!(unescape(&shown), text, "{:x}", u32::from(c));
        if shown == text {
            assert!(may_be_shown(c), "{:x} can't be seen", u32::from(c));
        } else {
            assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(c)));
            escaped += usize::from(may_be_shown(c));
        }
        let block = if c == '\n' { &text } else { &shown };
        assert_eq!(visible_block(&text), *block);
    }
    assert_eq!(escaped, 6, "only the blank ones are escaped beyond what their category asks for");
}

#[test]
fn known_tricks_are_escaped() {
    let tricks = [
        '\u{202e}',
        '\u{2066}',
        '\u{2067}',
        '\u{2068}',
        '\u{2069}',
        '\u{200b}',
        '\u{200c}',
        '\u{200d}',
        '\u{2060}',
        '\u{feff}',
        '\u{ad}',
        '\u{34f}',
        '\u{fe0f}',
        '\u{e0100}',
        '\u{e0041}',
        '\u{1d173}',
        '\u{1d17a}',
        '\u{3164}',
        '\u{115f}',
        '\u{1160}',
        '\u{ffa0}',
        '\u{2028}',
        '\u{2029}',
        '\u{1}',
        '\u{85}',
        '\u{9f}',
        '\u{7f}',
        '\u{a0}',
        '\u{e000}',
        '\u{61c}',
        '\u{180e}',
        '\u{2800}',
        '\u{fffc}',
        '\u{ffff}',
        '\u{10ffff}',
    ];
    for trick in tricks {
        let text = format!("a{trick}b");
        assert_eq!(visible(&text), format!("a\\u{{{:x}}}b", u32::from(trick)));
        assert_eq!(visible_block(&text), visible(&text));
        assert!(warnings(&text).contains(&TextWarning::Invisible), "{:x}", u32::from(trick));
    }
}

#[test]
fn an_imitated_escape_is_told_from_ours() {
    let fake = "\\u{200b}";
    assert_eq!(visible(fake), "\\u{5c}u{200b}");
    assert_ne!(visible(fake), visible("\u{200b}"));
    assert_eq!(visible("\\\\u{200b}"), "\\\\u{5c}u{200b}");
    assert_eq!(visible(r"\u0041 \n"), r"\u0041 \n", "JSON's own escapes stay");
}

#[test]
fn line_ends_stay_in_blocks_alone() {
    assert_eq!(visible("a\nb\tc\rd"), "a\\u{a}b\\u{9}c\\u{d}d");
    assert_eq!(visible_block("a\nb\tc\r\nd"), "a\nb\\u{9}c\\u{d}\nd");
}

#[test]
fn warnings_name_what_they_find() {
    let mixed = BTreeSet::from([TextWarning::MixedScripts]);
    for word in [
        "p\u{430}ypal",
        "\u{3b1}dmin",
        "\u{3a9}mega",
        "\u{585}k",
        "\u{13aa}o",
        "\u{a4e1}ayment",
        "\u{3bf}\u{43a}",
    ] {
        assert_eq!(warnings(&format!("pay {word} now")), mixed, "{word}");
    }
    assert_eq!(warnings("q\u{307}\u{440}"), mixed, "a mark between the letters does not part them");
    for text in [
        "日本語カナひら Tシャツ LINEで 한국어 K팝 漢字",
        "привет ωμέγα hello\nline\tend",
        "user_имя-42",
        "5µm ﬁ ②",
        "",
    ] {
        assert!(warnings(text).is_empty(), "{text}");
    }
    assert_eq!(warnings("cafe\u{301}"), BTreeSet::from([TextWarning::NotNormalized]));
    let all = BTreeSet::from([TextWarning::Invisible, TextWarning::MixedScripts, TextWarning::NotNormalized]);
    assert_eq!(warnings("cafe\u{301} \u{200b} p\u{430}y"), all);
}

proptest! {
    /// Characters that make and break escapes, in any order.
    #[test]
    fn unescaping_yields_the_input(text in r"([\\u{}a-f0-9\n\u{200b}\u{202e}é]|\\u\{|.){0,24}") {
        prop_assert_eq!(unescape(&visible(&text)), text.as_str());
        prop_assert_eq!(unescape(&visible_block(&text)), text.as_str());
    }
}

//! Which module may import which, which crate may be used where, how long a file may be, and what the dependencies must
//! be like: the parts of the design that the compiler does not check.
//!
//! The sources are read as text, without test code: files named `tests.rs` and `#[cfg(test)]` modules are left out.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The layers, and what each may import besides itself. A new module needs a row.
const LAYERS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("storage", &["domain"]),
    ("app", &["domain", "storage"]),
    ("mcp", &["app", "domain"]),
    ("chat", &["app", "domain"]),
    ("http", &["app", "chat", "domain", "mcp"]),
    ("workers", &["app", "domain"]),
    ("config", &["domain"]),
    ("telemetry", &[]),
    ("demo", &["domain", "storage"]),
    ("cli", &["app", "chat", "config", "demo", "domain", "http", "mcp", "storage", "telemetry", "workers"]),
];

/// Crates that are kept to few places; a place is a directory or a file under `src`.
const CRATES: &[(&str, &[&str])] = &[
    ("sqlx", &["storage"]),
    ("slack_morphism", &["chat/slack"]),
    ("axum", &["http", "demo"]),
    ("serde_jcs", &["domain/canonical.rs"]),
    ("ed25519_dalek", &["domain/checkpoint.rs"]),
    ("sha2", &["domain", "chat/slack/verify.rs", "demo/slack/press.rs"]),
    ("hmac", &["domain/token.rs", "chat/slack/verify.rs", "demo/slack/press.rs"]),
];

/// A file that is longer wants to be two.
const LONGEST_FILE: usize = 500;

/// A source file: its path under `src`, and its text without test modules and without lines that are comments.
struct Source {
    path: PathBuf,
    code: String,
    lines: usize,
}

impl Source {
    fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), code: without_tests(text), lines: text.lines().count() }
    }

    /// The top-level module it belongs to; none for `lib.rs` and `main.rs`.
    fn layer(&self) -> Option<&str> {
        let first = self.path.components().next()?.as_os_str().to_str()?;
        let name = first.strip_suffix(".rs").unwrap_or(first);
        (!["lib", "main"].contains(&name)).then_some(name)
    }

    /// How many `super::` lead to the crate's root.
    fn depth(&self) -> usize {
        let names = self.path.components().count();
        if self.path.file_name().is_some_and(|name| name == "mod.rs") { names - 1 } else { names }
    }

    /// The top-level names it reaches by `crate::`, or by as many `super::` as lead to the root.
    fn imports(&self) -> BTreeSet<String> {
        let root = "super::".repeat(self.depth());
        let by_super = paths_after(&self.code, &root).into_iter().filter(|name| name != "super");
        paths_after(&self.code, "crate::").into_iter().chain(by_super).collect()
    }

    fn uses_crate(&self, name: &str) -> bool {
        let path = format!("{name}::");
        let code = &self.code;
        code.match_indices(&path).any(|(at, _)| starts_a_path(code, at))
            || [format!("use {name};"), format!("use {name} as ")].iter().any(|import| code.contains(import))
    }
}

/// Whether what begins here is the beginning of a path, not the end of a longer name or a part of a path.
fn starts_a_path(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '.')
}

/// The names that follow a prefix, in `prefix::name` and in `prefix::{name, other::{…}}`.
fn paths_after(code: &str, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(prefix).filter(|(at, _)| starts_a_path(code, *at)) {
        let rest = &code[at + prefix.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.push(name_at(rest));
            continue;
        };
        let (mut depth, mut start) = (1, 0);
        for (i, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if (c == ',' && depth == 1) || depth == 0 {
                found.push(name_at(list[start..i].trim_start()));
                start = i + 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The text without `#[cfg(test)]` modules, which end at a brace indented as they began, and without comment lines.
fn without_tests(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.trim_start().starts_with("mod "))
        {
            let opens = lines.next().is_some_and(|next| next.trim_end().ends_with('{'));
            let end = format!("{indent}}}");
            while opens && lines.next().is_some_and(|inside| inside != end) {}
            continue;
        }
        if !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs")
                && path.file_name().is_some_and(|n| n != "tests.rs")
            {
                found.push(path);
            }
        }
    }
    let src = root().join("src");
    let mut paths = Vec::new();
    walk(&src, &mut paths);
    paths.sort();
    paths
        .iter()
        .map(|p| Source::new(p.strip_prefix(&src).unwrap(), &fs::read_to_string(p).unwrap()))
        .collect()
}

/// What is wrong with a file's imports.
fn faults(source: &Source) -> Vec<String> {
    let path = source.path.display();
    let mut faults = Vec::new();
    if let Some(layer) = source.layer() {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
            return vec![format!("{path}: {layer} is not in the table of layers")];
        };
        for import in source.imports() {
            let known = LAYERS.iter().any(|(name, _)| *name == import);
            if known && import != layer && !allowed.contains(&import.as_str()) {
                faults.push(format!("{path}: {layer} must not import {import}"));
            }
        }
    }
    for (name, places) in CRATES {
        if source.uses_crate(name) && !places.iter().any(|place| source.path.starts_with(place)) {
            faults.push(format!("{path}: {name} is used in {places:?} only"));
        }
    }
    faults
}

#[test]
fn every_import_follows_the_layers() {
    let faults: Vec<String> = sources().iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_layer_is_there() {
    let there: BTreeSet<String> = sources().iter().filter_map(|s| Some(s.layer()?.to_owned())).collect();
    let named: BTreeSet<String> = LAYERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(there, named);
}

/// Where a secret, or what only its owner can compute, meets what somebody sent: each compares in a time that does not
/// depend on where the difference is. `benches/timing.rs` measures it.
#[test]
fn secrets_are_compared_in_constant_time() {
    for (file, comparison) in
        [("chat/slack/verify.rs", ".ct_eq(signature)"), ("domain/token.rs", ".verify_slice(&self.mac)")]
    {
        let text = fs::read_to_string(root().join("src").join(file)).unwrap();
        assert!(without_tests(&text).contains(comparison), "{file} does not compare with {comparison}");
    }
    // A key is never compared itself: its hash is looked up among hashes.
    let text = fs::read_to_string(root().join("src/http/auth.rs")).unwrap();
    assert!(without_tests(&text).contains(".get(&sha256(key.as_bytes()))"));
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| source.lines > LONGEST_FILE)
        .map(|source| format!("{} has {} lines", source.path.display(), source.lines))
        .collect();
    assert!(long.is_empty(), "more than {LONGEST_FILE}: {}", long.join(", "));
}

/// The scanner finds what it is there to find.
#[test]
fn forbidden_imports_are_seen_however_they_are_written() {
    let cases = [
        ("domain/x.rs", "use crate::app::X;", "domain must not import app"),
        (
            "domain/x.rs",
            "use crate::{\n    call::Call,\n    storage::{actions, votes},\n};",
            "domain must not import storage",
        ),
        ("mcp/x.rs", "fn f() { crate::chat::slack::f() }", "mcp must not import chat"),
        ("mcp/upstream/mod.rs", "use super::super::workers::Loop;", "mcp must not import workers"),
        ("app/x.rs", "use sqlx::PgPool;", "sqlx is used in"),
        ("app/x.rs", "fn f(p: &sqlx::PgPool) {}", "sqlx is used in"),
        ("domain/digest.rs", "use serde_jcs;", "serde_jcs is used in"),
        ("wizardry/mod.rs", "", "wizardry is not in the table"),
    ];
    for (path, text, expected) in cases {
        let found = faults(&Source::new(Path::new(path), text));
        assert!(found.len() == 1 && found[0].contains(expected), "{path}: {text}: {found:?}");
    }
}

#[test]
fn what_is_allowed_or_only_looks_like_an_import_is_let_through() {
    let cases = [
        ("http/slack.rs", "use crate::{app::App, chat, domain::press::Press};\nuse axum::Router;"),
        ("mcp/upstream/http.rs", "use super::super::strict;\nuse super::Upstream;"),
        ("storage/mod.rs", "use sqlx::PgPool;\nuse crate::domain::ids;"),
        (
            "app/x.rs",
            "// use crate::http::X;\n/// See [`crate::http`].\nfn f() { my_sqlx::f(); storage::sqlx::g() }",
        ),
        (
            "app/x.rs",
            "#[cfg(test)]\nmod tests {\n    use crate::http::X;\n    mod y {\n    }\n}\nuse crate::storage::Db;",
        ),
        ("main.rs", "use undersign::cli;"),
    ];
    for (path, text) in cases {
        assert_eq!(faults(&Source::new(Path::new(path), text)), [""; 0], "{path}: {text}");
    }
}

/// Name and version of every package in `Cargo.lock`.
fn locked() -> Vec<(String, Vec<u64>)> {
    let lock: toml::Table = toml::from_str(&fs::read_to_string(root().join("Cargo.lock")).unwrap()).unwrap();
    let packages = lock["package"].as_array().unwrap().iter();
    let version = |text: &str| text.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect();
    packages
        .map(|p| (p["name"].as_str().unwrap().to_owned(), version(p["version"].as_str().unwrap())))
        .collect()
}

/// A second provider in the tree makes rustls panic when a connection is opened, and only then.
#[test]
fn ring_is_the_only_crypto_provider() {
    let names: Vec<String> = locked().into_iter().map(|(name, _)| name).collect();
    for second in ["aws-lc-rs", "aws-lc-sys", "openssl-sys", "native-tls"] {
        assert!(!names.iter().any(|name| name == second), "{second} is in Cargo.lock");
    }
}

/// Older versions have known holes, or behave in ways this program does not expect.
#[test]
fn no_dependency_is_below_its_floor() {
    let locked = locked();
    for (name, floor) in [("rmcp", [3, 11]), ("slack-morphism", [2, 31]), ("serde_jcs", [0, 2])] {
        let versions: Vec<_> = locked.iter().filter(|(found, _)| found == name).map(|(_, v)| v).collect();
        assert!(!versions.is_empty(), "{name} is not in Cargo.lock");
        assert!(
            versions.iter().all(|version| version[..2] >= floor[..]),
            "{name} {versions:?} is below {floor:?}"
        );
    }
}

/// Features of `serde_json` are switched on for everyone by any crate that asks; these two would change what is hashed.
#[test]
fn serde_json_has_neither_preserve_order_nor_arbitrary_precision() {
    let sorted: Value = serde_json::from_str(r#"{"b":1,"a":2}"#).unwrap();
    assert_eq!(sorted.to_string(), r#"{"a":2,"b":1}"#, "preserve_order is on");

    let large: Value = serde_json::from_str("18446744073709551616").unwrap();
    assert!(large.is_f64(), "arbitrary_precision is on");
    let text = r#"{"$serde_json::private::Number":"1"}"#;
    let object: Value = serde_json::from_str(text).unwrap();
    assert_eq!(object, json!({"$serde_json::private::Number": "1"}), "arbitrary_precision is on");
    assert_eq!(object.to_string(), text);
}

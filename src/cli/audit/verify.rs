//! `undersign audit verify`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::super::{Done, Failure, Outcome};
use super::{no_answer, open, place_events};
use crate::config;
use crate::domain::checkpoint::{PublicKey, Signer};
use crate::domain::ijson::{MAX_RECORD, scan_record};
use crate::domain::receipt::{self, RECEIPT};
use crate::domain::verify::{Checker, Report};

/// What is read of one line or receipt, in bytes.
const LIMIT: u64 = MAX_RECORD as u64;

/// Arguments of `audit verify`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("source").required(true).multiple(true).args(["config", "file"]),
    after_help = "Exit codes: 0 the chain holds, 1 it is broken (each place is named), 2 usage or configuration.
With --config the keys of its [[token_keys]] are trusted, and those of --public-key. With no key at all a signature is
held against the key that it names itself, which proves nothing about who signed: that is a fault unless
--allow-unnamed-key is given."
)]
pub(super) struct Args {
    /// The configuration file: verify the database that it names, or take its keys for --file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// An export or a receipt instead of the database; - for standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A public key to trust, as `audit key` prints it; may be repeated.
    #[arg(long, value_name = "HEX", value_parser = public_key)]
    public_key: Vec<PublicKey>,
    /// A file with checkpoints that were kept elsewhere, to hold the chain against; may be repeated.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// The file was exported with this --after.
    #[arg(long, value_name = "SEQ", requires = "file", default_value_t = 0)]
    after: i64,
    /// Be content with signatures of keys that nobody vouches for.
    #[arg(long)]
    allow_unnamed_key: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn public_key(text: &str) -> Result<PublicKey, String> {
    PublicKey::parse(text)
        .ok_or_else(|| "no Ed25519 public key: 64 hex digits, as `audit key` prints them".to_owned())
}

pub(super) async fn run(args: Args) -> Outcome {
    let mut trusted = args.public_key.clone();
    let mut database = None;
    if let Some(path) = &args.config {
        match config::load_keys(path) {
            Ok((found, keys)) => {
                trusted.extend(Signer::all(&keys).iter().map(Signer::public_key));
                database = Some(found);
            }
            // Whoever holds the public keys needs no secret one.
            Err(_) if !trusted.is_empty() => database = Some(config::load_database(path)?),
            Err(error) => return Err(error.into()),
        }
    }
    let mut checker = Checker::new(trusted.clone()).after(args.after);
    if args.file.is_some() && !args.allow_unnamed_key {
        checker = checker.signed();
    }
    for path in &args.checkpoint {
        kept(path, &mut checker)?;
    }
    let report = match (&args.file, database) {
        (Some(path), _) => file(path, checker, &trusted, &args)?,
        (None, Some(database)) => {
            let db = open(&database).await?;
            place_events(&db).await?;
            db.verify_audit(checker).await.map_err(|error| no_answer(&error))?
        }
        (None, None) => return Err(Failure::usage("--config or --file is needed")),
    };
    tell(&report, args.json);
    if report.ok {
        Ok(Done)
    } else {
        let count = report.faults.len();
        Err(Failure::no(format!(
            "the audit trail does not verify: {count} fault{}",
            if count == 1 { "" } else { "s" }
        )))
    }
}

fn tell(report: &Report, json: bool) {
    if json {
        // Strings and numbers always have a JSON form.
        println!("{}", serde_json::to_value(report).unwrap_or_default());
        return;
    }
    for tenant in &report.tenants {
        println!("{tenant}");
    }
    for note in &report.notes {
        println!("note: {note}");
    }
    for fault in &report.faults {
        println!("{fault}");
    }
    if report.ok {
        println!("the audit trail holds");
    }
}

fn reader(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{} can't be read: {}", path.display(), error.kind()))
}

/// The next line, no longer than a record may be. `None` at the end.
fn next_line(reader: &mut dyn BufRead, path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    let read =
        reader.take(LIMIT + 2).read_until(b'\n', &mut line).map_err(|error| unreadable(path, &error))?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok((read > 0).then_some(line))
}

/// An object that every parser reads alike.
fn object(text: &[u8]) -> Option<Map<String, Value>> {
    scan_record(text).ok()?;
    serde_json::from_slice(text).ok()
}

/// An export, line by line, or a receipt.
fn file(path: &Path, mut checker: Checker, trusted: &[PublicKey], args: &Args) -> Result<Report, Failure> {
    let mut reader = reader(path)?;
    let Some(mut first) = next_line(&mut *reader, path)? else {
        return Err(Failure::no(format!("{} is empty", path.display())));
    };
    if first.trim_ascii() == b"{" {
        // One object over many lines: a receipt that somebody has made readable.
        reader.by_ref().take(LIMIT).read_to_end(&mut first).map_err(|error| unreadable(path, &error))?;
    }
    let found = object(&first);
    if let Some(receipt) = found.as_ref().filter(|object| is_receipt(object)) {
        if !args.checkpoint.is_empty() {
            return Err(Failure::usage(
                "--checkpoint holds a chain against it, and this is a receipt: use an export",
            ));
        }
        let mut report = receipt::verify(receipt, trusted);
        if trusted.is_empty() && !args.allow_unnamed_key {
            report.unauthenticated();
        }
        while let Some(line) = next_line(&mut *reader, path)? {
            if !line.trim_ascii().is_empty() {
                report.malformed("there is more in the file than the receipt");
                break;
            }
        }
        return Ok(report);
    }
    take(&mut checker, 1, found.as_ref());
    let mut number = 1;
    while let Some(line) = next_line(&mut *reader, path)? {
        number += 1;
        take(&mut checker, number, object(&line).as_ref());
    }
    Ok(checker.finish())
}

fn is_receipt(object: &Map<String, Value>) -> bool {
    object.get("undersign").is_some_and(|what| what == RECEIPT)
}

fn take(checker: &mut Checker, number: usize, object: Option<&Map<String, Value>>) {
    match object {
        Some(object) => checker.line(number, object),
        None => checker.unreadable(number),
    }
}

/// Checkpoints that were kept elsewhere; other lines of such a file are passed over.
fn kept(path: &Path, checker: &mut Checker) -> Result<(), Failure> {
    let mut reader = reader(path)?;
    let mut found = 0;
    while let Some(line) = next_line(&mut *reader, path)? {
        let Some(object) = object(&line) else { continue };
        let checkpoint = if is_receipt(&object) {
            object.get("checkpoint").and_then(Value::as_object)
        } else {
            object.contains_key("undersign").then_some(&object)
        };
        if let Some(checkpoint) = checkpoint {
            checker.checkpoint(checkpoint);
            found += 1;
        }
    }
    if found == 0 {
        return Err(Failure::usage(format!("{} holds no checkpoint", path.display())));
    }
    Ok(())
}

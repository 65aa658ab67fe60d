//! Verifying a chain: from the rows of a database or from the lines of an export, by the same rules.
//!
//! A [`Checker`] takes rows and checkpoints as they come, and says at the end where the chain is broken and how. It never
//! asks anything; what it is not shown it reports as missing. It remembers about a hundred bytes a row.

mod report;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::chain::{self, GENESIS, Hash, Shown, parse_hash};
use super::checkpoint::{Checkpoint, NotACheckpoint, PublicKey};

use report::UNAUTHENTICATED;
pub use report::{Fault, Report, TenantReport, What};

/// How many changed rows of one tenant are compared with each other, to tell a moved row from an edited one.
const COMPARED: usize = 64;

/// Verifies chains.
#[derive(Default)]
pub struct Checker {
    trusted: Vec<PublicKey>,
    after: i64,
    whole: bool,
    signed: bool,
    chains: BTreeMap<String, Chain>,
    checkpoints: Vec<Checkpoint>,
    faults: Vec<Fault>,
    notes: Vec<String>,
}

#[derive(Default)]
struct Chain {
    rows: BTreeMap<i64, Seen>,
    last_seen: i64,
    suspects: Vec<Suspect>,
    erased: Vec<(i64, Value)>,
    erasures: BTreeSet<String>,
    head: Option<(i64, Hash)>,
    /// Places whose event is gone, with its id.
    gone: BTreeMap<i64, i64>,
}

struct Seen {
    prev: Hash,
    hash: Hash,
    /// Whether the hash is not that of the content: told once, at this place.
    changed: bool,
}

/// A row whose hash is not that of its content.
struct Suspect {
    seq: i64,
    prev: Hash,
    hash: Hash,
    line: Map<String, Value>,
}

impl Checker {
    /// A checker that takes these keys' signatures as its own side's. With none, every signature is only held against
    /// the key that it names itself.
    pub fn new(trusted: Vec<PublicKey>) -> Self {
        Self { trusted, ..Self::default() }
    }

    /// What it will be shown begins after this place of each tenant's chain.
    #[must_use]
    pub fn after(mut self, seq: i64) -> Self {
        self.after = seq;
        self
    }

    /// Every chain must bear a signature of a trusted key.
    #[must_use]
    pub fn signed(mut self) -> Self {
        self.signed = true;
        self
    }

    /// It will be shown all there is at one moment: erased arguments without an `erased` event are then a fault.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// A line of a file: a row or a checkpoint.
    pub fn line(&mut self, number: usize, object: &Map<String, Value>) {
        if object.contains_key("undersign") {
            self.checkpoint(object);
        } else if self.row(object).is_none() {
            let detail = format!("line {number} is no audit row");
            self.fault(What::Malformed, text(object, "tenant"), int(object, "seq"), detail);
        }
    }

    /// A line of a file that is no JSON object, or one that parsers read differently.
    pub fn unreadable(&mut self, number: usize) {
        self.fault(What::Malformed, None, None, format!("line {number} can't be read"));
    }

    /// A row as exported. `None`: it is none.
    pub fn row(&mut self, line: &Map<String, Value>) -> Option<()> {
        let tenant = line.get("tenant")?.as_str()?;
        let seq = line.get("seq")?.as_i64().filter(|seq| *seq > 0)?;
        let (prev, hash) = (parse_hash(line.get("prev"))?, parse_hash(line.get("hash"))?);
        let kind = line.get("kind")?.as_str()?;
        let computed = chain::hash(line)?;
        let whole = self.whole;
        let chain = self.chains.entry(tenant.to_owned()).or_default();
        let mut found = Vec::new();
        if chain.rows.contains_key(&seq) {
            found.push((What::Forked, "there are two rows with this seq".to_owned()));
        } else if seq < chain.last_seen {
            found.push((What::Reordered, format!("stands behind seq {}", chain.last_seen)));
        }
        chain.last_seen = chain.last_seen.max(seq);
        let changed = computed != hash;
        if changed {
            chain.suspects.push(Suspect { seq, prev, hash, line: line.clone() });
        }
        match chain::shown(line) {
            Shown::Nothing | Shown::Committed => {}
            Shown::Erased => {
                chain.erased.push((seq, line.get("action_id").cloned().unwrap_or_default()));
            }
            Shown::Changed => {
                let detail =
                    "edited: arguments, preview, facts or salt are not what the commitment stands for";
                found.push((What::Edited, detail.to_owned()));
            }
        }
        if whole && kind == "erased" && !changed {
            chain.erasures.extend(line.get("action_id").and_then(Value::as_str).map(str::to_owned));
        }
        chain.rows.entry(seq).or_insert(Seen { prev, hash, changed });
        for (what, detail) in found {
            self.fault(what, Some(tenant), Some(seq), detail);
        }
        Some(())
    }

    /// A checkpoint: one line of an export, or one that was kept elsewhere.
    pub fn checkpoint(&mut self, object: &Map<String, Value>) {
        match Checkpoint::read(object) {
            Ok(checkpoint) => self.checkpoints.push(checkpoint),
            Err(why) => {
                let detail = match why {
                    NotACheckpoint::Malformed => "is no checkpoint",
                    NotACheckpoint::Signature => "a checkpoint's signature is wrong",
                };
                let (tenant, seq) = (text(object, "tenant"), int(object, "seq"));
                self.fault(What::Signature, tenant, seq, detail.to_owned());
            }
        }
    }

    /// Where the database says that a tenant's chain ends.
    pub fn head(&mut self, tenant: &str, seq: i64, hash: Hash) {
        self.chains.entry(tenant.to_owned()).or_default().head = Some((seq, hash));
    }

    /// A place of the chain whose event is not there.
    pub fn gone(&mut self, tenant: &str, seq: i64, prev: Hash, hash: Hash, event: i64) {
        let chain = self.chains.entry(tenant.to_owned()).or_default();
        chain.last_seen = seq;
        chain.rows.insert(seq, Seen { prev, hash, changed: false });
        chain.gone.insert(seq, event);
    }

    /// A place of a tenant's chain with an event that says it is another tenant's, or nobody's.
    pub fn misplaced(&mut self, tenant: &str, seq: i64, prev: Hash, hash: Hash) {
        let chain = self.chains.entry(tenant.to_owned()).or_default();
        chain.last_seen = seq;
        chain.rows.insert(seq, Seen { prev, hash, changed: false });
        let detail = "edited: its event is not one of this tenant's".to_owned();
        self.fault(What::Edited, Some(tenant), Some(seq), detail);
    }

    /// An event that has no place and awaits none.
    pub fn unchained(&mut self, tenant: &str, event: i64, kind: &str, at: &str) {
        // An event whose time was edited is not found under its old one.
        let place = self.chains.get_mut(tenant).and_then(|chain| {
            let seq = chain.gone.iter().find(|(_, id)| **id == event).map(|(seq, _)| *seq)?;
            chain.gone.remove(&seq);
            Some(seq)
        });
        if place.is_some() {
            let detail = format!("edited: its event (id {event}) now says {at}");
            self.fault(What::Edited, Some(tenant), place, detail);
        } else {
            let detail = format!(
                "event {event} ({kind}, {at}) is in the trail and not in the chain: it was put in past it, or its place was taken away"
            );
            self.fault(What::Unchained, Some(tenant), None, detail);
        }
    }

    /// An event that awaited its place and went away before it had one.
    pub fn vanished(&mut self, event: i64, at: &str) {
        let detail = format!("event {event} ({at}) went away before it had its place");
        self.fault(What::Missing, None, None, detail);
    }

    /// The verdict.
    pub fn finish(mut self) -> Report {
        let chains = std::mem::take(&mut self.chains);
        let mut tenants: BTreeMap<String, TenantReport> = BTreeMap::new();
        for (tenant, chain) in &chains {
            self.links(tenant, chain);
            self.suspects(tenant, chain);
            self.head_of(tenant, chain);
            self.erasures(tenant, chain);
            let last = chain.rows.last_key_value();
            tenants.insert(
                tenant.clone(),
                TenantReport {
                    tenant: tenant.clone(),
                    rows: chain.rows.len(),
                    last_seq: last.map_or(0, |(seq, _)| *seq),
                    hash: last.map(|(_, row)| hex::encode(row.hash)).unwrap_or_default(),
                    erased: chain.erased.len(),
                    signed_to: None,
                    signed_by: None,
                },
            );
        }
        self.signatures(&chains, &mut tenants);
        Report::new(tenants.into_values().collect(), self.faults, self.notes)
    }

    /// Each row hangs on the one before it.
    fn links(&mut self, tenant: &str, chain: &Chain) {
        let mut before: Option<(i64, &Seen)> = None;
        for (seq, row) in &chain.rows {
            let (expected, link) = match before {
                Some((last, seen)) => (last + 1, (!seen.changed).then_some(seen.hash)),
                None => (self.after + 1, (self.after == 0).then_some(GENESIS)),
            };
            if *seq > expected {
                let last = seq - 1;
                let which = if last == expected {
                    "missing".to_owned()
                } else {
                    format!("missing, as is every row up to seq {last}")
                };
                self.fault(What::Missing, Some(tenant), Some(expected), which);
            } else if link.is_some_and(|hash| hash != row.prev) && !row.changed {
                let detail = format!("prev is not the hash of seq {}: one of the two was edited", seq - 1);
                self.fault(What::Edited, Some(tenant), Some(*seq), detail);
            }
            before = Some((*seq, row));
        }
        for (seq, event) in &chain.gone {
            let detail = format!("its event (id {event}) is gone");
            self.fault(What::Missing, Some(tenant), Some(*seq), detail);
        }
    }

    /// A row whose hash is wrong was edited, or stands in another row's place.
    fn suspects(&mut self, tenant: &str, chain: &Chain) {
        let compared = &chain.suspects[..chain.suspects.len().min(COMPARED)];
        for suspect in &chain.suspects {
            let home = compared.iter().find(|other| other.seq != suspect.seq && belongs(suspect, other));
            let (what, detail) = match home {
                Some(other) => (What::Reordered, format!("what stands here belongs at seq {}", other.seq)),
                None => (What::Edited, "edited: the hash is not that of the row".to_owned()),
            };
            self.fault(what, Some(tenant), Some(suspect.seq), detail);
        }
    }

    fn head_of(&mut self, tenant: &str, chain: &Chain) {
        if !self.whole {
            return;
        }
        let last = chain.rows.last_key_value().map(|(seq, row)| (*seq, row.hash));
        let (what, seq, detail) = match (chain.head, last) {
            (Some((seq, hash)), Some((last, found))) if seq == last && hash == found => return,
            (Some((seq, _)), Some((last, _))) if seq == last => {
                (What::Edited, seq, "edited: the head has another hash than the last row".to_owned())
            }
            (Some((seq, _)), last) if seq > last.map_or(0, |(last, _)| last) => {
                let last = last.map_or(0, |(last, _)| last);
                (
                    What::Truncated,
                    last + 1,
                    format!("truncated: the head is at seq {seq}, the last row at {last}"),
                )
            }
            (Some((seq, _)), _) => {
                (What::Edited, seq, "edited: the head stands before the last row".to_owned())
            }
            (None, last) => {
                (What::Missing, last.map_or(0, |(last, _)| last), "the head of the chain is gone".to_owned())
            }
        };
        self.fault(what, Some(tenant), Some(seq), detail);
    }

    /// Arguments go away by `audit erase`, which says so, or not at all.
    fn erasures(&mut self, tenant: &str, chain: &Chain) {
        if !self.whole {
            return;
        }
        for (seq, action) in &chain.erased {
            if !action.as_str().is_some_and(|action| chain.erasures.contains(action)) {
                let detail = "arguments, preview, facts and salt are gone, and no `erased` event says why";
                self.fault(What::Missing, Some(tenant), Some(*seq), detail.to_owned());
            }
        }
    }

    fn signatures(&mut self, chains: &BTreeMap<String, Chain>, tenants: &mut BTreeMap<String, TenantReport>) {
        let checkpoints = std::mem::take(&mut self.checkpoints);
        for checkpoint in &checkpoints {
            let (tenant, seq) = (checkpoint.tenant.as_str(), checkpoint.seq);
            let chain = chains.get(tenant);
            let last = chain.and_then(|chain| chain.rows.last_key_value()).map_or(0, |(seq, _)| *seq);
            match chain.and_then(|chain| chain.rows.get(&seq)) {
                Some(row) if row.hash == checkpoint.hash => {
                    let Some(report) = tenants.get_mut(tenant) else { continue };
                    if self.accepts(checkpoint) && report.signed_to.is_none_or(|to| to <= seq) {
                        report.signed_to = Some(seq);
                        report.signed_by = Some(self.signer(checkpoint));
                    }
                }
                Some(_) => {
                    let detail =
                        format!("rewritten: this is not the hash that was signed at {}", checkpoint.at);
                    self.fault(What::Edited, Some(tenant), Some(seq), detail);
                }
                None if seq > last => {
                    let detail = format!(
                        "truncated: seq {seq} was signed at {}, the last row is {last}",
                        checkpoint.at
                    );
                    self.fault(What::Truncated, Some(tenant), Some(last + 1), detail);
                }
                // Before what is shown, or a place that is reported as missing.
                None => {}
            }
        }
        // A retired key's checkpoint is no fault once a known key has signed a later place of the same chain.
        for checkpoint in &checkpoints {
            if self.accepts(checkpoint) {
                continue;
            }
            let covered = tenants
                .get(&checkpoint.tenant)
                .and_then(|report| report.signed_to)
                .is_some_and(|to| to >= checkpoint.seq);
            let detail =
                format!("signed by {} (key id {}), which is not trusted", checkpoint.key, checkpoint.key_id);
            if covered {
                let note = format!("tenant {} seq {}: {detail}", checkpoint.tenant, checkpoint.seq);
                if self.notes.len() < 20 {
                    self.notes.push(note);
                }
            } else {
                self.fault(What::Signature, Some(&checkpoint.tenant), Some(checkpoint.seq), detail);
            }
        }
        self.unsigned(tenants);
    }

    /// A chain that no trusted key has signed may be anybody's. In a database it may also be a moment old.
    fn unsigned(&mut self, tenants: &BTreeMap<String, TenantReport>) {
        for (tenant, report) in tenants {
            let told = self.faults.iter().any(|fault| fault.tenant.as_deref() == Some(tenant));
            let detail = match (self.trusted.is_empty(), report.signed_to) {
                (true, _) => UNAUTHENTICATED,
                (false, None) => "no trusted key has signed this chain: it may be anybody's",
                (false, Some(_)) => continue,
            };
            if self.signed && !told {
                self.fault(What::Signature, Some(tenant), None, detail.to_owned());
            } else if !self.trusted.is_empty() {
                self.notes.push(format!("tenant {tenant}: {detail}"));
            }
        }
    }

    fn accepts(&self, checkpoint: &Checkpoint) -> bool {
        self.trusted.is_empty() || self.trusted.contains(&checkpoint.key)
    }

    fn signer(&self, checkpoint: &Checkpoint) -> String {
        if self.trusted.is_empty() {
            format!("an unnamed key ({})", checkpoint.key)
        } else {
            checkpoint.key.to_string()
        }
    }

    fn fault(&mut self, what: What, tenant: Option<&str>, seq: Option<i64>, detail: String) {
        self.faults.push(Fault { tenant: tenant.map(str::to_owned), seq, what, detail });
    }
}

/// Whether what stands in one row's place would fit into the other's.
fn belongs(suspect: &Suspect, other: &Suspect) -> bool {
    let mut moved = suspect.line.clone();
    moved.insert("seq".to_owned(), other.seq.into());
    [suspect.prev, other.prev].iter().any(|prev| {
        moved.insert("prev".to_owned(), hex::encode(prev).into());
        chain::hash(&moved).is_some_and(|hash| hash == suspect.hash || hash == other.hash)
    })
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

fn int(object: &Map<String, Value>, name: &str) -> Option<i64> {
    object.get(name).and_then(Value::as_i64)
}

#[cfg(test)]
mod tests;

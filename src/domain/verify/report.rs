//! What a verification found.

use std::fmt;

use serde::Serialize;

/// What is wrong with a place of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A row, its hash, its arguments or a head is not what it was.
    Edited,
    /// A row or an event is not there.
    Missing,
    /// A row stands in another's place.
    Reordered,
    /// The end of a chain was taken off.
    Truncated,
    /// A place is there twice.
    Forked,
    /// An event is in the trail and has no place.
    Unchained,
    /// A signature is wrong, or nobody's whom we trust.
    Signature,
    /// A line can't be read.
    Malformed,
}

impl What {
    /// As it is reported.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Edited => "edited",
            Self::Missing => "missing",
            Self::Reordered => "reordered",
            Self::Truncated => "truncated",
            Self::Forked => "forked",
            Self::Unchained => "unchained",
            Self::Signature => "signature",
            Self::Malformed => "malformed",
        }
    }
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The tenant, where it is known.
    pub tenant: Option<String>,
    /// The place, where there is one.
    pub seq: Option<i64>,
    /// What it is.
    pub what: What,
    /// The same in words.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "tenant {tenant}")?,
            None => f.write_str("no tenant")?,
        }
        if let Some(seq) = self.seq {
            write!(f, " seq {seq}")?;
        }
        if self.detail.starts_with(self.what.as_str()) {
            write!(f, ": {}", self.detail)
        } else {
            write!(f, ": {}: {}", self.what.as_str(), self.detail)
        }
    }
}

/// One tenant's chain.
#[derive(Debug, Clone, Serialize)]
pub struct TenantReport {
    /// The tenant.
    pub tenant: String,
    /// How many rows were seen.
    pub rows: usize,
    /// The last place.
    pub last_seq: i64,
    /// Its hash.
    pub hash: String,
    /// How many rows have had their arguments erased.
    pub erased: usize,
    /// The last place that a signature stands for; nothing behind it is proved against whoever can rewrite all of it.
    pub signed_to: Option<i64>,
    /// Whose signature.
    pub signed_by: Option<String>,
}

impl fmt::Display for TenantReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "tenant {}: {} rows, last seq {}, hash {}",
            self.tenant, self.rows, self.last_seq, self.hash
        )?;
        if self.erased > 0 {
            write!(f, ", {} erased", self.erased)?;
        }
        match (&self.signed_to, &self.signed_by) {
            (Some(seq), Some(by)) => write!(f, ", signed up to seq {seq} by {by}"),
            _ => f.write_str(", not signed"),
        }
    }
}

/// Said where a signature is good and its key is anybody's.
pub(super) const UNAUTHENTICATED: &str =
    "signed by a key that nobody vouches for: give the right one as --public-key";

/// The verdict over everything that was shown.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// Each chain.
    pub tenants: Vec<TenantReport>,
    /// All that is wrong.
    pub faults: Vec<Fault>,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
}

impl Report {
    pub(in crate::domain) fn new(
        tenants: Vec<TenantReport>,
        mut faults: Vec<Fault>,
        notes: Vec<String>,
    ) -> Self {
        faults.sort_by(|a, b| (&a.tenant, a.seq).cmp(&(&b.tenant, b.seq)));
        Self { ok: faults.is_empty(), tenants, faults, notes }
    }

    /// Nobody has vouched for the key that signed it.
    pub fn unauthenticated(&mut self) {
        self.add(What::Signature, UNAUTHENTICATED);
    }

    /// What was read is not what it should be.
    pub fn malformed(&mut self, detail: &str) {
        self.add(What::Malformed, detail);
    }

    fn add(&mut self, what: What, detail: &str) {
        self.faults.push(Fault { tenant: None, seq: None, what, detail: detail.to_owned() });
        self.ok = false;
    }
}

//! The approval token: `ust1.<key id>.<action id>.<HMAC-SHA256>`, both binary parts in unpadded base64url.
//!
//! A token is computed, never stored: the row holds the nonce, the keys are not in the database, and neither is usable
//! without the other. Before the requirement is met there is no nonce, so there is no token. Single use is the row's.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretBox, SecretSlice};
use sha2::Sha256;

use super::digest::ActionDigest;
use super::ids::{ActionId, AgentName, Tenant};

/// What every token begins with. Another version tag is refused, never reinterpreted.
pub const PREFIX: &str = "ust1.";

/// The shortest key that is accepted, in bytes.
pub const MIN_KEY: usize = 32;

/// The longest string that is looked at; a real token has about 90 characters.
const MAX_TOKEN: usize = 256;

/// 32 random bytes, written to the row when the requirement is met.
#[derive(Clone)]
pub struct Nonce([u8; 32]);

impl Nonce {
    /// Wraps 32 bytes from the entropy handed in, or from the row.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the row.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// What a token is bound to.
pub struct Bound<'a> {
    /// The action.
    pub action: ActionId,
    /// Everything that was approved.
    pub digest: &'a ActionDigest,
    /// The tenant.
    pub tenant: &'a Tenant,
    /// The only agent that may use it.
    pub agent: &'a AgentName,
    /// The row's nonce.
    pub nonce: &'a Nonce,
}

/// One signing key.
pub struct TokenKey {
    /// Its id, shown in the token: letters, digits, `-` and `_`.
    pub id: String,
    /// Its secret, at least [`MIN_KEY`] bytes.
    pub secret: SecretSlice<u8>,
}

/// The ring of keys: the first signs, all verify.
pub struct TokenKeys(Vec<TokenKey>);

/// A minted token. Only the proposing agent is ever given one.
#[derive(Clone, PartialEq, Eq)]
pub struct ApprovalToken(String);

impl ApprovalToken {
    /// The text handed to the agent.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApprovalToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApprovalToken(…)")
    }
}

/// A token of the right form under a known key; nothing about it is proved yet.
pub struct PresentedToken<'k> {
    key: &'k TokenKey,
    action: ActionId,
    mac: Vec<u8>,
}

impl PresentedToken<'_> {
    /// The action it claims to be for.
    pub fn action(&self) -> ActionId {
        self.action
    }

    /// Whether the MAC is right for this row; constant time in the MAC.
    pub fn proves(&self, bound: &Bound<'_>) -> bool {
        self.action == bound.action && mac(self.key, bound).verify_slice(&self.mac).is_ok()
    }
}

impl TokenKeys {
    /// A ring of at least one key. `None` when it is empty, a key is too short or an id is not usable in a token.
    pub fn new(keys: Vec<TokenKey>) -> Option<Self> {
        let usable = |key: &TokenKey| {
            key.secret.expose_secret().len() >= MIN_KEY
                && (1..=32).contains(&key.id.len())
                && key.id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        (!keys.is_empty() && keys.iter().all(usable)).then_some(Self(keys))
    }

    /// Mints the token; the same row gives the same token as long as the first key stays.
    pub fn mint(&self, bound: &Bound<'_>) -> ApprovalToken {
        let key = &self.0[0];
        let tag = mac(key, bound).finalize().into_bytes();
        ApprovalToken(format!(
            "{PREFIX}{}.{}.{}",
            key.id,
            URL_SAFE_NO_PAD.encode(bound.action.uuid().as_bytes()),
            URL_SAFE_NO_PAD.encode(tag)
        ))
    }

    /// A secret for another purpose from each key, the signing one first: HMAC-SHA256 of the purpose's label. No token
    /// can be made from one.
    pub fn derive<'k>(&'k self, label: &'k [u8]) -> impl Iterator<Item = (&'k str, SecretBox<[u8; 32]>)> {
        self.0.iter().map(move |key| {
            let mut mac = keyed(key);
            mac.update(label);
            (key.id.as_str(), SecretBox::new(Box::new(mac.finalize().into_bytes().into())))
        })
    }

    /// Reads what an agent presented. `None` for anything that can't be a token of ours; no query is spent on those.
    pub fn read(&self, text: &str) -> Option<PresentedToken<'_>> {
        if text.len() > MAX_TOKEN {
            return None;
        }
        let mut parts = text.strip_prefix(PREFIX)?.split('.');
        let (key, action, tag) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let key = self.0.iter().find(|candidate| candidate.id == key)?;
        let action: [u8; 16] = URL_SAFE_NO_PAD.decode(action).ok()?.try_into().ok()?;
        let mac = URL_SAFE_NO_PAD.decode(tag).ok()?;
        (mac.len() == 32).then(|| PresentedToken {
            key,
            action: ActionId::from_uuid(uuid::Uuid::from_bytes(action)),
            mac,
        })
    }
}

fn keyed(key: &TokenKey) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    <Hmac<Sha256>>::new_from_slice(key.secret.expose_secret()).expect("any key length")
}

fn mac(key: &TokenKey, bound: &Bound<'_>) -> Hmac<Sha256> {
    let mut mac = keyed(key);
    let action = bound.action.uuid();
    let fields: [&[u8]; 6] = [
        b"undersign/token/1",
        action.as_bytes(),
        bound.digest.bytes(),
        bound.tenant.as_str().as_bytes(),
        bound.agent.as_str().as_bytes(),
        bound.nonce.bytes(),
    ];
    for field in fields {
        // Length-framed, so that no field can borrow bytes from its neighbour.
        mac.update(&(field.len() as u64).to_be_bytes());
        mac.update(field);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::digest::ActionDigest;

    fn keys(ids: &[&str]) -> TokenKeys {
        TokenKeys::new(
            ids.iter()
                .map(|id| TokenKey { id: (*id).to_owned(), secret: format!("{id:_<40}").into_bytes().into() })
                .collect(),
        )
        .unwrap()
    }

    struct Row(ActionId, ActionDigest, Tenant, AgentName, Nonce);

    fn row() -> Row {
        Row(
            ActionId::from_uuid(uuid::Uuid::from_bytes([7; 16])),
            ActionDigest::from_stored(&[1; 32]).unwrap(),
            "acme".into(),
            "bot".into(),
            Nonce::new([9; 32]),
        )
    }

    fn bound(row: &Row) -> Bound<'_> {
        Bound { action: row.0, digest: &row.1, tenant: &row.2, agent: &row.3, nonce: &row.4 }
    }

    #[test]
    fn a_minted_token_proves_its_row_and_no_other() {
        let (ring, row) = (keys(&["k1"]), row());
        let token = ring.mint(&bound(&row));
        let presented = ring.read(token.reveal()).unwrap();
        assert!(presented.proves(&bound(&row)));
        let other = [
            Row(
                row.0,
                ActionDigest::from_stored(&[2; 32]).unwrap(),
                row.2.clone(),
                row.3.clone(),
                row.4.clone(),
            ),
            Row(row.0, row.1, "acm".into(), "ebot".into(), row.4.clone()),
            Row(row.0, row.1, row.2.clone(), "bot2".into(), row.4.clone()),
            Row(row.0, row.1, row.2.clone(), row.3.clone(), Nonce::new([8; 32])),
        ];
        for other in &other {
            assert!(!presented.proves(&bound(other)));
        }
    }

    #[test]
    fn a_retired_key_verifies_and_the_first_signs() {
        let row = row();
        let old = keys(&["k1"]).mint(&bound(&row));
        let ring = keys(&["k2", "k1"]);
        assert!(ring.read(old.reveal()).unwrap().proves(&bound(&row)));
        assert!(ring.mint(&bound(&row)).reveal().starts_with("ust1.k2."));
        assert!(keys(&["k2"]).read(old.reveal()).is_none());
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let (ring, row) = (keys(&["k1"]), row());
        let token = ring.mint(&bound(&row)).reveal().to_owned();
        for at in 0..token.len() {
            for bit in 0..7 {
                let mut bytes = token.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let Ok(text) = String::from_utf8(bytes) else { continue };
                assert!(ring.read(&text).is_none_or(|p| !p.proves(&bound(&row))), "position {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn other_forms_are_no_tokens() {
        let ring = keys(&["k1"]);
        let row = row();
        let token = ring.mint(&bound(&row)).reveal().to_owned();
        let longer = format!("{token}.x");
        let padded = format!("{token}=");
        let next = token.replacen("ust1", "ust2", 1);
        let huge = "ust1.".repeat(300_000);
        for text in ["", "ust1.", "ust1.k1..", &token[..token.len() - 1], &longer, &padded, &next, &huge] {
            assert!(ring.read(text).is_none(), "{} characters", text.len());
        }
    }
}

//! Signed statements about the chain: where it ended at a time. The signing keys come from the token keys, which are not
//! in the database: whoever can rewrite every row can't make the signature fit.
//!
//! A signed object has the members `key_id`, `public_key` and `signature`; the Ed25519 signature is over the RFC 8785
//! bytes of the object without `signature`. Its member `undersign` says what it states, so that a signature for one
//! purpose is none for another.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};

use super::canonical::canonical;
use super::chain::{Hash, parse_hash};
use super::token::TokenKeys;

/// What sets these keys apart from every other use of the token keys.
const LABEL: &[u8] = b"undersign/checkpoint/1";

/// What a checkpoint says it is.
pub const CHECKPOINT: &str = "checkpoint/1";

/// A public key, by which signatures are known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads 64 hex digits. `None` for anything that is no public key of Ed25519, or a weak one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        let key = VerifyingKey::from_bytes(&bytes).ok()?;
        (!key.is_weak()).then_some(Self(bytes))
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A key that signs, with the id of the token key it comes from.
pub struct Signer {
    id: String,
    key: SigningKey,
}

impl Signer {
    /// The keys of a ring, the one that signs first.
    pub fn all(keys: &TokenKeys) -> Vec<Self> {
        keys.derive(LABEL)
            .map(|(id, secret)| Self {
                id: id.to_owned(),
                key: SigningKey::from_bytes(secret.expose_secret()),
            })
            .collect()
    }

    /// The token key's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What signatures of this key are verified with.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.key.verifying_key().to_bytes())
    }

    /// Signs an object: adds its three members.
    pub fn sign(&self, mut object: Map<String, Value>) -> Map<String, Value> {
        object.insert("key_id".to_owned(), json!(self.id));
        object.insert("public_key".to_owned(), json!(self.public_key().to_string()));
        // What is signed here holds strings, integers within 2^53 and objects of them.
        #[expect(clippy::expect_used, reason = "strings and integers within 2^53 have a canonical form")]
        let bytes = canonical(&object).expect("a canonical form");
        object.insert("signature".to_owned(), json!(hex::encode(self.key.sign(&bytes).to_bytes())));
        object
    }

    /// A checkpoint: this tenant's chain ends here, now.
    pub fn checkpoint(&self, tenant: &str, seq: i64, hash: &Hash, at: &str) -> Map<String, Value> {
        self.sign(Map::from_iter([
            ("undersign".to_owned(), json!(CHECKPOINT)),
            ("tenant".to_owned(), json!(tenant)),
            ("seq".to_owned(), json!(seq)),
            ("hash".to_owned(), json!(hex::encode(hash))),
            ("at".to_owned(), json!(at)),
        ]))
    }
}

/// Verifies a signed object with the key that it names. `None`: it is not signed, or not by that key.
pub fn signed_by(object: &Map<String, Value>) -> Option<PublicKey> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let key = PublicKey::parse(text("public_key")?)?;
    let mut signature = [0; 64];
    hex::decode_to_slice(text("signature")?, &mut signature).ok()?;
    let mut signed = object.clone();
    signed.remove("signature");
    let bytes = canonical(&signed).ok()?;
    let verifier = VerifyingKey::from_bytes(key.bytes()).ok()?;
    verifier.verify_strict(&bytes, &Signature::from_bytes(&signature)).ok()?;
    Some(key)
}

/// A checkpoint whose signature is right; whose it is remains to be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The tenant.
    pub tenant: String,
    /// Where the chain ended.
    pub seq: i64,
    /// The hash there.
    pub hash: Hash,
    /// When, as written.
    pub at: String,
    /// The key that signed.
    pub key: PublicKey,
    /// What the signer calls it.
    pub key_id: String,
}

/// Why an object is no checkpoint. The tenant and seq are what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotACheckpoint {
    /// A member is missing, or is not what it should be.
    Malformed,
    /// The signature is not that of the key it names.
    Signature,
}

impl Checkpoint {
    /// Reads a checkpoint and verifies its signature.
    ///
    /// # Errors
    /// It is none, or its signature is wrong.
    pub fn read(object: &Map<String, Value>) -> Result<Self, NotACheckpoint> {
        let text = |name: &str| object.get(name).and_then(Value::as_str).ok_or(NotACheckpoint::Malformed);
        if text("undersign")? != CHECKPOINT {
            return Err(NotACheckpoint::Malformed);
        }
        Ok(Self {
            tenant: text("tenant")?.to_owned(),
            seq: object.get("seq").and_then(Value::as_i64).ok_or(NotACheckpoint::Malformed)?,
            hash: parse_hash(object.get("hash")).ok_or(NotACheckpoint::Malformed)?,
            at: text("at")?.to_owned(),
            key_id: text("key_id")?.to_owned(),
            key: signed_by(object).ok_or(NotACheckpoint::Signature)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::token::TokenKey;

    fn signer(secret: &str) -> Signer {
        let key = TokenKey { id: "k1".to_owned(), secret: secret.as_bytes().to_vec().into() };
        Signer::all(&TokenKeys::new(vec![key]).unwrap()).remove(0)
    }

    #[test]
    fn a_checkpoint_is_read_back_and_every_change_of_it_is_seen() {
        let signer = signer("0123456789abcdef0123456789abcdef");
        let signed = signer.checkpoint("acme", 7, &[3; 32], "2026-12-01T00:00:00.000000Z");
        let read = Checkpoint::read(&signed).unwrap();
        assert_eq!((read.tenant.as_str(), read.seq, read.hash), ("acme", 7, [3; 32]));
        assert_eq!(read.key, signer.public_key());
        for (name, value) in [
            ("tenant", json!("globex")),
            ("seq", json!(6)),
            ("hash", json!(hex::encode([4; 32]))),
            ("at", json!("2026-12-02T00:00:00.000000Z")),
            ("key_id", json!("k2")),
            ("note", json!("x")),
        ] {
            let mut changed = signed.clone();
            changed.insert(name.to_owned(), value);
            assert_eq!(Checkpoint::read(&changed), Err(NotACheckpoint::Signature), "{name}");
        }
        let mut other = signed.clone();
        other.insert("undersign".to_owned(), json!("receipt/1"));
        assert_eq!(Checkpoint::read(&other), Err(NotACheckpoint::Malformed));
    }

    #[test]
    fn another_secret_is_another_key() {
        let keys = ["0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdeg"];
        assert_ne!(signer(keys[0]).public_key(), signer(keys[1]).public_key());
        assert_eq!(signer(keys[0]).public_key(), signer(keys[0]).public_key());
    }

    #[test]
    fn a_weak_key_is_no_key() {
        assert_eq!(PublicKey::parse(&hex::encode([0; 32])), None);
        assert_eq!(PublicKey::parse("01"), None);
    }
}

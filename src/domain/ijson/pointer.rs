//! Where in the arguments a value is, for the agent that sent it.

use std::fmt;

/// The longest pointer that is told, in bytes: names can be as long as the arguments.
const LONGEST: usize = 512;

/// A JSON Pointer (RFC 6901) to a value in the arguments.
///
/// It holds names that the agent chose, so it goes back to that agent and nowhere else: `Debug` does not show it. One
/// that would be longer than 512 bytes ends at the innermost enclosing value whose pointer is not.
#[derive(Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    whole: bool,
}

impl Pointer {
    pub(super) fn root() -> Self {
        Self { text: String::new(), whole: true }
    }

    /// Goes one level further in, unless the pointer has ended already.
    pub(super) fn push(&mut self, token: &str) {
        let extra = token.bytes().filter(|byte| matches!(byte, b'~' | b'/')).count();
        self.whole &= self.text.len() + 1 + token.len() + extra <= LONGEST;
        if self.whole {
            self.text.push('/');
            self.text.push_str(&token.replace('~', "~0").replace('/', "~1"));
        }
    }

    /// The pointer; empty for the arguments themselves.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pointer(..)")
    }
}

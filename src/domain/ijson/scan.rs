//! The scanner: one pass, its own stack, names in sets that an attacker can't steer into collisions.

use std::collections::HashSet;
use std::ops::Range;

use super::number::{check_number, end_of_number};
use super::text::{Text, read_text};
use super::{EnvelopeFault, MAX_ARGUMENTS_DEPTH, ValueFault};

/// Names that serde_json gives a meaning of its own when certain features are on somewhere in the build.
const RESERVED: &str = "$serde_json::private::";

/// Up to this many names are compared one by one before a set is made.
const FEW: usize = 8;

enum Level {
    Array,
    Object(Names),
}

#[derive(Default)]
struct Names {
    few: Vec<String>,
    many: HashSet<String>,
}

impl Names {
    fn add(&mut self, name: String) -> bool {
        if self.many.is_empty() {
            if self.few.contains(&name) {
                return false;
            }
            self.few.push(name);
            if self.few.len() > FEW {
                self.many.extend(self.few.drain(..));
            }
            return true;
        }
        self.many.insert(name)
    }
}

/// What the grammar allows next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Value,
    ValueOrEnd,
    NameOrEnd,
    Name,
    CommaOrEnd,
}

pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    depth_limit: usize,
    levels: Vec<Level>,
    look_for_arguments: bool,
    /// The last name at depths 1 and 2: where we are on the way to `params.arguments`.
    path: [Option<String>; 2],
    inside_arguments: Option<usize>,
    pub(super) arguments: Option<Range<usize>>,
    pub(super) value_fault: Option<ValueFault>,
}

impl<'a> Scan<'a> {
    pub(super) fn begin(bytes: &'a [u8], limit: usize, depth_limit: usize) -> Result<Self, EnvelopeFault> {
        if bytes.len() > limit {
            return Err(EnvelopeFault::TooLarge { limit });
        }
        if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
            return Err(EnvelopeFault::ByteOrderMark);
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            return Err(EnvelopeFault::NotUtf8 { at: error.valid_up_to() });
        }
        let mut scan = Self {
            bytes,
            at: 0,
            depth_limit,
            levels: Vec::new(),
            look_for_arguments: false,
            path: [None, None],
            inside_arguments: None,
            arguments: None,
            value_fault: None,
        };
        scan.skip_space();
        Ok(scan)
    }

    pub(super) fn look_for_arguments(&mut self) {
        self.look_for_arguments = true;
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn grammar(&self) -> EnvelopeFault {
        EnvelopeFault::Grammar { at: self.at }
    }

    pub(super) fn run(&mut self) -> Result<(), EnvelopeFault> {
        let mut next = Next::Value;
        loop {
            self.skip_space();
            let Some(byte) = self.peek() else { return Err(self.grammar()) };
            next = match (next, byte) {
                (Next::ValueOrEnd, b']') | (Next::NameOrEnd, b'}') | (Next::CommaOrEnd, b']' | b'}') => {
                    self.close(byte)?
                }
                (Next::Value | Next::ValueOrEnd, _) => self.value(byte)?,
                (Next::Name | Next::NameOrEnd, b'"') => self.name()?,
                (Next::CommaOrEnd, b',') => {
                    self.at += 1;
                    match self.levels.last() {
                        Some(Level::Array) => Next::Value,
                        Some(Level::Object(_)) => Next::Name,
                        None => return Err(self.grammar()),
                    }
                }
                _ => return Err(self.grammar()),
            };
            if self.levels.is_empty() {
                self.skip_space();
                return if self.at == self.bytes.len() { Ok(()) } else { Err(self.grammar()) };
            }
        }
    }

    fn value(&mut self, byte: u8) -> Result<Next, EnvelopeFault> {
        if self.look_for_arguments
            && self.levels.len() == 2
            && self.path[0].as_deref() == Some("params")
            && self.path[1].as_deref() == Some("arguments")
        {
            self.inside_arguments = Some(self.at);
        }
        match byte {
            b'{' => return self.open(Level::Object(Names::default()), Next::NameOrEnd),
            b'[' => return self.open(Level::Array, Next::ValueOrEnd),
            b'"' => {
                self.string()?;
            }
            b't' => self.word(b"true")?,
            b'f' => self.word(b"false")?,
            b'n' => self.word(b"null")?,
            _ => {
                let end = end_of_number(self.bytes, self.at).map_err(|at| EnvelopeFault::Grammar { at })?;
                if self.value_fault.is_none() {
                    self.value_fault = check_number(&self.bytes[self.at..end], self.at);
                }
                self.at = end;
            }
        }
        self.ended();
        Ok(Next::CommaOrEnd)
    }

    fn open(&mut self, level: Level, next: Next) -> Result<Next, EnvelopeFault> {
        self.levels.push(level);
        // Inside `params.arguments` the tighter limit counts from the arguments object.
        let within = self.inside_arguments.map(|_| self.levels.len() - 2);
        if within.is_some_and(|depth| depth > MAX_ARGUMENTS_DEPTH) {
            return Err(EnvelopeFault::TooDeep { at: self.at, limit: MAX_ARGUMENTS_DEPTH });
        }
        if self.levels.len() > self.depth_limit {
            return Err(EnvelopeFault::TooDeep { at: self.at, limit: self.depth_limit });
        }
        self.at += 1;
        Ok(next)
    }

    fn close(&mut self, byte: u8) -> Result<Next, EnvelopeFault> {
        match (self.levels.pop(), byte) {
            (Some(Level::Array), b']') | (Some(Level::Object(_)), b'}') => {}
            _ => return Err(self.grammar()),
        }
        self.at += 1;
        self.ended();
        Ok(Next::CommaOrEnd)
    }

    /// A value has ended; perhaps it was `params.arguments`.
    fn ended(&mut self) {
        if self.levels.len() == 2
            && let Some(start) = self.inside_arguments.take()
        {
            self.arguments = Some(start..self.at);
        }
    }

    fn name(&mut self) -> Result<Next, EnvelopeFault> {
        let start = self.at;
        let name = self.string()?;
        if name.starts_with(RESERVED) {
            return Err(EnvelopeFault::ReservedName { at: start });
        }
        let depth = self.levels.len();
        if self.look_for_arguments && depth <= 2 {
            self.path[depth - 1] = Some(name.clone());
            if depth == 1 {
                self.path[1] = None;
            }
        }
        let Some(Level::Object(names)) = self.levels.last_mut() else { return Err(self.grammar()) };
        if !names.add(name) {
            return Err(EnvelopeFault::DuplicateName { at: start });
        }
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.grammar());
        }
        self.at += 1;
        Ok(Next::Value)
    }

    fn string(&mut self) -> Result<String, EnvelopeFault> {
        let start = self.at;
        let Text { end, value, nul } = read_text(self.bytes, start)?;
        if nul && self.value_fault.is_none() {
            self.value_fault = Some(ValueFault::NulCharacter { at: start });
        }
        self.at = end;
        Ok(value)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), EnvelopeFault> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.grammar());
        }
        self.at += word.len();
        Ok(())
    }
}

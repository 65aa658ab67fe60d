//! The scanner: one pass, its own stack, names in sets that an attacker can't steer into collisions.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use super::number::{end_of_number, fault_of};
use super::pointer::Pointer;
use super::text::Text;
use super::{
    EnvelopeFault, MAX_ARGUMENTS, MAX_ARGUMENTS_DEPTH, MAX_BODY, MAX_BODY_DEPTH, MAX_RECORD, ValueFault,
};

/// Names that serde_json gives a meaning of its own when certain features are on somewhere in the build.
const RESERVED: &str = "$serde_json::private::";

/// Up to this many names are compared one by one before a set is made.
const FEW: usize = 8;

/// What is scanned, which settles the limits and whether values are judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// A request: envelope faults only, and where `params.arguments` is.
    Body,
    /// An audit record: envelope faults only.
    Record,
    /// The arguments of a gated call: faults of both classes.
    Arguments,
}

impl Subject {
    fn limits(self) -> (usize, usize) {
        match self {
            Self::Body => (MAX_BODY, MAX_BODY_DEPTH),
            Self::Record => (MAX_RECORD, MAX_BODY_DEPTH),
            Self::Arguments => (MAX_ARGUMENTS, MAX_ARGUMENTS_DEPTH),
        }
    }
}

/// An array or object that is open, and which of its items was begun last.
enum Level<'a> {
    Array { index: usize },
    Object { names: Names<'a>, last: Option<Text> },
}

#[derive(Default)]
struct Names<'a> {
    few: Vec<Cow<'a, str>>,
    many: HashSet<Cow<'a, str>>,
}

impl<'a> Names<'a> {
    /// Whether the name is new.
    fn add(&mut self, name: Cow<'a, str>) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(name);
        }
        if self.few.contains(&name) {
            return false;
        }
        self.few.push(name);
        if self.few.len() > FEW {
            self.many.extend(self.few.drain(..));
        }
        true
    }
}

/// What the grammar allows next.
#[derive(Clone, Copy)]
enum Next {
    Value,
    ValueOrEnd,
    NameOrEnd,
    Name,
    CommaOrEnd,
}

/// How much of the way to `params.arguments` the last names of the two outer levels are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Elsewhere,
    Params,
    Arguments,
}

pub(super) struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    subject: Subject,
    levels: Vec<Level<'a>>,
    way: Way,
    inside_arguments: Option<usize>,
    pub(super) arguments: Option<Range<usize>>,
    pub(super) value_fault: Option<ValueFault>,
}

impl<'a> Scan<'a> {
    /// Checks size and encoding, and goes to the first byte that is no white space.
    pub(super) fn begin(bytes: &'a [u8], subject: Subject) -> Result<Self, EnvelopeFault> {
        let (limit, _) = subject.limits();
        if bytes.len() > limit {
            return Err(EnvelopeFault::TooLarge { limit });
        }
        if bytes.starts_with(&[0xef, 0xbb, 0xbf]) {
            return Err(EnvelopeFault::ByteOrderMark);
        }
        let text =
            std::str::from_utf8(bytes).map_err(|error| EnvelopeFault::NotUtf8 { at: error.valid_up_to() })?;
        let mut scan = Self {
            text,
            bytes,
            at: 0,
            subject,
            levels: Vec::new(),
            way: Way::Elsewhere,
            inside_arguments: None,
            arguments: None,
            value_fault: None,
        };
        scan.skip_space();
        Ok(scan)
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

    /// Goes through the whole text.
    pub(super) fn run(&mut self) -> Result<(), EnvelopeFault> {
        let mut next = Next::Value;
        loop {
            self.skip_space();
            let Some(byte) = self.peek() else { return Err(self.grammar()) };
            next = match (next, byte) {
                (Next::ValueOrEnd, b']') | (Next::NameOrEnd, b'}') | (Next::CommaOrEnd, b']' | b'}') => {
                    self.close(byte)?
                }
                (Next::CommaOrEnd, b',') => self.comma()?,
                (Next::Value | Next::ValueOrEnd, _) => self.value(byte)?,
                (Next::Name | Next::NameOrEnd, b'"') => self.name()?,
                _ => return Err(self.grammar()),
            };
            if self.levels.is_empty() {
                self.skip_space();
                return if self.at == self.bytes.len() { Ok(()) } else { Err(self.grammar()) };
            }
        }
    }

    fn value(&mut self, byte: u8) -> Result<Next, EnvelopeFault> {
        if self.way == Way::Arguments && self.levels.len() == 2 {
            self.inside_arguments = Some(self.at);
        }
        match byte {
            b'{' => {
                let level = Level::Object { names: Names::default(), last: None };
                return self.open(level, Next::NameOrEnd);
            }
            b'[' => return self.open(Level::Array { index: 0 }, Next::ValueOrEnd),
            b'"' => {
                let text = Text::scan(self.bytes, self.at)?;
                self.judge_text(text);
                self.at = text.end;
            }
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => {
                let end = end_of_number(self.bytes, self.at).map_err(|at| EnvelopeFault::Grammar { at })?;
                self.judge_number(self.at..end);
                self.at = end;
            }
        }
        self.ended();
        Ok(Next::CommaOrEnd)
    }

    fn open(&mut self, level: Level<'a>, next: Next) -> Result<Next, EnvelopeFault> {
        let (_, limit) = self.subject.limits();
        if self.levels.len() == limit {
            return Err(EnvelopeFault::TooDeep { at: self.at, limit });
        }
        // Two levels enclose `params.arguments`, and the tighter limit counts from inside them.
        if self.inside_arguments.is_some() && self.levels.len() == 2 + MAX_ARGUMENTS_DEPTH {
            return Err(EnvelopeFault::TooDeep { at: self.at, limit: MAX_ARGUMENTS_DEPTH });
        }
        self.levels.push(level);
        self.at += 1;
        Ok(next)
    }

    fn close(&mut self, byte: u8) -> Result<Next, EnvelopeFault> {
        match (self.levels.pop(), byte) {
            (Some(Level::Array { .. }), b']') | (Some(Level::Object { .. }), b'}') => {}
            _ => return Err(self.grammar()),
        }
        self.at += 1;
        self.ended();
        Ok(Next::CommaOrEnd)
    }

    fn comma(&mut self) -> Result<Next, EnvelopeFault> {
        let next = match self.levels.last_mut() {
            Some(Level::Array { index }) => {
                *index += 1;
                Next::Value
            }
            Some(Level::Object { last, .. }) => {
                *last = None;
                Next::Name
            }
            None => return Err(self.grammar()),
        };
        self.at += 1;
        Ok(next)
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
        let text = Text::scan(self.bytes, self.at)?;
        let name = text.value(self.text)?;
        if name.starts_with(RESERVED) {
            return Err(EnvelopeFault::ReservedName { at: self.at });
        }
        self.judge_text(text);
        self.keep_way(&name);
        let Some(Level::Object { names, last }) = self.levels.last_mut() else { return Err(self.grammar()) };
        if !names.add(name) {
            return Err(EnvelopeFault::DuplicateName { at: self.at });
        }
        *last = Some(text);
        self.at = text.end;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.grammar());
        }
        self.at += 1;
        Ok(Next::Value)
    }

    fn keep_way(&mut self, name: &str) {
        self.way = match (self.subject, self.levels.len(), self.way) {
            (Subject::Body, 1, _) if name == "params" => Way::Params,
            (Subject::Body, 1, _) => Way::Elsewhere,
            (Subject::Body, 2, Way::Params | Way::Arguments) if name == "arguments" => Way::Arguments,
            (Subject::Body, 2, Way::Arguments) => Way::Params,
            (_, _, way) => way,
        };
    }

    fn word(&mut self, word: &str) -> Result<(), EnvelopeFault> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.grammar());
        }
        self.at += word.len();
        Ok(())
    }

    fn judges(&self) -> bool {
        self.subject == Subject::Arguments && self.value_fault.is_none()
    }

    fn judge_number(&mut self, literal: Range<usize>) {
        if self.judges() {
            self.value_fault = fault_of(&self.text[literal.clone()], literal.start, || self.pointer());
        }
    }

    /// A name that holds U+0000 has no pointer of its own yet: the object it is in is told.
    fn judge_text(&mut self, text: Text) {
        if self.judges() && text.nul {
            self.value_fault = Some(ValueFault::NulCharacter { at: text.start, pointer: self.pointer() });
        }
    }

    /// The way to the value that was begun last.
    fn pointer(&self) -> Pointer {
        let mut pointer = Pointer::root();
        for level in &self.levels {
            match level {
                Level::Array { index } => pointer.push(&index.to_string()),
                Level::Object { last: Some(name), .. } => {
                    pointer.push(&name.value(self.text).unwrap_or_default());
                }
                Level::Object { last: None, .. } => {}
            }
        }
        pointer
    }
}

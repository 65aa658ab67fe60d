//! stub until the gate lands
use std::collections::BTreeSet;
/// v
pub fn visible(text: &str) -> String {
    text.to_owned()
}
/// v
pub fn visible_block(text: &str) -> String {
    text.to_owned()
}
/// w
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
pub enum TextWarning {
    /// i
    Invisible,
    /// m
    MixedScripts,
    /// n
    NotNormalized,
}
/// w
pub fn warnings(_text: &str) -> BTreeSet<TextWarning> {
    BTreeSet::new()
}

//! What is true, given facts: no I/O, no async, no clock and no randomness of its own.
//!
//! | concept | module | what it keeps true |
//! |---|---|---|
//! | a tool call | [`call`] | its arguments passed the byte gate and have one canonical form |
//! | what is bound | [`digest`] | every field that was approved is under one digest |
//! | what must happen | [`policy`] | the strictest matching rule wins; no team loosens another's |
//! | who may decide | [`requirement`] | an [`EligibleApprover`](requirement::EligibleApprover) was admitted, people are counted once |
//! | the parked action | [`action`] | a state has exactly the data of that state |
//! | the same proposal again | [`cosmetic`] | spelling is set aside, meaning is not; binds nothing |
//! | the capability | [`token`] | no token before the approval; useless to anyone else |
//! | what people read | [`preview`], [`card`] | everything that is executed, unambiguously |
//! | what is recorded | [`audit`] | one event for each change, without reusable secrets |
//! | what can be proved | [`chain`], [`checkpoint`], [`receipt`], [`verify`] | no event is changed, moved or left out unseen |
//! | what an agent reads | [`answer`] | one code and what to do next |

pub mod action;
pub mod answer;
pub mod audit;
pub mod call;
pub mod canonical;
pub mod card;
pub mod chain;
pub mod checkpoint;
pub mod cosmetic;
pub mod digest;
pub mod duration;
pub mod ids;
pub mod ijson;
pub mod intent;
pub mod network;
pub mod place;
pub mod policy;
pub mod press;
pub mod preview;
pub mod receipt;
pub mod requirement;
pub mod source;
pub mod token;
pub mod verify;
pub mod visible;

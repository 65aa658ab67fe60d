//! `[limits]`: how much an agent may ask of people, and what a denial is worth.
//!
//! Each key is set in one file of a tenant at most; where none sets it, the default holds.

use std::time::Duration;

use serde::Serialize;

use crate::domain::place::Place;

/// How long an identical denied call stays denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DenialMemory {
    /// So long after the denial.
    For(Duration),
    /// Until an eligible person reopens it.
    Forever,
}

impl DenialMemory {
    /// The time; `None` is forever.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::For(duration) => Some(duration),
            Self::Forever => None,
        }
    }
}

/// After how many denials an agent may ask nothing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DenialsPause {
    /// So many denials …
    pub count: u32,
    /// … within this time …
    pub within: Duration,
    /// … pause the agent for this long.
    pub pause_for: Duration,
}

/// The limits of one tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// New approvals an agent may ask for within a minute.
    pub asks_per_minute: u32,
    /// Actions of one agent that may be pending.
    pub pending_per_agent: u32,
    /// Actions of one owner's agents that may be pending.
    pub pending_per_owner: Option<u32>,
    /// Actions that may be pending with one approver group.
    pub pending_per_group: Option<u32>,
    /// When denials pause an agent.
    pub denials_pause: DenialsPause,
    /// How long a denial is remembered.
    pub denial_memory: DenialMemory,
    /// Where pauses, foreign tokens and unknown outcomes are told.
    pub alert_to: Vec<Place>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            asks_per_minute: 5,
            pending_per_agent: 20,
            pending_per_owner: None,
            pending_per_group: None,
            denials_pause: DenialsPause {
                count: 3,
                within: Duration::from_mins(10),
                pause_for: Duration::from_mins(10),
            },
            denial_memory: DenialMemory::For(Duration::from_hours(24)),
            alert_to: Vec::new(),
        }
    }
}

//! Compiles `[limits]`: each key from the one file that sets it.

use std::time::Duration;

use super::Compiler;
use crate::domain::policy::{DenialMemory, Limits, LimitsDefinition};

/// The longest time that limits may look back or ahead; a denial may be remembered forever.
const LONGEST: Duration = Duration::from_hours(24 * 366);

impl Compiler<'_> {
    pub(super) fn limits(&mut self) -> Limits {
        let mut limits = Limits::default();
        self.one("asks_per_minute", |file| file.asks_per_minute, &mut limits.asks_per_minute);
        self.one("pending_per_agent", |file| file.pending_per_agent, &mut limits.pending_per_agent);
        self.one("pending_per_owner", |file| file.pending_per_owner.map(Some), &mut limits.pending_per_owner);
        self.one("pending_per_group", |file| file.pending_per_group.map(Some), &mut limits.pending_per_group);
        self.one("denials_pause", |file| file.denials_pause, &mut limits.denials_pause);
        self.one("denial_memory", |file| file.denial_memory, &mut limits.denial_memory);
        let mut alert_to = Vec::new();
        if let Some(file) = self.one("alert_to", |file| file.alert_to.clone(), &mut alert_to) {
            limits.alert_to = self.known_places(file, "limits.alert_to", &alert_to);
        }
        limits
    }

    /// Takes a key from the file that sets it, if it is in order; a second file that sets it is a fault.
    fn one<T: Limit>(
        &mut self,
        key: &str,
        read: impl Fn(&LimitsDefinition) -> Option<T>,
        into: &mut T,
    ) -> Option<usize> {
        let key = format!("limits.{key}");
        let mut first = None;
        for (file, (_, definition)) in self.files.iter().enumerate() {
            let Some(value) = read(&definition.limits) else { continue };
            if let Some(first) = first {
                let (first, _) = &self.files[first];
                self.fault(file, &key, format!("is set in {first} already: keep one of the two"));
                continue;
            }
            first = Some(file);
            match value.fault() {
                Some(message) => self.fault(file, &key, message),
                None => *into = value,
            }
        }
        first
    }
}

/// A value of `[limits]` that may be out of range.
trait Limit {
    fn fault(&self) -> Option<String>;
}

impl Limit for u32 {
    fn fault(&self) -> Option<String> {
        let usable = (1..=1_000_000).contains(self);
        (!usable).then(|| "must be from 1 to 1000000".to_owned())
    }
}

impl Limit for Option<u32> {
    fn fault(&self) -> Option<String> {
        self.and_then(|count| count.fault())
    }
}

impl Limit for Vec<String> {
    fn fault(&self) -> Option<String> {
        None
    }
}

impl Limit for DenialMemory {
    fn fault(&self) -> Option<String> {
        let usable = self.duration().is_none_or(|time| time <= LONGEST);
        (!usable).then(|| "must be at most 366 days, or \"forever\"".to_owned())
    }
}

impl Limit for crate::domain::policy::DenialsPause {
    fn fault(&self) -> Option<String> {
        let usable = (1..=1000).contains(&self.count)
            && [self.within, self.pause_for].iter().all(|time| !time.is_zero() && *time <= LONGEST);
        (!usable).then(|| "must have a count from 1 to 1000 and times of more than 0s".to_owned())
    }
}

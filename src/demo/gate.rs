//! A gate that holds a request until a test or the demo lets it go on.
//!
//! Keeps true: who waits is known, so that nothing has to sleep and hope; an open gate never closes again.

use std::sync::Arc;

use tokio::sync::watch;

/// Holds whoever passes until [`Gate::open`]. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    state: Arc<watch::Sender<GateState>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct GateState {
    arrived: usize,
    open: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(GateState::default())) }
    }

    /// Lets everyone through, now and later.
    pub fn open(&self) {
        self.state.send_modify(|state| state.open = true);
    }

    /// Returns once somebody has come to the gate, also when they have gone on since.
    pub async fn arrived(&self) {
        self.until(|state| state.arrived > 0).await;
    }

    /// Says that somebody is here, and waits for the opening.
    pub async fn pass(&self) {
        self.state.send_modify(|state| state.arrived += 1);
        self.until(|state| state.open).await;
    }

    async fn until(&self, reached: impl Fn(&GateState) -> bool) {
        // An error means that the sender is gone, and it lives in `self`.
        let _ = self.state.subscribe().wait_for(|state| reached(state)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_holds_until_opened_and_knows_who_came() {
        let gate = Gate::new();
        let other = gate.clone();
        let passing = tokio::spawn(async move { other.pass().await });
        gate.arrived().await;
        assert!(!passing.is_finished());
        gate.open();
        passing.await.unwrap();
        gate.pass().await;
    }
}

//! Connection caps: a seat for each connection, given back when it ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::rate::network;
use super::Caps;

pub(super) struct Seats {
    caps: Caps,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    total: usize,
    of_peer: HashMap<IpAddr, usize>,
}

/// One connection's.
pub(super) struct Seat {
    seats: Arc<Seats>,
    peer: Option<IpAddr>,
}

impl Seats {
    pub(super) fn new(caps: Caps) -> Self {
        Self { caps, taken: Mutex::default() }
    }

    /// For a peer that is counted.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let peer = network(peer);
        let mut taken = self.taken();
        if taken.total >= self.caps.total || taken.of_peer.get(&peer).is_some_and(|n| *n >= self.caps.of_peer)
        {
            return None;
        }
        taken.total += 1;
        *taken.of_peer.entry(peer).or_default() += 1;
        Some(Seat { seats: self.clone(), peer: Some(peer) })
    }

    /// For a peer that speaks for many.
    pub(super) fn take_any(self: &Arc<Self>) -> Option<Seat> {
        let mut taken = self.taken();
        if taken.total >= self.caps.total {
            return None;
        }
        taken.total += 1;
        Some(Seat { seats: self.clone(), peer: None })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        taken.total -= 1;
        if let Some(peer) = self.peer
            && let Some(count) = taken.of_peer.get_mut(&peer)
        {
            *count -= 1;
            if *count == 0 {
                taken.of_peer.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_and_all_together_have_so_many_and_get_them_back() {
        let seats = Arc::new(Seats::new(Caps { of_peer: 2, total: 3 }));
        let [one, two]: [IpAddr; 2] = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let first = seats.take(one).unwrap();
        let second = seats.take(one).unwrap();
        assert!(seats.take(one).is_none(), "a third of one peer");
        let third = seats.take(two).unwrap();
        assert!(seats.take(two).is_none() && seats.take_any().is_none(), "a fourth in all");
        drop(first);
        let proxied = seats.take_any().unwrap();
        assert!(seats.take(one).is_none());
        drop((second, third, proxied));
        let taken = seats.taken();
        assert_eq!((taken.total, taken.of_peer.len()), (0, 0), "nothing is remembered of who is gone");
    }
}

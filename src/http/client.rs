//! Whose request it is by address: the peer's, or what a proxy of ours says it passed on.

use std::net::IpAddr;

use http::HeaderMap;

use crate::domain::network::Network;

/// The proxies in front whose word about addresses counts.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// From the configuration.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// The address of the client behind a connection from `peer`: the last hop of `X-Forwarded-For` that is no proxy of
    /// ours. Whatever stands before it was written by that hop itself. From any other peer the header means nothing.
    pub(super) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        for hop in lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(',')) {
            if !self.contains(client) {
                break;
            }
            match hop.trim().parse::<IpAddr>() {
                Ok(address) => client = address.to_canonical(),
                Err(_) => break,
            }
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str]) -> String {
        let proxies = TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn the_last_hop_that_is_not_ours_is_the_client() {
        assert_eq!(client("10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["1.1.1.1, 203.0.113.9, 10.9.9.9"]), "203.0.113.9");
        assert_eq!(client("10.0.0.1", &["1.1.1.1", "203.0.113.9", "10.9.9.9"]), "203.0.113.9");
        assert_eq!(client("::1", &["2001:db8::7"]), "2001:db8::7");
        assert_eq!(client("10.0.0.1", &["::ffff:203.0.113.9"]), "203.0.113.9");
    }

    #[test]
    fn nobody_else_can_name_another_address() {
        assert_eq!(client("203.0.113.9", &["1.1.1.1"]), "203.0.113.9");
        assert_eq!(client("203.0.113.9", &["10.0.0.1"]), "203.0.113.9");
    }

    #[test]
    fn what_is_no_address_ends_the_search_at_the_proxy() {
        for forwarded in [&[][..], &[""], &["unknown"], &["1.1.1.1, _hidden"], &["203.0.113.9:443"]] {
            assert_eq!(client("10.0.0.1", forwarded), "10.0.0.1", "{forwarded:?}");
        }
    }
}

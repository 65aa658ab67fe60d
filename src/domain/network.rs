//! A range of network addresses, as configurations write it: one address, or an address and the length of its prefix.

use std::net::IpAddr;
use std::str::FromStr;

/// `10.0.0.0/8`, `2001:db8::/32` or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The text is no network, or has bits set behind its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no network address")]
pub struct NotANetwork;

impl Network {
    /// Whether the address lies in it; an IPv4 address written as IPv6 counts as what it is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (ours, width) = bits(self.address);
        let (theirs, other_width) = bits(address.to_canonical());
        width == other_width && ((ours ^ theirs) & mask(width, self.prefix)) == 0
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        // The mapped form has another width than the addresses it is compared with.
        if address != address.to_canonical() {
            return Err(NotANetwork);
        }
        let (value, width) = bits(address);
        let prefix = match prefix {
            Some(digits) if digits.len() <= 3 && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().map_err(|_| NotANetwork)?
            }
            Some(_) => return Err(NotANetwork),
            None => width,
        };
        // `10.1.2.3/8` is more likely a slip of the prefix than a way to write `10.0.0.0/8`.
        if prefix > width || value & !mask(width, prefix) & mask(width, width) != 0 {
            return Err(NotANetwork);
        }
        Ok(Self { address, prefix })
    }
}

/// The address as a number, and how many bits it has.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

/// The first `prefix` of `width` bits.
fn mask(width: u8, prefix: u8) -> u128 {
    let all = u128::MAX >> (128 - u32::from(width));
    all & !all.checked_shr(u32::from(prefix)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn an_address_is_in_the_network_whose_prefix_it_has() {
        assert!(contains("10.0.0.0/8", "10.255.1.2"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("192.0.2.7", "192.0.2.7"));
        assert!(!contains("192.0.2.7", "192.0.2.8"));
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.9"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!contains("2001:db8::/33", "2001:db8:ffff::1"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(contains("::1", "::1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "10",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/008x",
            "10.1.2.3/8",
            "::1/129",
            "::1/64",
            "::ffff:10.0.0.1",
            "localhost",
            "10.0.0.0/8 ",
            "*",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text}");
        }
    }
}

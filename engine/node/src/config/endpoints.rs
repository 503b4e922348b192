//! Addresses as configuration writes them: `host:port`, `NAME://host:port`, `id@host:port`.
//!
//! Pure text to values; no name is resolved here. IPv6 addresses stand in brackets.

use quorate_raft::{Endpoint, NodeId, ReplicaKey, Voter, VoterSet};
use std::collections::BTreeSet;
use thiserror::Error;

/// What is wrong with a value, beyond what the table of keys says about its form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValueFault {
    /// No `:port` at the end, or not 1 to 65535.
    #[error("{text:?} does not end in a port from 1 to 65535")]
    BadPort {
        /// The item.
        text: String,
    },
    /// A host is needed and there is none.
    #[error("{text:?} has no host")]
    NoHost {
        /// The item.
        text: String,
    },
    /// A host with characters that no host has, or an IPv6 address without brackets.
    #[error("{text:?} has no valid host (IPv6 addresses stand in brackets)")]
    BadHost {
        /// The item.
        text: String,
    },
    /// An item without the `NAME://` or `id@` before the address.
    #[error("{text:?} does not begin with {prefix}")]
    NoPrefix {
        /// The item.
        text: String,
        /// What is missing.
        prefix: &'static str,
    },
    /// An empty item between commas.
    #[error("there is an empty item in the list")]
    EmptyItem,
    /// The same item, listener name, voter id or port again.
    #[error("{what} stands there twice")]
    Twice {
        /// Which.
        what: String,
    },
    /// A listener name that `listeners` does not have.
    #[error("{name} is not in listeners ({known})")]
    UnknownListener {
        /// The name.
        name: String,
        /// Those that are.
        known: String,
    },
    /// A listener with a security protocol that is not offered.
    #[error("listener {name} would be {protocol}; only PLAINTEXT is offered")]
    SecurityProtocol {
        /// The listener.
        name: String,
        /// Its protocol.
        protocol: String,
    },
    /// A role that is not offered.
    #[error("Quorate is a metadata quorum and runs no brokers")]
    BrokerRole,
    /// A limit that another key's value makes impossible.
    #[error("it must not be below {other} ({value})")]
    BelowOther {
        /// The other key.
        other: &'static str,
        /// Its value.
        value: i64,
    },
    /// A value that follows from another key's.
    #[error("it must be 1.5 x {other}, here {value}; change that one")]
    NotOneAndAHalf {
        /// The other key.
        other: &'static str,
        /// One and a half times its value.
        value: i64,
    },
    /// The other way round.
    #[error("it must not be above {other} ({value})")]
    AboveOther {
        /// The other key.
        other: &'static str,
        /// Its value.
        value: i64,
    },
}

/// The items of a list separated by commas, white space around them removed.
///
/// # Errors
/// An empty item; the whole list being empty is one.
pub(super) fn items(text: &str) -> Result<Vec<&str>, ValueFault> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.iter().any(|item| item.is_empty()) {
        return Err(ValueFault::EmptyItem);
    }
    Ok(items)
}

/// The first of `items` that is there twice.
pub(super) fn refuse_twice<T: Ord>(
    items: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> String,
) -> Result<(), ValueFault> {
    let mut seen = BTreeSet::new();
    for item in items {
        let what = name(&item);
        if !seen.insert(item) {
            return Err(ValueFault::Twice { what });
        }
    }
    Ok(())
}

/// `host:port`; the host may be empty.
///
/// # Errors
/// No port in 1 to 65535, a host that cannot be one.
pub fn parse_endpoint(text: &str) -> Result<Endpoint, ValueFault> {
    let bad_port = || ValueFault::BadPort { text: text.into() };
    let (host, port) = text.rsplit_once(':').ok_or_else(bad_port)?;
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| digits && *port > 0);
    let port = port.ok_or_else(bad_port)?;
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let valid = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    };
    if !valid {
        return Err(ValueFault::BadHost { text: text.into() });
    }
    let host = bracketed.unwrap_or(host).into();
    Ok(Endpoint { host, port })
}

/// `host:port`, where port 0 is whichever is free; `none` for no listener at all.
///
/// # Errors
/// As [`parse_endpoint`], apart from port 0.
pub fn parse_admin_listener(text: &str) -> Result<Option<Endpoint>, ValueFault> {
    if text == "none" {
        return Ok(None);
    }
    // Checked with a port that stands for itself.
    let host = text.strip_suffix(":0");
    let with_port = host.map_or_else(|| text.to_owned(), |host| format!("{host}:1"));
    let mut endpoint = parse_endpoint(&with_port)?;
    if host.is_some() {
        endpoint.port = 0;
    }
    Ok(Some(endpoint))
}

/// `host:port` of somebody else, so with a host.
///
/// # Errors
/// As [`parse_endpoint`], and without a host.
pub fn parse_remote(text: &str) -> Result<Endpoint, ValueFault> {
    let endpoint = parse_endpoint(text)?;
    if endpoint.host.is_empty() {
        return Err(ValueFault::NoHost { text: text.into() });
    }
    Ok(endpoint)
}

/// `host:port,host:port`.
///
/// # Errors
/// The first item that is none.
pub fn parse_remotes(text: &str) -> Result<Vec<Endpoint>, ValueFault> {
    items(text)?.into_iter().map(parse_remote).collect()
}

/// `id@host:port,...`, without directory ids.
///
/// # Errors
/// The first item that is none, an id or an address that stands there twice.
pub(super) fn parse_voters(text: &str) -> Result<VoterSet, ValueFault> {
    let voter = |item: &str| -> Result<Voter, ValueFault> {
        let (id, address) = split_prefix(item, "@", "a node id and '@'")?;
        let id = id.parse::<NodeId>().ok().filter(|id| *id >= 0);
        let id = id.ok_or_else(|| ValueFault::NoPrefix {
            text: item.into(),
            prefix: "a node id and '@'",
        })?;
        let key = ReplicaKey::of(id);
        let endpoint = parse_remote(address)?;
        Ok(Voter { key, endpoint })
    };
    let voters = items(text)?
        .into_iter()
        .map(voter)
        .collect::<Result<Vec<_>, _>>()?;
    refuse_twice(voters.iter().map(|v| v.key.id), |id| format!("voter {id}"))?;
    refuse_twice(voters.iter().map(|v| v.endpoint.to_string()), String::clone)?;
    Ok(VoterSet::new(voters))
}

/// `NAME://host:port,...` as name and address, names in capitals.
///
/// # Errors
/// The first item that is none, a name that stands there twice.
pub(super) fn parse_listeners(text: &str) -> Result<Vec<(String, Endpoint)>, ValueFault> {
    let listener = |item: &str| -> Result<(String, Endpoint), ValueFault> {
        let (name, address) = split_prefix(item, "://", "a listener name and '://'")?;
        Ok((name.to_uppercase(), parse_endpoint(address)?))
    };
    let listeners = items(text)?
        .into_iter()
        .map(listener)
        .collect::<Result<Vec<_>, _>>()?;
    refuse_twice(listeners.iter().map(|(name, _)| name), |name| {
        format!("listener {name}")
    })?;
    Ok(listeners)
}

/// The protocol that `map` gives the listener, or the one its name stands for.
///
/// # Errors
/// An item of `map` that is no `NAME:PROTOCOL`.
pub(super) fn security_protocol(map: Option<&str>, name: &str) -> Result<String, ValueFault> {
    for item in map.map_or(Ok(Vec::new()), items)? {
        let (listener, protocol) = split_prefix(item, ":", "a listener name and ':'")?;
        if listener.eq_ignore_ascii_case(name) {
            return Ok(protocol.to_uppercase());
        }
    }
    let names_itself = matches!(name, "SSL" | "SASL_PLAINTEXT" | "SASL_SSL");
    Ok(if names_itself { name } else { "PLAINTEXT" }.into())
}

fn split_prefix<'a>(
    item: &'a str,
    separator: &str,
    prefix: &'static str,
) -> Result<(&'a str, &'a str), ValueFault> {
    let missing = || ValueFault::NoPrefix {
        text: item.into(),
        prefix,
    };
    let (before, after) = item.split_once(separator).ok_or_else(missing)?;
    if before.is_empty() {
        return Err(missing());
    }
    Ok((before.trim(), after.trim()))
}

/// Whether a host stands for all interfaces.
pub(super) fn is_wildcard(host: &str) -> bool {
    matches!(host, "" | "0.0.0.0" | "::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(endpoint: &Endpoint) -> String {
        endpoint.to_string()
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for address in ["a.b-c_d:1", "127.0.0.1:65535", "[::1]:9092", ":9092"] {
            assert_eq!(text(&parse_endpoint(address).unwrap()), address);
        }
        assert_eq!(&*parse_endpoint("[fe80::1]:1").unwrap().host, "fe80::1");
    }

    #[test]
    fn ports_out_of_range_are_refused() {
        for address in ["h:0", "h:70000", "h:-1", "h:+1", "h:", "h", "h:x", ""] {
            let fault = ValueFault::BadPort {
                text: address.into(),
            };
            assert_eq!(parse_endpoint(address), Err(fault));
        }
    }

    #[test]
    fn hosts_that_are_none_are_refused() {
        for address in ["::1:9092", "[h]:1", "a b:1", "a/b:1", "[::1:1"] {
            let fault = ValueFault::BadHost {
                text: address.into(),
            };
            assert_eq!(parse_endpoint(address), Err(fault));
        }
        let fault = ValueFault::NoHost { text: ":1".into() };
        assert_eq!(parse_remote(":1"), Err(fault));
    }

    #[test]
    fn voters_are_ids_with_addresses() {
        let voters = parse_voters("2@b:2, 1@[::1]:1").unwrap();
        let ids: Vec<_> = voters.voters().iter().map(|v| v.key.id).collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(text(&voters.get(1).unwrap().endpoint), "[::1]:1");
    }

    #[test]
    fn faulty_voter_lists_say_what_is_wrong() {
        for (list, says) in [
            ("1@a:1,1@b:2", "voter 1 stands there twice"),
            ("1@a:1,2@a:1", "a:1 stands there twice"),
            ("a:1", "does not begin with a node id and '@'"),
            ("x@a:1", "does not begin with a node id and '@'"),
            ("-1@a:1", "does not begin with a node id and '@'"),
            ("1@a:1,", "empty item"),
            ("1@:1", "no host"),
        ] {
            let fault = parse_voters(list).unwrap_err().to_string();
            assert!(fault.contains(says), "{list}: {fault}");
        }
    }

    #[test]
    fn listener_names_are_compared_in_capitals() {
        let listeners = parse_listeners("controller://:1,Client://h:2").unwrap();
        assert_eq!(listeners[0].0, "CONTROLLER");
        assert_eq!(listeners[1].0, "CLIENT");
        assert!(parse_listeners("A://:1,a://:2").is_err());
        assert!(parse_listeners("h:1").is_err());
    }

    #[test]
    fn a_listener_named_like_a_protocol_speaks_it_unless_mapped() {
        assert_eq!(security_protocol(None, "SSL").unwrap(), "SSL");
        assert_eq!(security_protocol(None, "CLIENT").unwrap(), "PLAINTEXT");
        let map = Some("ssl:plaintext, CLIENT:SASL_SSL");
        assert_eq!(security_protocol(map, "SSL").unwrap(), "PLAINTEXT");
        assert_eq!(security_protocol(map, "CLIENT").unwrap(), "SASL_SSL");
    }
}

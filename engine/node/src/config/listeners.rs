//! Which listeners a node has, for whom, and what others are told of them.
//!
//! Four keys say it together: listeners, advertised.listeners, controller.listener.names and
//! listener.security.protocol.map. Nothing is bound here.

use super::endpoints::{self, ValueFault};
use super::keys::{self, Key};
use super::values::Values;
use super::{ConfigError, parsed};
use quorate_raft::{Endpoint, NodeId, VoterSet};

/// A listener of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, in capitals.
    pub name: String,
    /// Where to listen. An empty host: on all interfaces.
    pub bind: Endpoint,
    /// What others are told. Never an empty or wildcard host.
    pub advertised: Endpoint,
}

/// The hosts that stand for "all interfaces" in what others are told.
pub(super) struct WildcardHosts {
    /// For the raft default listener: as the voters' list names this node.
    raft: String,
    /// For all others.
    other: String,
}

impl WildcardHosts {
    pub(super) fn new(node_id: NodeId, voters: &VoterSet, host_name: &str) -> Self {
        let other = if host_name.is_empty() {
            "localhost"
        } else {
            host_name
        };
        let raft = voters.get(node_id).map_or(other, |own| &own.endpoint.host);
        Self {
            raft: raft.into(),
            other: other.into(),
        }
    }
}

/// `listeners` with what the other keys say about them.
struct Named(Vec<(String, Endpoint)>);

impl Named {
    fn position(&self, name: &str) -> Result<usize, ValueFault> {
        let found = self.0.iter().position(|(known, _)| known == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            ValueFault::UnknownListener {
                name: name.into(),
                known: known.join(", "),
            }
        })
    }

    /// Positions of the listeners that `controller.listener.names` names, in its order.
    fn controllers(&self, names: &str) -> Result<Vec<usize>, ValueFault> {
        let find = |name: &str| self.position(&name.to_uppercase());
        let found: Result<Vec<_>, _> = endpoints::items(names)?.into_iter().map(find).collect();
        let found = found?;
        endpoints::refuse_twice(&found, |at| format!("listener {}", self.0[**at].0))?;
        Ok(found)
    }

    fn advertised(&self, text: &str) -> Result<Vec<(String, Endpoint)>, ValueFault> {
        let advertised = endpoints::parse_listeners(text)?;
        for (name, endpoint) in &advertised {
            self.position(name)?;
            if endpoints::is_wildcard(&endpoint.host) {
                let text = format!("{name}://{endpoint}");
                return Err(ValueFault::NoHost { text });
            }
        }
        Ok(advertised)
    }

    fn check_protocols(&self, map: Option<&str>) -> Result<(), ValueFault> {
        for (name, _) in &self.0 {
            let protocol = endpoints::security_protocol(map, name)?;
            if protocol != "PLAINTEXT" {
                let name = name.clone();
                return Err(ValueFault::SecurityProtocol { name, protocol });
            }
        }
        Ok(())
    }
}

/// Controller listeners in the order of `controller.listener.names`, then client listeners.
///
/// # Errors
/// The first key of the four that is missing or wrong.
pub(super) fn read(
    values: &Values,
    hosts: &WildcardHosts,
) -> Result<(Vec<Listener>, Vec<Listener>), ConfigError> {
    let named = required(values, &keys::LISTENERS, |text| {
        let listeners = endpoints::parse_listeners(text)?;
        let addresses = listeners.iter().map(|(_, bind)| bind.to_string());
        endpoints::refuse_twice(addresses, String::clone)?;
        Ok(Named(listeners))
    })?;
    check_security(values, &named)?;
    let names = &keys::CONTROLLER_LISTENER_NAMES;
    let controllers = required(values, names, |text| named.controllers(text))?;
    let advertised = parsed(values, &keys::ADVERTISED_LISTENERS, |text| {
        named.advertised(text)
    })?;
    let advertised = advertised.unwrap_or_default();

    let mut listeners = (Vec::new(), Vec::new());
    for at in &controllers {
        let is_raft = listeners.0.is_empty();
        let wildcard = if is_raft { &hosts.raft } else { &hosts.other };
        listeners
            .0
            .push(listener(&named.0[*at], &advertised, wildcard));
    }
    for (at, bound) in named.0.iter().enumerate() {
        if !controllers.contains(&at) {
            listeners.1.push(listener(bound, &advertised, &hosts.other));
        }
    }
    Ok(listeners)
}

fn required<T>(
    values: &Values,
    key: &'static Key,
    parse: impl FnOnce(&str) -> Result<T, ValueFault>,
) -> Result<T, ConfigError> {
    parsed(values, key, parse)?.ok_or_else(|| values.missing(key))
}

/// Blames the map if there is one, else the listener that is named like a protocol.
fn check_security(values: &Values, named: &Named) -> Result<(), ConfigError> {
    let map = &keys::LISTENER_SECURITY_PROTOCOL_MAP;
    let text = values.text(map)?;
    let key = if text.is_some() {
        map
    } else {
        &keys::LISTENERS
    };
    named
        .check_protocols(text)
        .map_err(|fault| values.invalid(key, Some(fault)))
}

fn listener(
    (name, bind): &(String, Endpoint),
    advertised: &[(String, Endpoint)],
    wildcard: &str,
) -> Listener {
    let told = advertised.iter().find(|(known, _)| known == name);
    let mut told = told.map_or(bind, |(_, endpoint)| endpoint).clone();
    if endpoints::is_wildcard(&told.host) {
        told.host = wildcard.into();
    }
    Listener {
        name: name.clone(),
        bind: bind.clone(),
        advertised: told,
    }
}

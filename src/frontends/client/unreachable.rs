//! What a failed command wanted of a network that it did not have: a line for people and agents, and data.

use crate::{
    printable,
    proto::v1::{Network, Unreachable},
};

/// Names in the line. The others are counted.
const NAMES_SHOWN: usize = 3;

/// `not reached: the name registry.npmjs.org: ...`. What is seen is what was tried, not why the command failed.
pub(super) fn unreachable_line(unreachable: &Unreachable) -> String {
    let mut tried = Vec::new();
    let names = unreachable.names.iter().take(NAMES_SHOWN);
    let names = names.map(|name| printable::line(name).into_owned()).collect::<Vec<_>>().join(", ");
    let more = unreachable.names.len().saturating_sub(NAMES_SHOWN) as u64 + unreachable.names_omitted;
    match (unreachable.names.len(), more) {
        (0, _) => {}
        (1, 0) => tried.push(format!("the name {names}")),
        (_, 0) => tried.push(format!("the names {names}")),
        (_, more) => tried.push(format!("the names {names} and {more} more")),
    }
    match unreachable.no_route {
        0 => {}
        1 => tried.push("an address without a route".to_owned()),
        times => tried.push(format!("addresses without a route ({times} times)")),
    }
    let tried = tried.join(", ");
    let reason = match unreachable.network() {
        Network::Proxy => {
            "with the network \"proxy\", programs reach names by its proxies and resolver, and no address"
        }
        Network::None | Network::Host | Network::Unspecified if offers_proxy(unreachable) => {
            "it has no network; the network \"proxy\" reaches what the policy's [[connect]] rules allow"
        }
        Network::None | Network::Host | Network::Unspecified => {
            "it has no network, and its profile offers none that reaches names"
        }
    };
    format!("not reached: {tried}: {reason}")
}

/// Whether the profile offers the network that reaches names by rules.
pub fn offers_proxy(unreachable: &Unreachable) -> bool {
    unreachable.offered().any(|network| network == Network::Proxy)
}

/// It as data, for front ends that give an agent more than text.
pub fn unreachable_json(unreachable: &Unreachable) -> serde_json::Value {
    serde_json::json!({
        "names": unreachable.names,
        "omitted": unreachable.names_omitted,
        "unrouted": unreachable.no_route,
        "network": network_word(unreachable.network()),
        "offered": unreachable.offered().map(network_word).collect::<Vec<_>>(),
    })
}

fn network_word(network: Network) -> &'static str {
    match network {
        Network::Unspecified => "unknown",
        Network::None => "none",
        Network::Proxy => "proxy",
        Network::Host => "host",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_was_tried_and_what_would_reach_it() {
        let names = ["a.example", "b.example", "c.example", "d.example"].map(str::to_owned);
        let one = Unreachable {
            names: names[..1].to_vec(),
            network: Network::None.into(),
            offered: vec![Network::Proxy.into()],
            ..Unreachable::default()
        };
        assert_eq!(
            unreachable_line(&one),
            "not reached: the name a.example: it has no network; the network \"proxy\" reaches what the policy's \
             [[connect]] rules allow"
        );
        let many = Unreachable {
            names: names.to_vec(),
            names_omitted: 2,
            no_route: 5,
            offered: vec![],
            ..one.clone()
        };
        assert_eq!(
            unreachable_line(&many),
            "not reached: the names a.example, b.example, c.example and 3 more, addresses without a route (5 times): \
             it has no network, and its profile offers none that reaches names"
        );
        let with_proxy = Unreachable { names: vec![], no_route: 1, network: Network::Proxy.into(), ..one };
        assert!(
            unreachable_line(&with_proxy).starts_with("not reached: an address without a route: with the")
        );
    }
}

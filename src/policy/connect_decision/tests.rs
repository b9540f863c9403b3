//! Tests of decisions about names, addresses, approvals and requests.

use super::*;
use crate::network::{destination::Destination, http_request::WantedConnection};

const RULES: &str = "default_profile='a'\n[profile.a]\n[profile.b]\n\
    [[connect]]\nid='registries'\ndecision='allow'\nhost=['registry.example.org','*.files.example.org']\nport=[443]\n\
    matches=['registry.example.org:443','a.files.example.org:443']\nrejects=['registry.example.org:80','10.0.0.1:443']\n\
    [[connect]]\nid='no-secrets'\ndecision='deny'\nhost=['secret.files.example.org']\nreason='not from here'\n\
    [[connect]]\nid='intranet'\ndecision='allow'\nhost=['git.corp.example']\naddress=['10.1.0.0/16']\nport=[22,443]\ntunnel='any'\n\
    [[connect]]\nid='database'\ndecision='allow'\naddress=['10.2.0.5']\nport=[5432]\nwhen={profile=['a']}\n\
    [[connect]]\nid='no-lab'\ndecision='deny'\naddress=['10.1.66.0/24']\n\
    [[connect]]\nid='watched'\ndecision='allow'\nhost=['new.example.org']\nport=[443]\nmode='observe'\n";

fn decide(destination: &str, address: Option<&str>, profile: &str) -> (Decision, String) {
    let policy = PolicySet::parse("p", RULES).unwrap_or_else(|error| panic!("{error}"));
    let destination = Destination::parse(destination).unwrap();
    let approved = Approved::Nothing;
    let request = ConnectRequest {
        principal: "uid:1",
        profile,
        destination: &destination,
        http: None,
        program: &ConnectingProgram::Any,
        approved,
    };
    let decision = match address {
        None => policy.connect_name(&request),
        Some(address) => {
            let target = DialTarget { address: address.parse().unwrap(), is_hosts_own: false };
            policy.connect_address(&request, target)
        }
    };
    (decision.decision, decision.reason.rule().to_owned())
}

#[test]
fn names_and_their_addresses_are_judged_by_the_same_rules() {
    use Decision::{Allow, Deny};
    for (destination, address, decision, rule) in [
        ("registry.example.org:443", None, Allow, "registries"),
        ("REGISTRY.example.org.:443", None, Allow, "registries"),
        ("registry.example.org:80", None, Deny, "default"),
        ("files.example.org:443", None, Deny, "default"),
        ("secret.files.example.org:443", None, Deny, "no-secrets"),
        ("registry.example.org:443", Some("93.184.216.34"), Allow, "registries"),
        ("registry.example.org:443", Some("127.0.0.1"), Deny, "network.address"),
        ("registry.example.org:443", Some("169.254.169.254"), Deny, "network.address"),
        ("registry.example.org:443", Some("::ffff:10.1.0.1"), Deny, "network.address"),
        ("registry.example.org:443", Some("10.1.66.1"), Deny, "no-lab"),
        ("git.corp.example:22", Some("10.1.2.3"), Allow, "intranet"),
        ("git.corp.example:22", Some("64:ff9b::a01:203"), Allow, "intranet"),
        ("git.corp.example:22", Some("10.3.0.1"), Deny, "default"),
        ("git.corp.example:22", Some("93.184.216.34"), Deny, "default"),
        ("git.corp.example:22", Some("10.1.66.9"), Deny, "no-lab"),
        ("10.2.0.5:5432", Some("10.2.0.5"), Allow, "database"),
        ("10.2.0.6:5432", Some("10.2.0.6"), Deny, "default"),
        ("10.1.2.3:22", Some("10.1.2.3"), Deny, "default"),
        ("93.184.216.34:443", Some("93.184.216.34"), Deny, "default"),
        ("new.example.org:443", None, Deny, "default"),
    ] {
        let expected = (decision, rule.to_owned());
        assert_eq!(decide(destination, address, "a"), expected, "{destination} {address:?}");
    }
    assert_eq!(decide("10.2.0.5:5432", Some("10.2.0.5"), "b"), (Deny, "default".to_owned()));
}

#[test]
fn a_name_has_the_ports_at_which_some_rule_could_allow_it() {
    let policy = PolicySet::parse("p", RULES).unwrap_or_else(|error| panic!("{error}"));
    let ports = |name| {
        let name = HostName::parse(name).unwrap();
        let decided = policy.connect_ports("uid:1", "a", &name);
        decided.map_err(|decided| decided.reason.rule().to_owned())
    };
    assert_eq!(ports("registry.example.org"), Ok(vec![443]));
    assert_eq!(ports("git.corp.example"), Ok(vec![22, 443]));
    assert_eq!(ports("secret.files.example.org"), Err("no-secrets".to_owned()));
    assert_eq!(ports("new.example.org"), Err("default".to_owned()), "what only watches allows nothing");
    assert_eq!(ports("c2VjcmV0.example.org"), Err("default".to_owned()));
}

#[test]
fn the_hosts_own_address_is_as_its_loopback_and_what_watches_is_named() {
    let policy = PolicySet::parse("p", RULES).unwrap_or_else(|error| panic!("{error}"));
    let destination = Destination::parse("registry.example.org:443").unwrap();
    let approved = Approved::Nothing;
    let request = ConnectRequest {
        principal: "uid:1",
        profile: "a",
        destination: &destination,
        http: None,
        program: &ConnectingProgram::Any,
        approved,
    };
    let own = DialTarget { address: "93.184.216.34".parse().unwrap(), is_hosts_own: true };
    assert_eq!(policy.connect_address(&request, own).reason.rule(), ADDRESS_RULE);
    let destination = Destination::parse("new.example.org:443").unwrap();
    let request = ConnectRequest { destination: &destination, ..request };
    assert_eq!(policy.connect_name(&request).observed, ["watched"]);
}

#[test]
fn what_is_asked_about_is_reached_when_a_person_has_said_yes_to_that_very_part_of_it() {
    use Decision::{Allow, Ask, Deny};
    let rules = "default_profile='a'\n[profile.a]\n\
        [[connect]]\nid='careful'\ndecision='ask'\nhost=['pay.example.org']\nport=[443]\n\
        [[connect]]\nid='inside'\ndecision='ask'\naddress=['10.0.0.0/8']\nport=[22,443]\n\
        [[connect]]\nid='git'\ndecision='allow'\nhost=['git.example.org']\naddress=['10.1.0.0/16']\nport=[22]\n\
        [[connect]]\nid='mirror'\ndecision='ask'\nhost=['git.example.org']\naddress=['10.1.2.0/24']\nport=[22]\n\
        [[connect]]\nid='lab'\ndecision='deny'\naddress=['10.1.66.0/24']\n";
    let policy = PolicySet::parse("p", rules).unwrap_or_else(|error| panic!("{error}"));
    let decide = |destination: &str, address: Option<&str>, approved: Approved<'_>| {
        let destination = Destination::parse(destination).unwrap();
        let request = ConnectRequest {
            principal: "uid:1",
            profile: "a",
            destination: &destination,
            http: None,
            program: &ConnectingProgram::Any,
            approved,
        };
        let decided = match address.map(|address| address.parse().unwrap()) {
            None => policy.connect_name(&request),
            Some(address) => policy.connect_address(&request, DialTarget { address, is_hosts_own: false }),
        };
        (decided.decision, decided.reason.rule().to_owned())
    };
    let here: IpAddr = "10.1.2.3".parse().unwrap();
    let (none, name, both) = (Approved::Nothing, Approved::Name, Approved::Addresses(&[here]));
    for (destination, address, approved, decision, rule) in [
        ("pay.example.org:443", None, none, Ask, "careful"),
        ("pay.example.org:443", None, name, Allow, "careful"),
        ("pay.example.org:80", None, name, Deny, "default"),
        ("pay.example.org:443", Some("93.184.216.34"), none, Ask, "careful"),
        ("pay.example.org:443", Some("93.184.216.34"), name, Allow, "careful"),
        // A rule without a host asks about an address, and is none by which a name reaches it.
        ("pay.example.org:443", Some("10.9.9.9"), name, Ask, "inside"),
        ("git.example.org:22", None, none, Allow, "git"),
        ("git.example.org:22", Some("10.1.9.9"), none, Ask, "inside"),
        ("git.example.org:22", Some("10.1.2.3"), name, Ask, "inside"),
        ("git.example.org:22", Some("10.1.2.3"), both, Allow, "mirror"),
        ("git.example.org:22", Some("10.1.2.4"), both, Ask, "inside"),
        ("git.example.org:22", Some("10.1.66.4"), both, Deny, "lab"),
        ("10.1.2.3:22", Some("10.1.2.3"), none, Ask, "inside"),
        ("10.1.2.3:22", Some("10.1.2.3"), both, Allow, "inside"),
        ("10.1.2.3:80", Some("10.1.2.3"), both, Deny, "default"),
    ] {
        let expected = (decision, rule.to_owned());
        assert_eq!(
            decide(destination, address, approved),
            expected,
            "{destination} {address:?} {approved:?}"
        );
    }
    let names = HostName::parse("pay.example.org").unwrap();
    assert_eq!(policy.connect_ports("uid:1", "a", &names), Ok(vec![443]), "it may be asked about");
}

#[test]
fn requests_are_judged_by_method_and_path_and_what_hides_them_is_not_let_through() {
    use Decision::{Allow, Deny};
    let rules = "default_profile='a'\n[profile.a]\n\
        [[connect]]\nid='read'\ndecision='allow'\nhost=['api.example.org']\nport=[80]\nmethod=['GET','HEAD']\npath=['/v1/**']\n\
        matches=['GET http://api.example.org/v1/x']\nrejects=['PUT http://api.example.org/v1/x','api.example.org:80']\n\
        [[connect]]\nid='any'\ndecision='allow'\nhost=['any.example.org']\nport=[80]\n\
        [[connect]]\nid='also'\ndecision='allow'\nhost=['any.example.org']\nport=[80]\npath=['/x']\n\
        [[connect]]\nid='all'\ndecision='allow'\nhost=['most.example.org']\nport=[80]\n\
        [[connect]]\nid='no-writes'\ndecision='deny'\nhost=['most.example.org']\nmethod=['PUT','POST']\n";
    let policy = PolicySet::parse("p", rules).unwrap_or_else(|error| panic!("{error}"));
    for (text, decision, rule, requests_only) in [
        ("api.example.org:80", Allow, "read", true),
        ("GET http://api.example.org/v1/x", Allow, "read", true),
        ("POST http://api.example.org/v1/x", Deny, "default", true),
        ("GET http://api.example.org/v2", Deny, "default", true),
        ("any.example.org:80", Allow, "any", false),
        ("GET http://any.example.org/y", Allow, "any", false),
        ("most.example.org:80", Allow, "all", true),
        ("GET http://most.example.org/", Allow, "all", true),
        ("PUT http://most.example.org/", Deny, "no-writes", true),
    ] {
        let wanted = WantedConnection::parse(text).unwrap();
        let request = ConnectRequest {
            principal: "uid:1",
            profile: "a",
            destination: &wanted.destination,
            http: wanted.request.as_ref(),
            program: &ConnectingProgram::Any,
            approved: Approved::Nothing,
        };
        let target = DialTarget { address: "93.184.216.34".parse().unwrap(), is_hosts_own: false };
        for decided in [policy.connect_name(&request), policy.connect_address(&request, target)] {
            let got = (decided.decision, decided.reason.rule().to_owned(), decided.requests_only);
            assert_eq!(got, (decision, rule.to_owned(), requests_only), "{text}");
        }
    }
}

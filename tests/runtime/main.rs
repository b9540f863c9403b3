//! The supervisor's event loop through its control socket, without a sandbox around it.
//!
//! A target with its own `main`: the supervisor must be a process with one thread, and the test harness of the
//! standard library has more. Run as root: it makes control groups below its own. Its arguments are the harness's: parts of
//! names, `--skip PART`, and `--list`.

mod client;
mod ends;
mod judged;
mod latency;
mod rules;
mod streams;

use std::{
    os::{fd::OwnedFd, unix::net::UnixListener},
    time::Instant,
};

use provost::proto::supervisor::EffectiveConfinement;
use provost_base::{
    cgroup::{CgroupDirectory, Hierarchy},
    sys::own_process::OwnOomScore,
};
use provost_sandbox::supervisor::{CommandIdentity, Ready, runtime};

provost_test_support::test_program!();

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("supervisor") => supervise(&arguments[1..]),
        Some("latency") => latency::print(),
        _ => run_rules(&arguments),
    }
}

fn run_rules(arguments: &[String]) {
    let (mut wanted, mut skipped, mut is_list) = (Vec::new(), Vec::new(), false);
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "--skip" => skipped.push(arguments.next().expect("--skip needs a part of a name")),
            "--test-threads" | "--format" | "--color" => drop(arguments.next()),
            "--list" => is_list = true,
            option if option.starts_with('-') => {}
            part => wanted.push(part),
        }
    }
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: runtime: making control groups for the event loop needs root here");
        return;
    }
    let (mut failed, mut run) = (Vec::new(), 0);
    for (name, rule) in rules::ALL {
        let is_one_of = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        if !wanted.is_empty() && !is_one_of(&wanted) || is_one_of(&skipped) {
            continue;
        }
        if is_list {
            println!("{name}: test");
            continue;
        }
        let began = Instant::now();
        let outcome = std::panic::catch_unwind(rule);
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {word} ({:.1} s)", began.elapsed().as_secs_f64());
        run += 1;
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    if is_list {
        return;
    }
    println!("{run} of {} rules ran", rules::ALL.len());
    if !failed.is_empty() {
        println!("\nfailures:\n    {}", failed.join("\n    "));
        std::process::exit(1);
    }
}

/// The process under test: what set-up would hand over, and the loop.
fn supervise(arguments: &[String]) -> ! {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let directory = |argument: &String| {
        let mut parts = argument.splitn(3, ':');
        let hierarchy = if parts.next() == Some("v2") { Hierarchy::V2 } else { Hierarchy::V1 };
        let controllers = parts.next().unwrap().split(',').filter(|one| !one.is_empty());
        let controllers = controllers.map(String::from).collect();
        let path = std::path::Path::new(parts.next().unwrap());
        std::fs::write(path.join(client::SEAT).join("cgroup.procs"), "0").unwrap();
        let descriptor = OwnedFd::from(std::fs::File::open(path).unwrap());
        CgroupDirectory { descriptor, hierarchy, controllers }
    };
    runtime::run(Ready {
        unix_sockets: Vec::new(),
        proxy_listeners: Vec::new(),
        refusing_resolver: None,
        route_counters: None,
        sandbox_id: "sbx_test".into(),
        listener: OwnedFd::from(UnixListener::bind(&arguments[0]).unwrap()),
        directories: arguments[2..].iter().map(directory).collect(),
        identity: CommandIdentity::Change { uid: 54_321, gid: 54_321 },
        effective_confinement: EffectiveConfinement::default(),
        oom_score: OwnOomScore::open().unwrap(),
        gate: None,
        mode_listener: None,
        session_files: Default::default(),
        session_network: Vec::new(),
        command_host_id: 0,
        own_network: false,
        die_with_gateway: arguments[1] == "die",
        without_gateway: Default::default(),
    })
}

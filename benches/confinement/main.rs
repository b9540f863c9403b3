//! Who stops what: one list of attacks, each made from inside a real command, in Provost's sandbox and in its peers'.
//!
//! Each attack is made without a sandbox first: what does not work there proves nothing, and is not applicable. It ends
//! with 1 when an attack worked under Provost. It installs nothing; a peer that is absent is skipped and named.
//! `cargo bench --bench confinement -- [--write]` writes the table into docs/confinement.md.

mod attacks;
mod host;
mod page;
mod sandboxes;
mod trial;

use host::HostSide;
use page::Table;
use provost_test_support::Attack;
use sandboxes::{PROVOST, Sandbox};
use trial::{Programs, Trial, Verdict};

provost_test_support::test_program!();

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("SKIPPED: run by `cargo bench`");
        return;
    }
    let host = HostSide::prepare();
    let programs = Programs { attack: Attack::compiled("attack"), breakout: Attack::compiled("breakout") };
    let nothing = Sandbox::nothing();
    let sandboxes: Vec<Sandbox> =
        sandboxes::all(&host).into_iter().filter(|sandbox| is_usable(sandbox, &host, &programs)).collect();

    let mut table = Table::new(&sandboxes);
    let mut got_past_provost = Vec::new();
    for attack in attacks::all() {
        let unconfined = Trial::new(&attack, &nothing, &host, &programs).run();
        let verdicts: Vec<Verdict> = match &unconfined {
            Verdict::Worked => {
                sandboxes.iter().map(|one| Trial::new(&attack, one, &host, &programs).run()).collect()
            }
            Verdict::Stopped(_) => vec![Verdict::NotApplicable; sandboxes.len()],
            Verdict::NotApplicable => unreachable!("only this function says so"),
        };
        println!("{}: {unconfined} {verdicts:?}", attack.what);
        for (sandbox, verdict) in sandboxes.iter().zip(&verdicts) {
            if sandbox.name == PROVOST && *verdict == Verdict::Worked {
                got_past_provost.push(attack.what);
            }
        }
        table.add(&attack, &unconfined, verdicts);
    }
    let text = table.to_markdown();
    println!("\n{text}");
    if std::env::args().any(|argument| argument == "--write") {
        page::write(&text);
    }
    if !got_past_provost.is_empty() {
        eprintln!("worked under Provost: {got_past_provost:?}");
        std::process::exit(1);
    }
}

/// Runs a harmless program in it. An attack that cannot even be started is not a refused one.
fn is_usable(sandbox: &Sandbox, host: &HostSide, programs: &Programs) -> bool {
    if !sandbox.is_installed() {
        println!("SKIPPED: {}: it is not installed (docs/confinement.md says how)", sandbox.name);
        return false;
    }
    let harmless = attacks::harmless();
    let usable = Trial::new(&harmless, sandbox, host, programs).run() == Verdict::Worked;
    if !usable {
        println!("SKIPPED: {}: it does not run a command here", sandbox.name);
    }
    usable
}

//! What the programs of a release weigh: their size, and what the start of each costs beside `/bin/true`.
//!
//! A start is a whole process that does nothing: `--version`, for `provost-sandbox` the refusal of a stranger, and for `provost-shell` that
//! of a gateway which is not there. All take turns.
//! `cargo bench --bench start -- [--rounds N]`

#[allow(dead_code, reason = "each benchmark uses its part")]
mod support;

use nix::sys::resource::{UsageWho, getrusage};
use support::{
    machine,
    peers::Peer,
    statistics::{self, Samples},
};

/// Each program, how it is started, whether that fails, and the aims: its size in MB, and its start over that of `/bin/true`.
const PROGRAMS: [(&str, &[&str], bool, f64); 3] = [
    (env!("CARGO_BIN_EXE_provost"), &["--version"], false, 25.0),
    (env!("CARGO_BIN_EXE_provost-sandbox"), &[], true, 6.0),
    (env!("CARGO_BIN_EXE_provost-shell"), &["-c", "true"], true, 6.0),
];
const LARGEST_START: f64 = 1.5;

/// What the starts of one program took.
#[derive(Default)]
struct Taken {
    wall: Samples,
    page_faults: Vec<f64>,
}

fn main() {
    if !support::asked_to_measure() {
        return;
    }
    println!("## The programs and their starts\n");
    machine::print_facts();
    let rounds = support::number("rounds", 300);
    let bare = Peer::new("`/bin/true`", &["/bin/true"]);
    let mut candidates = vec![(bare, Taken::default())];
    for (path, arguments, fails, _) in PROGRAMS {
        let peer = Peer::new(&name(path), &[&[path], arguments].concat());
        let peer = peer.with("PROVOST_GATEWAY", "unix:/nonexistent/provost.sock");
        candidates.push((if fails { peer.failing() } else { peer }, Taken::default()));
    }
    // The first round reads the files from the disk.
    for round in 0..=rounds {
        for (peer, taken) in &mut candidates {
            let before = page_faults();
            let wall = peer.run().expect("it is built for this benchmark");
            if round > 0 {
                taken.wall.add(wall);
                taken.page_faults.push((page_faults() - before) as f64);
            }
        }
    }
    let bare = candidates[0].1.wall.median().as_secs_f64();
    let ratio = |taken: &Taken| taken.wall.median().as_secs_f64() / bare;
    let megabytes = |path: &str| std::fs::metadata(path).map_or(0, |file| file.len()) as f64 / 1e6;
    println!("| program | MB | start, median µs | p90 µs | page faults | ratio to the first |");
    println!("|---|---:|---:|---:|---:|---:|");
    let sizes = std::iter::once("-".to_owned())
        .chain(PROGRAMS.iter().map(|(path, ..)| format!("{:.1}", megabytes(path))));
    for ((peer, taken), size) in candidates.iter().zip(sizes) {
        println!(
            "| {} | {size} | {} | {} | {:.0} | {:.2} |",
            peer.name,
            taken.wall.median().as_micros(),
            taken.wall.percentile(90).as_micros(),
            statistics::median(&taken.page_faults),
            ratio(taken),
        );
    }
    for ((path, _, _, largest), (peer, taken)) in PROGRAMS.iter().zip(&candidates[1..]) {
        let size = megabytes(path);
        let aim = format!("{} has at most {largest} MB", peer.name);
        statistics::print_aim(&aim, &format!("{size:.1} MB"), size <= *largest);
        let start = ratio(taken);
        let aim = format!("{} starts in {LARGEST_START} times the time of `/bin/true`", peer.name);
        statistics::print_aim(&aim, &format!("{start:.2}"), start <= LARGEST_START);
    }
}

fn name(path: &str) -> String {
    format!("`{}`", std::path::Path::new(path).file_name().unwrap_or_default().display())
}

/// Minor and major ones, of the processes that this one has waited for.
fn page_faults() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("it cannot fail");
    usage.minor_page_faults() + usage.major_page_faults()
}

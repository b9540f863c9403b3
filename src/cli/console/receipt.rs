//! Receipts and ends, for people to read.
//!
//! Says only what the gateway said; a layer that was not in force is shown as missing, never left out.

use std::{collections::HashMap, fmt::Write, time::Duration};

use crate::{
    client::{cause_word, network_word},
    printable,
    proto::v1::{self, outcome::End},
};

/// What confined a terminal and how it ended: a few aligned lines.
pub(in crate::cli) fn receipt_text(terminal: &v1::Terminal) -> String {
    let mut page = AlignedText::new(&format!("receipt of {}", terminal.id));
    if let Some(outcome) = &terminal.outcome {
        page.line("end", &describe_end(outcome));
        page.line("used", &used(outcome.usage.as_ref()));
        page.line("left over", &format!("{} processes", outcome.survivors));
        if outcome.ended_processes > 0 {
            let names = outcome.ended_commands.join(", ");
            page.line(
                "ended",
                &match outcome.ended_processes {
                    1 => format!("1 process left running: {names}"),
                    many => format!("{many} processes left running: {names}"),
                },
            );
        }
    }
    let Some(receipt) = &terminal.receipt else {
        page.line("confinement", "unknown: the gateway gave no receipt");
        return page.text;
    };
    page.line("sandbox", &format!("{}, profile {}", receipt.sandbox_id, receipt.profile));
    page.line("identity", &identity(receipt));
    page.line("namespaces", &or(&receipt.namespaces.join(" "), "none of its own"));
    page.line("privileges", &privileges(receipt));
    page.line(
        "seccomp",
        &match receipt.seccomp_mode {
            2 => format!("{} in force", count(receipt.seccomp_filters, "filter")),
            _ => "not in force".to_owned(),
        },
    );
    page.line(
        "landlock",
        &match receipt.landlock_abi {
            0 => "not in force".to_owned(),
            abi => format!("ABI {abi}"),
        },
    );
    page.line(
        "execs",
        match receipt.gate.as_str() {
            "verified" => "each evaluated and verified",
            _ => "only the first evaluated",
        },
    );
    if let Some(pty) = &receipt.pty {
        page.line("terminal", &format!("a pseudo-terminal, of {} by {} at first", pty.columns, pty.rows));
    }
    let network = network_word(receipt.network());
    page.line(
        "network",
        &match receipt.network_exposure.as_slice() {
            [] => network.to_owned(),
            reached => format!("{network}: reaches {}", reached.join(", ")),
        },
    );
    page.line("workspace", &or(&workspace_roots(receipt), "unknown"));
    for root in &receipt.read_only_roots {
        page.line("read-only", &printable::line(root));
    }
    if !receipt.kept_caches.is_empty() {
        page.line("kept caches", &receipt.kept_caches.join(", "));
    }
    for covered in &receipt.covered {
        page.line("covered", &printable::line(covered));
    }
    page.line("cgroup", &receipt.cgroup);
    page.line("limits", &or(&limits(&receipt.limits), "none"));
    for shortfall in &receipt.shortfalls {
        page.line("shortfall", shortfall);
    }
    page.text
}

fn workspace_roots(receipt: &v1::Receipt) -> String {
    let roots: Vec<String> = receipt.roots.iter().map(|root| printable::line(root).into_owned()).collect();
    let taken = match &receipt.repository {
        Some(repository) if !repository.worktree.is_empty() => " (the repository around the directory)",
        Some(_) | None => "",
    };
    roots.join(", ") + taken
}

/// One line about a repository around the current directory that is not the workspace.
pub(in crate::cli) fn repository_notice(repository: &v1::Repository) -> Option<String> {
    (!repository.not_taken.is_empty()).then(|| {
        format!(
            "notice: the workspace is the current directory alone, without the repository around it: {}; \
             `--root` names another",
            printable::line(&repository.not_taken)
        )
    })
}

/// One line about what git has not of the caller's configuration.
pub(in crate::cli) fn git_notice(session: &v1::Session) -> Option<String> {
    (!session.git_left_out.is_empty()).then(|| {
        format!(
            "notice: git has your configuration without {}, which may run programs or hold secrets",
            printable::line(&session.git_left_out.join(", "))
        )
    })
}

/// One line about what the profile preferred and this host did not give; the receipt has the whole of it.
pub(in crate::cli) fn shortfall_notice(shortfalls: &[String]) -> Option<String> {
    if shortfalls.is_empty() {
        return None;
    }
    // "what: why".
    let mut what: Vec<&str> = shortfalls.iter().filter_map(|one| one.split(": ").next()).collect();
    what.dedup();
    Some(format!(
        "notice: confined, but with {} ({}); `--receipt` tells why, `provost doctor` how to fix it",
        count(u32::try_from(what.len()).unwrap_or(u32::MAX), "shortfall"),
        what.join(", ")
    ))
}

/// How it ended, in a few words.
pub(in crate::cli) fn describe_end(outcome: &v1::Outcome) -> String {
    let how = match &outcome.end {
        Some(End::ExitCode(code)) => format!("exit code {code}"),
        Some(End::Signal(name)) => name.clone(),
        None => "not seen".to_owned(),
    };
    let core = if outcome.core_dumped { ", core dumped" } else { "" };
    format!("{how} ({}){core}", cause_word(outcome.cause()).replace('_', " "))
}

fn used(usage: Option<&v1::Usage>) -> String {
    let Some(usage) = usage else { return "unknown".to_owned() };
    let of = match usage.memory_peak_source() {
        v1::MemoryPeakSource::Cgroup => "of all together",
        v1::MemoryPeakSource::LargestProcess => "of the largest process",
        v1::MemoryPeakSource::Unspecified => "by an unknown measure",
    };
    format!(
        "{} of time, {} of processor ({} user, {} system), {} of memory at the peak {of}",
        span(usage.wall),
        time(duration(usage.cpu_user) + duration(usage.cpu_system)),
        span(usage.cpu_user),
        span(usage.cpu_system),
        bytes(usage.memory_peak_bytes),
    )
}

fn identity(receipt: &v1::Receipt) -> String {
    format!(
        "uid {} gid {}, on the host uid {} gid {}",
        receipt.uid, receipt.gid, receipt.host_uid, receipt.host_gid
    )
}

fn privileges(receipt: &v1::Receipt) -> String {
    let held: Vec<String> = sorted(&receipt.capabilities)
        .into_iter()
        .filter(|(_, mask)| mask.chars().any(|digit| digit != '0'))
        .map(|(set, mask)| format!("{set}={mask}"))
        .collect();
    let capabilities = match (receipt.capabilities.is_empty(), held.is_empty()) {
        (true, _) => "capabilities unknown".to_owned(),
        (false, true) => "no capabilities".to_owned(),
        (false, false) => format!("capabilities {}", held.join(" ")),
    };
    let gain =
        if receipt.no_new_privs { "none can be gained" } else { "CAN BE GAINED (no_new_privs is off)" };
    format!("{capabilities}, {gain}")
}

fn limits(limits: &HashMap<String, String>) -> String {
    let shown: Vec<String> =
        sorted(limits).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    shown.join(" ")
}

fn sorted(map: &HashMap<String, String>) -> Vec<(&str, &str)> {
    let mut pairs: Vec<_> = map.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    pairs.sort_unstable();
    pairs
}

fn or(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
}

fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn duration(given: Option<prost_types::Duration>) -> Duration {
    given.and_then(|given| Duration::try_from(given).ok()).unwrap_or_default()
}

/// A span of time with three digits that matter.
pub(in crate::cli) fn span(given: Option<prost_types::Duration>) -> String {
    time(duration(given))
}

fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s >= 120.0 => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
        s if s >= 1.0 => format!("{s:.2} s"),
        s => format!("{:.1} ms", s * 1000.0),
    }
}

/// A size in the unit that fits.
pub(in crate::cli) fn bytes(bytes: u64) -> String {
    const STEPS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    STEPS.iter().find(|(unit, _)| bytes >= *unit).map_or_else(
        || format!("{bytes} B"),
        #[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
        |(unit, name)| format!("{:.1} {name}", bytes as f64 / *unit as f64),
    )
}

/// Aligned lines below a title.
struct AlignedText {
    text: String,
}

impl AlignedText {
    fn new(title: &str) -> Self {
        Self { text: format!("provost: {title}") }
    }

    fn line(&mut self, name: &str, value: &str) {
        // Writing to a String cannot fail.
        let _ = write!(self.text, "\n  {name:<12} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_layer_is_said() {
        let terminal = v1::Terminal { receipt: Some(v1::Receipt::default()), ..Default::default() };
        let text = receipt_text(&terminal);
        for expected in
            ["seccomp      not in force", "landlock     not in force", "none of its own", "CAN BE GAINED"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn shortfalls_are_one_line() {
        assert_eq!(shortfall_notice(&[]), None);
        let line =
            shortfall_notice(&["cgroup-memory: no\nway".to_owned(), "cgroup-pids: no".to_owned()]).unwrap();
        assert!(
            line.starts_with("notice: confined, but with 2 shortfalls (cgroup-memory, cgroup-pids);"),
            "{line}"
        );
        assert!(!line.contains('\n'));
    }

    #[test]
    fn a_held_capability_is_shown() {
        let receipt = v1::Receipt {
            capabilities: HashMap::from([
                ("CapEff".to_owned(), "0000000000200000".to_owned()),
                ("CapPrm".to_owned(), "0000000000000000".to_owned()),
            ]),
            ..Default::default()
        };
        assert!(privileges(&receipt).starts_with("capabilities CapEff=0000000000200000,"));
    }

    #[test]
    fn sizes_and_times_have_their_units() {
        assert_eq!(bytes(12), "12 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
        assert_eq!(time(Duration::from_micros(1500)), "1.5 ms");
        assert_eq!(time(Duration::from_secs(150)), "2 min 30 s");
    }
}

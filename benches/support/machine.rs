//! Facts of the machine that a figure means nothing without.
//!
//! Reads files only; what cannot be read is said to be unknown.

use std::{fs, time::Instant};

use provost_test_support::Process;

/// Prints the facts as a markdown list.
pub(crate) fn print_facts() {
    println!("- kernel: Linux {}", read("/proc/sys/kernel/osrelease"));
    println!("- processors: {} ({})", processors(), field("/proc/cpuinfo", "model name"));
    println!("- memory: {}", field("/proc/meminfo", "MemTotal"));
    println!("- cgroups: {}", cgroup_layout());
    println!("- hypervisor: {}", if has_flag("hypervisor") { "yes" } else { "no" });
    println!("- load when started: {}", read("/proc/loadavg"));
    println!("- one `cpuid`: {:.2} µs (glibc executes some fifty at each start of a program)", cpuid_us());
    println!();
}

/// How many processors this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn cgroup_layout() -> String {
    let mounts = read("/proc/self/mounts");
    let of_type = |kind: &str| {
        mounts
            .lines()
            .filter(|line| line.split(' ').nth(2) == Some(kind))
            .filter_map(|line| line.split(' ').nth(1))
            .collect::<Vec<_>>()
    };
    let (v1, v2) = (of_type("cgroup"), of_type("cgroup2"));
    match (v1.is_empty(), v2.first()) {
        (true, Some(at)) => format!("v2 at {at}"),
        (false, Some(at)) => format!("hybrid: {} v1 hierarchies, v2 at {at}", v1.len()),
        (false, None) => format!("v1: {} hierarchies", v1.len()),
        (true, None) => "none".to_owned(),
    }
}

/// Resident memory and open descriptors of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    /// VmRSS, in KiB.
    pub resident_kib: u64,
    /// VmHWM, in KiB.
    pub peak_kib: u64,
    /// Entries of /proc/PID/fd.
    pub descriptors: usize,
}

/// What a process holds now.
pub(crate) fn footprint(process: &Process) -> Footprint {
    let descriptors = process.descriptors().len();
    Footprint { resident_kib: process.kib("VmRSS"), peak_kib: process.kib("VmHWM"), descriptors }
}

fn cpuid_us() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        let begun = Instant::now();
        for _ in 0..1000 {
            std::hint::black_box(std::arch::x86_64::__cpuid(0));
        }
        begun.elapsed().as_secs_f64() * 1e3
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        0.0
    }
}

fn has_flag(name: &str) -> bool {
    field("/proc/cpuinfo", "flags").split(' ').any(|flag| flag == name)
}

fn field(path: &str, name: &str) -> String {
    read(path)
        .lines()
        .find_map(|line| {
            line.strip_prefix(name)?.trim_start().strip_prefix(':').map(|value| value.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown".to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

//! The resources that a leaf has used.
//!
//! A number that the kernel does not provide is absent, never zero.

use super::{
    Hierarchy,
    leaf::{Leaf, Leaves},
};

/// The resource usage of a leaf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode and in the kernel, in microseconds.
    pub cpu_us: Option<(u64, u64)>,
    /// Peak memory, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes read from and written to block devices.
    pub io_bytes: Option<(u64, u64)>,
    /// Whether a process was OOM-killed.
    pub memory_limit_hit: bool,
}

impl Leaves {
    /// The usage of the leaf so far.
    #[must_use]
    pub fn usage(&self, leaf: &Leaf) -> Usage {
        let mut usage = Usage::default();
        for &index in &leaf.cgroups {
            let directory = &self.directories[index];
            let has = |controller: &str| directory.controllers.iter().any(|one| one == controller);
            match directory.hierarchy {
                Hierarchy::V2 => {
                    // Every v2 group has this one, with or without the controller.
                    if let Ok(text) = self.read(leaf, index, "cpu.stat") {
                        usage.cpu_us = keyed(&text, "user_usec").zip(keyed(&text, "system_usec"));
                    }
                    if has("memory") {
                        usage.memory_peak_bytes = self.number(leaf, index, "memory.peak");
                        usage.memory_limit_hit |= self.has_oom_kill(leaf, index, "memory.events");
                    }
                    if has("io") {
                        usage.io_bytes = self.read(leaf, index, "io.stat").ok().map(|text| io_bytes(&text));
                    }
                }
                Hierarchy::V1 if has("memory") => {
                    usage.memory_peak_bytes = self.number(leaf, index, "memory.max_usage_in_bytes");
                    usage.memory_limit_hit |= self.has_oom_kill(leaf, index, "memory.oom_control");
                }
                Hierarchy::V1 => {}
            }
        }
        // A nested cgroup goes, with its count, as soon as it is empty.
        usage.memory_limit_hit |= leaf.has_oom_kill.get();
        leaf.has_oom_kill.set(usage.memory_limit_hit);
        usage
    }

    /// Whether a process was OOM-killed in the leaf or below it. Version 1, and version 2 with `memory_localevents`, count in the
    /// cgroup of the process alone (cgroups(7), `memory_events` of Linux).
    fn has_oom_kill(&self, leaf: &Leaf, index: usize, file: &str) -> bool {
        let is_counted = |text: &str| keyed(text, "oom_kill").is_some_and(|count| count > 0);
        is_counted(&self.read(leaf, index, file).unwrap_or_default())
            || self.nested_texts(leaf, index, file).iter().any(|text| is_counted(text))
    }

    fn number(&self, leaf: &Leaf, index: usize, file: &str) -> Option<u64> {
        self.read(leaf, index, file).ok()?.trim().parse().ok()
    }
}

/// The value after `key` in lines of "key value".
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once(' ').filter(|(name, _)| *name == key)?.1.trim().parse().ok())
}

/// The sums of `rbytes=` and `wbytes=` over all devices.
fn io_bytes(text: &str) -> (u64, u64) {
    let sum = |key: &str| {
        text.split_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok()).sum()
    };
    (sum("rbytes="), sum("wbytes="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_read_by_key() {
        let text = "usage_usec 30\nuser_usec 10\nsystem_usec 20\n";
        assert_eq!(keyed(text, "user_usec"), Some(10));
        assert_eq!(keyed(text, "usec"), None);
        assert_eq!(keyed("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(io_bytes("8:0 rbytes=5 wbytes=6 rios=1\n8:16 rbytes=10 wbytes=1\n"), (15, 7));
    }
}

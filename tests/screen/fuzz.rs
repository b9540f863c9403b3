//! Random output: a screen process neither fails, nor hangs, nor grows.
//!
//! `PROVOST_FUZZ_SECONDS` sets how long, `PROVOST_FUZZ_SEED` from where.

use std::time::{Duration, Instant};

use crate::screen::harness::{Stage, TERMINAL, size};

/// Numbers of a linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Output that reaches deep: sequences with plausible and absurd numbers, strings without an end, marks, and noise.
fn output(random: &mut Random, bytes: &mut Vec<u8>) {
    const FINALS: &[u8] = b"@ABCDEFGHIJKLMPSTXZ`abcdefghijklmnpqrstu~";
    match random.below(10) {
        0 => (0..random.below(300)).for_each(|_| bytes.push(random.byte())),
        1..=4 => {
            bytes.extend(b"\x1b[");
            if random.below(4) == 0 {
                bytes.push(b"?>!="[random.below(4) as usize]);
            }
            for _ in 0..random.below(5) {
                let number = [1, 3, 7, 25, 47, 999, 1049, 2004, 2026, 65_535, u64::MAX];
                bytes.extend(number[random.below(11) as usize].to_string().bytes());
                bytes.push(b";:"[random.below(2) as usize]);
            }
            bytes.push(FINALS[random.below(FINALS.len() as u64) as usize]);
        }
        5 => bytes.extend("\u{301}\u{200d}\u{fe0f}".repeat(random.below(40) as usize).bytes()),
        6 => bytes.extend("日本👩🏽x".repeat(random.below(40) as usize).bytes()),
        7 => {
            bytes.extend([0x1b, b"]PX^_(#78cDMEH="[random.below(15) as usize]]);
            (0..random.below(3000)).for_each(|_| bytes.push(b'a' + random.below(26) as u8));
        }
        8 => bytes.extend(b"\r\n".repeat(random.below(60) as usize)),
        _ => (0..random.below(200)).for_each(|_| bytes.push(b' ' + random.below(95) as u8)),
    }
}

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[tokio::test]
async fn random_output_neither_ends_nor_stops_nor_swells_a_screen_process() {
    let seed = setting("PROVOST_FUZZ_SEED", 13);
    let until = Instant::now() + Duration::from_secs(setting("PROVOST_FUZZ_SECONDS", 3));
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    let mut stage = Stage::new(1 << 20);
    let (link, pid) = stage.start().await;
    stage.add(&link, size(80, 24), 0).await;
    while Instant::now() < until {
        let mut bytes = Vec::new();
        while bytes.len() < 60_000 {
            output(&mut random, &mut bytes);
        }
        stage.write(&bytes);
        let snapshot = tokio::time::timeout(Duration::from_secs(20), link.snapshot(TERMINAL)).await;
        let (_, picture) = snapshot.expect("it answers").expect("it lives");
        assert_eq!((picture.resets, picture.offset), (0, stage.ring.head()));
        if random.below(8) == 0 {
            let (columns, rows) = (2 + random.below(200) as u32, 1 + random.below(100) as u32);
            link.resize(TERMINAL, size(columns, rows)).await.expect("it lives");
        }
        // 2,000 rows and two screens of at most 202 columns, with marks in every cell, and what the allocator keeps.
        assert!(resident_kib(pid) < 200 << 10, "it has grown to {} KiB", resident_kib(pid));
    }
    assert!(!link.has_ended());
}

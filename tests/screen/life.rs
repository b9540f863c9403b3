//! What a screen process survives, and what ends it.

use std::time::{Duration, Instant};

use provost_base::display::mode::Modes;

use crate::screen::harness::{Stage, TERMINAL, eventually, lines, size};

#[tokio::test]
async fn a_screen_shows_what_was_written_and_the_next_change() {
    let mut stage = Stage::new(1 << 20);
    let (link, _) = stage.start().await;
    assert!(!stage.add(&link, size(20, 3), 0).await);
    stage.write(b"hello\r\nworld\x1b]2;t\x07");
    let (_, picture) = link.snapshot(TERMINAL).await.unwrap();
    assert_eq!(
        (lines(&picture), picture.title.as_str()),
        (vec!["hello".into(), "world".into(), String::new()], "t")
    );
    assert_eq!((picture.offset, picture.built_from), (stage.ring.head(), 0));

    let mut latest = link.subscribe(TERMINAL).unwrap();
    latest.mark_unchanged();
    link.arm(TERMINAL).unwrap();
    stage.write(b"!");
    tokio::time::timeout(Duration::from_secs(10), latest.changed()).await.unwrap().unwrap();
    let (_, next) = link.picture(TERMINAL).unwrap();
    assert_eq!(lines(&next)[1], "world!");
    assert!(std::sync::Arc::ptr_eq(&next.rows[0], &picture.rows[0]), "an unchanged row is shared");

    link.resize(TERMINAL, size(10, 2)).await.unwrap();
    let (_, small) = link.snapshot(TERMINAL).await.unwrap();
    assert_eq!((small.size, lines(&small)), (size(10, 2), vec!["hello".into(), "world!".into()]));
}

#[tokio::test]
async fn scrollback_comes_in_pages() {
    let mut stage = Stage::new(1 << 20);
    let (link, _) = stage.start().await;
    stage.add(&link, size(20, 2), 0).await;
    let text: String = (0..500).map(|line| format!("line {line}\r\n")).collect();
    stage.write(text.as_bytes());
    let (_, picture) = link.snapshot(TERMINAL).await.unwrap();
    assert_eq!(picture.scrollback_rows, 499);
    let page = link.scrollback(TERMINAL, 499, 3).await.unwrap();
    let texts: Vec<_> = page.rows.iter().map(|row| row.text()).collect();
    assert_eq!((texts, page.available), (vec!["line 0".into(), "line 1".into(), "line 2".into()], 499));
    assert_eq!(link.scrollback(TERMINAL, 499, 10_000).await.unwrap().rows.len(), 200);
}

#[tokio::test]
async fn questions_of_the_program_are_answered_but_not_old_ones() {
    let mut stage = Stage::new(1 << 20);
    stage.write(b"\x1b[6n");
    let (link, _) = stage.start().await;
    stage.add(&link, size(20, 3), 4).await;
    link.snapshot(TERMINAL).await.unwrap();
    stage.write(b"ab\x1b[6n");
    let answers = stage.answers.clone();
    eventually("an answer", || !answers.so_far().is_empty()).await;
    assert_eq!(stage.answers.so_far(), b"\x1b[1;3R");
}

#[tokio::test]
async fn another_gateway_finds_the_screen_as_it_was() {
    let mut stage = Stage::new(1 << 16);
    let (link, pid) = stage.start().await;
    stage.add(&link, size(20, 3), 0).await;
    stage.write(b"\x1b[?1049h\x1b[2;5Hkept");
    link.snapshot(TERMINAL).await.unwrap();
    // More than the ring retains, while no gateway is there: the screen process reads on.
    let again = stage.link(None).await;
    eventually("the old link ends", || link.has_ended()).await;
    for _ in 0..50 {
        stage.write(&b"\x1b[3;1Hmore\x1b[K".repeat(200));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(stage.add(&again, size(20, 3), 0).await, "the terminal was known");
    let (_, picture) = again.snapshot(TERMINAL).await.unwrap();
    assert_eq!(lines(&picture), ["", "    kept", "more"]);
    assert!(picture.modes.contains(Modes::ALTERNATE_SCREEN));
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn a_killed_screen_process_is_noticed_and_the_next_builds_the_screen_from_the_ring() {
    let mut stage = Stage::new(1 << 16);
    let (link, pid) = stage.start().await;
    stage.add(&link, size(20, 3), 0).await;
    stage.write(b"one\r\ntwo");
    let (_, before) = link.snapshot(TERMINAL).await.unwrap();
    let mut latest = link.subscribe(TERMINAL).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    tokio::time::timeout(Duration::from_secs(10), latest.wait_for(|latest| latest.is_lost))
        .await
        .unwrap()
        .unwrap();
    assert!(link.snapshot(TERMINAL).await.is_err());
    // The writer is not disturbed.
    stage.write(b"\r\nthree");
    let (link, _) = stage.start().await;
    assert!(!stage.add(&link, size(20, 3), stage.ring.head()).await);
    let (_, after) = link.snapshot(TERMINAL).await.unwrap();
    assert_eq!(
        (lines(&before)[..2].to_vec(), lines(&after)),
        (lines(&after)[..2].to_vec(), vec!["one".into(), "two".into(), "three".into()])
    );
    assert_eq!(after.built_from, 0);

    drop(link);
    stage.write(&b"x\r\n".repeat(200_000));
    let (link, _) = stage.start().await;
    stage.add(&link, size(20, 3), stage.ring.head()).await;
    let (_, rebuilt) = link.snapshot(TERMINAL).await.unwrap();
    assert!(rebuilt.built_from > 0, "it says from where it was built");
    assert_eq!(lines(&rebuilt), ["x", "x", ""]);
}

#[tokio::test]
async fn the_screen_process_ends_with_the_supervisor() {
    let mut stage = Stage::new(1 << 16);
    let (link, _) = stage.start().await;
    stage.add(&link, size(20, 3), 0).await;
    stage.supervisor.kill().unwrap();
    eventually("the process ends", || link.has_ended()).await;
}

#[tokio::test]
async fn a_flood_is_published_at_most_thirty_times_a_second_and_an_idle_screen_costs_nothing() {
    let mut stage = Stage::new(1 << 20);
    let (link, pid) = stage.start().await;
    stage.add(&link, size(80, 24), 0).await;
    link.snapshot(TERMINAL).await.unwrap();
    let mut latest = link.subscribe(TERMINAL).unwrap();
    let (began, mut published) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(2) {
        link.arm(TERMINAL).unwrap();
        stage.write(&b"flood \x1b[31mof\x1b[0m text\r\n".repeat(100));
        if let Ok(changed) = tokio::time::timeout(Duration::from_millis(2), latest.changed()).await {
            changed.unwrap();
            published += 1;
        }
    }
    let limit = began.elapsed().as_secs_f64() * 30.0 + 2.0;
    assert!((5.0..=limit).contains(&f64::from(published)), "{published} pictures in {:?}", began.elapsed());

    link.snapshot(TERMINAL).await.unwrap();
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            found.trim().parse::<u64>().unwrap()
        };
        line("voluntary_ctxt_switches:")
    };
    // The last picture that was asked for may still be due.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = switches();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(switches(), before, "it wakes up while nothing changes");
}

#[tokio::test]
async fn a_ring_whose_header_lies_does_no_harm() {
    let mut stage = Stage::new(1 << 16);
    let (link, _) = stage.start().await;
    stage.add(&link, size(20, 3), 0).await;
    stage.write(b"true");
    link.snapshot(TERMINAL).await.unwrap();
    let writer = std::fs::File::options()
        .write(true)
        .open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&**stage.ring.file())))
        .unwrap();
    for (head, tail) in [(u64::MAX, 0), (u64::MAX, u64::MAX), (0, u64::MAX), (1 << 40, 3)] {
        use std::os::unix::fs::FileExt as _;
        writer.write_all_at(&head.to_le_bytes(), 64).unwrap();
        writer.write_all_at(&tail.to_le_bytes(), 72).unwrap();
        let snapshot = tokio::time::timeout(Duration::from_secs(20), link.snapshot(TERMINAL)).await.unwrap();
        assert_eq!(snapshot.unwrap().1.size, size(20, 3));
    }
}

#[tokio::test]
#[ignore = "long: .ci/run runs it"]
async fn output_that_costs_much_holds_up_no_picture() {
    for costly in [
        // Every cell of two screens for two bytes; tabs back over columns without a stop; characters repeated.
        &b"\x1bc"[..],
        b"\x1b[3g\x1b[500G\x1b[65535Z",
        b"x\x1b[65535b",
        b"\x1b[?1049h\x1b[2J\x1b[?1049l",
        b"\x1b#8\x1b[500S",
    ] {
        let mut stage = Stage::new(1 << 20);
        let (link, _) = stage.start().await;
        stage.add(&link, size(500, 100), 0).await;
        stage.write(&costly.repeat((1 << 20) / costly.len()));
        let began = Instant::now();
        let shown = link.snapshot(TERMINAL).await;
        assert!(shown.is_ok(), "{:?}: {shown:?}", String::from_utf8_lossy(costly));
        // A size comes through, too.
        link.resize(TERMINAL, size(80, 24)).await.expect("it answers");
        let (_, picture) = link.snapshot(TERMINAL).await.expect("it answers");
        assert_eq!((picture.size, picture.resets), (size(80, 24), 0));
        eprintln!("{:?}: {:?}", String::from_utf8_lossy(costly), began.elapsed());
    }
}

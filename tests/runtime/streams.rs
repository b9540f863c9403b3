//! The rules of output and input.

use provost::proto::supervisor::{
    Spawn, StdinWritten, StopCause, WriteStdin, exit::End, from_supervisor::Message, to_supervisor::Request,
};

use crate::{
    client::{Client, Held, command, shell},
    rules::{many, start},
};

/// Waits until the output holds `text`, as a gateway does: arm, look, wait for Progress.
pub(crate) fn wait_for(client: &mut Client, held: &Held, text: &[u8]) {
    loop {
        held.rings[0].arm();
        if held.output(0).windows(text.len()).any(|part| part == text) {
            return;
        }
        assert!(!held.rings[0].at_end(), "the output has ended");
        client.progress.clear();
        while client.progress.is_empty() {
            client.receive();
        }
    }
}

pub(crate) fn streams_are_kept_apart_on_request() {
    let (_supervisor, mut client) = start();
    let split = Spawn { split_output: true, ..shell("term_1", "echo out; echo err >&2; echo more") };
    let held = client.spawn(split).unwrap();
    client.exit("term_1");
    assert_eq!((held.output(0), held.output(1)), (b"out\nmore\n".to_vec(), b"err\n".to_vec()));
}

pub(crate) fn a_flood_leaves_its_newest_bytes() {
    let (_supervisor, mut client) = start();
    let last = many(30_000_000);
    let held = client.spawn(command("term_1", &["seq", "1", &last.to_string()])).unwrap();
    client.exit("term_1");
    let output = held.output(0);
    assert!(output.len() >= 1 << 20);
    let mut expected = Vec::new();
    let mut number = last;
    while expected.len() < output.len() {
        expected.extend(format!("{number}\n").bytes().rev());
        number -= 1;
    }
    expected.truncate(output.len());
    expected.reverse();
    assert!(output == expected);
    let total: u64 = (1..=last as u64).map(|number| u64::from(number.ilog10()) + 2).sum();
    assert_eq!(held.rings[0].head(), total);
}

pub(crate) fn a_held_flood_loses_nothing() {
    let (_supervisor, mut client) = start();
    let total = many(10 << 30) as u64 / 10;
    let line = format!("yes 0123456789abcde | head -c {total}");
    let held = client.spawn(Spawn { block_when_full: true, ..shell("term_1", &line) }).unwrap();
    let ring = &held.rings[0];
    let (mut at, mut buffer) = (0, vec![0; 256 << 10]);
    loop {
        ring.arm();
        let ended = ring.at_end();
        let copied = ring.read_at(at, &mut buffer).unwrap();
        assert_eq!(copied.offset, at, "bytes were lost");
        let pattern = b"0123456789abcde\n";
        let right =
            buffer[..copied.length].iter().zip(at..).all(|(byte, at)| *byte == pattern[at as usize % 16]);
        assert!(right, "bytes were changed near {at}");
        at += copied.length as u64;
        ring.set_hold(at);
        if ring.take_stalled() {
            client.resume("term_1");
        }
        if copied.length == 0 {
            if ended {
                break;
            }
            client.progress.clear();
            while client.progress.is_empty() && !ring.at_end() {
                client.receive();
            }
        }
    }
    assert_eq!(at, total);
    assert_eq!(client.exit("term_1").end, Some(End::Code(0)));
}

pub(crate) fn a_held_command_can_be_killed() {
    let (supervisor, mut client) = start();
    client.spawn(Spawn { block_when_full: true, ..command("term_1", &["yes"]) }).unwrap();
    let ended =
        client.spawn(Spawn { block_when_full: true, ..shell("term_2", "yes | head -c 1200000") }).unwrap();
    while ended.rings[0].head() < ended.rings[0].capacity() {
        std::thread::yield_now();
    }
    client.stop("term_1", 0);
    assert_eq!(client.exit("term_1").stopped(), StopCause::Killed);
    // This one ended by itself; only what is left in its pipe is waited for, and a stop ends that.
    client.stop("term_2", 0);
    client.exit("term_2");
    assert_eq!(supervisor.leaves(), 0);
}

pub(crate) fn a_flood_starves_nobody() {
    let (_supervisor, mut client) = start();
    for number in 0..4 {
        client.spawn(command(&format!("term_yes_{number}"), &["yes"])).unwrap();
    }
    // Each within the time_limit of every wait here.
    for number in 0..20 {
        client.run(command(&format!("term_{number}"), &["/bin/true"]));
    }
    for number in 0..4 {
        client.stop(&format!("term_yes_{number}"), 0);
        client.exit(&format!("term_yes_{number}"));
    }
}

fn write(client: &mut Client, id: &str, data: &[u8], eof: bool) -> (u64, i32) {
    let request = WriteStdin { terminal_id: id.into(), data: data.to_vec().into(), eof, offset: None };
    match client.ask(Request::WriteStdin(request)) {
        Message::StdinWritten(StdinWritten { written, errno }) => (written, errno),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn input_is_fed_and_never_waited_for() {
    let (_supervisor, mut client) = start();
    let open = |spawn: Spawn| Spawn { open_stdin: true, ..spawn };
    let held = client.spawn(open(command("term_1", &["cat"]))).unwrap();
    assert_eq!(write(&mut client, "term_1", b"one ", false), (4, 0));
    let big = vec![b'x'; 1_000_000];
    assert_eq!(write(&mut client, "term_1", &big, true), (1_000_000, 0));
    assert_eq!(write(&mut client, "term_1", b"late", false), (0, libc::EBADF));
    assert_eq!(client.exit("term_1").end, Some(End::Code(0)));
    assert!(held.output(0) == [b"one ".as_slice(), &big].concat());

    // One that does not read: what fits is taken, the next write waits, and one more is refused.
    client.spawn(open(command("term_2", &["sleep", "1000"]))).unwrap();
    assert_eq!(write(&mut client, "term_2", &big[..100_000], false), (100_000, 0));
    let request =
        WriteStdin { terminal_id: "term_2".into(), data: big.clone().into(), eof: false, offset: None };
    let waiting = client.send(Request::WriteStdin(request));
    assert_eq!(write(&mut client, "term_2", b"x", false), (0, libc::EAGAIN));
    client.stop("term_2", 0);
    loop {
        let (sequence, message, _) = client.receive();
        if sequence == waiting {
            let Message::StdinWritten(answer) = message else { panic!("{message:?}") };
            assert_eq!(answer.errno, libc::EPIPE);
            assert!(answer.written < 200_000, "{answer:?}");
            break;
        }
    }

    client.spawn(shell("term_3", "cat; sleep 1000")).unwrap();
    assert_eq!(write(&mut client, "term_3", b"x", false), (0, libc::EBADF));
    let closing = client.spawn(open(shell("term_4", "exec <&-; echo closed; sleep 1000"))).unwrap();
    wait_for(&mut client, &closing, b"closed");
    assert_eq!(write(&mut client, "term_4", b"x", false), (0, libc::EPIPE));
    assert_eq!(write(&mut client, "term_none", b"x", false), (0, libc::ENOENT));
    client.shut_down();
}

pub(crate) fn a_command_may_close_its_output_and_run_on() {
    let (_supervisor, mut client) = start();
    let held = client.spawn(shell("term_1", "echo x; exec >&- 2>&-; sleep 0.3; exit 4")).unwrap();
    while !held.rings[0].at_end() {
        std::thread::yield_now();
    }
    assert!(client.exits.is_empty());
    let exit = client.exit("term_1");
    assert_eq!(exit.end, Some(End::Code(4)));
    assert!(exit.wall_us >= 300_000);
    assert_eq!(held.output(0), b"x\n");
}

pub(crate) fn short_outputs_are_never_lost() {
    let (_supervisor, mut client) = start();
    for number in 0..many(10_000) {
        let (exit, output) = client.run(shell(&format!("term_{number}"), "echo x; exit 1"));
        assert_eq!((exit.end, output), (Some(End::Code(1)), b"x\n".to_vec()));
    }
}

pub(crate) fn idle_terminals_are_small() {
    let (supervisor, mut client) = start();
    client.run(command("term_first", &["/bin/true"]));
    let before = supervisor.resident_kb();
    for number in 0..200 {
        client.spawn(command(&format!("term_{number}"), &["sleep", "1000"])).unwrap();
    }
    let each = (supervisor.resident_kb() - before) as f64 / 200.0;
    println!("  {each:.1} KiB for each idle terminal, {} descriptors for 200", supervisor.descriptors());
    assert!(each < 64.0);
    client.shut_down();
}
